"""rope-lab submit and rope-lab board: an entry that is right, and what is refused."""

import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml
from builders import table_rows
from conftest import TINY
from trained import command

from rope_lab.experiments import asked, timing
from rope_lab.files import digest
from rope_lab.results.records.folders import read
from rope_lab.results.records.kept import keep, read_kept
from rope_lab.results.views import render
from rope_lab.scoring import board, refusals, score, submit
from rope_lab.shipped import recipe
from rope_lab.text import ConfigError
from rope_lab.train import plugin

MINE = "from rope_lab.model.schemes.rotary import Rotary\n\n\nclass Mine(Rotary):\n    pass\n"
LEAK = "    def heads(self, qkv, at):\n        return qkv.flip(1).unbind(2)\n"
SHORT = ["train.steps=2", "train.warmup=1", "eval.problems=2", "eval.sequences=1"]
TASK = "substring_by_prefix"
RATE = recipe(TASK, "quick")["train.lr"]
CHECKS = refusals.of_checks
COMPARED = "mine-rope-quick"  # the folder of a comparison


def use(patch, folder, protocol) -> None:
    """Put results/ and the protocol of score and board elsewhere."""
    for module in (score, board, submit):
        patch.setattr(module, "RESULTS", folder / "results")
    for module in (score, board, refusals):
        patch.setattr(module, "PROTOCOL", protocol)
    for module in (board, submit):
        patch.setattr(module, "BOARD", folder / "results" / "board")
    for module in (board, refusals, submit):
        patch.setattr(module, "planned", unfixed)
    plugin.forget_files()


@pytest.fixture(scope="module")
def submitted(tmp_path_factory):
    """A folder in which mine.py is scored on one task, and submitted."""
    folder = tmp_path_factory.mktemp("submitted")
    protocol = score.PROTOCOL | {
        "tasks": {TASK: "quick"},
        "rates": [1],
        "seeds": 3,
        "settings": {TASK: [*TINY, *SHORT]},
    }
    (folder / "results").mkdir()
    (folder / "mine.py").write_text(MINE)
    with pytest.MonkeyPatch.context() as patch:
        use(patch, folder, protocol)
        patch.setattr(render, "svg", lambda *_: b"")
        patch.setattr(timing, "run_seconds", lambda *_: 1.0)
        patch.setattr(score, "_check_comparable", lambda *_: None)
        patch.setattr(refusals, "of_checks", lambda *_: [])
        own = ["train.precision=bfloat16"]  # that of a machine is no setting of the protocol
        for scheme in ("rope", "./mine.py"):
            done = command([scheme, *own, "hydra/launcher=basic"], folder, score.main)
            assert done.returncode == 0, done.stderr
        keep(read(folder / "results" / "score" / "rope" / "runs")[0], folder / "results")
        said = command(["./mine.py", "--by", "us"], folder, submit.main)
        assert said.returncode == 0, said.stderr
    return folder, protocol


def unfixed(folder, about) -> dict:
    """The runs of the protocol, without the text of the real one."""
    plugin.forget_files()
    scheme = str(folder / about["scheme"])
    return {TASK: score.jobs_of(scheme, TASK, [], folder)}


@pytest.fixture
def entry(submitted, tmp_path, monkeypatch):
    """A copy of the entry, to be spoilt; its scheme is not checked again."""
    folder = shutil.copytree(submitted[0], tmp_path / "copy")
    use(monkeypatch, folder, submitted[1])
    monkeypatch.setattr(refusals, "of_checks", lambda *_: [])
    yield folder / "results" / "board" / "mine"
    plugin.forget_files()


@pytest.fixture(scope="module")
def jobs(submitted):
    """The runs of the protocol with mine.py."""
    with pytest.MonkeyPatch.context() as patch:
        use(patch, *submitted)
        every = unfixed(submitted[0] / "results" / "board" / "mine", {"scheme": "mine.py"})
        for job in every[TASK]:
            assert job.identity.code
    return every


def rewrite(entry, change) -> None:
    """Keep changed rows again, sealed as if they were right."""
    runs, _ = read_kept(entry)
    (entry / "runs.jsonl").unlink()
    keep(change(runs), entry)


def compared(folder, entry, **changes) -> None:
    """Write a comparison of mine with RoPE, from the rows of score, into a folder."""
    rows = [*read_kept(entry)[0], *read_kept(entry.parents[1])[0]]
    rows = [run for run in rows if run.settings["train.lr"] == RATE]
    settings = {key: value for key, value in rows[0].settings.items() if key.startswith("task.")}
    del settings["task._target_"]
    last = {"name": "last", "schemes": ["mine", "rope"], "test": "sign_flip"}
    study = {
        "hypothesis": "mine is ahead",
        "rows": "kept",
        "task": TASK,
        "scale": "quick",
        "settings": settings,
        "seeds": {"mine": "0-2", "rope": "0-2"},
        "higher_is_better": False,
        "diverged": 9,
        "code": {"mine.py": digest(MINE.encode())},
        "primary": [last | {"metric": "eval/loss"}],
    }
    (folder / "kept").mkdir(parents=True)
    keep(rows, folder / "kept")
    plan = {"studies": {"mine": study | changes}}
    (folder / "plan.yaml").write_text(yaml.safe_dump(plan, sort_keys=False))
    for page in submit.PAGES:
        (folder / page).write_text("as compare wrote it")


@pytest.mark.slow
def test_entries_stand_on_the_board(entry, monkeypatch):
    """Two of them with one name of their files."""
    monkeypatch.setattr(render, "svg", lambda *_: b"")
    compared(entry / COMPARED, entry)
    (entry / "objection-1.md").write_text("RoPE does as well at twice the rate.\n")
    shutil.copytree(entry, entry.with_name("theirs"))
    board.write()
    page = (entry.parents[1] / "board.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("- [")]
    assert [line.partition(")")[0] for line in lines] == [
        "- [mine](board/mine/mine.py",
        "- [theirs](board/theirs/mine.py",
    ]
    assert ", us, " in lines[0]
    assert f" against RoPE, Substring by Prefix](board/mine/{COMPARED}/verdict.md)" in lines[0]
    assert "[objection-1](board/mine/objection-1.md)" in lines[0]
    schemes = [row["scheme"] for row in table_rows(page) if "Substring by Prefix, quick" in row]
    assert sorted(schemes) == ["RoPE", "mine", "theirs"]


def edited_row(entry):
    path = entry / "runs.jsonl"
    path.write_text(path.read_text().replace('"eval/loss":', '"eval/loss":0.5', 1))


def changed_first(**changes):
    """Spoil the first row."""
    return lambda entry: rewrite(entry, lambda runs: [replace(runs[0], **changes), *runs[1:]])


def set_in_first(name, values):
    """Spoil the metrics or settings of the first row."""

    def change(runs):
        return [replace(runs[0], **{name: getattr(runs[0], name) | values}), *runs[1:]]

    return lambda entry: rewrite(entry, change)


def about(**changes):
    """Spoil entry.yaml."""

    def change(entry):
        content = yaml.safe_load((entry / "entry.yaml").read_text())
        (entry / "entry.yaml").write_text(yaml.safe_dump(content | changes))

    return change


def with_verdict(**changes):
    return lambda entry: compared(entry / COMPARED, entry, **changes)


def broken_plan(entry):
    compared(entry / COMPARED, entry)
    (entry / COMPARED / "plan.yaml").write_text("studies: {mine: 3}")


REFUSED = {
    "an edited row": (edited_row, "left out"),
    "other settings": (set_in_first("settings", {"train.steps": 200}), "other settings"),
    "an odd rate": (set_in_first("settings", {"train.lr": [1]}), "not a run of the protocol"),
    "an unfinished run": (changed_first(status="interrupted"), "is interrupted at step"),
    "too few steps": (changed_first(steps=1), "finished at step 1"),
    "an impossible loss": (set_in_first("metrics", {"eval/loss": -1.0}), "no possible eval/loss"),
    "too low a loss": (changed_first(floor={"loss": 99.0}), "sees later tokens"),
    "an impossible share": (changed_first(slices={"length": {"9": (4, 1.5)}}), "possible length"),
    "a missing seed": (lambda entry: rewrite(entry, lambda runs: runs[1:]), "1 of 3 runs are"),
    "a seed twice": (
        lambda entry: rewrite(entry, lambda runs: [*runs, replace(runs[0], run_id="f" * 12)]),
        "2 rows of one run",
    ),
    "another rule": (about(rule="rule 0"), "rule 0"),
    "a file elsewhere": (about(scheme="../../mine.py"), "must be a file beside it"),
    "a link": (lambda entry: (entry / "a").symlink_to(entry / "mine.py"), "is a link"),
    "a verdict of other code": (with_verdict(code={"mine.py": "0" * 16}), "scheme or code"),
    "a verdict of another scheme": (
        with_verdict(seeds={"rope": "0-2", "mine": "0-2"}),
        "scheme or code",
    ),
    "a verdict without its runs": (with_verdict(seeds={"mine": "0-3", "rope": "0-3"}), "6 of 8"),
    "a verdict with rows elsewhere": (with_verdict(rows="../mine"), "with its rows beside it"),
    "a broken plan": (broken_plan, "plan.yaml: "),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_named(entry, jobs, monkeypatch, case):
    monkeypatch.setattr(refusals, "planned", lambda *_: jobs)
    monkeypatch.setattr(refusals, "of_files", lambda *_: [])
    spoil, said = REFUSED[case]
    spoil(entry)
    found = refusals.problems(entry)
    assert [line for line in found if said in line], found


@pytest.mark.slow
def test_other_code_and_helpers_from_elsewhere_are_refused(entry, tmp_path, monkeypatch):
    (tmp_path / "own_helper.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    (entry / "mine.py").write_text(f"import own_helper\n{MINE}")
    first, second, *_ = refusals.problems(entry)
    assert "own_helper.py: is imported from elsewhere" in first
    assert "with other code than mine.py" in second


@pytest.mark.slow
def test_a_scheme_that_sees_later_tokens_is_refused(entry, monkeypatch):
    monkeypatch.setattr(refusals, "of_checks", CHECKS)
    (entry / "mine.py").write_text(MINE.replace("    pass\n", LEAK))
    assert any("fails the check" in line for line in refusals.problems(entry))


def test_a_scheme_is_checked_in_every_size(monkeypatch):
    def job(task, seq_len):
        parts = {"model": "small", "train": SimpleNamespace(seq_len=seq_len)}
        return SimpleNamespace(resolved=SimpleNamespace(names=SimpleNamespace(task=task), **parts))

    def check(cfg, group):
        yield "WRONG" if cfg.train.seq_len > 99 else "ok", "causality", "leaks"

    monkeypatch.setattr(asked, "check", check)
    every = {"short": [job("short", 64)], "long": [job("long", 256)]}
    (said,) = CHECKS({"scheme": "mine.py"}, every)
    assert said == "mine.py, in the size of long, fails the check causality: leaks"


@pytest.mark.parametrize("name", ["rope", "RoPE", "../x", "a b", ""])
def test_names_of_our_schemes_are_taken(name):
    with pytest.raises(ConfigError, match="set --name"):
        refusals.check_name(name)


@pytest.mark.slow
def test_the_protocol_is_nine_tasks_three_rates_three_seeds(tmp_path, monkeypatch):
    """Whose text need not be on the machine that checks it."""
    plugin.forget_files()
    monkeypatch.setenv("ROPE_LAB_CORPORA", str(tmp_path / "none"))
    (tmp_path / "other.py").write_text(MINE)
    every = refusals.planned(tmp_path, {"scheme": "other.py"})
    plugin.forget_files()
    assert len(every) == 9
    jobs = [job for of_task in every.values() for job in of_task]
    assert len({(job.cfg.names.task, job.cfg.train.lr, job.cfg.seed) for job in jobs}) == 81
    corpora = {job.identity.settings["task.corpus"] for job in every["text"]}
    assert corpora == {score.PROTOCOL["corpus"]}
    assert every["text"][0].resolved.device != "auto"


@pytest.mark.slow
def test_any_run_of_an_entry_repeats(entry, monkeypatch, capsys):
    monkeypatch.setattr(board.secrets, "choice", lambda rows: rows[-1])
    assert board.repeat(entry) == ""
    assert f"trained again: {read_kept(entry)[0][-1]}" in capsys.readouterr().out
    rewrite(entry, lambda runs: [])
    with pytest.raises(ConfigError, match="has no rows"):
        board.repeat(entry)


@pytest.mark.slow
def test_a_row_that_does_not_repeat_is_named(entry):
    row = read_kept(entry)[0][0]
    assert board._differences(row, row) == ""
    for changes in (
        {"status": "diverged"},
        {"metrics": row.metrics | {"eval/loss": row.metrics["eval/loss"] / 2}},
        {"metrics": {"eval/loss": row.metrics["eval/loss"]}},
        {"slices": {"length": {"9": (4, 0.5)}}},
    ):
        assert "in the entry" in board._differences(replace(row, **changes), row)


@pytest.mark.slow
def test_an_entry_is_not_overwritten_but_named(entry):
    results = entry.parents[1]
    compared(results / "compare" / COMPARED, entry)
    compared(results / "compare" / "mine-2-rope-quick", entry, code={"mine-2.py": "0" * 16})
    said = command(["./mine.py"], results.parent, submit.main)
    assert "there is an entry already; --name" in str(said.returncode)
    said = command(["./mine.py", "--name", "yours"], results.parent, submit.main)
    assert said.returncode == 0
    assert {path.name for path in entry.with_name("yours").iterdir()} - {".lock"} == {
        *("mine.py", "runs.jsonl", "entry.yaml"),
        COMPARED,
    }


@pytest.mark.slow
def test_a_failed_entry_leaves_nothing(entry, monkeypatch):
    def fail(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr(submit, "keep", fail)
    said = command(["./mine.py", "--name", "yours"], entry.parents[2], submit.main)
    assert said.returncode == "the disk is full"
    assert [path.name for path in entry.parent.iterdir()] == ["mine"]


@pytest.mark.claims
def test_entries_of_the_board_are_right_and_repeat():
    for path in board.BOARD.glob(f"*/{board.ENTRY}"):
        assert refusals.problems(path.parent) == []
        assert board.repeat(path.parent) == ""
