"""Import layering, unique class names, and no task or scheme named in rope_lab."""

import ast
import functools
import subprocess
import sys

import pytest
from conftest import ROOT, SCHEMES, TASKS

BASE = {"rope_lab", "places", "text", "shipped", "files", "command", "cores", "identity"}
# Allowed imports of each package, besides itself and BASE.
PACKAGES = {
    "model": set(),
    "tasks": set(),
    "train": {"model", "tasks"},
    "launch": {"train", "tasks"},
    "results": set(),
    "report": {"results"},
    "checking": {"train", "model", "tasks"},
    "exporting": {"train", "model"},
    "showing": {"train", "model", "results", "exporting"},
    "experiments": {"train", "launch", "results", "checking"},
    "comparing": {"train", "launch", "results", "experiments"},
    "laddering": {"train", "launch", "results", "experiments"},
    "continuing": {"train", "launch", "results", "experiments"},
    "scoring": {"train", "launch", "results", "experiments", "showing", "checking"},
}
LAYERS = ("records", "comparisons", "plans", "views")  # of results, each above those before it
# The packages and commands that may import each heavy library.
USERS = {
    "torch": "model train checking probe bench notebook exporting",
    "scipy": "results",
    "pandas": "launch results report notebook power showing",
    "altair": "results report",
    "vl_convert": "results",
    "jinja2": "report",
    "wandb": "train",
    "hydra": "train launch",
    "ray": "launch",
    "submitit": "launch",
}


@functools.cache
def modules() -> dict[str, ast.Module]:
    paths = [*(ROOT / "rope_lab").rglob("*.py"), *(ROOT / "tasks").glob("[!_]*.py")]
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): ast.parse(
            path.read_text()
        )
        for path in paths
    }


def imported(tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:  # tasks import each other so
            package = node.module == "rope_lab" or node.module in {
                f"rope_lab.{name}" for name in PACKAGES
            }
            names |= (
                {f"{node.module}.{alias.name}" for alias in node.names}
                if package
                else {node.module}
            )
    return names


def package(name: str) -> str:
    """`train` for rope_lab.train.loop, `text` for rope_lab.text, `tasks` for tasks.base."""
    parts = name.split(".")
    return parts[0] if parts[0] != "rope_lab" or len(parts) == 1 else parts[1]


@pytest.mark.parametrize("module", sorted(modules()))
def test_imports_run_one_way(module):
    """Commands, outside PACKAGES or called `__main__`, may import all our modules."""
    home, names = package(module), imported(modules()[module])
    ours = {package(name) for name in names if name.partition(".")[0] == "rope_lab"}
    assert "tasks" not in {name.partition(".")[0] for name in names}  # may be of the user's
    if home in BASE:
        assert ours <= BASE
    elif home in PACKAGES and not module.endswith("__main__"):
        assert ours <= PACKAGES[home] | BASE | {home}
    for library in {name.partition(".")[0] for name in names} & set(USERS):
        assert home in USERS[library].split(), library


@pytest.mark.parametrize("module", [m for m in modules() if m.startswith("rope_lab.results.")])
def test_the_layers_of_results_import_one_way(module):
    """rope_lab.results itself, and its command, may import all of them."""
    layer = module.split(".")[2]
    if layer in LAYERS:
        above = LAYERS[LAYERS.index(layer) + 1 :]
        imports = imported(modules()[module])
        assert not [
            name for name in imports if name.split(".")[2:3] and name.split(".")[2] in above
        ]


def test_each_name_is_of_one_class():
    names = [
        node.name
        for tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    assert len(names) == len({*names})


@pytest.mark.parametrize("module", sorted(m for m in modules() if m.startswith("rope_lab.")))
def test_rope_lab_names_no_task_and_no_scheme(module):
    """Except in docstrings; the schemes' own files and the benchmark may name schemes."""
    tree = modules()[module]
    documented = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
    ]
    docstrings = {node.body[0].value for node in documented if ast.get_docstring(node) is not None}
    words = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node not in docstrings
    }
    words |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not words & (set(TASKS) - {"text", "grid", "events"})  # ordinary words
    if not module.startswith(("rope_lab.bench", "rope_lab.model.schemes")):
        ordinary = {"none", "path", "layers"}
        assert not words & (set(SCHEMES) - ordinary | {"Rotary", "Sinusoidal", "Learned"})


@pytest.mark.slow
def test_results_and_report_load_no_torch_and_draw_late():
    """Neither do tasks load torch; drawing is imported only to draw."""
    code = """
import sys, rope_lab.results.__main__, rope_lab.report.__main__
assert not {"altair", "vl_convert"} & {*sys.modules}
import rope_lab.report.page, tasks.base
assert "torch" not in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
