"""Measures: which number of a run counts; comparisons: pairs, tests and families."""

import math
from dataclasses import replace

import numpy as np
import pytest
from builders import CATALOGUE, make_row, make_rows

from rope_lab.results.comparisons.answers import Family, answer, answered
from rope_lab.results.comparisons.paired_tests import TESTS
from rope_lab.results.comparisons.stats import holm
from rope_lab.results.comparisons.unplanned import between
from rope_lab.results.records.measures import MEASURES, Measure, in_words
from rope_lab.results.records.setups import setups_of

ACCURACY = MEASURES["eval/accuracy"]
CURVE = [0.0, 0.2, 0.6, 0.4]  # at steps 0, 100, 200, 300


@pytest.mark.parametrize(
    ("at", "value", "of_diverged"),
    [
        ("last", 40.0, 10.0),
        ("mean", 40.0, 10.0),
        ("first step", 200.0, math.inf),
        ("log steps", math.log(200), math.log(500)),
        ("reached", 0.0, 0.0),
        ("ever reached", 1.0, 0.0),
    ],
)
def test_a_measure_is_one_number_of_a_run(at, value, of_diverged):
    run = make_row("rope", 0, CURVE)
    measure = replace(ACCURACY, at=at, reaches=0.5, times=100, diverged=0.1)
    assert measure.of(run) == pytest.approx(value)
    diverged = replace(run, status="diverged")
    assert measure.of(diverged) == pytest.approx(of_diverged)
    assert math.isnan(replace(measure, diverged=None).of(diverged))
    assert math.isnan(measure.of(replace(run, status="interrupted")))
    assert math.isnan(replace(measure, metric="length/7").of(run))  # not recorded


def test_what_is_not_recorded_is_nan():
    run = replace(make_row("rope", 0, CURVE), curves={}, metrics={})
    for at in ("last", "mean", "first step", "ever reached"):
        assert math.isnan(replace(ACCURACY, at=at, reaches=0.5).of(run))


def test_a_loss_reaches_a_value_from_above():
    run = make_row("rope", 0, [2.0, 1.5, 0.9], metric="eval/loss")
    first = replace(MEASURES["eval/loss"], at="first step", reaches=1.5)
    assert (first.of(run), first.sign) == (100, -1)


def test_only_declared_metrics_are_shown():
    assert MEASURES["eval/sum_accuracy"].share
    assert "eval/other_accuracy" not in MEASURES
    assert "train/lr" not in MEASURES
    assert Measure("a", "b", higher_is_better=False).most == math.inf


def test_pairs_have_one_seed_and_one_code():
    made = make_rows({"rope": [0.1, 0.2, 0.3], "roper": [0.4, 0.5, 0.6, 0.7]})
    made[1] = replace(made[1], numerics=99)
    made[2] = replace(made[2], torch="1 → 2")
    (setup,) = setups_of(made, CATALOGUE)
    result = answered(between(setup, "roper", "rope"))
    assert result.seeds == [0]
    assert (result.difference.n, result.p_family) == (1, pytest.approx(math.nan, nan_ok=True))


def test_p_values_are_corrected_within_their_family():
    ends = {"rope": [0.1, 0.2, 0.3], "roper": [0.4, 0.5, 0.7], "none": [0.1, 0.3, 0.3]}
    (setup,) = setups_of(make_rows(ends), CATALOGUE)
    asked = [between(setup, scheme, "rope") for scheme in ("roper", "none")]
    results = answer(Family(comparisons=asked, several="tests", one="one"))
    assert [r.p_family for r in results] == holm([r.p for r in results])
    assert {r.corrected_for for r in results} == {"2 tests"}
    (alone,) = answer(Family(comparisons=asked[:1], several="tests", one="one"))
    assert (alone.p_family, alone.corrected_for) == (alone.p, "one")
    (empty,) = answer(Family(comparisons=asked[:1], untested="open"))
    assert (len(empty.pairs), empty.difference.n) == (0, 0)


def test_a_swapped_result_is_the_negative():
    ends = {"rope": [0.1, 0.2, 0.3], "roper": [0.4, 0.5, 0.7]}
    (setup,) = setups_of(make_rows(ends), CATALOGUE)
    result = answered(between(setup, "roper", "rope"))
    swapped, other = result.swapped(), answered(between(setup, "rope", "roper"))
    assert (swapped.means, swapped.p, swapped.seeds) == (other.means, other.p, other.seeds)
    assert swapped.gain == other.gain
    assert result.ahead
    assert not swapped.ahead


def test_every_test_of_alike_pairs_has_no_evidence():
    alike = np.array([0.5, 0.5, 0.25])
    for name, test in TESTS.items():
        assert test.p(alike, alike) == 1, name


def test_metrics_have_titles_in_words():
    assert in_words("eval/loss") == "held-out loss"
    assert in_words("length/24") == "problems correct at length 24"
    assert in_words("length_loss/256") == "held-out loss at length 256"
    assert in_words("mine/score") == "mine/score"
    assert all(in_words(metric) != metric for metric in MEASURES)
