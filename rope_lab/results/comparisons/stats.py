"""Intervals and tests for few, paired seeds.

With n seeds a percentile bootstrap is far too narrow (at n = 3 it covers 75% where it says 95%);
Student's t is not. Because the same seed gives every scheme the same initial weights and batches,
schemes are compared seed by seed.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import optimize, stats

LEVEL = 0.95
ALPHA = 0.05
MOST_PAIRS = 10_000
EXACT_PAIRS = 32  # up to so many, all choices of signs are counted
SAME = 1e-13  # sums of differences closer than this share of the sum of absolute values are equal
# Kept records have six digits: differences closer than this share of the values are alike.
ROUNDED = 4e-6
FAR = 1000.0  # standard errors: the power is 1 there, and nan much farther


@dataclass(frozen=True)
class Interval:
    """A mean and its 95% interval: its ends are nan with one value, all is nan with none."""

    mean: float
    low: float
    high: float
    n: int

    def __neg__(self) -> "Interval":
        return Interval(-self.mean, -self.high, -self.low, self.n)

    @property
    def of_two(self) -> tuple[float, float]:
        """Of two values, the lower and the higher: their interval is that much wider."""
        half = (self.high - self.mean) / float(stats.t.ppf((1 + LEVEL) / 2, 1))
        return self.mean - half, self.mean + half


NOTHING = Interval(np.nan, np.nan, np.nan, 0)


def t_interval(values: Sequence[float]) -> Interval:
    """The mean of `values` with Student's t interval."""
    if not len(values):
        return NOTHING
    mean, n = float(np.mean(values)), len(values)
    if n < 2:
        return Interval(mean, np.nan, np.nan, n)
    half = float(np.std(values, ddof=1)) / n**0.5 * float(stats.t.ppf((1 + LEVEL) / 2, n - 1))
    return Interval(mean, mean - half, mean + half, n)


def paired_t_p(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The two-sided p value of the paired t test: `ours[i]` and `theirs[i]` are of the same seed.

    nan of one pair, or if all differences are alike but not 0.
    """
    differences = ours - theirs
    if len(differences) < 2:
        return np.nan
    if np.ptp(differences) > ROUNDED * np.abs([ours, theirs]).max():
        return float(stats.ttest_1samp(differences, 0.0).pvalue)
    return np.nan if differences.any() else 1.0


def sign_flip_p(
    differences: Sequence[float] | np.ndarray, exact: int = EXACT_PAIRS, samples: int = 2**17
) -> float:
    """The two-sided p value of the permutation test that flips the sign of each difference, by
    their mean.

    Exact, over all 2ⁿ choices of signs, up to `exact` pairs. Beyond, over `samples` random ones,
    and never 0 (Phipson and Smyth, 2010).
    """
    differences = np.asarray(differences, dtype=float)
    n = len(differences)
    # Sums that differ by rounding are equally far from 0.
    least = abs(differences.sum()) - SAME * np.abs(differences).sum()
    if n <= exact:
        # Choices for the two halves of the pairs meet: Horowitz and Sahni, 1974.
        first = _signed_sums(differences[: n // 2])
        second = np.sort(_signed_sums(differences[n // 2 :]))
        at_most = np.searchsorted(second, np.sort(-least - first), side="right").sum()
        below = np.searchsorted(second, np.sort(least - first), side="left").sum()
        at_least = len(second) * len(first) - below
        return float(min(1.0, (at_most + at_least) / 2**n))
    test = stats.permutation_test(
        (differences,),
        lambda x, axis: abs(x.sum(axis)),
        permutation_type="samples",
        n_resamples=samples,
        batch=2**12,
        alternative="greater",
        random_state=0,
    )
    return float(test.pvalue)


def _signed_sums(values: np.ndarray) -> np.ndarray:
    """Σᵢ ±vᵢ of all 2ⁿ choices of signs."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def t_or_sign_flip_p(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Of the t test or, if differences have no spread to go by, of the sign-flip test."""
    p = paired_t_p(ours, theirs)
    return sign_flip_p(ours - theirs) if np.isnan(p) else p


def sign_p(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The exact two-sided sign test of which value of a pair is larger; ties are left out.

    Of seeds that reach something under one scheme alone, it is McNemar's test in its exact form.
    """
    first, second = np.count_nonzero(ours > theirs), np.count_nonzero(theirs > ours)
    return float(stats.binomtest(first, first + second).pvalue) if first + second else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """p values adjusted for their number (Holm, 1979); nan stays nan and does not count."""
    p = pd.Series(p_values, dtype=float)
    ordered = p.dropna().sort_values()
    factors = np.arange(len(ordered), 0, -1)
    return (ordered * factors).clip(upper=1).cummax().reindex(p.index).to_list()


def spread_limit(differences: Sequence[float], level: float) -> float:
    """The upper limit of the standard deviation of paired differences that holds with the
    probability `level` (χ²).
    """
    degrees = len(differences) - 1
    spread = float(np.std(differences, ddof=1))
    return spread * float(np.sqrt(degrees / stats.chi2.ppf(1 - level, degrees)))


def without_worst(values: Sequence[float], higher_is_better: bool) -> float:
    """The write-up's protocol: the mean without the worst seed; nan from fewer than two."""
    kept = sorted(values, reverse=higher_is_better)[:-1]
    return float(np.mean(kept)) if kept else float("nan")


def paired_power(pairs: int, difference: float, spread: float) -> float:
    """The probability that a two-sided paired t test over so many pairs finds a true mean
    difference.

    Exact, by the noncentral t distribution, where paired differences are normal with standard
    deviation `spread`.
    """
    critical = stats.t.ppf(1 - ALPHA / 2, pairs - 1)
    shift = min(abs(difference) / spread * np.sqrt(pairs), FAR)
    # Both tails, by symmetry.
    return float(sum(stats.nct.sf(critical, pairs - 1, each) for each in (shift, -shift)))


def pairs_needed(difference: float, spread: float, power: float) -> int | None:
    """The fewest pairs with which that test has at least `power`; None if even MOST_PAIRS have
    less.
    """
    if paired_power(MOST_PAIRS, difference, spread) < power:
        return None
    return 2 + bisect_left(
        range(2, MOST_PAIRS), True, key=lambda n: paired_power(n, difference, spread) >= power
    )


def detectable(pairs: int, spread: float, power: float) -> float:
    """The least true mean difference that this test over so many pairs finds with at least
    `power`.
    """
    found = optimize.brentq(lambda difference: paired_power(pairs, difference, 1.0) - power, 0, FAR)
    return spread * float(found)


def spread_interval(differences: Sequence[float]) -> tuple[float, float, float]:
    """The standard deviation of paired differences and its 95% interval (χ²); nan from fewer than
    two.
    """
    if len(differences) < 2:
        return np.nan, np.nan, np.nan
    low, high = (spread_limit(differences, level) for level in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return float(np.std(differences, ddof=1)), low, high
