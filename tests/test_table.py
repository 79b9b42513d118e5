"""A whole comparison as one command that can be stopped and said again."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import TINY
from trained import command

from rope_lab import config
from rope_lab.results.folders import read
from rope_lab.results.kept import keep
from rope_lab.trainer import resolve

spec = importlib.util.spec_from_file_location("table", config.ROOT / "scripts" / "table.py")
table = importlib.util.module_from_spec(spec)
sys.modules["table"] = table  # dataclasses look their module up
spec.loader.exec_module(table)

CELLS = [table.Cell("substring_by_index", scheme, 0, "quick") for scheme in ("rope", "roper")]


@pytest.fixture
def extra(tmp_path):
    return [*TINY, f"out={tmp_path / 'runs'}"]


@pytest.fixture
def begun(monkeypatch):
    """What a table begins, by scheme: runs in this process that have ended when they begin."""
    begun = []

    def popen(arguments: list[str], **_) -> SimpleNamespace:
        assert arguments[:3] == [sys.executable, "-m", "rope_lab.train"]
        status = command(arguments[3:], Path.cwd()).returncode
        begun.append(next(setting for setting in arguments if setting.startswith("position=")))
        return SimpleNamespace(poll=lambda: status)

    monkeypatch.setattr(table, "subprocess", SimpleNamespace(Popen=popen))
    return begun


def test_each_cell_is_run_once_and_not_again(begun, extra):
    for _ in range(2):
        table.run_all(CELLS, extra, jobs=2, minutes=5)
        assert begun == ["position=rope", "position=roper"]
        assert [table.content_of(cell, extra)["status"] for cell in CELLS] == ["finished", "finished"]


def test_when_the_time_is_up_runs_are_told_to_stop_and_no_other_begins(extra, monkeypatch):
    begun, now = [], iter((0.0, 0.0, 600.0))

    class Running(SimpleNamespace):
        def __init__(self, arguments, **_):
            super().__init__(arguments=arguments, poll=lambda: None, told=[])
            begun.append(self)
            self.terminate, self.wait = lambda: self.told.append("terminate"), lambda: self.told.append("wait")

    monkeypatch.setattr(table, "subprocess", SimpleNamespace(Popen=Running))
    monkeypatch.setattr(table, "time", SimpleNamespace(monotonic=lambda: next(now), sleep=lambda seconds: None))
    table.run_all(CELLS, extra, jobs=1, minutes=5)
    (process,) = begun
    assert "position=rope" in process.arguments
    assert process.told == ["terminate", "wait"]


def test_what_is_missing_is_said(extra, monkeypatch, capsys):
    def ended(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["table.py", *arguments])
        with pytest.raises(SystemExit) as exit:
            table.main()
        return exit.value.code, *capsys.readouterr()

    code, shown, _ = ended("linear", "--list", *extra)
    assert code == 1
    assert shown.count("missing: ") == 30
    cell = "task=substring_by_prefix position=roper seed=0 scale=quick model.attention=linear"
    assert f"missing: {cell} (not begun)" in shown
    assert "0 of 30 runs have finished\n" in shown
    code, _, told = ended("linear", "--list", *extra, "model.attention=softmax")
    assert code == 2
    assert "model.attention=softmax: the table says which runs there are" in told


def test_what_is_kept_can_be_left_out(begun, extra, tmp_path):
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


KEPT = ["train.precision=bfloat16", "device=cpu"]


def test_kept_runs_are_what_they_were_whatever_settings_came_later():
    """Runs of every kind of scheme, made when there were fewer settings, are still found by their identity."""
    tasks = ("substring_by_index", "substring_by_prefix")
    others = [table.Cell(task, p, 0, "quick") for task in tasks for p in ("randomized_rope", "rope_partial", "p_rope")]
    cells = [cell for cell in (*table.quick(), *table.rotations(), *table.linear()) if cell.seed == 0]
    assert table.unkept([*dict.fromkeys([*cells, *others])], KEPT, config.ROOT / "results") == []


def test_each_task_scale_scheme_and_setting_of_the_tables_can_be_composed():
    """Wherever one first occurs in a table; and each cell of a table is a run of its own."""
    seen = set()
    for make in table.TABLES.values():
        cells, composed = make(), []
        assert len(set(cells)) == len(cells) > 1
        for cell in cells:
            parts = {(cell.task, cell.scale, cell.settings), (cell.position, cell.settings)}
            if not parts <= seen:
                composed.append(config.identity(table.settings_of(cell, KEPT)).run_id)
                seen |= parts
        assert len(set(composed)) == len(composed)
    assert len(seen) > 50


def test_the_tables_have_the_seeds_that_they_promise():
    for make, pair, rest in ((table.quick, 8, 5), (table.paper, 10, 3)):
        cells = make()
        for task in table.TASKS:
            for scheme in (*table.PAIR, *table.REST):
                seeds = [c.seed for c in cells if (c.task, c.position) == (task, scheme)]
                assert seeds == list(range(pair if scheme in table.PAIR else rest))


def test_runs_of_a_table_that_differ_in_seed_alone_are_told_apart():
    cells = [table.Cell("substring_by_index", "rope", seed, "quick") for seed in (0, 1)]
    assert [table.settings_of(cell, KEPT) for cell in cells] == [
        resolve(config.load(*cell.overrides(), *KEPT)) for cell in cells
    ]
