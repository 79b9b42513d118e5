"""rope-lab submit and rope-lab board: an entry that is right, and what is refused."""

import shutil
from dataclasses import replace

import pytest
import yaml
from conftest import TINY
from trained import command

from rope_lab import board, score, submit
from rope_lab.results.records.folders import read
from rope_lab.results.records.kept import keep, read_kept
from rope_lab.train import plugin

MINE = "from rope_lab.model.schemes.rotary import Rotary\n\n\nclass Mine(Rotary):\n    pass\n"
LEAK = "    def heads(self, qkv, at):\n        return qkv.flip(1).unbind(2)\n"
SHORT = ["train.steps=2", "train.warmup=1", "eval.problems=2", "eval.sequences=1"]
TASK = "substring_by_prefix"
CHECKS = board._of_checks


def use(patch, folder, protocol) -> None:
    """Put results/ and the protocol of score and board elsewhere."""
    for module in (score, board, submit):
        patch.setattr(module, "RESULTS", folder / "results")
    for module in (score, board):
        patch.setattr(module, "PROTOCOL", protocol)
    for module in (board, submit):
        patch.setattr(module, "BOARD", folder / "results" / "board")
    plugin.forget_files()


@pytest.fixture(scope="module")
def submitted(tmp_path_factory):
    """A folder in which mine.py is scored on one task, and submitted."""
    folder = tmp_path_factory.mktemp("submitted")
    protocol = score.PROTOCOL | {
        "tasks": {TASK: "quick"},
        "seeds": 3,
        "settings": {TASK: [*TINY, *SHORT]},
    }
    (folder / "results").mkdir()
    (folder / "mine.py").write_text(MINE)
    with pytest.MonkeyPatch.context() as patch:
        use(patch, folder, protocol)
        patch.setattr(board, "planned", unfixed)
        for scheme in ("rope", "./mine.py"):
            done = command([scheme, "hydra/launcher=basic"], folder, score.main)
            assert done.returncode == 0, done.stderr
        keep(read(folder / "results" / "score" / "rope" / "runs")[0], folder / "results")
        said = command(["./mine.py", "--by", "us"], folder, submit.main)
        assert said.returncode == 0, said.stderr
    return folder, protocol


def unfixed(folder, about) -> dict:
    """The runs of the protocol, without the text of the real one."""
    plugin.forget_files()
    scheme = str(folder / about["scheme"])
    return {TASK: score.jobs_of(scheme, TASK, [], folder / "runs")}


@pytest.fixture
def entry(submitted, tmp_path, monkeypatch):
    """A copy of the entry, to be spoilt; its scheme is not checked again."""
    folder = shutil.copytree(submitted[0], tmp_path / "copy")
    use(monkeypatch, folder, submitted[1])
    monkeypatch.setattr(board, "planned", unfixed)
    monkeypatch.setattr(board, "_of_checks", lambda about, every: [])
    yield folder / "results" / "board" / "mine"
    plugin.forget_files()


def rewrite(entry, change) -> None:
    """Keep changed rows again, sealed as if they were right."""
    runs, _ = read_kept(entry)
    (entry / "runs.jsonl").unlink()
    keep(change(runs), entry)


def test_an_entry_stands_on_the_board(entry):
    assert board.problems(entry) == []
    (entry / "objection-1.md").write_text("RoPE does as well at twice the rate.\n")
    board.write()
    page = (entry.parents[1] / "board.md").read_text()
    (line,) = [
        line for line in page.splitlines() if line.startswith("- [mine](board/mine/mine.py)")
    ]
    assert ", us, " in line
    assert "[objection-1](board/mine/objection-1.md)" in line


def test_an_edited_row_is_refused(entry):
    path = entry / "runs.jsonl"
    path.write_text(path.read_text().replace('"eval/loss":', '"eval/loss":0.5', 1))
    assert any("left out" in line for line in board.problems(entry))


def test_an_edited_file_is_refused(entry):
    (entry / "mine.py").write_text(MINE.replace("pass", "x = 1"))
    assert any("with other code than mine.py" in line for line in board.problems(entry))


def test_rows_of_other_settings_are_refused(entry):
    def change(runs):
        for run in runs[:1]:
            run.settings["train.steps"] = 200
        return runs

    rewrite(entry, change)
    assert any("other settings" in line for line in board.problems(entry))


def test_an_unfinished_run_is_refused(entry):
    rewrite(entry, lambda runs: [replace(runs[0], status="interrupted"), *runs[1:]])
    assert any("is interrupted at step" in line for line in board.problems(entry))


def test_a_missing_seed_is_refused(entry):
    rewrite(entry, lambda runs: runs[1:])
    assert any("1 of 9 runs are missing" in line for line in board.problems(entry))


def test_a_seed_that_was_run_twice_is_refused(entry):
    rewrite(entry, lambda runs: [*runs, replace(runs[0], run_id="ffffffffffff")])
    assert any("2 rows of one run" in line for line in board.problems(entry))


def test_a_scheme_that_sees_later_tokens_is_refused(entry, monkeypatch):
    monkeypatch.setattr(board, "_of_checks", CHECKS)
    (entry / "mine.py").write_text(MINE.replace("    pass\n", LEAK))
    assert any("fails the check" in line for line in board.problems(entry))


def test_an_entry_by_another_rule_is_refused(entry):
    about = yaml.safe_load((entry / "entry.yaml").read_text())
    (entry / "entry.yaml").write_text(yaml.safe_dump(about | {"rule": "rule 0"}))
    assert any("rule 0" in line for line in board.problems(entry))


@pytest.mark.slow
def test_the_protocol_is_nine_tasks_three_rates_three_seeds(tmp_path):
    plugin.forget_files()
    (tmp_path / "other.py").write_text(MINE)
    every = board.planned(tmp_path, {"scheme": "other.py"})
    plugin.forget_files()
    assert len(every) == 9
    jobs = [job for of_task in every.values() for job in of_task]
    assert len({(job.cfg.names.task, job.cfg.train.lr, job.cfg.seed) for job in jobs}) == 81
    corpora = {job.identity.settings["task.corpus"] for job in every["text"]}
    assert corpora == {score.PROTOCOL["corpus"]}


def test_a_run_of_an_entry_repeats(entry):
    assert board.repeat(entry) == ""


def test_a_row_that_does_not_repeat_is_named(entry):
    def change(runs):
        for run in runs:
            run.metrics["eval/loss"] /= 2
        return runs

    rewrite(entry, change)
    assert "eval/loss" in board.repeat(entry)


def test_an_entry_is_not_overwritten(entry):
    said = command(["./mine.py"], entry.parents[2], submit.main)
    assert said.returncode != 0
    assert "there is an entry already" in str(said.returncode)


@pytest.mark.claims
def test_entries_of_the_board_are_right_and_the_newest_repeats():
    entries = [path.parent for path in board.BOARD.glob(f"*/{board.ENTRY}")]
    assert [line for folder in entries for line in board.problems(folder)] == []
    dates = {board.entry(folder)["date"]: folder for folder in entries}
    if dates:
        assert board.repeat(dates[max(dates)]) == ""
