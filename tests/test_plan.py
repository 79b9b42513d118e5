"""Planned comparisons: no test before the last run, and results that match reference
implementations.
"""

import itertools
import subprocess
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from builders import CATALOGUE, headings, make_pairs, make_row, make_run, table_rows
from conftest import one_line
from scipy import stats as scipy_stats

from rope_lab import plan
from rope_lab.results import __main__ as results
from rope_lab.results.comparisons.answers import Result
from rope_lab.results.comparisons.stats import Interval
from rope_lab.results.comparisons.words import plan_word
from rope_lab.results.plans import evidence, find, outcomes
from rope_lab.results.plans import study as studies
from rope_lab.results.plans.names import arm_name
from rope_lab.results.records.run import Run
from rope_lab.results.views import plan_page
from rope_lab.shipped import shipped
from rope_lab.text import ConfigError

pytestmark = pytest.mark.usefixtures("undrawn")

PLAN = """
studies:
  mine:
    hypothesis: RoPER is ahead.
    rows: kept
    task: substring_by_index
    scale: reduced
    settings: {train.lr: 1e-4, device: cpu, threads: 1}
    seeds: {rope: 8-13, roper: 8-13}
    higher_is_better: true
    diverged: 0
    primary:
      - {name: last, schemes: [roper, rope], test: sign_flip, metric: eval/accuracy,
         times: 128, published: 34}
      - {name: whole curve, schemes: [roper, rope], test: sign_flip, value: mean,
         metric: eval/accuracy, times: 128}
    secondary:
      - {name: solve, schemes: [roper, rope], test: mcnemar, metric: eval/accuracy, reaches: 0.5}
      - {name: steps, schemes: [roper, rope], test: sign, metric: eval/accuracy, reaches: 0.5}
"""
SEEDS = range(8, 14)


@pytest.fixture
def study():
    return studies.from_yaml(studies.Plan, PLAN, "plan.yaml").studies["mine"]


@pytest.fixture
def runs():
    """RoPER reaches accuracy 0.5 at step 200 on every seed; RoPE at step 300 on odd seeds, else
    never.
    """
    random = Random(3)
    made = []
    for seed in SEEDS:
        made.append(make_row("roper", seed, [0.0, 0.1, 0.6, round(0.8 + 0.1 * random.random(), 4)]))
        made.append(
            make_row(
                "rope", seed, [0.0, 0.0, 0.1, round(0.3 * random.random() + 0.55 * (seed % 2), 4)]
            )
        )
    return made


@pytest.mark.parametrize(("times", "digits"), [(100, 1), (1, 3), (128, 1)])
def test_a_share_keeps_its_precision_in_another_unit(study, times, digits):
    """The report of the task has one digit of a percentage."""
    report = CATALOGUE.report("grid", ["eval/accuracy"], {})
    test = replace(study.primary[0], metric="length/6", times=times)
    assert study.measure(test, report).digits == digits


def test_two_planned_tests_of_one_name_are_both_answered(study, runs):
    """Each by its own schemes."""
    once, *_ = study.primary
    other = replace(once, schemes=("rope", "roper"))
    first, second = answers(replace(study, primary=[once, other], secondary=[]), runs)
    assert first.comparison.name == second.comparison.name
    assert first.difference.mean == pytest.approx(-second.difference.mean)


def answers(study: studies.Study, runs: list[Run]) -> list[Result]:
    return outcomes.of_study(study, runs, CATALOGUE)


def outcome(study: studies.Study, runs: list[Run]) -> str:
    return plan_page.section(answers(study, runs), CATALOGUE)


def differences(runs, of) -> list[float]:
    by = {(r.position, r.seed): r.curves["eval/accuracy"][1] for r in runs}
    return [128 * (of(by["roper", seed]) - of(by["rope", seed])) for seed in SEEDS]


def flips(values: list[float]) -> float:
    """Exact sign-flip p value by enumeration of all signs."""
    sums = [np.dot(signs, values) for signs in itertools.product((1, -1), repeat=len(values))]
    return np.mean([abs(each) >= abs(sum(values)) - 1e-9 for each in sums])


def test_the_outcome_is_what_references_compute(study, runs):
    text = " ".join(outcome(study, runs).split())
    last, whole = differences(runs, lambda c: c[-1]), differences(runs, lambda c: np.mean(c[1:]))
    p = [flips(last), flips(whole)]
    assert p == [2 / 64, 2 / 64]  # RoPER is ahead on every seed: the smallest p of six pairs
    for values in (last, whole):
        ends = scipy_stats.ttest_1samp(values, 0).confidence_interval()
        assert f"{np.mean(values):+.4g} [{ends.low:+.4g}, {ends.high:+.4g}]" in text
    assert text.count("| 0.031 | 0.062") == 2  # Holm over both tests
    assert "6 against 3 of 6; discordant pairs: 3 and 0 | 0.25 " in text  # 2 · (1/2)³
    assert "median step 200 against never; first 6 times against 0 | 0.031 " in text
    assert text.count("200 | never |") == text.count("200 | 300 |") == 3


def test_comparisons_named_alike_but_for_brackets_have_own_columns(study, runs):
    last, whole = study.primary
    named = replace(
        study, primary=(replace(last, name="right (last)"), replace(whole, name="right (mean)"))
    )
    heading = outcome(named, runs).partition("| seed")[2].partition("\n")[0]
    assert heading.count("RoPER: ") == 3  # the third column: steps


@pytest.mark.parametrize(
    ("higher", "published", "ends", "p", "word"),
    [
        (True, 34, (40, 60), 0.01, "confirmed"),
        (True, 34, (-60, -40), 0.01, "reversed"),
        (True, 34, (-10, 33), 0.2, "refuted at the published size"),
        (True, None, (-10, 1), 0.2, "undecided"),
        (False, -0.012, (-0.04, -0.02), 0.01, "confirmed"),
        (False, -0.012, (-0.011, 0.011), 0.5, "refuted at the published size"),
        (False, -0.012, (-0.013, 0.013), 0.5, "undecided"),
    ],
)
def test_verdicts(study, higher, published, ends, p, word):
    planned = replace(
        study.primary[0], metric="eval/accuracy" if higher else "eval/loss", published=published
    )
    asked = replace(study, primary=[planned], secondary=[], higher_is_better=higher)
    (result,) = answers(asked, [])
    family = replace(result.family, untested="", found=dict.fromkeys(asked.cells))
    difference = Interval(sum(ends) / 2, *ends, 24)
    ended = replace(result, family=family, difference=difference, p_family=p)
    assert plan_word(ended) == word


def test_logarithms_of_steps_are_compared_and_fewer_are_better(study, runs):
    """RoPE reaches accuracy 0.5 at its last evaluation, or never, which counts as one evaluation
    after the end.
    """
    never = study.seeds["rope"][-1]
    ends = {
        seed: {"roper": [0.0, 0.6, 0.9], "rope": [0.0, 0.1, 0.7]} for seed in study.seeds["rope"]
    }
    ends[never]["rope"] = [0.0, 0.1, 0.2]
    made = [make_row(scheme, seed, ends[seed][scheme]) for scheme, seed in study.cells]
    made = [replace(run, settings=run.settings | {"eval.every": 100}) for run in made]
    _, middle, last = made[0].curves["eval/accuracy"][0]
    never_counts = made[0].settings["train.steps"] + 100
    sooner = [np.log(middle / (never_counts if seed == never else last)) for seed in ends]
    planned = replace(study.primary[0], test="sign_flip", value="log_steps", reaches=0.5)
    (result,) = answers(replace(study, primary=[planned], secondary=[]), made)
    assert result.difference.mean == pytest.approx(np.mean(sooner))
    assert f": {np.exp(np.mean(sooner)):.2f} [" in plan_page.result_text(result)
    assert (result.ahead, plan_word(result)) == (True, "confirmed")
    with pytest.raises(ValueError, match="needs reaches"):
        replace(planned, reaches=None)
    at_once = replace(planned, reaches=0)
    assert answers(replace(study, primary=[at_once], secondary=[]), made)[0].difference.mean == 0


def test_problems_of_one_length_are_compared(study, runs):
    """Their share right is a slice of the record, not a metric."""
    at = {
        (run.position, run.seed): 0.5 + 0.01 * run.seed * (run.position == "roper") for run in runs
    }
    graded = [
        replace(run, slices={"length": {"24": (64, at[run.position, run.seed])}}) for run in runs
    ]
    planned = replace(study.primary[0], metric="length/24", times=100, published=None)
    asked = replace(study, primary=[planned], secondary=[])
    (result,) = answers(asked, graded)
    assert result.difference.mean == pytest.approx(np.mean(SEEDS))
    assert "length/24 of" in answers(asked, runs)[0].family.untested
    one = replace(asked, seeds={"rope": [8], "roper": [8]})
    assert plan_page.result_text(answers(one, graded)[0]).startswith("+8 (one seed)")


@pytest.mark.parametrize("higher", [True, False])
@pytest.mark.parametrize(
    ("gains", "said"),  # intervals 0.013 to 0.027, -0.007 to 0.007 and -0.014 to 0.000
    [
        ([0.015, 0.025], "matches it to within 0.01"),
        ([-0.005, 0.005], "matches it to within 0.01"),
        ([-0.012, -0.002], "is not shown"),
    ],
)
def test_a_margin_is_measured_from_the_intervals_worse_end(study, gains, said, higher):
    ends = {"roper": [0.5 + (g if higher else -g) for g in gains], "rope": [0.5, 0.5]}
    metric = "eval/accuracy" if higher else "eval/loss"
    made = [
        make_row(scheme, seed, [0.0, ends[scheme][seed % 2]], metric)
        for scheme, seed in study.cells
    ]
    planned = replace(study.primary[0], test="t", metric=metric, times=1.0, margin=0.01)
    asked = replace(study, primary=[], secondary=[planned], higher_is_better=higher)
    assert f": {said}" in plan_page.result_text(answers(asked, made)[0])


@pytest.mark.parametrize("change", [{"status": "interrupted"}, {"settings": {"train.lr": 2e-4}}])
def test_nothing_is_tested_before_the_last_run(study, runs, change):
    """An interrupted run, or one with unplanned settings, does not count."""
    for left_out in (runs[:-1], [*runs[:-1], make_row("rope", 13, [0.0, 0.5], **change)]):
        text = outcome(study, left_out)
        assert "11 of 12 runs have ended" in text
        assert not [line for line in text.splitlines() if line.startswith("|")]


def test_a_diverged_run_counts_as_planned(study, runs):
    """As 0 in means, as not solved and as never reaching the threshold; the output names it."""
    diverged = replace(runs[0], status="diverged")
    zero = make_row("roper", 8, [0.0, 0.0, 0.0, 0.0])
    a, b = (outcome(study, [run, *runs[1:]]).splitlines() for run in (diverged, zero))
    [differs] = [x for x, y in zip(a, b, strict=True) if x != y]
    assert "diverged, counted as 0: roper seed 8" in differs


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"settings": {"train.precision": "float32"}}, "train.precision"),
        ({"plugin": {"position": "91d3"}}, "roper"),
        ({"torch": "2.1 → 2.13"}, "roper seed 8"),
    ],
)
def test_runs_unlike_in_unplanned_settings_are_not_paired(study, runs, change, named):
    """E.g. `auto` chose another precision, a scheme was edited, or a run resumed with another torch
    version.
    """
    alike = [replace(run, settings={"train.precision": "bfloat16"} | run.settings) for run in runs]
    changed = replace(
        alike[0], **change | {"settings": alike[0].settings | change.get("settings", {})}
    )
    assert changed.position == "roper"
    text = outcome(study, [changed, *alike[1:]])
    assert "**Outcome: not tested.**" in text
    assert named in text.partition("**Outcome: not tested.**")[2]
    assert not [line for line in text.splitlines() if line.startswith("|")]


def test_settings_of_neither_the_plan_nor_the_recipe_are_named(study, runs):
    other = {
        "train.steps": 20,
        "model.d_model": 32,
        "train.lr": 5e-4,
        "train.weight_decay_on": "all",
    }
    study = replace(study, settings=study.settings | {"train.lr": 5e-4})
    few = [replace(run, settings=run.settings | other) for run in runs]
    text = outcome(study, few).partition("Not named in the plan")[2].partition("\n")[0]
    for name, there in (
        ("model.d_model=32", True),
        ("train.steps=20", True),
        ("train.lr", False),
        ("decay", False),
    ):
        assert (name in text) == there


def test_two_runs_for_one_cell_are_refused(study, runs):
    with pytest.raises(ConfigError, match="two runs are roper seed 8"):
        outcome(study, [*runs, make_row("roper", 8, [0.0, 1.0], run_id="other")])


def test_a_run_belongs_to_the_scheme_with_its_settings():
    """Settings come from the scheme's name, otherwise from its yaml; an unplanned run belongs to no
    scheme.
    """
    schemes = (
        "rope",
        "rope position.base=100",
        "rope train.lr=2e-4",
        "roper",
        "./mine.py position.k=2",
    )
    seeds = "{" + ", ".join(f"{scheme}: 8-13" for scheme in schemes) + "}"
    text = PLAN.replace("{rope: 8-13, roper: 8-13}", seeds).replace("train.lr: 1e-4, ", "")
    (study,) = studies.from_yaml(studies.Plan, text, "plan.yaml").studies.values()
    yaml = shipped("position/rope")
    kinds = {
        "rope": make_row("rope", 8, [0.0, 1.0], position_settings=yaml),
        "rope position.base=100": make_row(
            "rope", 9, [0.0, 1.0], position_settings=yaml | {"base": 100.0}
        ),
        "rope train.lr=2e-4": make_row(
            "rope", 10, [0.0, 1.0], settings={"train.lr": 2e-4}, position_settings=yaml
        ),
        "./mine.py position.k=2": make_row(
            "mine", 11, [0.0, 1.0], position_settings={"k": 2, "other": 3}
        ),
        None: make_row("rope", 12, [0.0, 1.0], position_settings=yaml | {"base": 50.0}),
        "": make_row("mine", 13, [0.0, 1.0], position_settings={"k": 3}),
    }
    found = find.find(study, list(kinds.values()))
    assert found == {(scheme, run.seed): run for scheme, run in kinds.items() if scheme}
    assert "position.other=3" in find.settings_not_planned(study, found)
    # As runs of one of several classes.
    assert arm_name("./mine.py:Steep position.k=2") == "mine-Steep (k=2)"


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("schemes: [roper, rope]", "schemes: [roper, alibi]", "must be two of rope, roper"),
        ("rope: 8-13", "rope: many", "seeds.rope is 'many'"),
        ("rope: 8-13", "rope: 010", "plan.yaml:9: 010: write a number without leading 0"),
        ("rope: 8-13", "rope: [8, 9:13]", "plan.yaml:9: 9:13: write a number"),
        ("rope: 8-13,", "rope: 1-3,", "with a seed in common"),
        ("hypothesis: RoPER is ahead.", "", "mine.hypothesis: Field required"),
        ("device: cpu", "task.path: x", "task.path is not one that plans fix"),
        ("device: cpu", "wandb.mode: x", "wandb.mode is not one that plans fix"),
        (
            "test: sign_flip, metric: eval/accuracy",
            "test: t, metric: length_loss/24",
            "of length_loss/24 the opposite is better",
        ),
        (
            "test: sign, metric: eval/accuracy",
            "test: sign, metric: length/24",
            "has no curve",
        ),
        ("studies:", "study:", "studies: Field required"),
        ("studies:", "correction: {mine: x}\nstudies:", "did you mean corrections"),
        ("times: 128, published", "times: .nan, published", "times is nan"),
        ("diverged: 0", "diverged: .inf", "diverged is inf"),
        (
            "schemes: [roper, rope], test: mcnemar",
            "schemes: [rope, rope], test: mcnemar",
            "must be two of rope, roper",
        ),
        ("mine:", "../mine:", "name is '../mine'"),
        ("mine:", "base 100:", "name is 'base 100'"),
    ],
)
def test_an_unreadable_plan_is_one_line(old, new, named, tmp_path):
    (tmp_path / "plan.yaml").write_text(PLAN.replace(old, new))
    (tmp_path / "runs.jsonl").touch()
    for command in (plan.main, results.main):  # results.main reads the plan of a results folder
        with pytest.raises(SystemExit, match=one_line(named)):
            command([str(tmp_path / "plan.yaml" if command is plan.main else tmp_path)])


def test_settings_of_a_plan_may_be_nested():
    text = PLAN.replace("device: cpu", "model: {d_model: 8}")
    (study,) = studies.from_yaml(studies.Plan, text, "plan.yaml").studies.values()
    assert study.settings == {"train.lr": 1e-4, "model.d_model": 8, "threads": 1}


def test_corrections_are_by_the_names_of_studies(tmp_path):
    for notes, said in {
        "[mine]": "corrections",
        "{mine: [a, b]}": "corrections.mine",
    }.items():
        (tmp_path / "plan.yaml").write_text(f"{PLAN}corrections: {notes}\n")
        with pytest.raises(SystemExit, match=f"plan.yaml: .*{said} is"):
            plan.main([str(tmp_path / "plan.yaml")])


def test_commits_that_do_not_hold_the_plan_are_named(study, runs, tmp_path):
    """Runs count as planned if their commit contains the current version of the study."""

    def git(*arguments: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.check_output(["git", *who, *arguments], cwd=tmp_path, text=True)

    def problems(commit: str) -> list[str]:
        made = [replace(run, commit=commit) for run in runs]
        found = evidence.flaws(path, study, find.find(study, made))
        return [problem.line for problem in found]

    path = tmp_path / "plan.yaml"
    git("init")
    commits = []
    for text in (PLAN.replace("34", "33"), PLAN, PLAN + "\n# a comment\n"):
        path.write_text(text)
        git("add", "plan.yaml")
        git("commit", "-m", "plan")
        commits.append(git("rev-parse", "HEAD").strip()[:12])
    assert "does not hold the study" in problems(commits[0])[0]
    assert problems(commits[1]) == problems(commits[2]) == []
    (changed,) = problems(commits[1] + "+")
    assert f"was changed after commit {commits[1]}" in changed
    assert "git cannot show" in problems("0123456789ab")[0]
    assert "git cannot show" in problems("unknown")[0]
    # Commit of the first part.
    assert f"commit {commits[0]} " in problems(f"{commits[0]} → {commits[1]}")[0]


@pytest.mark.slow  # reads the plan of each commit
def test_the_kept_runs_of_our_own_plan_were_planned():
    """Each run's commit contains its study; commits missing from a shallow clone are skipped."""
    ours, _ = outcomes.read(studies.PLAN, CATALOGUE)
    lines = [problem.line for results in ours for problem in results[0].family.flaws]
    assert [line for line in lines if "git cannot show" not in line] == []


def test_kept_rows_of_a_plan_have_no_other_tests(tmp_path, capsys):
    """Otherwise p values would be visible before the last run has ended."""
    make_pairs(tmp_path / "runs", [0.5, 0.6, 0.4], [0.8, 0.9, 0.9])
    text = {}
    for name in ("kept", "other"):
        (tmp_path / "plan.yaml").write_text(PLAN)
        results.main([str(tmp_path / "runs"), "--keep", "--into", str(tmp_path / name)])
        text[name] = (tmp_path / name / "README.md").read_text()
        assert "102.4" in text[name]  # 128 · 0.8: every seed is shown
    for word in ("p: paired t test", "p (corrected for)", "| difference from RoPE", "RoPER ahead?"):
        assert word in text["other"]
        assert word not in text["kept"]
    assert "plan.md" in text["kept"]


def test_a_page_of_the_users_own_beside_a_plan_stays(tmp_path):
    (tmp_path / "plan.yaml").write_text(PLAN)
    (tmp_path / "plan.md").write_text("# My plan\n")
    with pytest.raises(SystemExit, match=r"plan\.md: was not written by this command, and stays"):
        plan.main([str(tmp_path / "plan.yaml")])
    assert (tmp_path / "plan.md").read_text() == "# My plan\n"


def test_a_users_scheme_is_found_by_its_file_name(runs):
    (own,) = studies.from_yaml(
        studies.Plan, PLAN.replace("roper", "./own.py"), "plan.yaml"
    ).studies.values()
    made = [replace(run, position="own") if run.position == "roper" else run for run in runs]
    assert len(find.find(own, made)) == len(runs)


RATES = """
studies:
  rates:
    hypothesis: RoPER is ahead at twice the rate.
    rows: kept
    task: substring_by_index
    scale: quick
    settings: {threads: 1}
    seeds: {rope train.lr=1e-3: 0-2, roper train.lr=2e-3: 0-2}
    higher_is_better: true
    diverged: 0
    primary:
      - {name: last, schemes: [roper train.lr=2e-3, rope train.lr=1e-3],
         test: t, metric: eval/accuracy}
"""


@pytest.fixture
def rates(tmp_path):
    """A function that keeps runs in a folder of a plan, and gives the folder."""

    def keep(folder: str = "mine", **statuses: str):
        kept = tmp_path / folder / "kept"
        kept.mkdir(parents=True)
        (kept.parent / "plan.yaml").write_text(RATES)
        # ALiBi is in no study.
        for scheme, rate in (
            ("rope", 1e-3),
            ("roper", 2e-3),
            ("alibi", 4e-3),
        ):
            for seed in range(3):
                status = statuses.get(f"{scheme}{seed}", "finished")
                last = 0.5 + 0.1 * seed
                make_run(
                    tmp_path / f"{folder}-runs",
                    scheme,
                    seed,
                    last,
                    config__train__lr=rate,
                    status=status,
                )
        results.main([str(tmp_path / f"{folder}-runs"), "--keep", "--into", str(kept)])
        return kept

    return keep


def test_planned_runs_are_one_table_without_tests(rates, capsys):
    kept = rates()
    assert "--contender" not in capsys.readouterr().out  # which is refused
    page = (kept / "README.md").read_text()
    study, _, rest = page.partition("## Substring by Index, rates, scale quick")[2].partition(
        "\n## "
    )
    assert [each["scheme"] for each in table_rows(study)] == 2 * [
        "RoPE (train.lr=1e-3)",
        "RoPER (train.lr=2e-3)",
    ]
    assert "figures/rates-curves.svg" in study
    assert {each["scheme"] for each in table_rows(rest)} == {"ALiBi"}
    assert "difference from" not in page
    with pytest.raises(SystemExit, match="p values of planned comparisons"):
        results.main([str(kept), "--against", "roper", "--print"])


def test_runs_of_a_study_are_of_its_folder_alone(rates, capsys):
    one, other = rates("one", rope2="interrupted"), rates("other")
    assert "rope seed 2 is interrupted" in (one / "README.md").read_text()
    capsys.readouterr()
    results.main([str(one), str(other), "--print"])
    text = capsys.readouterr().out
    assert headings(text).count("Substring by Index, rates, scale quick") == 2
    assert not any("by train.lr" in heading for heading in headings(text))


def test_two_runs_of_one_cell_are_named(rates, tmp_path, capsys):
    kept = rates()
    make_run(tmp_path / "again", "rope", 0, 0.5, config__train__lr=1e-3, recipe="abc")
    results.main([str(tmp_path / "again"), "--keep", "--into", str(kept)])
    page = (kept / "README.md").read_text()
    assert "rates: two runs are rope train.lr=1e-3 seed 0" in page
    assert "rates, scale" not in page
