"""Comparisons and their results: differences, intervals and p values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from rope_lab.results.comparisons.paired_tests import TESTS
from rope_lab.results.comparisons.stats import NOTHING, Interval, holm, t_interval
from rope_lab.results.records.catalogue import TaskReport
from rope_lab.results.records.measures import Measure, in_words
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import Arm


def samples(arm: Arm, measure: Measure) -> pd.DataFrame:
    """The values of an arm under a measure that are recorded: `value pair_as`, by seed."""
    rows = [(run.seed, measure.of(run), run.pair_as) for run in arm.runs]
    table = pd.DataFrame(rows, columns=["seed", "value", "pair_as"])
    return table.astype({"seed": int, "value": float}).dropna(subset="value").set_index("seed")


@dataclass(frozen=True, eq=False)
class Comparison:
    """A question: ours − theirs under a measure, over pairs of runs with the same seed.

    name, task, scale: empty if no table shows it
    test:      a name of TESTS; empty: estimate only
    report:    of the task
    published: published gains of ours over theirs, in the measure's unit
    unit:      of a planned difference, in the words of its plan
    margin:    ours matches theirs if the interval excludes that it is worse by so much
    fewest:    pairs of a test; of fewer there is an estimate alone
    searched:  whether both schemes were run at several learning rates besides
    """

    report: TaskReport
    measure: Measure
    ours: Arm
    theirs: Arm
    name: str = ""
    task: str = ""
    scale: str = ""
    test: str = ""
    published: tuple[float, ...] = ()
    unit: str = ""
    margin: float | None = None
    fewest: int = 1
    searched: bool = False

    @property
    def arms(self) -> tuple[Arm, Arm]:
        """Ours and theirs."""
        return self.ours, self.theirs

    @property
    def short_name(self) -> str:
        """Its name without what stands in brackets; older plans name the metric itself."""
        metric = self.measure.metric
        return self.name.partition(" (")[0].replace(metric, in_words(metric))

    def pairs(self) -> pd.DataFrame:
        """The values of runs that may be paired, `ours theirs`, by seed."""
        ours = samples(self.ours, self.measure).rename(columns={"value": "ours"})
        theirs = samples(self.theirs, self.measure).rename(columns={"value": "theirs"})
        return ours.merge(theirs, on=["seed", "pair_as"]).sort_index()[["ours", "theirs"]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Family:
    """Comparisons whose p values are corrected together.

    several:      its name after the number of its tests, `2 planned tests`; one: if it has one
    corrected:    False: p values are shown as they are
    untested:     why no number may be shown; empty if there is none
    study:        the plans.study.Study that planned them; None without one
    found:        its runs that have ended
    flaws:        why it does not count as planned, the worst first
    """

    comparisons: list[Comparison]
    several: str = ""
    one: str = ""
    corrected: bool = True
    untested: str = ""
    study: Any = None
    found: dict[tuple[str, int], Run] = field(default_factory=dict)
    flaws: Sequence[Any] = ()

    @property
    def planned(self) -> bool:
        return self.study is not None

    @property
    def is_primary(self) -> bool:
        """Whether these are the primary tests of a plan: its secondary ones are not corrected."""
        return self.planned and self.corrected

    @property
    def open(self) -> bool:
        """Whether runs of a plan are to come."""
        return self.planned and len(self.found) < len(self.study.cells)


@dataclass(frozen=True, eq=False)
class Result:
    """The answer to a comparison.

    pairs:      by seed: `ours theirs`
    difference: the mean of ours − theirs with Student's t interval; nothing if pairs are counted
    p:          of the test; nan without one
    p_family:   p corrected for the family (Holm, 1979); nan without a correction
    corrected_for: the family, in words
    """

    comparison: Comparison
    family: Family
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
    def runs(self) -> list[Run]:
        """Of ours, then of theirs, with a pair or not."""
        return [run for arm in self.comparison.arms for run in arm.runs]

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
        """Whether neither mean is above the score of a guess, by more than two standard errors;
        false of another number than the task's own, and of a planned test.
        """
        asked = self.comparison
        guess = asked.report.guess
        is_own = asked.measure == asked.report.measure and not self.family.planned
        if guess is None or not is_own or self.pairs.empty:
            return False
        variance = guess * (1 - guess) / (asked.ours.runs[0].problems * len(self.pairs))
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
        gains = tuple(-gain for gain in asked.published)
        swapped = replace(asked, ours=asked.theirs, theirs=asked.ours, published=gains)
        pairs = self.pairs.rename(columns={"ours": "theirs", "theirs": "ours"})
        return replace(self, comparison=swapped, pairs=pairs, difference=-self.difference)


def answer(family: Family) -> list[Result]:
    """The results of a family, in its order; empty ones if it must not be tested yet."""
    results = [_answer(comparison, family) for comparison in family.comparisons]
    if not family.corrected:
        return results
    p = [result.p for result in results]
    tests = np.count_nonzero(~np.isnan(p))
    name = f"{tests} {family.several}" if tests > 1 else family.one
    corrected = zip(results, holm(p), strict=True)
    return [replace(result, p_family=p, corrected_for=name) for result, p in corrected]


def answered(comparison: Comparison) -> Result:
    """The result of a comparison outside of any family: no p is corrected."""
    (result,) = answer(Family(comparisons=[comparison], corrected=False))
    return result


def _answer(comparison: Comparison, family: Family) -> Result:
    pairs = comparison.pairs()
    if family.untested:
        pairs = pairs[:0]
    difference = NOTHING
    if not comparison.measure.counts:
        difference = t_interval((pairs.ours - pairs.theirs).to_numpy())
    result = Result(comparison, family, pairs, difference, math.nan)
    few = len(pairs) < comparison.fewest
    if family.untested or not comparison.test or few or result.at_chance:
        return result
    p = TESTS[comparison.test].p(pairs.ours.to_numpy(), pairs.theirs.to_numpy())
    return replace(result, p=p)
