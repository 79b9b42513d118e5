"""Attacks on plans: what was not planned as it stands is never `confirmed`."""

import sys
from typing import Any

import pytest
from builders import headings, make_run, table_rows
from conftest import TINY, one_line
from judged import (
    HIGH,
    LOW,
    MINE,
    PLAN,
    SEEDS,
    commit,
    git,
    keep,
    main_of,
    outcome_of,
    planned_page,
    runs_of,
    said,
)
from sources import block

from rope_lab import files, plan, run_tables, table
from rope_lab.results.plans import study as studies
from rope_lab.text import ConfigError

pytestmark = pytest.mark.usefixtures("undrawn")

OWN = PLAN.replace("roper", "./mine.py")
WORDS = ("confirmed", "reversed", "undecided", "yes")


@pytest.fixture(scope="session")
def digest(tmp_path_factory) -> dict[str, Any]:
    """What a run of MINE records of its code."""
    from trained import run

    folder = tmp_path_factory.mktemp("digest")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "mine.py").write_text(MINE)
        origin = run([*TINY, "train.steps=2", "position=./mine.py", "out=runs"])["provenance"]
    sys.modules.pop("mine", None)
    return {f"provenance__{name}": origin[name] for name in ("plugin", "files") if name in origin}


def put(folder, text, **files):
    """Write a plan, and modules; the plan's path."""
    for name, source in files.items():
        (folder / f"{name}.py").write_text(source)
    (folder / "plan.yaml").write_text(text)
    return folder / "plan.yaml"


def made(folder, code, runs="runs", **changes):
    """Kept runs of PLAN in which RoPER is ahead on each seed."""
    runs_of(folder / runs, "rope", LOW, code, **changes)
    runs_of(folder / runs, "roper", HIGH, code, **changes)
    keep(folder / runs, folder / "kept")


def own(folder, code, digest, ends=HIGH, runs="runs"):
    """Run folders of OWN; `ends`: of one's own scheme."""
    runs_of(folder / runs, "rope", LOW, code)
    runs_of(folder / runs, "mine", ends, code, **digest)
    return folder / runs


# 20: the scheme's file


def fixed(source: str) -> str:
    """OWN with the digest of a scheme's file."""
    return OWN.replace("rows: kept", f"rows: kept\n    code: {{mine.py: {digest_of(source)}}}")


def digest_of(source: str) -> str:
    return files.digest(source.encode())


def test_a_plan_that_names_its_code_is_confirmed(tmp_path, digest):
    plan = put(tmp_path, fixed(MINE), mine=MINE)
    code = commit(tmp_path, "plan.yaml")
    keep(own(tmp_path, code, digest), tmp_path / "kept")
    page = planned_page(plan)
    assert outcome_of(page) == "confirmed"
    assert "## Problems" not in page


@pytest.mark.parametrize("text", [OWN, fixed(MINE + "\n\nCHANGED = True\n")])
def test_a_scheme_other_than_the_plans_is_not_confirmed(tmp_path, digest, text):
    plan = put(tmp_path, text, mine=MINE)
    code = commit(tmp_path, "plan.yaml", "mine.py")
    keep(own(tmp_path, code, digest), tmp_path / "kept")
    page = planned_page(plan)
    assert outcome_of(page) == "ahead; planned, but with other code"
    (problem,) = [line for line in page.splitlines() if line.startswith("- mine: ")]
    assert f"mine.py of its runs, {digest_of(MINE)}, is not" in problem


def test_replaced_numbers_leave_a_trace_and_no_confirmation(tmp_path, digest):
    plan = put(tmp_path, fixed(MINE), mine=MINE)
    code = commit(tmp_path, "plan.yaml")
    keep(own(tmp_path, code, digest, [0.1] * 6), tmp_path / "kept")
    assert outcome_of(planned_page(plan)) == "reversed"
    keep(own(tmp_path, code, digest, HIGH, "again"), tmp_path / "kept", "--replace")
    page = planned_page(plan)
    assert outcome_of(page) == "ahead; planned, but runs were replaced"
    assert "mine seed 0: eval/accuracy 0.1 and 0.6" in page.replace("./mine.py", "mine")


def test_a_plan_outside_of_our_repository_can_be_confirmed(tmp_path, digest):
    """Its runs record the plan's digest, and a commit that its own repository does not have."""
    plan = put(tmp_path, fixed(MINE), mine=MINE)
    (study,) = studies.load(plan).studies.values()
    digest = digest | {"provenance__plan": study.digest}
    runs_of(tmp_path / "runs", "rope", LOW, "0123456789ab", provenance__plan=study.digest)
    runs_of(tmp_path / "runs", "mine", HIGH, "0123456789ab", **digest)
    keep(tmp_path / "runs", tmp_path / "kept")
    assert outcome_of(planned_page(plan)) == "confirmed"
    plan.write_text(plan.read_text().replace("more problems right", "fewer problems right"))
    assert outcome_of(planned_page(plan)) == "ahead; planned, but not as committed"


def test_a_plan_of_ones_own_task_names_its_settings(tmp_path, monkeypatch):
    """Before the first run: afterwards they could have been chosen."""
    monkeypatch.chdir(tmp_path)
    source = block("Your own task", "python")
    both = f"{{backwards.py: {digest_of(source)}, mine.py: "
    text = fixed(MINE).replace("{mine.py: ", both)
    text = text.replace("task: substring_by_index", "task: ./backwards.py")
    put(tmp_path, text.replace("scale: reduced", "scale: quick"), mine=MINE, backwards=source)
    with pytest.raises(ConfigError, match="does not fix its task; add task"):
        run_tables.find("plan.yaml")
    for name in ("mine", "backwards"):
        sys.modules.pop(name, None)


def test_without_a_plan_nothing_is_written(tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="there is no plan"):
        plan.main([str(tmp_path / "plan.yaml")])
    assert not list(tmp_path.iterdir())


def test_runs_of_a_plan_record_its_digest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put(tmp_path, OWN, mine=MINE)
    with pytest.raises(ConfigError, match=f"write code: {{mine.py: {digest_of(MINE)}}}"):
        run_tables.find("plan.yaml")
    put(tmp_path, fixed(MINE))
    (study,) = studies.load(tmp_path / "plan.yaml").studies.values()
    launched = []
    monkeypatch.setattr(table.sweep, "launch", lambda jobs, *_: launched.extend(jobs) or 0)
    table.run(table.request("plan.yaml", ["device=cpu"]))
    sys.modules.pop("mine", None)
    assert {job.cfg.plan for job in launched} == {study.digest}
    assert len(launched) == 2 * len(SEEDS)


# 21: settings that choose between two plans


PARENT = {"recipe_id": "a" * 12, "scheme_id": "b" * 6, "run_id": "c" * 12, "position": "rope"}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"config__task": {"string_length": 13, "letters": "abc"}}, "task.letters=abc"),
        ({"config__task": {"string_length": 13, "loss_on": "all"}}, "task.loss_on=all"),
        ({"config__parent": PARENT}, "parent.recipe_id"),
    ],
)
def test_a_task_setting_or_parent_must_be_in_the_plan(tmp_path, changes, named):
    plan = put(tmp_path, PLAN)
    made(tmp_path, commit(tmp_path, "plan.yaml"), **changes)
    page = planned_page(plan)
    assert outcome_of(page) == ""
    assert "Outcome: not tested." in page
    assert named in page.partition("Outcome: not tested.")[2]


TEXT = (
    PLAN.replace("substring_by_index", "text")
    .replace("higher_is_better: true", "higher_is_better: false")
    .replace("eval/accuracy", "eval/loss")
    .replace("diverged: 0", "diverged: 6")
)


@pytest.mark.parametrize("names", [False, True])
def test_a_plan_of_text_names_its_corpus(tmp_path, names):
    named = TEXT.replace("{threads: 1}", "{threads: 1, task.corpus: aaaa, task.tokens: bytes}")
    plan = put(tmp_path, named if names else TEXT)
    corpus = {"corpus": "aaaa", "tokens": "bytes"}
    made(tmp_path, commit(tmp_path, "plan.yaml"), task="text", config__task=corpus)
    page = planned_page(plan)
    assert (outcome_of(page) == "confirmed") == names
    assert ("task.corpus" in page.partition("Outcome: not tested.")[2]) == (not names)


def test_threads_that_differ_between_schemes_are_not_paired(tmp_path):
    plan = put(tmp_path, PLAN.replace("{threads: 1}", "{}"))
    code = commit(tmp_path, "plan.yaml")
    two = {"device": "cpu", "name": "CPU", "threads": 2}
    runs_of(tmp_path / "runs", "rope", LOW, code)
    runs_of(tmp_path / "runs", "roper", HIGH, code, provenance__hardware=two)
    keep(tmp_path / "runs", tmp_path / "kept")
    page = planned_page(plan)
    assert outcome_of(page) == ""
    assert "threads" in page.partition("Outcome: not tested.")[2]


@pytest.mark.parametrize("settings", ["{threads: 1}", "{threads: 1, train.precision: auto}"])
def test_what_auto_became_is_said(tmp_path, settings):
    plan = put(tmp_path, PLAN.replace("{threads: 1}", settings))
    code = commit(tmp_path, "plan.yaml")
    train = {"steps": 100, "batch_size": 4, "seq_len": 64, "decay": "none"}
    made(tmp_path, code, config__train=train | {"precision": "float32"})
    page = planned_page(plan)
    assert outcome_of(page) == "confirmed"
    assert "train.precision=float32" in page.partition("Not named in the plan")[2]


# 22: a value for diverged runs


def test_diverged_runs_do_not_count_as_the_best(tmp_path):
    plan = put(tmp_path, TEXT.replace("task: text", "task: substring_by_index"))
    plan.write_text(plan.read_text().replace("diverged: 6", "diverged: 0"))
    code = commit(tmp_path, "plan.yaml")
    runs_of(tmp_path / "runs", "rope", LOW, code)
    runs_of(tmp_path / "runs", "roper", HIGH, code, status="diverged")
    keep(tmp_path / "runs", tmp_path / "kept")
    page = planned_page(plan)
    assert outcome_of(page) == ""
    said = page.partition("Outcome: not tested.")[2].partition("\n")[0]
    assert "diverged: 0" in said
    assert "0.7" in said  # the worst finished loss, 1 − 0.30
    plan.write_text(plan.read_text().replace("diverged: 0", "diverged: 0.7"))
    assert outcome_of(planned_page(plan)) != ""


# 23: an edited task


def test_two_codes_of_a_task_are_two_groups(tmp_path, capsys):
    for seed, code in enumerate(["a" * 12, "a" * 12, "b" * 12, "b" * 12]):
        for scheme, last in (("rope", 0.3), ("roper", 0.6)):
            changes = {"task": "rev", "provenance__plugin": {"task": code}}
            make_run(tmp_path, scheme, seed, last + 0.01 * seed, **changes)
    text = said(capsys, "results", tmp_path, "--print")
    assert len([heading for heading in headings(text) if heading.startswith("rev")]) == 2
    column = "mean, share of problems correct"
    rows = [row for row in table_rows(text) if row.get("scheme") == "RoPE"]
    means = [row[column].split()[0] for row in rows if column in row]
    assert sorted(means) == ["0.305", "0.325"]


# 24: problems change the word


def late(folder):
    put(folder, PLAN)
    (folder / "start").touch()
    code = commit(folder, "start")
    commit(folder, "plan.yaml")
    made(folder, code)


def edited(folder):
    put(folder, PLAN.replace("last,", "final,"))
    code = commit(folder, "plan.yaml")
    put(folder, PLAN)
    made(folder, code)


def without_git(folder):
    put(folder, PLAN)
    made(folder, None)


def dirty(folder):
    put(folder, PLAN)
    made(folder, commit(folder, "plan.yaml"), dirty=True)


def repeated(folder):
    """Run before the plan, and again to the same numbers after it."""
    late(folder)
    made(folder, git(folder, "rev-parse", "HEAD").strip(), "again")


ATTACKS = {
    late: "not planned before its runs",
    edited: "planned, but not as committed",
    without_git: "not shown to be planned",
    dirty: "planned, but with other code",
    repeated: "not planned before its runs",
}


@pytest.mark.parametrize(("attack", "word"), ATTACKS.items())
def test_a_plan_with_a_problem_is_not_confirmed(tmp_path, attack, word):
    attack(tmp_path)
    page = planned_page(tmp_path / "plan.yaml")
    assert outcome_of(page) == f"ahead; {word}"
    assert "## Problems" in page


@pytest.mark.slow
@pytest.mark.parametrize(("attack", "word"), ATTACKS.items())
def test_results_and_report_say_so_too(tmp_path, capsys, attack, word):
    attack(tmp_path)
    make_run(tmp_path / "other", "alibi", 0, 0.5)
    keep(tmp_path / "other", tmp_path)  # the folder of the plan holds kept runs, as results/ does
    text = said(capsys, "results", tmp_path, "--print")
    (verdict,) = [each for each in table_rows(text) if "RoPER ahead?" in each]
    assert verdict["RoPER ahead?"] == "ahead"
    assert verdict["comparison"] == word
    main_of("report")([str(tmp_path), "--out", str(tmp_path / "page.html")])
    html = (tmp_path / "page.html").read_text()
    assert word in html
    assert not [each for each in WORDS if f"<strong>{each}</strong>" in html]


def test_results_and_report_use_the_words_of_the_plan(tmp_path, capsys):
    put(tmp_path, PLAN)
    made(tmp_path, commit(tmp_path, "plan.yaml"))
    make_run(tmp_path / "other", "alibi", 0, 0.5)
    keep(tmp_path / "other", tmp_path)
    text = said(capsys, "results", tmp_path, "--print")
    (verdict,) = [each for each in table_rows(text) if "RoPER ahead?" in each]
    assert (verdict["RoPER ahead?"], verdict["comparison"]) == ("confirmed", "planned")


def test_a_deleted_study_is_named(tmp_path):
    opposite = PLAN.replace("studies:\n", "").replace("  mine:", "  opposite:")
    put(tmp_path, PLAN + opposite)
    first = commit(tmp_path, "plan.yaml")
    put(tmp_path, PLAN)
    made(tmp_path, commit(tmp_path, "plan.yaml"))
    problems = planned_page(tmp_path / "plan.yaml").partition("## Problems")[2]
    assert "opposite" in problems
    assert first[:12] in problems


@pytest.mark.parametrize("command", ["plan", "table"])
def test_a_plan_holds_values_and_no_references(tmp_path, monkeypatch, capsys, command):
    monkeypatch.setenv("SEEDS", "0-5")
    plan = put(tmp_path, PLAN.replace("rope: 0-5", 'rope: "${oc.env:SEEDS}"'))
    with pytest.raises(SystemExit) as ended:
        call(command, plan, monkeypatch)
    assert "${oc.env:SEEDS}" in str(ended.value) + capsys.readouterr().err


# 30: mistakes that showed after the last run


def call(command, plan, patch):
    """Run a command on a plan; `table` only lists its runs."""
    words = [str(plan), *["--list"] * (command == "table")]
    patch.setattr(sys, "argv", [f"rope_lab.{command}", *words])
    main_of(command)(*[words] * (command != "table"))


def test_a_task_of_ones_own_can_be_planned(tmp_path):
    text = PLAN.replace("task: substring_by_index", "task: ./rev.py")
    plan = put(tmp_path, text, rev="# a task\n")
    made(tmp_path, commit(tmp_path, "plan.yaml", "rev.py"), task="rev")
    page = planned_page(plan)
    assert f"All {2 * len(SEEDS)} runs have ended" in page
    assert outcome_of(page) != ""


@pytest.mark.parametrize("command", ["plan", "table"])
def test_a_misspelt_metric_is_named_before_any_run(tmp_path, monkeypatch, capsys, command):
    plan = put(tmp_path, PLAN.replace("eval/accuracy", "eval/acuracy"))
    with pytest.raises(SystemExit) as ended:
        call(command, plan, monkeypatch)
    assert "did you mean eval/accuracy?" in str(ended.value) + capsys.readouterr().err


def test_true_is_no_number_in_a_plan(tmp_path):
    plan = put(tmp_path, PLAN.replace("diverged: 0", "diverged: true"))
    with pytest.raises(SystemExit, match=one_line("diverged is True")):
        planned_page(plan)
