"""Statistics, against textbooks and by simulation."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from rope_lab.results.comparisons import paired_tests, stats
from rope_lab.results.comparisons.paired_tests import sign_flip_p, sign_p
from rope_lab.results.comparisons.stats import holm


def paired_t_p(ours: list[float], theirs: list[float]) -> float:
    return paired_tests.paired_t_p(np.array(ours), np.array(theirs))


def test_t_interval_against_a_textbook():
    """Moore and McCabe: vitamin C of 8 lots, 26 31 23 22 11 22 14 31: mean 22.50, 95% interval 16.5
    to 28.5.
    """
    interval = stats.t_interval([26, 31, 23, 22, 11, 22, 14, 31])
    assert interval.mean == 22.5
    assert (round(interval.low, 1), round(interval.high, 1)) == (16.5, 28.5)
    assert math.isnan(stats.t_interval([1.0]).low)


def test_paired_t_against_students_own_data():
    """Student (1908), extra hours of sleep under two drugs: mean difference 1.58, t = 4.06, p =
    0.0028.
    """
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    paired = stats.t_interval(np.subtract(second, first))
    assert paired.mean == pytest.approx(1.58)
    assert paired_t_p(second, first) == pytest.approx(0.00283, abs=5e-5)
    assert (paired.low, paired.high) == pytest.approx((0.70, 2.46), abs=0.005)


def test_sign_flips_against_fishers_own_data():
    """Fisher (1935, section 21), Darwin's 15 pairs of maize: 1,726 of 32,768 choices of signs, p =
    5.27% two-sided.
    """
    darwin = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
    assert sign_flip_p(darwin) == pytest.approx(1726 / 32768, abs=1e-12)


def test_the_random_sign_flip_test_is_near_the_exact_one():
    values = np.random.default_rng(0).normal(0.5, 1, 15)
    exact, sampled = (
        sign_flip_p(values),
        sign_flip_p(values, exact=0, samples=2**14),
    )
    assert sampled == pytest.approx(exact, abs=0.02)
    assert sampled != exact
    for sign in (1.0, -1.0):
        assert sign_flip_p([sign] * 40, samples=2**14) == pytest.approx(1 / (2**14 + 1))


def test_holm_against_a_worked_example():
    """Holm (1979): p values 0.01 0.04 0.03 0.005 become 0.03 0.06 0.06 0.02."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.01, math.nan, 0.04]) == pytest.approx([0.02, math.nan, 0.04], nan_ok=True)


def test_mcnemar_against_the_sum_of_its_binomial():
    """Two-sided sum over splits at most as likely as the observed one: 2 (1 + 10) / 2¹⁰ for 1 and
    9.
    """
    nine, one = np.repeat([1, 0], [9, 1]), np.repeat([0, 1], [9, 1])
    assert sign_p(one, nine) == sign_p(nine, one) == pytest.approx(22 / 1024)
    assert sign_p(np.zeros(4), np.array([1, 1, 1, 0])) == pytest.approx(0.25)
    assert sign_p(np.array([1, 0]), np.array([0, 1])) == pytest.approx(1.0)


def test_no_spread_at_all():
    assert paired_t_p([1.0, 1.0], [1.0, 1.0]) == 1.0
    assert math.isnan(paired_t_p([2.0, 3.0], [1.0, 2.0]))
    thirds = [128 * round(k / 768, 6) for k in (5, 256, 700)]  # rounded as in kept rows
    more = [128 * round((k + 3) / 768, 6) for k in (5, 256, 700)]
    assert math.isnan(paired_t_p(more, thirds))
    assert paired_t_p([0.50001, 0.50003], [0.5, 0.5]) == pytest.approx(0.2951672)


@pytest.mark.parametrize(("pairs", "difference"), [(3, 2.0), (8, 1.0), (16, 0.5), (5, 0)])
def test_power_against_simulated_experiments(pairs, difference):
    rng, spread = np.random.default_rng(0), 3.0
    drawn = rng.normal(difference * spread, spread, (20_000, pairs))
    found = np.mean(scipy_stats.ttest_1samp(drawn, 0, axis=1).pvalue < stats.ALPHA)
    power = stats.paired_power(pairs, difference * spread, spread)
    assert found == pytest.approx(power, abs=4 * math.sqrt(power * (1 - power) / 20_000))


def test_pairs_needed_are_the_fewest_and_detectable_is_their_inverse():
    """From the plan: a difference of 45 with spread 51 needs 16 pairs for power 0.9 at the 5%
    level.
    """
    assert stats.pairs_needed(45, 51, 0.9) == 16
    assert stats.pairs_needed(-1e6, 1, 0.8) == 2
    assert stats.pairs_needed(1e-3, 1, 0.8) is None
    for pairs in (2, 3, 8, 100):
        least = stats.detectable(pairs, 51, 0.9)
        assert stats.paired_power(pairs, least, 51) == pytest.approx(0.9)
        assert stats.pairs_needed(least * 1.0001, 51, 0.9) == pairs


def test_the_interval_of_a_spread_covers_it():
    drawn = np.random.default_rng(0).normal(0, 3, (2_000, 6))
    ends = [stats.spread_interval(each) for each in drawn]
    assert np.mean([low < 3 < high for _, low, high in ends]) == pytest.approx(0.95, abs=0.015)
    assert all(math.isnan(each) for each in stats.spread_interval([1.0]))
