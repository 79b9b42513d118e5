"""Intervals over few, paired seeds, and the power of a test of so many.

With n seeds a percentile bootstrap is far too narrow (at n = 3 it covers 75% where it says 95%);
Student's t is not. Because the same seed gives every scheme the same initial weights and batches,
schemes are compared seed by seed.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import optimize, stats

LEVEL = 0.95
ALPHA = 0.05
FEWEST_PAIRS = 3  # of a test and a verdict
MOST_PAIRS = 10_000
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
    def side(self) -> int:
        """The side of 0 on which it lies, 1 or -1; 0 if it includes 0, or of too few pairs."""
        if self.n < FEWEST_PAIRS:
            return 0
        return int(self.low > 0) - int(self.high < 0)

    @property
    def exp(self) -> "Interval":
        """Of logarithms, the ratio: of their geometric means."""
        mean, low, high = map(math.exp, (self.mean, self.low, self.high))
        return Interval(mean, low, high, self.n)

    @property
    def of_two(self) -> tuple[float, float]:
        """Of two values, the lower and the higher: their interval is that much wider."""
        half = (self.high - self.mean) / critical(1)
        return self.mean - half, self.mean + half


NOTHING = Interval(np.nan, np.nan, np.nan, 0)


def critical(freedom: float) -> float:
    """Half the width of Student's t interval, in standard errors."""
    return float(stats.t.ppf((1 + LEVEL) / 2, freedom))


def t_interval(values: Sequence[float]) -> Interval:
    """The mean of `values` with Student's t interval."""
    if not len(values):
        return NOTHING
    mean = float(np.mean(values))
    n = len(values)
    if n < 2:
        return Interval(mean, np.nan, np.nan, n)
    half = float(np.std(values, ddof=1)) / n**0.5 * critical(n - 1)
    return Interval(mean, mean - half, mean + half, n)


def combined(groups: Sequence[pd.Series], weights: np.ndarray) -> Interval:
    """The sum of the means of independent groups, each times its weight, with the interval of Welch
    (1947), for spreads that differ; its n is that of the smallest group.
    """
    n = min(map(len, groups))
    if not n:
        return NOTHING
    total = float(weights @ [group.mean() for group in groups])
    if n < 2:
        return Interval(total, np.nan, np.nan, n)
    errors = weights**2 * [group.var() / len(group) for group in groups]
    if not errors.any():
        return Interval(total, total, total, n)
    freedom = errors.sum() ** 2 / (errors**2 / [len(group) - 1 for group in groups]).sum()
    half = float(errors.sum() ** 0.5 * critical(freedom))
    return Interval(total, total - half, total + half, n)


def t_intervals(values: pd.DataFrame, places: list[str], fewest: int = 2) -> pd.DataFrame:
    """By each place of the columns `places` the mean of `y`, the number `n` of its values, and the
    ends `low` and `high` of Student's t interval: nan with fewer values than `fewest`.
    """
    found = values.groupby(places).y.agg(y="mean", n="count", error="sem").reset_index()
    freedom = (found.n - 1).where(found.n >= fewest)
    half = found.pop("error") * stats.t.ppf((1 + LEVEL) / 2, freedom)
    return found.assign(low=found.y - half, high=found.y + half)


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
