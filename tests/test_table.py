"""A whole comparison as one command that can be stopped and said again."""

import importlib.util
import json
import shutil
from dataclasses import replace

import pytest
from conftest import CONF, SCHEMES, TINY
from trained import command

from rope_lab.launch import cells
from rope_lab.launch.cells import Cell
from rope_lab.results import studies
from rope_lab.results.__main__ import main as results
from rope_lab.results.folders import read
from rope_lab.results.kept import keep
from rope_lab.results.plan import main as plan
from rope_lab.train import config
from rope_lab.train.trainer import resolve

spec = importlib.util.spec_from_file_location("table", config.ROOT / "scripts" / "table.py")
table = importlib.util.module_from_spec(spec)
spec.loader.exec_module(table)

MINE = "{about: mine, blocks: [{task: substring_by_index, scale: quick, seeds: {rope: 0, roper: 0}}]}"
CELLS = [Cell("substring_by_index", scheme, 0, "quick") for scheme in ("rope", "roper")]
TASKS = ["substring_by_index", "substring_by_prefix", "arithmetic_addition"]
PAIR, REST = ["rope", "roper"], ["roper_double_rotation", "none", "sinusoidal", "learned"]


def cells_of(name: str) -> list[Cell]:
    return table.cells_of(name, [CONF])


PLAN = """
studies:
  base:
    hypothesis: RoPE at base 100 ends with a lower loss than RoPER.
    rows: kept
    task: substring_by_index
    scale: quick
    settings: {train.lr: 1e-3}
    seeds: {rope position.base=100: 0-1, roper: 0-1}
    higher_is_better: false
    diverged: 4
    primary: [{name: loss, schemes: [rope position.base=100, roper], test: t, metric: eval/loss}]
"""


@pytest.fixture
def run(tmp_path):
    """Runs scripts/table.py in this process."""
    (tmp_path / "mine.yaml").write_text(MINE)
    return lambda *arguments: command([arguments[0], *TINY, "out=runs", *arguments[1:]], tmp_path, table.main)


@pytest.fixture
def extra(tmp_path):
    return [*TINY, f"out={tmp_path / 'runs'}"]


def test_each_cell_is_run_once_and_not_again(run, extra):
    first, again = run("mine.yaml", "hydra/launcher=basic"), run("mine.yaml", "hydra/launcher=basic")
    assert (first.returncode, again.returncode, first.stderr + again.stderr) == (0, 0, "")
    assert first.stdout.count("finished after 6 steps") == 2
    assert first.stdout.index("run 1 of 2 · rope") < first.stdout.index("run 2 of 2")
    assert again.stdout == "2 of 2 runs have finished\n"
    assert [table.content_of(cell, extra)["status"] for cell in CELLS] == ["finished", "finished"]


def test_a_finished_run_that_was_damaged_is_missing_and_made_whole(run, tmp_path):
    run("mine.yaml", "hydra/launcher=basic")
    curve = next((tmp_path / "runs").glob("*rope-*")) / "metrics.jsonl"
    whole = curve.read_bytes()
    curve.write_bytes(whole[:100])
    listed = run("mine.yaml", "--list")
    assert listed.stdout.count("missing: ") == listed.stdout.count("(damaged at step 6)") == 1
    assert "2 of 2 runs have finished" in run("mine.yaml", "hydra/launcher=basic").stdout
    assert curve.read_bytes() == whole


def test_a_plan_of_the_users_own_is_run_kept_and_tested(run, tmp_path, capsys):
    (tmp_path / "plan.yaml").write_text(PLAN)
    done = run("plan.yaml", "hydra/launcher=basic")
    assert (done.returncode, done.stderr) == (0, "")
    assert "4 of 4 runs have finished" in done.stdout
    results([str(tmp_path / "runs"), "--keep", "--into", str(tmp_path / "kept")])
    plan([str(tmp_path / "plan.yaml")])
    assert "All 4 runs have ended, 0 of them diverged." in (tmp_path / "plan.md").read_text()


def test_settings_for_all_runs_may_be_those_of_their_task_alone(run, tmp_path):
    (tmp_path / "page.txt").write_text("to be, or not to be, that is the question: " * 200)
    cells = "{about: mine, blocks: [{task: text, scale: quick, seeds: {rope: 0, roper: 0}}]}"
    (tmp_path / "texts.yaml").write_text(cells)
    done = run("texts.yaml", f"task.path={tmp_path / 'page.txt'}", "task.tokens=characters", "hydra/launcher=basic")
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 of 2 runs have finished" in done.stdout


def test_when_the_time_is_up_a_run_saves_itself_and_no_other_begins(run, tmp_path):
    endless = ["train.steps=1000000", "eval.every=500000", "--jobs", "1"]
    done = run("mine.yaml", *endless, "--minutes", "0.05")
    assert (done.returncode, done.stderr) == (1, "")
    assert "missing: task=substring_by_index position=roper seed=0 scale=quick (not begun)" in done.stdout
    (folder,) = (tmp_path / "runs").iterdir()
    content = json.loads((folder / "run.json").read_text())
    assert content["status"] == "interrupted"
    assert content["checkpoint"] == content["progress"]["steps"] > 0
    assert run("mine.yaml", *endless, "--minutes", "0").returncode == 1
    assert json.loads((folder / "run.json").read_text()) == content


def test_what_is_missing_is_said(run):
    done = run("linear", "--list")
    assert done.returncode == 1
    assert done.stdout.count("missing: ") == 30
    cell = "task=substring_by_prefix position=roper seed=0 scale=quick model.attention=linear"
    assert f"missing: {cell} (not begun)" in done.stdout
    assert "0 of 30 runs have finished\n" in done.stdout


BAD = {
    "{about: a, blocks: [{task: text, scale: quick, seeds: {rope: x}}]}": "seeds.rope: must be seeds",
    "{about: a, blocks: [{task: text, scale: quick, seeds: {rope: 31-8}}]}": "seeds.rope: must be seeds from the lower",
    "{about: a, blocks: [{task: text, scale: quick, seeds: {rope: 0}, more: 1}]}": "more: Unexpected keyword",
    "{about: a, blocks: [{task: text, scale: quick, seeds: {rope: 0, rope : 1}}]}": "is no table",
    "{about: a, blocks: [{task: [text, text], scale: quick, seeds: {rope: 0}}]}": "stands in it twice",
    "{about: a, blocks: [{task: text, scale: quick, seeds: {'': 0}}]}": "names no scheme",
    "{about: a, blocks: [{task: substring_by_index, scale: quick, seeds: {rpoe: 0}}]}": "position=rpoe: there is no",
    "{about: a, blocks: [{task: substring_by_index, scale: quick, seeds: {rope train.lr: 0}}]}": "train.lr",
    "[1]": "is no table",
    "{about: a": "is no table",
}


@pytest.mark.parametrize("content", BAD)
def test_a_table_that_is_wrong_is_one_line(run, tmp_path, content):
    (tmp_path / "bad.yaml").write_text(content)
    done = run("bad.yaml", "hydra/launcher=basic")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert BAD[content] in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["qiuck"], "did you mean quick?"),
        (["nowhere.yaml"], "cannot be read (No such file or directory)"),
        (["mine.yaml", "fresh=true"], "out=FOLDER runs all of it anew"),
        (["linear", "model.attention=softmax"], "model.attention=softmax: the table says which runs there are"),
        (["mine.yaml", "train.stepz=3"], "train.steps"),
        (["mine.yaml", "hydra/launcher=slurm"], "Could not find 'hydra/launcher/slurm'; look at hydra/launcher=slurm"),
        (["mine.yaml", "hydra/launcher=joblib", "hydra.launcher.n_jbos=3"], "hydra.launcher.n_jbos"),
    ],
)
def test_arguments_that_are_wrong_are_one_line(run, arguments, remedy):
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert remedy in done.stderr


def test_a_table_and_a_scheme_of_ones_own(run, tmp_path):
    for group in ("position", "table"):
        (tmp_path / "own" / group).mkdir(parents=True)
    shutil.copy(CONF / "position" / "alibi.yaml", tmp_path / "own" / "position" / "mine.yaml")
    (tmp_path / "own" / "table" / "few.yaml").write_text(MINE.replace("roper", "mine"))
    done = run("few", "--config-dir", "own", "hydra/launcher=basic")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.name.split("-")[1] for path in (tmp_path / "runs").iterdir()) == ["mine", "rope"]


def test_a_table_names_a_scheme_by_its_file(run, tmp_path):
    (tmp_path / "of_a_table.py").write_text(  # a name that no other test imports
        "from rope_lab.model.hooks import PositionScheme\n\n\nclass Mine(PositionScheme): ...\n"
    )
    (tmp_path / "two.yaml").write_text(MINE.replace("roper", "of_a_table.py"))
    done = run("two.yaml", "hydra/launcher=basic")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.name.split("-")[1] for path in (tmp_path / "runs").iterdir()) == ["of_a_table", "rope"]


def test_what_is_kept_can_be_left_out(run, extra, tmp_path):
    """Of the runs that have finished; a run under other settings is another run."""
    (tmp_path / "one.yaml").write_text(MINE.replace(", roper: 0", ""))
    run("one.yaml", "hydra/launcher=basic")
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
    others = [Cell(task, p, 0, "quick") for task in tasks for p in ("randomized_rope", "rope_partial", "p_rope")]
    tables = [cell for name in ("quick", "rotations", "linear") for cell in cells_of(name) if cell.seed == 0]
    assert table.unkept([*dict.fromkeys([*tables, *others])], KEPT, config.ROOT / "results") == []


def test_each_task_scale_scheme_and_setting_of_the_tables_can_be_composed():
    """Wherever one first occurs in a table; and each cell of a table is a run of its own."""
    seen = set()
    for name in [*cells.paths([CONF]), *(study.name for study in studies.load())]:
        runs, composed = cells_of(name), []
        assert len(set(runs)) == len(runs) > 1
        for cell in runs:
            parts = {(cell.task, cell.scale), cell.position, *cell.settings}
            if not parts <= seen:
                composed.append(config.identity(table.settings_of(cell, KEPT)).run_id)
                seen |= parts
        assert len(set(composed)) == len(composed)
    assert len(seen) > 50


def test_the_tables_have_the_seeds_that_they_promise():
    for name, pair, rest in (("quick", 8, 5), ("paper", 10, 3)):
        runs = cells_of(name)
        for task in TASKS:
            for scheme in (*PAIR, *REST):
                seeds = [c.seed for c in runs if (c.task, c.position) == (task, scheme)]
                assert seeds == list(range(pair if scheme in PAIR else rest))


def test_a_star_is_every_scheme_that_is_not_named():
    assert [cell.position for cell in cells_of("schemes")[: len(SCHEMES)]] == SCHEMES
    runs = cells_of("indirect")
    assert len(runs) == 8 * 5 + 3 * (len(SCHEMES) - 5)
    assert {cell.position for cell in runs} == set(SCHEMES)


def test_runs_of_a_table_that_differ_in_seed_alone_are_told_apart():
    runs = [Cell("substring_by_index", "rope", seed, "quick") for seed in (0, 1)]
    assert [table.settings_of(cell, KEPT) for cell in runs] == [
        resolve(config.load(*cell.overrides(), *KEPT)) for cell in runs
    ]


def test_runs_go_side_by_side_unless_another_launcher_is_named():
    assert table.launcher_words(["seed=0"], 1) == []
    assert {"hydra/launcher=joblib", "hydra.launcher.n_jobs=3"} < set(table.launcher_words([], 3))
    other = ["hydra/launcher=submitit_slurm", "hydra.launcher.cpus_per_task=2"]
    assert table.launcher_words(["device=cpu", *other], 3) == other


def test_a_table_is_composed_before_its_first_run_begins(run, tmp_path):
    (tmp_path / "mine.yaml").write_text(MINE.replace("roper: 0", "roper position.base=x: 0"))
    assert run("mine.yaml", "hydra/launcher=basic").returncode == 2
    assert not (tmp_path / "runs").exists()
