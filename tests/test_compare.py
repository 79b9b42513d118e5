"""rope-lab compare: from two schemes to a verdict."""

import json
import math
import os
import re
import shutil
import signal
import sys
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from builders import make_row
from conftest import ROOT, TINY
from killed import killed_after
from trained import command, load

from rope_lab.comparing import command as compare
from rope_lab.comparing import fixed, searching
from rope_lab.experiments import asking, launching, timing
from rope_lab.experiments.launching import Stopped
from rope_lab.experiments.timing import run_seconds
from rope_lab.files import as_json, sealed
from rope_lab.launch import sweep
from rope_lab.results.comparisons.answers import Comparison, answered
from rope_lab.results.plans import named_measure, outcomes, tries
from rope_lab.results.plans.bill import Bill
from rope_lab.results.plans.names import position_of
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.folders import read
from rope_lab.results.records.kept import keep, read_kept
from rope_lab.results.records.setups import Arm
from rope_lab.results.views.verdict_figure import paired
from rope_lab.text import ConfigError
from rope_lab.train import plugin, provenance

MINE = """
from rope_lab.model.schemes.rotary import Rotary

class Half(Rotary):
    def __init__(self, dims, fraction: float = 0.5):
        super().__init__(dims, q=1, k=1, fraction=fraction)
"""
OTHER = MINE.replace("0.5", "0.25")
LATER = MINE + "    def heads(self, qkv, at):\n        return (2 * qkv.flip(1)).unbind(2)\n"
SHORT = ["train.steps=2", "train.warmup=1", "eval.problems=2", "eval.sequences=1"]
SETTINGS = [*TINY, *SHORT, "hydra/launcher=basic"]
WORDS = ["./mine.py", "rope", "--task", "substring_by_prefix", "--search", "3x2", "--out", "it"]


@pytest.fixture
def imports():
    """Forget the files that a test has imported."""
    plugin.forget_files()
    yield
    plugin.forget_files()


def run(folder, *words: str, yes: bool = True, dirty: bool = False) -> SimpleNamespace:
    plugin.forget_files()
    given = [*WORDS, *SETTINGS, *words, *(["--yes"] if yes else [])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "git_state", lambda: {"commit": 12 * "a", "dirty": dirty})
        return command(given, folder, compare.main)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A folder with mine.py and a comparison that has its verdict, and its output."""
    folder = tmp_path_factory.mktemp("ended")
    (folder / "mine.py").write_text(MINE)
    said = run(folder)
    return SimpleNamespace(folder=folder, said=said)


@pytest.fixture
def again(ended, tmp_path, imports):
    """A copy of that folder."""
    return shutil.copytree(ended.folder, tmp_path / "again")


def verdict_of(folder) -> dict:
    return json.loads((folder / "it" / "verdict.json").read_text())


@pytest.mark.slow
def test_one_command_goes_to_the_verdict(ended):
    assert ended.said.returncode in (0, 10, 11), ended.said.stderr
    found = verdict_of(ended.folder)
    assert found["difference"]["pairs"] == len(found["seeds"]) >= 8
    assert found["problems"] == []
    assert found["tries"] == 1
    assert min(found["seeds"]) >= 200
    page = (ended.folder / "it" / "verdict.md").read_text()
    assert found["paragraph"].partition(".")[0] in page


@pytest.mark.slow
def test_both_schemes_get_the_same_search(ended):
    runs, problems = read(ended.folder / "it" / "search")
    cells = {}
    for each in runs:
        cells.setdefault(each.position, []).append((each.settings["train.lr"], each.seed))
    assert problems == []
    assert len(cells["mine"]) == len(cells["rope"])
    assert {rate for rate, _ in cells["mine"]} == {rate for rate, _ in cells["rope"]}


@pytest.mark.slow
def test_no_planned_score_is_shown_before_the_last(ended):
    frozen = ended.said.stdout.index("frozen: ")
    last = ended.said.stdout.index("it: 16 of 16 runs finished")
    assert "loss" not in ended.said.stdout[frozen:last].partition("\n")[2]


@pytest.mark.slow
def test_the_command_again_trains_nothing(again):
    before = (again / "it" / "verdict.json").read_bytes()
    said = run(again)
    assert "runs finished" not in said.stdout
    assert (again / "it" / "verdict.json").read_bytes() == before


@pytest.mark.slow
def test_every_run_records_the_digest_of_its_plan(ended):
    runs, _ = read(ended.folder / "it" / "kept")
    assert {each.plan for each in runs} == {verdict_of(ended.folder)["plan"]}


@pytest.mark.slow
def test_an_edited_file_leaves_the_verdict_to_its_copy(again):
    (again / "mine.py").write_text(OTHER)
    before = verdict_of(again)
    said = run(again)
    assert verdict_of(again) == before
    assert "mine.py was edited" in (again / "it" / "verdict.md").read_text()
    assert "mine.py was edited" in said.stdout


@pytest.mark.slow
def test_an_edited_copy_is_refused(again):
    (copy,) = (again / "it" / "code").rglob("mine.py")
    copy.write_text(OTHER)
    said = run(again)
    assert said.returncode == 2
    assert "mine.py" in said.stderr


@pytest.mark.slow
@pytest.mark.parametrize("change", [("hypothesis: mine", "hypothesis: Mine"), ("seeds", "moved")])
def test_a_changed_plan_is_refused(again, change):
    plan, (first, *_) = again / "it" / "plan.yaml", verdict_seeds(again)
    old, new = (f": {first}-", f": {first + 1}-") if change == ("seeds", "moved") else change
    assert old in plan.read_text()
    plan.write_text(plan.read_text().replace(old, new))
    shutil.rmtree(again / "it" / "runs")
    said = run(again)
    assert said.returncode == 2
    assert "was changed after it was frozen" in said.stderr
    assert not (again / "it" / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "word", ["train.optimizer=muon", "train.steps=4", "model.conv=kv", "train={batch_size: 2}"]
)
def test_a_setting_that_is_not_the_plans_is_refused(again, word):
    before = verdict_of(again)
    said = run(again, word)
    assert said.returncode == 2
    assert word in said.stderr
    assert verdict_of(again) == before


@pytest.mark.slow
def test_another_measure_needs_another_folder(again):
    said = run(again, "--measure", "steps")
    assert said.returncode == 2
    assert "--out" in said.stderr


@pytest.mark.torture
def test_an_edited_plan_of_the_same_code_gets_other_seeds(again):
    """Its first seeds were seen."""
    for part in ("runs", "kept"):
        shutil.rmtree(again / "it" / part)
    for path in (again / "it").glob("verdict.*"):
        path.unlink()
    (again / "it" / "plan.yaml").unlink()
    before = {*verdict_seeds(again)}
    said = run(again, "--difference", "0.009", "--pairs-at-most", "8")
    assert said.returncode in (0, 10, 11), said.stderr
    assert not before & {*verdict_of(again)["seeds"]}


def verdict_seeds(folder) -> list[int]:
    return json.loads((folder / "tries.jsonl").read_text().splitlines()[0])["seeds"]


def test_a_verdict_without_its_plan_is_not_overwritten(tmp_path, imports):
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "it").mkdir()
    (tmp_path / "it" / "verdict.md").write_text("mine")
    said = run(tmp_path)
    assert said.returncode == 2
    assert (tmp_path / "it" / "verdict.md").read_text() == "mine"


@pytest.mark.parametrize(
    "words",
    [
        ("--difference", "nan"),
        ("--difference", "0"),
        ("--difference", "50", "--measure", "steps"),
        ("--pairs-at-most", "3"),
        ("--name", "RoPE"),
    ],
)
def test_impossible_options_are_refused_before_any_run(tmp_path, imports, words):
    (tmp_path / "mine.py").write_text(MINE)
    said = run(tmp_path, *words)
    assert said.returncode == 2
    assert said.stderr.startswith(words[0])
    assert not (tmp_path / "it").exists()


@pytest.mark.slow
def test_a_name_with_spaces_can_be_a_folder(again):
    (again / "it").rename(again / "two words")
    line = json.loads((again / "tries.jsonl").read_text()) | {"folder": "two words"}
    (again / "tries.jsonl").write_text(json.dumps(line) + "\n")
    said = run(again, "--out", "two words")
    assert said.returncode in (0, 10, 11), said.stderr


@pytest.mark.slow
def test_runs_without_the_plan_do_not_confirm(again, monkeypatch):
    """They were made before it, with the same settings."""
    shutil.rmtree(again / "it" / "runs")
    shutil.rmtree(again / "it" / "kept")
    jobs_of = launching.jobs_of
    with monkeypatch.context() as patch:
        patch.setattr(compare.stages, "jobs_of", lambda every, folder, plan: jobs_of(every, folder))
        run(again)
    said = run(again)
    assert said.returncode == 14
    assert verdict_of(again)["problems"]


def only_some_runs(folder) -> None:
    """Take away the runs of one scheme, and the kept rows of both."""
    shutil.rmtree(folder / "it" / "kept")
    for path in (folder / "it" / "runs").glob("*-rope-s2*"):
        shutil.rmtree(path)


@pytest.mark.slow
def test_a_plan_needs_seeds_that_no_known_run_has(again):
    shutil.rmtree(again / "it" / "runs")
    shutil.rmtree(again / "it" / "kept")
    rows = again / "it" / "search" / "runs.jsonl"
    known = json.loads(rows.read_text().splitlines()[0]) | {"seed": verdict_seeds(again)[3]}
    rows.write_text(f"{rows.read_text()}{json.dumps(known)}\n")
    said = run(again)
    assert said.returncode == 2
    assert f"seed {verdict_seeds(again)[3]}" in said.stderr


@pytest.mark.slow
def test_other_code_of_ours_is_refused(again, monkeypatch):
    only_some_runs(again)
    monkeypatch.setattr(provenance, "source", lambda: "another")
    said = run(again)
    assert said.returncode == 2
    assert "other code" in said.stderr


@pytest.mark.slow
def test_runs_started_with_other_code_are_refused(again):
    """Also if they ended with today's."""
    path = next((again / "it" / "runs").glob("*-rope-s2*")) / "run.json"
    content = json.loads(path.read_text())
    begun = content["provenance"] | {"source": "another"}
    del begun["earlier"]
    content["provenance"]["earlier"] = [begun]
    path.write_bytes(as_json(sealed(content)))
    said = run(again)
    assert said.returncode == 2
    assert "other code" in said.stderr


@pytest.mark.slow
def test_what_cannot_be_compared_has_no_verdict(again, monkeypatch):
    monkeypatch.setattr(outcomes, "untested", lambda study, found: "Of mixed origin.")
    before = (again / "it" / "verdict.md").read_bytes()
    said = run(again)
    assert (said.returncode, "not tested: Of mixed origin." in said.stderr) == (14, True)
    assert (again / "it" / "verdict.md").read_bytes() == before


@pytest.mark.slow
def test_open_without_a_number(again):
    only_some_runs(again)
    (again / "it" / "verdict.md").unlink()
    said = run(again, "--budget", "0.0001min")
    assert said.returncode == 12
    assert not (again / "it" / "verdict.md").exists()
    assert "p =" not in said.stdout


@pytest.mark.slow
def test_code_that_nobody_has_does_not_confirm(again):
    shutil.rmtree(again / "it" / "runs")
    shutil.rmtree(again / "it" / "kept")
    said = run(again, dirty=True)
    assert said.returncode == 14
    assert "changed after commit" in str(verdict_of(again)["problems"])


@pytest.mark.slow
def test_another_question_needs_another_folder(again):
    said = run(again, "--scale", "length")
    assert said.returncode == 2
    assert "--out" in said.stderr
    said = run(again, "--difference", "0.5")
    assert said.returncode == 2
    assert "--out" in said.stderr


@pytest.mark.slow
def test_seeds_of_another_try_are_not_used_again(again):
    (again / "mine.py").write_text(OTHER)
    shutil.rmtree(again / "it")
    before = {*json.loads((again / "tries.jsonl").read_text())["seeds"]}
    run(again)
    found = verdict_of(again)
    assert not before & {*found["seeds"]}
    assert found["tries"] == 2


@pytest.mark.slow
def test_kept_rows_alone_make_the_verdict_again(again):
    """As in a clone, which has no run folders."""
    shutil.rmtree(again / "it" / "runs")
    page = again / "it" / "verdict.md"
    before = page.read_bytes()
    page.unlink()
    run(again, yes=False)
    assert page.read_bytes() == before
    assert not (again / "it" / "runs").exists()


def stopped_after(most: int, monkeypatch) -> list[str]:
    """Stop each launch after so many runs; the labels of all runs that are launched."""
    launch, launched = sweep.launch, []

    def stopped(jobs, *rest, **options):
        launched.extend(job.label for job in jobs[:most])
        status = launch(jobs[:most], *rest, **options)
        return status if len(jobs) <= most else 143

    monkeypatch.setattr(launching.sweep, "launch", stopped)
    return launched


@pytest.mark.slow
def test_rows_of_lost_machines_are_not_run_again(ended, tmp_path, imports, monkeypatch):
    """Each machine is lost with its run folders."""
    (tmp_path / "mine.py").write_text(MINE)
    launched = stopped_after(7, monkeypatch)
    for _ in range(10):
        status = run(tmp_path).returncode
        if status != 143:
            break
        shutil.rmtree(tmp_path / "it" / "runs")
    assert status < 143
    rows = [read_kept(ended.folder / "it" / part)[0] for part in ("search", "kept")]
    assert len(launched) == len(set(launched)) == sum(map(len, rows))
    assert verdict_of(tmp_path) == verdict_of(ended.folder)


@pytest.mark.slow
def test_rows_of_other_code_are_refused(again):
    """Unless all runs have ended: then the verdict is theirs."""
    kept = again / "it" / "kept"
    rows, _ = read_kept(kept)
    shutil.rmtree(again / "it" / "runs")
    status = run(again).returncode
    old = {"numerics": 1}
    for some, change, wanted in (
        (rows, old, status),
        (rows[1:], old, 2),
        (rows[1:], {"source": "another"}, 2),
    ):
        shutil.rmtree(kept)
        kept.mkdir()
        keep([replace(row, **change) for row in some], kept)
        assert run(again).returncode == wanted


@pytest.mark.slow
def test_rows_unlike_their_runs_are_refused_without_numbers(again):
    kept = again / "it" / "kept"
    rows, _ = read_kept(kept)
    shutil.rmtree(kept)
    kept.mkdir()
    keep([replace(row, metrics=row.metrics | {"eval/loss": 9.0}) for row in rows], kept)
    said = run(again)
    assert said.returncode == 2
    assert "have other numbers; move one of the two away" in said.stderr
    assert "eval/loss" not in said.stderr + said.stdout


@pytest.mark.slow
def test_a_scheme_edited_after_a_stop_is_checked(tmp_path, imports, monkeypatch):
    (tmp_path / "mine.py").write_text(MINE)
    stopped_after(3, monkeypatch)
    assert run(tmp_path).returncode == 143
    (tmp_path / "mine.py").write_text(LATER)
    assert run(tmp_path).returncode == 2


@pytest.mark.torture
def test_a_deleted_comparison_comes_out_the_same(again):
    before = verdict_of(again)
    shutil.rmtree(again / "it")
    run(again)
    assert verdict_of(again) == before


@pytest.mark.slow
def test_the_first_bill_is_of_steps_taken_now(ended):
    lines = ended.said.stdout.splitlines()
    bill = next(line for line in lines if line.startswith("search: "))
    assert re.search(r"10 runs, 1 at once, \d+ min \(\d+ s a run, from a few steps", bill)


def test_steps_of_this_machine_say_nothing_of_a_cluster():
    assert run_seconds([], {"_target_": "rope_lab.launch.clusters.on_slurm"}) is None


def test_nobody_to_ask_begins_nothing(tmp_path, imports):
    (tmp_path / "mine.py").write_text(MINE)
    said = run(tmp_path, yes=False)
    assert said.returncode == 12
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["mine.py"]


def test_long_names_stand_side_by_side_in_the_figure():
    kept = ROOT / "results" / "compare" / "roper-rope-substring_by_prefix-quick" / "plan.yaml"
    ((result, *_), *_), _ = outcomes.read(kept, Catalogue())
    short, long = ("RoPER", "RoPE"), ("partial_key_offset_roper", "partial_key_offset")
    widths = [paired(result, names, ("red", "blue")).width for names in (short, long)]
    assert widths[0] == 220
    assert widths[1] / 2 > 7 * len(long[0])  # pixels of a bold letter


def test_the_bar_of_steps_is_their_geometric_mean():
    folder = ROOT / "results" / "compare" / "rope_partial-rope-substring_by_prefix-quick"
    ((_, result),), _ = outcomes.read(folder / "plan.yaml", Catalogue())
    assert result.measure.at == "log steps"
    spec = paired(result, ("ours", "theirs"), ("red", "blue")).to_dict()
    (bars,) = [layer for layer in spec["layer"] if layer["mark"]["type"] == "tick"]
    found = {row["scheme"]: row["value"] for row in spec["datasets"][bars["data"]["name"]]}
    assert found == pytest.approx(
        {"ours": math.exp(result.means[0]), "theirs": math.exp(result.means[1])}
    )


@pytest.mark.parametrize("answer", [EOFError, KeyboardInterrupt, "n", "y"])
def test_only_yes_begins(answer, monkeypatch):
    """Neither Ctrl-C nor Ctrl-D do."""

    def answered(question):
        if isinstance(answer, str):
            return answer
        raise answer

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", answered)
    ask, bill = asking.asks(False, None), Bill("search", 2, 1.0, "from others", 1)
    if answer == "y":
        ask(bill)
    else:
        with pytest.raises(Stopped):
            ask(bill)


def test_a_limit_of_unknown_time_begins_nothing():
    """As on a cluster."""
    with pytest.raises(Stopped, match="not known"):
        asking.asks(True, 2.0)(Bill("search", 2, None, "", 1))


def test_a_child_that_ends_while_timed_is_one_line():
    """As those of a script without a guard, which each of them runs again."""
    with pytest.raises(ConfigError, match="__main__"), timing._stopped_by_signals():
        raise BrokenProcessPool


def test_a_signal_before_the_bill_leaves_nothing(tmp_path, imports, monkeypatch):
    def interrupted(cfg):
        signal.raise_signal(signal.SIGINT)
        return 1.0

    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.setattr(timing, "seconds_of", interrupted)
    assert run(tmp_path).returncode == 128 + signal.SIGINT
    assert not (tmp_path / "it").exists()


def test_a_declined_call_leaves_what_another_began(tmp_path, imports, monkeypatch):
    def declined(question):
        (tmp_path / "it" / "runs").mkdir()
        return "n"

    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", declined)
    assert run(tmp_path, yes=False).returncode == 12
    assert [path.name for path in tmp_path.glob("it/code/*/*")] == ["mine.py"]


def test_copies_are_written_to_no_link(tmp_path, imports):
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "it").mkdir()
    (tmp_path / "it" / "code").symlink_to(tmp_path / "elsewhere")
    said = run(tmp_path)
    assert said.returncode == 2
    assert "code is not a directory" in said.stderr
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_refused_call_leaves_the_copies_of_others(again):
    """Without runs, and with a file that changed since."""
    (kept,) = (again / "it" / "code").iterdir()
    for part in ("runs", "kept", "search"):
        shutil.rmtree(again / "it" / part)
    (again / "it" / "plan.yaml").unlink()
    for path in (again / "it").glob("verdict.*"):
        path.unlink()
    (again / "mine.py").write_text(OTHER)
    said = run(again, yes=False)
    assert said.returncode == 12
    assert [path.name for path in (again / "it").iterdir()] == ["code"]
    assert [path.name for path in (again / "it" / "code").iterdir()] == [kept.name]
    assert (kept / "mine.py").read_text() == MINE


@pytest.mark.slow
def test_a_bill_above_the_budget_begins_nothing(tmp_path, imports):
    (tmp_path / "mine.py").write_text(MINE)
    said = run(tmp_path, "--budget", "0.0001min")
    assert said.returncode == 12
    assert "budget" in said.stderr
    assert not (tmp_path / "it").exists()


@pytest.mark.slow
def test_steps_that_no_run_reaches_are_named(tmp_path, imports):
    (tmp_path / "mine.py").write_text(MINE)
    said = run(tmp_path, "--task", "substring_by_index", "--measure", "steps")
    assert said.returncode == 13
    assert "neither scheme learned the task" in said.stderr


def test_steps_are_no_share():
    """A task whose threshold is a share of problems: log 300 is no solved task."""
    report = Catalogue().report("needle", {"eval/accuracy"}, {})
    measure = named_measure.measure_of(report, "steps")
    ends = {"roper": [300, 400, 500], "rope": [500, 600, 400]}
    arms = []
    for scheme, steps in ends.items():
        runs = []
        for seed, step in enumerate(steps):
            curve = {"eval/accuracy": ([0, step, 1000], [0.0, 1.0, 1.0])}
            runs.append(replace(make_row(scheme, seed, [1.0]), task="needle", curves=curve))
        arms.append(Arm(scheme, tuple(runs)))
    result = answered(Comparison(report, measure, *arms))
    assert result.pairs.to_numpy().min() > 5
    assert measure.better == "lower"
    searching._check_room(SimpleNamespace(folder=None), result)


@pytest.mark.slow
def test_schemes_with_equal_values_have_no_verdict(tmp_path, imports):
    (tmp_path / "mine.py").write_text(MINE.replace("0.5", "1.0"))
    said = run(tmp_path)
    assert said.returncode == 13
    assert "equal values" in said.stderr
    assert not (tmp_path / "it" / "plan.yaml").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("solved", "reason"), [(0.995, "neither scheme learned"), (0.0, "solve the task")]
)
def test_a_task_that_tells_nothing_is_named(tmp_path, imports, monkeypatch, solved, reason):
    monkeypatch.setattr(searching, "SOLVED", solved)
    (tmp_path / "mine.py").write_text(MINE)
    said = run(tmp_path, "--task", "substring_by_index")
    assert said.returncode == 13
    assert reason in said.stderr


@pytest.mark.slow
def test_a_scheme_that_sees_later_tokens_is_refused(tmp_path, imports):
    (tmp_path / "mine.py").write_text(LATER)
    said = run(tmp_path)
    assert said.returncode == 2
    assert "mine fails the check" in said.stderr
    assert not (tmp_path / "it").exists()


def test_a_plan_names_what_a_named_text_sets():
    """Else its runs could not be told from those of another choice."""
    order = SimpleNamespace(overrides=["+corpus=tinyshakespeare", "train.steps=9"])
    settings = {"task.tokens": "characters", "task.corpus": "a", "train.steps": 9, "device": "cpu"}
    row = make_row("rope", 0, [1.0], settings=settings | {"train.precision": "float32"})
    found = fixed.settings(order, [row])
    assert found.items() >= settings.items()
    study = SimpleNamespace(settings=found)
    for corpus, refused in (("a", False), ("b", True)):
        job = SimpleNamespace(resolved=SimpleNamespace(task={"corpus": corpus}))
        with pytest.raises(ConfigError, match="another text") if refused else nullcontext():
            fixed.check_text(study, job)


def test_a_frozen_plan_of_bytes_is_not_shown_for_characters():
    words = ("+corpus=tinyshakespeare", "train.steps=9")
    order = SimpleNamespace(overrides=words, task="text", measure="score")
    test = SimpleNamespace(metric="eval/loss", at="last")
    of_bytes = {"train.steps": 9, "task.corpus": "a"}
    study = SimpleNamespace(primary=[test], settings=of_bytes)
    with pytest.raises(ConfigError, match="corpus=tinyshakespeare: is not in the frozen plan"):
        fixed.check_overrides(order, study)
    study.settings = of_bytes | {"task.tokens": "characters"}
    fixed.check_overrides(order, study)
    order.overrides = ("task.tokens=bytes", *words)  # a single setting counts, wherever it stands
    with pytest.raises(ConfigError, match=r"task\.tokens=bytes: is not in the frozen plan"):
        fixed.check_overrides(order, study)
    study.settings = of_bytes | {"task.tokens": "bytes"}
    fixed.check_overrides(order, study)


@pytest.mark.parametrize("name", ["accurcy", "length/7"])
def test_an_unknown_measure_is_refused_before_any_run(tmp_path, imports, name):
    (tmp_path / "mine.py").write_text(MINE)
    said = run(tmp_path, "--measure", name)
    assert said.returncode == 2
    assert not (tmp_path / "it").exists()


@pytest.mark.parametrize("word", ["train.stepz=3", "train.steps=many", "seed=3"])
def test_a_refused_setting_leaves_no_folder(word, tmp_path, imports):
    (tmp_path / "mine.py").write_text(MINE)
    said = run(tmp_path, word)
    assert said.returncode == 2
    assert not (tmp_path / "it").exists()


@pytest.mark.parametrize("word", ["train.lr=1", "position.base=10", "seed=3", "out=x"])
def test_what_it_decides_cannot_be_set(word, tmp_path, imports):
    (tmp_path / "mine.py").write_text(MINE)
    said = run(tmp_path, word)
    assert said.returncode == 2
    assert said.stderr.startswith(word)


@pytest.mark.torture
def test_killed_at_any_write_the_verdict_is_the_same(ended, tmp_path, imports, monkeypatch):
    """Fifty times and more, before a random rename; from the third on the clock is set back."""
    (tmp_path / "mine.py").write_text(MINE)
    random, kills = np.random.default_rng(0), 0
    for attempt in range(500):
        if attempt == 2:
            monkeypatch.setattr(provenance, "now", lambda: "2001-02-03T04:05:06+00:00")
        with killed_after(int(random.integers(12)), (os, "replace")) as process:
            run(tmp_path)
        kills += process.dead
        if not process.dead:
            break
    run(tmp_path)
    assert kills >= 50
    assert verdict_of(tmp_path) == verdict_of(ended.folder)


def test_a_question_is_counted_over_edits_of_its_files(tmp_path):
    """The task of a plan is then a copy in a folder of another name."""
    lines = []
    for number, (task, schemes) in enumerate(
        [
            ("code/1a2b3c4d/own.py", ["code/1a2b3c4d/mine.py", "rope"]),
            ("code/99887766/own.py", ["rope", "code/99887766/mine.py"]),
            ("code/99887766/own.py", ["code/99887766/mine.py", "none"]),
            ("needle", ["code/99887766/mine.py", "rope"]),
        ]
    ):
        of_arms = list(map(position_of, schemes))
        lines.append({"folder": f"it-{number}", "schemes": of_arms, "task": task, "seeds": [200]})
    (tmp_path / tries.TRIES).write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = tries.of_question(tries.read(tmp_path), {"mine", "rope"}, "own")
    assert [line["folder"] for line in found] == ["it-0", "it-1"]


def test_a_diverged_run_is_worse_than_a_slow_one():
    slow = make_row("rope", 0, [1.0])
    curve = {"eval/accuracy": ([0, 1000], [0.0, 0.0])}
    slow = replace(slow, task="needle", metrics={"eval/accuracy": 0.0}, curves=curve)
    assert named_measure.gain_of(slow, "steps") > -math.inf
    assert named_measure.gain_of(replace(slow, status="diverged"), "steps") == -math.inf


def test_a_measure_that_runs_do_not_record_is_named():
    """Not taken for one by which all are equally bad."""
    run_, other = make_row("rope", 0, [0.5] * 2), make_row("rope", 1, [0.5] * 2)
    assert named_measure.gain_of(run_, "eval/accuracy") == 0.5
    with pytest.raises(ConfigError, match="the runs do not record it"):
        named_measure.gain_of(run_, "eval/sum_accuracy")
    assert (
        named_measure.gain_of(replace(other, status="diverged"), "eval/sum_accuracy") == -math.inf
    )


def test_ended_runs_say_no_time_on_a_cluster():
    made = [make_row("rope", seed, [0.5] * 2) for seed in range(2)]
    here = {"_target_": "rope_lab.launch.pool.in_children"}
    slurm = {"_target_": "hydra_plugins.hydra_submitit_launcher.submitit_launcher.SlurmLauncher"}
    mean = sum(run_.seconds for run_ in made) / 2
    assert timing.seconds_of_ended(made, here)[0] == mean
    assert timing.seconds_of_ended(made, slurm)[0] is None


def test_the_shortest_run_is_timed(tmp_path):
    """Of which all steps are warm-up, fewer than are timed."""
    cfg = load(*TINY, "train.steps=2", "train.warmup=2", f"out={tmp_path}")
    assert timing.seconds_of(cfg) > 0
