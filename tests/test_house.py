"""The house keeps its rules: imports run one way, and nothing in rope_lab knows a task or a scheme by name."""

import ast
import subprocess
import sys

import pytest
from conftest import SCHEMES, TASKS

from rope_lab.config import ROOT

# What each room may import of the house, and which heavy libraries it may know.
TASK_MODULES = {f"tasks.{name}" for name in TASKS}
MAY_IMPORT = {
    "tasks": {"rope_lab"},
    "tasks.base": set(),
    **{name: {"tasks.base"} for name in TASK_MODULES},
    "rope_lab": {"rope_lab.command"},
    "rope_lab.command": set(),
    "rope_lab.stop": {"rope_lab.command"},
    "rope_lab.positions": set(),
    "rope_lab.attention": set(),
    "rope_lab.model": {"rope_lab.attention", "rope_lab.positions"},
    "rope_lab.files": set(),
    "rope_lab.later": set(),
    "rope_lab.config": {"rope_lab.files", "rope_lab.later", "rope_lab.positions", "tasks.base"},
    "rope_lab.data": {"tasks.base"},
    "rope_lab.evaluate": {"rope_lab.data", "rope_lab.model", "tasks.base"},
    "rope_lab.checkpoint": {"rope_lab.files", "rope_lab.limits"},
    "rope_lab.record": {"rope_lab.checkpoint", "rope_lab.config", "rope_lab.files"},
    "rope_lab.sweep": {"rope_lab.files", "rope_lab.stop"},
    "rope_lab.results": set(),
    "rope_lab.results.stats": set(),
    "rope_lab.results.runs": {"rope_lab.files"},
    "rope_lab.results.store": {"rope_lab.files"},
    "rope_lab.results.kept": {"rope_lab.files"} | {f"rope_lab.results.{name}" for name in ("runs", "store")},
    "rope_lab.results.rows": {"rope_lab.files"} | {f"rope_lab.results.{name}" for name in ("runs", "store", "kept")},
    "rope_lab.results.groups": {"rope_lab.files", "rope_lab.later", "rope_lab.results.runs", "rope_lab.results.stats"},
}
GROUPS = {"rope_lab.files"} | {f"rope_lab.results.{name}" for name in ("runs", "stats", "groups")}
MAY_IMPORT["rope_lab.results.tables"] = MAY_IMPORT["rope_lab.results.figures"] = GROUPS
MAY_IMPORT["rope_lab.results.__main__"] = GROUPS | {
    f"rope_lab.results.{name}" for name in ("rows", "kept", "tables", "figures", "plan")
}
MAY_IMPORT["rope_lab.results.plan"] = GROUPS | {"rope_lab.results.kept", "rope_lab.results.tables"}
MAY_IMPORT["rope_lab.limits"] = {"tasks.base"} | {
    f"rope_lab.{name}" for name in ("config", "files", "model", "positions")
}
MAY_IMPORT["rope_lab.lab"] = {"tasks.base", "rope_lab.limits"} | {
    f"rope_lab.{name}" for name in ("checkpoint", "config", "data", "evaluate", "files", "model", "positions", "record")
}
MAY_IMPORT["rope_lab.screen"] = {"rope_lab.evaluate", "rope_lab.files", "rope_lab.record"}
MAY_IMPORT["rope_lab.train"] = MAY_IMPORT["rope_lab.lab"] | {
    f"rope_lab.{name}" for name in ("lab", "screen", "stop", "sweep")
}
MAY_IMPORT["rope_lab.sample"] = MAY_IMPORT["rope_lab.train"]
MAY_IMPORT["rope_lab.probe"] = MAY_IMPORT["rope_lab.train"] | {
    f"rope_lab.results.{name}" for name in ("figures", "rows", "tables")
}
LIBRARIES = {"torch", "safetensors", "hydra", "omegaconf", "wandb", "numpy", "tqdm", "filelock", "matplotlib", "scipy"}
MAY_USE = {
    "tasks": {"numpy"},
    "rope_lab.positions": {"torch"},
    "rope_lab.attention": {"torch"},
    "rope_lab.model": {"torch"},
    "rope_lab.config": {"hydra", "omegaconf"},
    "rope_lab.data": {"numpy", "torch"},
    "rope_lab.evaluate": {"numpy", "torch"},
    "rope_lab.checkpoint": {"torch"},
    "rope_lab.record": {"filelock", "wandb"},
    "rope_lab.sweep": {"hydra", "omegaconf"},
    "rope_lab.results.stats": {"numpy", "scipy"},
    "rope_lab.results.store": {"filelock"},
    "rope_lab.results.groups": {"numpy", "omegaconf"},
    "rope_lab.results.plan": {"numpy", "omegaconf"},
    "rope_lab.results.figures": {"numpy", "matplotlib"},
    "rope_lab.lab": {"torch", "safetensors"},
    "rope_lab.limits": {"torch"},
    "rope_lab.screen": {"tqdm"},
    "rope_lab.probe": {"torch", "matplotlib", "tqdm"},
    "rope_lab.train": {"torch", "hydra", "omegaconf", "tqdm"},
}


def modules() -> dict[str, ast.Module]:
    paths = [*(ROOT / "rope_lab").rglob("*.py"), *(ROOT / "tasks").glob("*.py")]
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): ast.parse(path.read_text())
        for path in paths
    }


def imported(tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = node.module in ("rope_lab", "rope_lab.results", "tasks")
            names |= {f"{node.module}.{alias.name}" for alias in node.names} if package else {node.module}
    return names


@pytest.mark.parametrize("module", sorted(modules()))
def test_imports_run_one_way(module):
    assert module in MAY_IMPORT, f"{module} is a new room: say here what it may import"
    names = imported(modules()[module])
    assert {n for n in names if n.split(".")[0] in ("rope_lab", "tasks")} <= MAY_IMPORT[module]
    libraries = {n.split(".")[0] for n in names} & LIBRARIES
    assert libraries <= MAY_USE.get(module, MAY_USE["tasks"] if module.startswith("tasks") else set())


@pytest.mark.parametrize("module", sorted(m for m in modules() if m.startswith("rope_lab.")))
def test_rope_lab_names_no_task_and_no_scheme(module):
    """Outside of docstrings, and but for the schemes' own file."""
    tree = modules()[module]
    docstrings = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None
    }
    strings = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings
    }
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not (strings | names) & set(TASKS)
    if module != "rope_lab.positions":
        assert not (strings | names) & (set(SCHEMES) - {"none"} | {"Rotary", "Sinusoidal", "Learned"})


def test_results_and_tasks_load_no_torch():
    code = "import sys, rope_lab.results.__main__, tasks.base; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_every_setting_of_a_task_or_scheme_stands_in_its_yaml():
    """So that it can be overridden without a +, and is seen without reading code."""
    import inspect

    import yaml

    from rope_lab import config

    for group, names in (("task", TASKS), ("position", SCHEMES)):
        for name in names:
            node = yaml.safe_load((config.CONF / group / f"{name}.yaml").read_text())
            module, _, cls = node["_target_"].rpartition(".")
            parameters = inspect.signature(getattr(__import__(module, fromlist=[cls]), cls)).parameters
            assert set(node) - {"_target_", "_partial_"} == set(parameters) - {"dims"}
