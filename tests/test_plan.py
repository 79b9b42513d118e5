"""Planned comparisons: nothing is tested early, and what is printed is what references compute from the same runs."""

import itertools
import math
import subprocess
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from scipy import stats as scipy_stats
from test_results import make_run

from rope_lab.results import __main__ as results
from rope_lab.results import frame, plan, stats, studies
from rope_lab.results.kept import read_kept
from rope_lab.results.published import Published
from rope_lab.results.runs import Run

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
      - {name: last, schemes: [roper, rope], test: sign_flip, metric: eval/accuracy, times: 128, published: 34}
      - {name: whole curve, schemes: [roper, rope], test: sign_flip, value: mean, metric: eval/accuracy, times: 128}
    secondary:
      - {name: solve, schemes: [roper, rope], test: mcnemar, metric: eval/accuracy, reaches: 0.5}
      - {name: steps, schemes: [roper, rope], test: sign, metric: eval/accuracy, reaches: 0.5}
"""
SEEDS = range(8, 14)


def make_row(scheme: str, seed: int, curve: list[float], **changes) -> Run:
    """A run evaluated at steps 0, 100, 200, …"""
    sizes = {"train.steps": 500, "train.batch_size": 1, "train.seq_len": 10, "eval.problems": 8}
    run = Run(
        task="substring_by_index",
        scale="reduced",
        recipe_id="r",
        position=scheme,
        seed=seed,
        run_id=f"{scheme}{seed}",
        status="finished",
        steps=500,
        sequences=500,
        tokens=5000,
        seconds=1.0,
        parameters=10,
        code="c0de",
        commit="0123456789ab",
        torch="2.13",
        hardware="CPU",
        threads=1,
        metrics={"eval/accuracy": curve[-1]},
        settings=sizes | {"train.lr": 1e-4, "device": "cpu"} | changes.pop("settings", {}),
        position_settings={},
        curves={"eval/accuracy": [[100 * i for i in range(len(curve))], curve]},
        slices={},
        floor={},
    )
    return replace(run, **changes)


@pytest.fixture
def study(monkeypatch):
    monkeypatch.setattr(frame, "scheme_names", lambda runs: [run.position for run in runs])
    return studies.parsed(PLAN, "plan.yaml")[0]


@pytest.fixture
def runs():
    """RoPER reaches half right at step 200 on every seed, RoPE at 300 on every other one and never on the rest."""
    random = Random(3)
    made = []
    for seed in SEEDS:
        made.append(make_row("roper", seed, [0.0, 0.1, 0.6, round(0.8 + 0.1 * random.random(), 4)]))
        made.append(make_row("rope", seed, [0.0, 0.0, 0.1, round(0.3 * random.random() + 0.55 * (seed % 2), 4)]))
    return made


def outcome(study: studies.Study, runs: list[Run]) -> str:
    return plan.outcome(study, runs, Published())


def differences(runs, of) -> list[float]:
    by = {(r.position, r.seed): r.curves["eval/accuracy"][1] for r in runs}
    return [128 * (of(by["roper", seed]) - of(by["rope", seed])) for seed in SEEDS]


def flips(values: list[float]) -> float:
    """The sign-flip test by its definition, one choice of signs after the other."""
    choices = [
        abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in itertools.product((1, -1), repeat=6)
    ]
    return np.mean([c >= abs(sum(values)) - 1e-9 for c in choices])


def test_the_outcome_is_what_references_compute(study, runs):
    text = " ".join(outcome(study, runs).split())
    last, whole = differences(runs, lambda c: c[-1]), differences(runs, lambda c: np.mean(c[1:]))
    p = [flips(last), flips(whole)]
    assert p == [2 / 64, 2 / 64]  # every seed is ahead: the least that six pairs can give
    for values in (last, whole):
        ends = scipy_stats.ttest_1samp(values, 0).confidence_interval()
        assert f"{np.mean(values):+.4g} [{ends.low:+.4g}, {ends.high:+.4g}]" in text
    assert text.count("| 0.031 | 0.062") == 2  # Holm over the two
    assert "6 against 3 of 6; alone 3 against 0 | 0.25 " in text  # 2 · (1/2)³
    assert "median step 200 against never; first 6 times against 0 | 0.031 " in text
    assert text.count("200 | never |") == text.count("200 | 300 |") == 3


def test_verdicts(study, runs):
    c, result = study.primary[0], plan.Result(0.01, "", 50, 40, 60)
    assert plan._verdict(study, c, result, 0.01) == "confirmed"
    assert plan._verdict(study, c, replace(result, mean=-50), 0.01) == "reversed"
    assert plan._verdict(study, c, plan.Result(0.2, "", 10, -10, 33), 0.2) == "refuted at the published size"
    assert plan._verdict(study, c, plan.Result(0.2, "", 10, -10, 35), 0.2) == "undecided"
    lower, c = replace(study, higher_is_better=False), replace(c, published=-0.012)
    assert plan._verdict(lower, c, plan.Result(0.01, "", -0.03, -0.04, -0.02), 0.01) == "confirmed"
    assert plan._verdict(lower, c, plan.Result(0.01, "", 0.03, 0.02, 0.04), 0.01) == "reversed"
    assert plan._verdict(lower, c, plan.Result(0.5, "", 0.0, -0.011, 0.011), 0.5) == "refuted at the published size"
    assert plan._verdict(lower, c, plan.Result(0.5, "", 0.0, -0.013, 0.013), 0.5) == "undecided"


@pytest.mark.parametrize(
    "change",
    [{"status": "interrupted"}, {"threads": 2}, {"settings": {"train.lr": 2e-4}}, {"settings": {"device": "cuda"}}],
)
def test_nothing_is_tested_before_the_last_run(study, runs, change):
    """A run that was cut off, or that has other settings than planned, is none of the study."""
    for left_out in (runs[:-1], [*runs[:-1], make_row("rope", 13, [0.0, 0.5], **change)]):
        text = outcome(study, left_out)
        assert "11 of 12 runs have ended" in text
        assert not [line for line in text.splitlines() if line.startswith("|")]


def test_other_seeds_and_schemes_are_not_counted(study, runs):
    more = [make_row("roper", 14, [0.0, 0.0]), make_row("none", 8, [0.0, 0.0]), make_row("rope", 7, [0.0, 1.0])]
    assert outcome(study, runs + more) == outcome(study, runs)


def test_a_diverged_run_counts_as_planned(study, runs):
    """As 0 in means, as not solved, as never there; and is named."""
    diverged = replace(runs[0], status="diverged")
    zero = make_row("roper", 8, [0.0, 0.0, 0.0, 0.0])
    a, b = (outcome(study, [run, *runs[1:]]).splitlines() for run in (diverged, zero))
    assert [x for x, y in zip(a, b, strict=True) if x != y] == [
        "All 12 runs have ended, 1 of them diverged (roper seed 8; counted as 0)."
    ]


def test_runs_of_two_codes_are_not_paired(study, runs):
    mixed = [replace(runs[0], code="other"), *runs[1:]]
    assert "cannot be paired" in outcome(study, mixed)


def test_a_run_of_mixed_origin_is_named_and_nothing_is_tested(study, runs):
    """Even where all of them are of the same mixed code."""
    alike = [replace(run, code="a → b") for run in runs]
    one = [replace(runs[0], torch="2.1 → 2.13"), *runs[1:]]
    for mixed, named in ((alike, "rope seed 13"), (one, "roper seed 8")):
        text = outcome(study, mixed)
        assert "**Outcome: none.** Of mixed origin" in text
        assert named in text
        assert not [line for line in text.splitlines() if line.startswith("|")]


def test_two_runs_for_one_cell_are_refused(study, runs):
    with pytest.raises(studies.PlanError, match="two runs are roper seed 8"):
        outcome(study, [*runs, make_row("roper", 8, [0.0, 1.0], run_id="other")])


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("test: sign_flip", "test: t", "test is 't'"),
        ("value: mean", "value: best", "value is 'best'"),
        (", reaches: 0.5", "", "needs reaches"),
        ("schemes: [roper, rope]", "schemes: [roper, alibi]", "must be two of rope, roper"),
        ("rope: 8-13", "rope: many", "seeds.rope is 'many'"),
        ("rope: 8-13,", "rope: 1-3,", "no seed in common"),
        ("hypothesis: RoPER is ahead.", "guess: 1", "hypothesis"),
        ("studies:", "study:", "is no plan"),
        ("studies:", "studies: {", "is no plan"),
    ],
)
def test_a_plan_that_cannot_be_read_is_said_in_a_line(old, new, named, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(PLAN.replace(old, new))
    with pytest.raises(SystemExit) as refused:
        plan.main([str(path)])
    assert named in str(refused.value)
    assert "\n" not in str(refused.value)


def test_commits_that_do_not_hold_the_plan_are_named(study, runs, tmp_path):
    """Runs count as planned where their commit has the study as it stands now."""

    def git(*arguments: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(
            ["git", *who, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    def problems(commit: str) -> list[str]:
        made = [replace(run, commit=commit) for run in runs]
        return plan.unplanned(path, [study], {"kept": made})

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
    assert "does not hold the study" in problems(commits[1] + "+")[0]
    assert "does not hold the study" in problems(commits[1] + "?")[0]
    assert "git does not tell" in problems("0123456789ab")[0]
    assert "git does not tell" in problems("unknown")[0]
    assert f"commit {commits[0]} " in problems(f"{commits[0]} → {commits[1]}")[0]  # of its first part


def test_the_kept_runs_of_our_own_plan_were_planned():
    """Each was made by a commit that holds its study; the clone must have its history for git to tell."""
    ours = studies.load()
    folders = {study.rows: studies.PLAN.parent / study.rows for study in ours}
    runs = {name: read_kept(folder)[0] if folder.is_dir() else [] for name, folder in folders.items()}
    assert [p for p in plan.unplanned(studies.PLAN, ours, runs) if "git does not tell" not in p] == []


def test_the_random_sign_flip_test_is_near_the_exact_one_and_never_0():
    values = np.random.default_rng(0).normal(0.5, 1, 15)
    exact, sampled = stats.sign_flip_p(values), stats.sign_flip_p(values, samples=2**14)
    assert sampled == pytest.approx(exact, abs=0.02)
    assert sampled != exact
    for sign in (1.0, -1.0):
        assert stats.sign_flip_p([sign] * 40, samples=2**14) == pytest.approx(1 / (2**14 + 1))


def test_the_sign_test_is_the_binomial_one():
    assert stats.sign_p(0, 0) == 1
    assert stats.sign_p(9, 1) == stats.sign_p(1, 9) == pytest.approx(2 * (1 + 10) / 2**10)
    assert math.isclose(stats.sign_p(5, 0), 2 / 32)


def test_kept_rows_of_a_plan_are_shown_without_tests_of_their_own(tmp_path, capsys):
    """Whoever keeps rows as they end would otherwise look at p values before the last run."""
    for seed, (rope, roper) in enumerate([(0.5, 0.8), (0.6, 0.9), (0.4, 0.9)]):
        make_run(tmp_path / "runs", "rope", seed, rope)
        make_run(tmp_path / "runs", "roper", seed, roper)
    text = {}
    for name in ("kept", "other"):
        (tmp_path / "plan.yaml").write_text(PLAN)
        results.main([str(tmp_path / "runs"), "--keep", "--into", str(tmp_path / name)])
        text[name] = (tmp_path / name / "README.md").read_text()
        assert "102.4" in text[name]  # 128 · 0.8: every seed is shown
    assert "p (Holm)" in text["other"]
    assert "against RoPE" in text["other"]
    for word in ("p (Holm)", "against RoPE", "95% interval of the difference", "McNemar"):
        assert word not in text["kept"]
    assert "plan.md" in text["kept"]
