"""The house keeps its rules: imports run one way, and nothing in rope_lab knows a task or a scheme by name."""

import ast
import functools
import subprocess
import sys

import pytest
from conftest import ROOT, SCHEMES, TASKS

# Each line may import what stands above it, and nothing beside or below it.
LAYERS = [
    {"rope_lab.command", "rope_lab.places"},
    {"rope_lab", "rope_lab.text", "rope_lab.files", "rope_lab.device"},
    {"rope_lab.__main__"},
    {"rope_lab.compat", "rope_lab.signals", "rope_lab.cells", "rope_lab.lease"},
    {"tasks.base", "tasks.coders"},
    {"tasks.corpus"},
    {"tasks", *(f"tasks.{name}" for name in TASKS)},
    {"rope_lab.identity", "rope_lab.hooks", "rope_lab.rotation", "rope_lab.cpu_attention", "rope_lab.cpu_linear"},
    {"rope_lab.positions", "rope_lab.attention", "rope_lab.data", "rope_lab.instantiate"},
    {"rope_lab.model", "rope_lab.overrides", "rope_lab.plugins", "rope_lab.more_positions", "rope_lab.distributed"},
    {"rope_lab.config", "rope_lab.generate"},
    {"rope_lab.evaluate"},
    {"rope_lab.memory", "rope_lab.provenance", "rope_lab.tracking", "rope_lab.help", "rope_lab.clusters"},
    {"rope_lab.trainer", "rope_lab.checkpoint"},
    {"rope_lab.run"},
    {"rope_lab.console"},
    {"rope_lab.sweep"},
    {"rope_lab.launch"},
    {"rope_lab.train", "rope_lab.sample", "rope_lab.check", "rope_lab.check.findings"},
    {"rope_lab.check.blame", "rope_lab.check.tasks"},
    {"rope_lab.check.schemes"},
    {"rope_lab.check.__main__"},
    {"rope_lab.results.stats", "rope_lab.results.metrics", "rope_lab.results.store", "rope_lab.results.probes"},
    {"rope_lab.results.runs"},
    {"rope_lab.results.published", "rope_lab.results.kept", "rope_lab.results.cache"},
    {"rope_lab.results.folders", "rope_lab.results.codes"},
    {"rope_lab.results.frame"},
    {"rope_lab.results", "rope_lab.results.studies", "rope_lab.results.groups"},
    {"rope_lab.results.outcomes", "rope_lab.results.series"},
    {"rope_lab.results.verdicts"},
    {"rope_lab.results.tables", "rope_lab.results.figures", "rope_lab.results.sweeps"},
    {"rope_lab.results.forest", "rope_lab.results.sweep_tables", "rope_lab.results.sweep_figure"},
    {"rope_lab.results.against"},
    {"rope_lab.results.pages", "rope_lab.results.plan", "rope_lab.results.probe_pages"},
    {"rope_lab.results.__main__", "rope_lab.probe", "rope_lab.repeat"},
    {"rope_lab.results.power"},
    {"rope_lab.report", "rope_lab.report.charts", "rope_lab.report.colors"},
    {"rope_lab.report.frames"},
    {"rope_lab.report.page"},
    {"rope_lab.report.__main__"},
]
# The heavy libraries, and who may use them.
USERS = {
    "torch": "device hooks rotation positions more_positions cpu_attention cpu_linear attention model data distributed "
    "generate evaluate memory provenance trainer checkpoint run probe repeat check.schemes check.blame",
    "numpy": "tasks.* data generate evaluate check.tasks results.runs results.stats results.groups results.tables "
    "results.figures results.series results.studies results.outcomes results.sweeps "
    "results.sweep_figure report.frames",
    "scipy": "results.stats",
    "pandas": "results.stats results.frame results.groups results.tables results.figures "
    "results.series results.studies results.outcomes results.sweeps report.frames",
    "matplotlib": "results.figures results.forest results.sweep_figure results.probe_pages",
    "altair": "report.charts",
    "jinja2": "report.page",
    "vl_convert": "report.page",
    "wandb": "tracking",
    "pydantic": "cells config instantiate results.runs results.studies results.published results.probes",
    "hydra": "config instantiate overrides plugins provenance sweep launch train",
    "ray": "clusters",
    "submitit": "clusters",
}


@functools.cache
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
            package = node.module in ("rope_lab", "rope_lab.results", "rope_lab.report", "rope_lab.check", "tasks")
            names |= {f"{node.module}.{alias.name}" for alias in node.names} if package else {node.module}
    return names


@pytest.mark.parametrize("module", sorted(modules()))
def test_imports_run_one_way(module):
    below = [layer for layer in LAYERS if module in layer]
    assert below, f"{module} is new: give it a place in LAYERS"
    allowed = set().union(*LAYERS[: LAYERS.index(below[0])])
    names = imported(modules()[module])
    assert {name for name in names if name.partition(".")[0] in ("rope_lab", "tasks")} <= allowed
    for library in {name.partition(".")[0] for name in names} & set(USERS):
        users = USERS[library].replace("tasks.*", " ".join(m for m in modules() if m.startswith("tasks"))).split()
        assert module.removeprefix("rope_lab.") in users, library


@pytest.mark.parametrize("module", sorted(m for m in modules() if m.startswith("rope_lab.")))
def test_rope_lab_names_no_task_and_no_scheme(module):
    """Outside of docstrings, and but for the schemes' own files."""
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
    assert not (strings | names) & (set(TASKS) - {"text"})  # an ordinary word
    if module not in ("rope_lab.positions", "rope_lab.more_positions"):
        assert not (strings | names) & (set(SCHEMES) - {"none"} | {"Rotary", "Sinusoidal", "Learned"})


def test_results_report_and_tasks_load_no_torch():
    code = "import sys, rope_lab.report.__main__, rope_lab.report.page, tasks.base; sys.exit('torch' in sys.modules)"
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
