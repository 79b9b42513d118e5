"""Comparisons and their results: the one place that computes a difference or a p value."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from rope_lab.results.comparisons.stats import (
    NOTHING,
    Interval,
    holm,
    paired_t_p,
    sign_flip_p,
    sign_p,
    t_interval,
)
from rope_lab.results.records.catalogue import TaskReport
from rope_lab.results.records.measures import Measure
from rope_lab.results.records.setups import Arm


def samples(arm: Arm, measure: Measure) -> pd.DataFrame:
    """The values of an arm under a measure that are recorded: `value pair_as`, by seed."""
    seeds = pd.Index([run.seed for run in arm.runs], dtype=object, name="seed")
    values = pd.Series([measure.of(run) for run in arm.runs], index=seeds, dtype=float)
    pair_as = pd.Series([run.pair_as for run in arm.runs], index=seeds, dtype=object)
    return pd.DataFrame({"value": values, "pair_as": pair_as}).dropna(subset="value")


@dataclass(frozen=True, eq=False)
class Comparison:
    """A question: ours − theirs under a measure, over pairs of runs with the same seed.

    test:      a name of TESTS
    report:    of the task
    published: published gains of ours over theirs, in the measure's unit
    margin:    ours matches theirs if the interval excludes that it is worse by so much
    untested:  up to so many pairs, there is an estimate and no test
    guess:     the share of problems that a guess has right; None if unknown, or if it is tested all
               the same
    problems:  that each run was asked
    searched:  whether both schemes were run at several learning rates besides
    """

    name: str
    task: str
    scale: str
    report: TaskReport
    measure: Measure
    ours: Arm
    theirs: Arm
    test: str
    published: tuple[float, ...] = ()
    margin: float | None = None
    untested: int = 0
    guess: float | None = None
    problems: int = 1
    searched: bool = False

    def pairs(self) -> pd.DataFrame:
        """The values of runs that may be paired, `ours theirs`, by seed."""
        ours, theirs = samples(self.ours, self.measure), samples(self.theirs, self.measure)
        both = ours.merge(theirs, on=["seed", "pair_as"], suffixes=("", "_theirs")).sort_index()
        return both.rename(columns={"value": "ours", "value_theirs": "theirs"})[["ours", "theirs"]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Family:
    """Comparisons whose p values are corrected together.

    several, one: its name if it has several tests, after their number, and if it has one
    corrected:    False: p values are shown as they are
    untested:     why no number may be shown; empty if there is none
    """

    comparisons: list[Comparison]
    several: str = ""
    one: str = ""
    corrected: bool = True
    untested: str = ""
    planned = False


@dataclass(frozen=True, eq=False)
class Result:
    """The answer to a comparison.

    family:     a Family, or a plan's PlannedFamily
    pairs:      by seed: `ours theirs`
    difference: the mean of ours − theirs with Student's t interval; nothing if pairs are counted
    p:          of the test; nan without one
    p_family:   p corrected for the family (Holm, 1979); nan without a correction
    corrected_for: the family, in words
    """

    comparison: Comparison
    family: Any
    pairs: pd.DataFrame
    difference: Interval
    p: float
    p_family: float = math.nan
    corrected_for: str = ""

    @property
    def measure(self) -> Measure:
        return self.comparison.measure

    @property
    def title(self) -> str:
        """Of the task."""
        return self.comparison.report.title

    @property
    def seeds(self) -> list[int]:
        """Of the pairs."""
        return list(self.pairs.index)

    @property
    def differences(self) -> pd.Series:
        return self.pairs.ours - self.pairs.theirs

    @property
    def means(self) -> tuple[float, float]:
        """Of ours and theirs over the pairs; nan if pairs are counted."""
        if self.measure.counts:
            return math.nan, math.nan
        return self.pairs.ours.mean(), self.pairs.theirs.mean()

    @property
    def alone(self) -> tuple[int, int]:
        """In how many pairs ours, and theirs, has the larger value."""
        ours, theirs = self.pairs.ours, self.pairs.theirs
        return int((ours > theirs).sum()), int((theirs > ours).sum())

    @property
    def at_chance(self) -> bool:
        """Whether neither mean is above the score of a guess, by more than two standard errors."""
        guess = self.comparison.guess
        if guess is None or self.pairs.empty:
            return False
        variance = guess * (1 - guess) / (self.comparison.problems * len(self.pairs))
        return max(self.means) / self.measure.times <= guess + 2 * math.sqrt(variance)

    @property
    def gain(self) -> Interval:
        """The difference, positive if ours is ahead."""
        return self.difference if self.measure.sign > 0 else -self.difference

    @property
    def ahead(self) -> bool:
        """Whether ours is ahead: in the mean or, if pairs are counted, in more of them."""
        if self.measure.counts:
            more, less = self.alone
            return self.measure.sign * (more - less) > 0
        return self.gain.mean > 0

    def swapped(self) -> "Result":
        """The same result with ours and theirs exchanged."""
        asked = self.comparison
        swapped = replace(
            asked,
            ours=asked.theirs,
            theirs=asked.ours,
            published=tuple(-gain for gain in asked.published),
        )
        pairs = self.pairs.rename(columns={"ours": "theirs", "theirs": "ours"})
        return replace(self, comparison=swapped, pairs=pairs, difference=-self.difference)


def answer(family: Family) -> list[Result]:
    """The results of a family, in its order; empty ones if it must not be tested yet."""
    results = [_answer(comparison, family) for comparison in family.comparisons]
    if not family.corrected:
        return results
    tests = sum(not math.isnan(result.p) for result in results)
    name = f"{tests} {family.several}" if tests > 1 else family.one
    corrected = holm([result.p for result in results])
    return [
        replace(result, p_family=p, corrected_for=name)
        for result, p in zip(results, corrected, strict=True)
    ]


def answered(comparison: Comparison) -> Result:
    """The result of a comparison outside of any family: no p is corrected."""
    (result,) = answer(Family(comparisons=[comparison], corrected=False))
    return result


def _answer(comparison: Comparison, family: Family) -> Result:
    if family.untested:
        nothing = pd.DataFrame({"ours": [], "theirs": []})
        return Result(comparison, family, nothing, NOTHING, math.nan)
    pairs = comparison.pairs()
    difference = NOTHING
    if not comparison.measure.counts:
        difference = t_interval((pairs.ours - pairs.theirs).to_numpy())
    result = Result(comparison, family, pairs, difference, math.nan)
    if len(pairs) <= comparison.untested or result.at_chance:
        return result
    p = TESTS[comparison.test](pairs.ours.to_numpy(), pairs.theirs.to_numpy())
    return replace(result, p=p)


def _t_or_sign_flip(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Of the t test or, if differences have no spread to go by, of the sign-flip test."""
    p = paired_t_p(ours, theirs)
    return sign_flip_p(ours - theirs) if math.isnan(p) else p


def _sign_flip(ours: np.ndarray, theirs: np.ndarray) -> float:
    return sign_flip_p(ours - theirs)


def _sign(ours: np.ndarray, theirs: np.ndarray) -> float:
    return sign_p(int((ours < theirs).sum()), int((ours > theirs).sum()))


def _none(ours: np.ndarray, theirs: np.ndarray) -> float:
    return math.nan


Test = Callable[[np.ndarray, np.ndarray], float]
TESTS: dict[str, Test] = {  # values of ours and theirs, seed by seed → p; McNemar's are 0 and 1
    "t": paired_t_p,
    "t_or_sign_flip": _t_or_sign_flip,
    "sign_flip": _sign_flip,
    "mcnemar": _sign,
    "sign": _sign,
    "none": _none,
}
