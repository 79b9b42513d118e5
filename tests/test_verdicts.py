"""Verdicts: word, gain, and p value of a comparison with its correction."""

import math
from dataclasses import replace

import numpy as np
import pytest
from builders import CATALOGUE, ROPE, ROPER, make_pairs, make_rows, make_run, row, shown, table_rows

from rope_lab.places import RESULTS
from rope_lab.results.comparisons import paired_tests
from rope_lab.results.comparisons.answers import Result
from rope_lab.results.comparisons.stats import holm
from rope_lab.results.comparisons.words import word as word_of
from rope_lab.results.plans import outcomes
from rope_lab.results.plans.study import PlannedTest, Study
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import setups_of
from rope_lab.results.views import figures, tables, verdict_page
from rope_lab.results.views.headlines import (
    headlines,
    label,
    legend,
    published_gains,
    sentences,
    table,
)
from rope_lab.results.views.verdict import Verdict

# Published gains: 34.11 of 128, and 0.0124 nats.
INDEX, PREFIX = (
    "substring_by_index",
    "substring_by_prefix",
)
DIFFERENCE = "difference from RoPE, higher is better"
SPREAD = [0.001, 0.0, -0.001, 0.0, 0.001, 0.0, -0.001, 0.0]


def runs(rope: list[float], roper: list[float], task: str = INDEX, **changes) -> list[Run]:
    """One run per scheme and seed; values are losses for Prefix, else accuracies."""
    changes = {"task": task, "metric": "eval/loss" if task == PREFIX else "eval/accuracy"} | changes
    return make_rows({"rope": rope, "roper": roper}, **changes)


def gaining(gain: float, task: str = INDEX, spread: float = 1.0, **changes) -> list[Run]:
    """Runs of eight seeds in which RoPER's value is higher by `gain`, with a small spread."""
    return runs([0.5] * 8, [0.5 + gain + spread * s for s in SPREAD], task, **changes)


def found(*made: Run, studies: tuple[list[Result], ...] = ()) -> list[Result]:
    return headlines(setups_of(list(made), CATALOGUE), list(studies), CATALOGUE)


def planned(
    made: list[Run], higher: bool = True, settings: dict | None = None, **changes
) -> list[Result]:
    """The results of a study of eight seeds: RoPER and RoPE after the last step."""
    last = {
        "name": "last",
        "schemes": ("roper", "rope"),
        "test": "sign_flip",
        "metric": "eval/accuracy",
    }
    primary = [PlannedTest(**last | {"times": 128.0, "reaches": 0.5} | changes)]
    seeds = {scheme: list(range(8)) for scheme in ("rope", "roper")}
    given = settings or {}
    return outcomes.of_study(
        Study("a", "b", "c", INDEX, "reduced", given, seeds, higher, 0.0, primary=primary),
        made,
        CATALOGUE,
    )


# Verdict words


@pytest.mark.parametrize(
    ("made", "word"),
    [
        (gaining(0.3), "ahead"),  # p < 1e-9, but not planned
        (gaining(0.1, spread=200), "unsure"),
        (gaining(-0.3, task="mine"), "behind"),  # no published gain
        (runs([0.5], [0.5]), "no verdict: add 2 seeds"),
        (runs([0.86, 0.87], [0.96, 0.97]), "no verdict: add 1 seed"),
        (
            runs([0.95, 0.95, 0.96], [0.99, 0.7, 0.4]),
            "unsure",
        ),  # much worse: the ceiling is no excuse
        (gaining(-0.3, PREFIX), "ahead"),  # a loss: lower is better
    ],
)
def test_what_was_not_planned_is_never_a_yes(made, word):
    (verdict,) = found(*made)
    assert (word_of(verdict), verdict.family.planned) == (word, False)


def test_a_diverged_run_leaves_no_verdict():
    made = gaining(0.3)
    made[-1] = replace(made[-1], status="diverged")
    assert word_of(found(*made)[0]) == "no verdict: 1 run diverged"


def test_differences_without_spread_are_not_unsure():
    """0 and 1 on eight seeds: the t test has no spread to go by."""
    assert (
        word_of(found(*runs([0.0] * 8, [1.0] * 8))[0])
        == "no verdict: all pairs differ alike, so there is no test"
    )


@pytest.mark.parametrize("test", ["sign_flip", "mcnemar", "sign"])
@pytest.mark.parametrize(("gain", "word"), [(0.3, "confirmed"), (-0.3, "reversed")])
@pytest.mark.parametrize("schemes", [("roper", "rope"), ("rope", "roper")])
def test_a_planned_test_does_not_depend_on_the_schemes_order(test, gain, word, schemes):
    made = runs([0.45 - gain / 2] * 8, [0.45 + gain / 2 + s for s in SPREAD])
    (verdict,) = found(studies=(planned(made, test=test, schemes=schemes),))
    assert (word_of(verdict), verdict.family.planned) == (word, True)
    assert verdict.p_family == 2 / 2**8
    (row,) = table([verdict], CATALOGUE).rows
    # The scale names other tests.
    assert (row["seeds"], row["scale"] == "reduced") == (
        "8",
        test == "sign_flip",
    )


@pytest.mark.parametrize(
    ("spread", "published", "word"),
    [
        (20, None, "undecided"),
        (20, 1.0, "undecided"),
        (20, 34.0, "refuted at the published size"),
        (100, 1.0, "undecided"),
    ],
)
def test_a_planned_test_is_unsure_unless_the_gain_is_excluded(spread, published, word):
    (verdict,) = found(studies=(planned(gaining(0.01, spread=spread), published=published),))
    assert verdict.p_family > 0.05
    assert word_of(verdict) == word
    # The write-up's value; a plan may round it.
    assert published_gains(verdict, CATALOGUE) == pytest.approx([34.11] if published else [])


def test_before_all_runs_ended_no_number_is_shown():
    made = gaining(0.3)
    open_, mixed = planned(made[:-1]), planned([replace(made[0], numerics=2), *made[1:]])
    verdict, untested = found(studies=(open_, mixed))
    assert word_of(verdict) == "open"
    assert word_of(untested) == "not tested"  # all have ended, but cannot be paired
    for each in (verdict, untested):
        assert all(map(math.isnan, (each.p_family, each.gain.mean, *each.means)))
    (row,) = table([verdict, untested], CATALOGUE).rows  # no row for the open one
    assert (row["seeds"], row["p (corrected for)"], row["measured gain [95% interval]"]) == (
        "0",
        "–",
        "–",
    )
    *_, said = legend([verdict, untested], CATALOGUE)
    assert said.startswith("open: Substring by Index, reduced: 15 of 16 runs have ended")


@pytest.mark.parametrize(
    ("settings", "training"),
    [
        ({"train.lr": 1e-4}, ""),
        ({"train.lr": 2e-4}, "train.lr=0.0002"),
        ({"train.lr": 1e-4, "train.optimizer": "muon"}, "train.optimizer=muon"),
        ({"train.lr": 2e-4, "train.optimizer": "muon"}, "train.lr=0.0002, train.optimizer=muon"),
    ],
)
def test_a_rate_other_than_the_recipes_is_named(settings, training):
    made = [replace(run, settings=run.settings | settings) for run in gaining(0.3)]
    (verdict,) = found(studies=(planned(made, settings=settings),))
    (row,) = table([verdict], CATALOGUE).rows
    assert row["scale"] == ", ".join(filter(None, ["reduced", training]))
    assert training in label(verdict)


# Gains


def test_each_verdict_is_said_in_a_sentence():
    (said,) = sentences(found(*gaining(0.3)), CATALOGUE)
    assert said.startswith("Substring by Index, reduced, seeds 0–7, exploratory")
    assert "gain of RoPER over RoPE +38.4 [" in said
    assert said.endswith(" correct out of 128: ahead")


@pytest.mark.parametrize(("task", "times", "sign"), [(INDEX, 128, 1), (PREFIX, 1, -1)])
def test_a_gain_is_positive_where_the_contender_is_ahead(task, times, sign):
    """For accuracy and loss; measured and published, planned and unplanned."""
    ahead = gaining(0.2 * sign, task)
    (name,) = ahead[0].metrics
    in_plan = [replace(run, task=INDEX) for run in ahead]
    studies = (
        planned(in_plan, sign > 0, metric=name, times=times, published=0.1 * sign),
        planned(
            in_plan,
            sign > 0,
            metric=name,
            times=times,
            published=-0.1 * sign,
            schemes=("rope", "roper"),
        ),
    )
    for verdict in found(*ahead, studies=studies):
        gain = verdict.gain
        assert 0 < gain.low < gain.mean < gain.high
        assert gain.mean == pytest.approx(0.2 * times)
        # Contender, then baseline.
        assert sign * (verdict.means[0] - verdict.means[1]) == pytest.approx(gain.mean)
        assert not verdict.family.planned or published_gains(verdict, CATALOGUE)[0] > 0
    assert published_gains(found(*ahead)[0], CATALOGUE) == []  # of another set-up


# One p value


def test_tasks_are_corrected_together_apart_from_planned_tests():
    index, prefix = gaining(0.3, spread=100), gaining(-0.3, PREFIX, spread=100)
    alone = [found(*made)[0] for made in (index, prefix)]
    assert [v.corrected_for for v in alone] == ["this task alone"] * 2
    together = found(*index, *prefix)
    assert [v.p_family for v in together] == pytest.approx(holm([v.p for v in alone]))
    assert {v.corrected_for for v in together} == {"2 tasks at this scale"}
    other_scale = found(*index, *(replace(run, scale="paper") for run in prefix))
    assert [v.p_family for v in other_scale] == pytest.approx([v.p for v in alone])
    one_seed = found(*index, *runs([0.5], [0.5], PREFIX))
    assert (one_seed[0].p_family, one_seed[0].corrected_for) == (alone[0].p, "this task alone")
    assert found(*index, studies=(planned(index),))[1].p_family == alone[0].p_family


def test_planned_tests_are_corrected_among_themselves_and_then_judged():
    """10 of 2⁸ sign choices give a mean at least as extreme: p is 0.039 for one test and 0.078 for
    two.
    """
    made = runs([0.5] * 8, [0.5 + d / 100 for d in (8, 7, 6, 5, 4, 3, -2, -1)])
    one = planned(made)[0].family.study
    two = replace(one, primary=[*one.primary, replace(one.primary[0], value="mean")])
    for study, family, p, word in (
        (one, "one planned test", 10, "confirmed"),
        (two, "2 planned tests", 20, "undecided"),
    ):
        (first, *_) = found(studies=(outcomes.of_study(study, made, CATALOGUE),))
        assert (first.corrected_for, first.p_family, word_of(first)) == (
            family,
            pytest.approx(p / 2**8),
            word,
        )


def test_a_comparison_has_one_p_wherever_it_is_shown(tmp_path, capsys):
    """RoPER's p is the verdict's; the other schemes are corrected among themselves."""
    make_pairs(tmp_path, ROPE, ROPER)
    prefix = [0.5, 0.4, 0.7], [0.6, 0.4, 0.8]
    make_pairs(tmp_path, *prefix, task=PREFIX, name="p")
    others = {"none": [0.3, 0.3, 0.31, 0.2], "learned": [0.4, 0.45, 0.4, 0.36]}
    for scheme, ends in others.items():
        for seed, last in enumerate(ends):
            make_run(tmp_path, scheme, seed, last)
    make_run(tmp_path, "sinusoidal", 0, 0.1)  # one pair, no p
    text = shown(capsys, tmp_path)
    both = holm([paired_tests.paired_t_p(*map(np.array, pair)) for pair in ((ROPE, ROPER), prefix)])
    for task, p in zip(("Substring by Index", "Substring by Prefix"), both, strict=True):
        verdict = row(text, task)["p (corrected for)"]
        assert verdict == f"{p:.2g} (2 tasks at this scale)"
        section = text.partition(f"## {task}, scale quick")[2]
        assert row(section, "RoPER")["p"] == verdict.split()[0]
    index = text.partition("## Substring by Index, scale quick")[2]
    assert "2 tasks at this scale (RoPER)" in index
    assert "2 schemes here (others)" in index
    p_others = holm(
        [paired_tests.paired_t_p(np.array(ends), np.array(ROPE)) for ends in others.values()]
    )
    assert [row(index, scheme)["p"] for scheme in others] == [f"{p:.2g}" for p in p_others]
    assert row(index, "sinusoidal")["p"] == row(index, "RoPE")["p"] == "–"


# Tables


SETUP = {
    "config__task": {"string_length": 13, "letters": "abcdefghijklmnopqrstuvwxyz"},
    "config__model": {"d_model": 512, "attention": "softmax", "n_layers": 6}
    | {"n_heads": 8, "norm": "post"},
    "config__train": {"batch_size": 32, "seq_len": 640, "steps": 5000, "decay": "none"},
}


def test_published_beside_measured_and_the_paired_interval(tmp_path, capsys):
    """By hand: means 0.5125 and 0.8175; differences 0.30 0.37 0.20 0.35, mean 0.305, sd 0.07594,
    t(3) = 3.18245.
    """
    make_pairs(tmp_path, ROPE, ROPER, **SETUP)
    text = shown(capsys, tmp_path)
    half = 3.18245 * 0.07594 / 2
    interval = f"[{128 * (0.305 - half):+.1f}, {128 * (0.305 + half):+.1f}]"
    assert row(text, "Substring by Index") == {
        "task": "Substring by Index",
        "scale": "quick",
        "published gain": "+34.1",
        "measured RoPE → RoPER": "65.6 → 104.6",
        "measured gain [95% interval]": f"+39.0 {interval} correct out of 128",
        "seeds": "4",
        "p (corrected for)": "0.004 (this task alone)",
        "RoPER ahead?": "ahead",
        "comparison": "exploratory (one learning rate, not searched)",
    }
    means, seeds = (each for each in table_rows(text) if each.get("scheme") == "RoPER")
    assert means["published"] == "96.11"
    assert means[DIFFERENCE] == f"+39.0 {interval} n=4"
    reach = "seeds that reach {} correct, median step"
    assert means[reach.format("50%")] == "4 of 4, step 100"  # by the third evaluation
    assert means[reach.format("95%")] == "1 of 4"
    assert seeds["every seed, correct out of 128"] == "102.4 124.2 96.0 96.0"
    assert seeds["worst removed"] == "107.5"  # (0.80 + 0.97 + 0.75) / 3 × 128
    assert seeds["step at 95% correct"] == "– 100 – –"
    assert "differs from the write-up in no setting" in text
    other = make_pairs(tmp_path / "other", ROPE, ROPER)
    assert "model.d_model 16 (write-up: 512)" in shown(capsys, other)


def test_an_estimate_has_intervals_and_no_test(tmp_path, capsys):
    """With as few pairs as published.yaml names, any scheme gets an estimate only; one more pair
    gets a test.
    """
    few = CATALOGUE.estimates["full_width"]
    rope, roper = ([start + seed / 100 for seed in range(few + 1)] for start in (0.4, 0.7))
    roper[0] = 0.45  # less than half
    for n, tested in ((few, False), (few + 1, True)):
        make_pairs(out := tmp_path / str(n), rope[:n], roper[:n], scale="full_width")
        make_run(out, "none", 0, 0.2, scale="full_width")
        make_run(out, "none", 1, 0.3, scale="full_width")
        text = shown(capsys, out)
        verdict, roper_row, none = (
            row(text, name) for name in ("Substring by Index", "RoPER", "none")
        )
        assert verdict["measured gain [95% interval]"].count(",") == 1
        assert none[DIFFERENCE].count(" to ") == 1  # of two pairs, both differences
        assert (verdict["p (corrected for)"] != "–", verdict["RoPER ahead?"] == "ahead") == (
            tested,
            tested,
        )
        assert (roper_row["p"] != "–", none["p"]) == (tested, "–")
        assert ("corrected (Holm" in text) == tested
        assert f"t test against RoPE, from {few + 1} pairs on" in text


def test_a_taken_name_gets_a_number():
    """As of two setups whose task was edited between them."""
    assert tables.unused({"a"}, "a", "b") == "b"
    assert tables.unused({"a", "b", "b-2"}, "a", "b") == "b-3"


def test_figures_of_a_task_edited_twice_have_their_kind_last():
    """Its page looks their text up by it."""
    ends = {"rope": [0.5, 0.6], "roper": [0.6, 0.7]}
    made = [make_rows(ends, plugin={"task": code}) for code in ("a1", "b2", "c3")]
    setups = [setup for rows in made for setup in setups_of(rows, CATALOGUE)]
    names = {figure.name for figure in figures.draw(setups).values()}
    assert len(names) == 3
    assert {name.rpartition("-")[2] for name in names} == {"curves"}


def test_steps_stand_as_steps_and_their_difference_as_a_ratio():
    """Of the study index_sooner, whose runs are kept."""
    studied, _ = outcomes.read(RESULTS / "plan.yaml", Catalogue())
    every = [result for results in studied for result in results]
    result = next(each for each in every if each.measure.is_log and each.difference.n == 32)
    verdict = Verdict(RESULTS, result, [], [], ("RoPER", "RoPE"), [], [], [])
    first, second, difference = verdict_page.table(verdict).rows
    column = list(first)[1]
    assert first[column].startswith("2,853 [")
    assert second[column].startswith("3,306 [")
    assert difference["scheme"] == "RoPER / RoPE"
    assert difference[column] == "0.86 [0.79, 0.95] times the steps"


def test_rope_with_fewer_heads_is_not_the_baseline():
    """In plan.yaml it has a learning rate of its own too, which is named first."""
    catalogue = Catalogue(contender="kv_shared_back", baseline="rope")
    studied, _ = outcomes.read(RESULTS / "plan.yaml", catalogue)
    asked = {result.comparison.theirs.scheme for result in headlines([], studied, catalogue)}
    assert not any("kv_heads" in scheme for scheme in asked)
