"""A whole comparison as one command that can be stopped and said again."""

import importlib.util
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from conftest import TINY

from rope_lab import config
from rope_lab.results.folders import read
from rope_lab.results.kept import keep

spec = importlib.util.spec_from_file_location("table", config.ROOT / "scripts" / "table.py")
table = importlib.util.module_from_spec(spec)
sys.modules["table"] = table  # dataclasses look their module up
spec.loader.exec_module(table)

CELLS = [table.Cell("substring_by_index", scheme, 0, "quick") for scheme in ("rope", "roper")]


@pytest.fixture
def extra(tmp_path):
    return [*TINY, f"out={tmp_path / 'runs'}"]


def test_each_cell_is_run_once_and_not_again(extra, tmp_path):
    table.run_all(CELLS, extra, jobs=2, minutes=5)
    contents = [table.content_of(cell, extra) for cell in CELLS]
    assert [c["status"] for c in contents] == ["finished", "finished"]
    written = [path.stat().st_mtime_ns for path in sorted((tmp_path / "runs").glob("*/run.json"))]
    table.run_all(CELLS, extra, jobs=2, minutes=5)
    assert [path.stat().st_mtime_ns for path in sorted((tmp_path / "runs").glob("*/run.json"))] == written


def test_when_the_time_is_up_runs_save_themselves(extra, tmp_path, monkeypatch):
    """It is up once the first run has been evaluated, however long that takes."""
    long = [*extra, "train.steps=100000", "eval.every=50"]

    def seconds_gone() -> float:
        return 600.0 if any((tmp_path / "runs").glob("*/checkpoint-*")) else 0.0

    monkeypatch.setattr(table, "time", SimpleNamespace(monotonic=seconds_gone, sleep=time.sleep))
    table.run_all(CELLS, long, jobs=1, minutes=5)
    first, second = (table.content_of(cell, long) for cell in CELLS)
    assert first["status"] == "interrupted"
    assert first["progress"]["steps"] > 0
    assert second is None


def test_what_is_missing_is_said(extra):
    command = [sys.executable, str(config.ROOT / "scripts" / "table.py"), "linear", "--list", *extra]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout.count("missing: ") == 30
    cell = "task=substring_by_prefix position=roper seed=0 scale=quick model.attention=linear"
    assert f"missing: {cell} (not begun)" in done.stdout
    assert "0 of 30 runs have finished\n" in done.stdout
    undone = subprocess.run([*command, "model.attention=softmax"], capture_output=True, text=True)
    assert undone.returncode == 2
    assert "model.attention=softmax: the table says which runs there are" in undone.stderr


def test_what_is_kept_can_be_left_out(extra, tmp_path):
    """Of the runs that have finished; a run under other settings is another run."""
    table.run_all(CELLS[:1], extra, jobs=1, minutes=5)
    found, _ = read(tmp_path / "runs")
    for folder in ("kept", "cut"):
        (tmp_path / folder).mkdir()
    keep(found, tmp_path / "kept")
    for folder in (tmp_path / "kept", tmp_path):
        assert table.unkept(CELLS, extra, folder) == CELLS[1:]
    assert table.unkept(CELLS, [*extra, "train.lr=1e-5"], tmp_path / "kept") == CELLS
    keep([replace(run, status="interrupted") for run in found], tmp_path / "cut")
    assert table.unkept(CELLS, extra, tmp_path / "cut") == CELLS


def test_kept_runs_are_what_they_were_whatever_settings_came_later():
    """Runs of every kind of scheme, made when there were fewer settings, are still found by their identity."""
    tasks, kept = ("substring_by_index", "substring_by_prefix"), ["train.precision=bfloat16", "device=cpu"]
    others = [table.Cell(task, p, 0, "quick") for task in tasks for p in ("randomized_rope", "rope_partial", "p_rope")]
    cells = [cell for cell in (*table.quick(), *table.rotations(), *table.linear()) if cell.seed == 0]
    assert table.unkept([*dict.fromkeys([*cells, *others])], kept, config.ROOT / "results") == []


@pytest.mark.parametrize("name", table.TABLES)
def test_every_cell_of_every_table_can_be_composed_and_is_a_run_of_its_own(name):
    cells = table.TABLES[name]()
    cfgs = [config.load(*cell.overrides()) for cell in cells if cell.seed == cells[0].seed]
    assert len({config.identity(cfg).run_id for cfg in cfgs}) == len(cfgs) > 1
    assert len(set(cells)) == len(cells)


def test_the_tables_have_the_seeds_that_they_promise():
    for make, pair, rest in ((table.quick, 8, 5), (table.paper, 10, 3)):
        cells = make()
        assert len(set(cells)) == len(cells)
        for task in table.TASKS:
            for scheme in (*table.PAIR, *table.REST):
                seeds = [c.seed for c in cells if (c.task, c.position) == (task, scheme)]
                assert seeds == list(range(pair if scheme in table.PAIR else rest))
