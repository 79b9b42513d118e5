"""Top-level modules: where their files are, what those import, and which versions are installed.
Nothing is imported.
"""

import ast
import functools
import importlib.metadata
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

INSTALLED = {"site-packages", "dist-packages"}  # folders of installed distributions
# Distributions that a run records by themselves: another version does not make another plug-in.
RECORDED = ("torch", "numpy")


def spec_of(name: str) -> ModuleSpec | None:
    return getattr(sys.modules.get(name), "__spec__", None)


def places_of(name: str) -> list[Path]:
    """The file of a top-level module, or the folders of a package; none if it is not found."""
    try:
        spec = spec_of(name) or importlib.util.find_spec(name)
    except (ImportError, ValueError):  # of __main__
        return []
    if spec is None:
        return []
    found = list(spec.submodule_search_locations or [])
    if not found and spec.has_location:
        found = [spec.origin]
    return [Path(each).resolve() for each in found]


def python_files(place: Path) -> list[Path]:
    """The files of a module or of the folder of a package."""
    return [place] if place.is_file() else sorted(place.rglob("*.py"))


def imports_of(source: bytes) -> set[str]:
    """The top-level modules that a file imports, anywhere in it, also by
    `importlib.import_module("name")`.
    """
    names: list[str] = []
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.append(node.module)
        elif isinstance(node, ast.Call) and _is_import(node.func) and node.args:
            names += [str(each.value) for each in node.args[:1] if isinstance(each, ast.Constant)]
    return {name.partition(".")[0] for name in names if not name.startswith(".")}


def _is_import(function: ast.expr) -> bool:
    """Whether an expression is `import_module`, `importlib.import_module` or `__import__`."""
    name = getattr(function, "attr", None) or getattr(function, "id", None)
    return name in ("import_module", "__import__")


def versions_of(name: str) -> list[str]:
    """`name==version` of the distributions that have installed a top-level module."""
    if name in RECORDED:
        return []
    distributions = sorted({*_distributions().get(name, [])})
    return [f"{each}=={importlib.metadata.version(each)}" for each in distributions]


@functools.cache
def _distributions() -> dict[str, list[str]]:
    """The distributions of each top-level module that is installed."""
    return {name: list(each) for name, each in importlib.metadata.packages_distributions().items()}
