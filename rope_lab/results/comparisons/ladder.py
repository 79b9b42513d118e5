"""A lead over sizes: at each size, its slope, and the effective speedup.

A size N is the number of parameters in the matrices of the layers, 12 · layers · d_model². The
compute of a run is C = 6 N D, D its tokens (Kaplan et al., 2020).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from scipy import optimize

from rope_lab.results.comparisons.answers import Comparison, answered
from rope_lab.results.comparisons.stats import FEWEST_PAIRS, NOTHING, Interval, combined
from rope_lab.results.records.catalogue import TaskReport
from rope_lab.results.records.measures import MEASURES
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import Arm
from rope_lab.text import ConfigError

LOSS = MEASURES["eval/loss"]
FARTHEST = 4  # times the largest size: no projection goes beyond
LEAST_SIZES = 3  # for a fit of three constants
MOST_SPEEDUP = 1000


@dataclass(frozen=True)
class Rung:
    """The runs of one size: `parameters` is N, `runs` are those of each scheme."""

    name: str
    parameters: int
    runs: dict[str, list[Run]]

    @property
    def compute(self) -> float:
        """C of a run, in FLOPs."""
        return 6.0 * self.parameters * self.tokens

    @property
    def tokens(self) -> int:
        """Of a run that did not diverge."""
        return max(run.tokens for runs in self.runs.values() for run in runs)

    def diverged(self, scheme: str) -> int:
        """How many runs of a scheme diverged."""
        return sum(run.status == "diverged" for run in self.runs[scheme])

    def loss(self, scheme: str) -> float:
        """The mean held-out loss at the end; nan if a run diverged."""
        return float(np.mean([LOSS.of(run) for run in self.runs[scheme]]))

    def speed(self, scheme: str) -> float:
        """Tokens per second, evaluations included."""
        runs = self.runs[scheme]
        return sum(run.tokens for run in runs) / sum(run.seconds for run in runs)

    def leads(self, scheme: str, baseline: str, report: TaskReport) -> pd.Series:
        """The loss of the baseline less that of a scheme, by seed: above 0 the scheme leads; empty
        if a run of either diverged.
        """
        arms = (Arm(each, tuple(self.runs[each])) for each in (scheme, baseline))
        leads = -answered(Comparison(report, LOSS, *arms)).differences
        return leads[:0] if self.diverged(scheme) or self.diverged(baseline) else leads


@dataclass(frozen=True)
class Law:
    """The loss after a compute C: floor + scale · C^(−exponent)."""

    floor: float
    scale: float
    exponent: float

    def loss(self, compute: float) -> float:
        return self.floor + self.scale * compute**-self.exponent


def fitted(compute: Sequence[float], losses: Sequence[float]) -> Law | None:
    """The law whose floor has the least squared error; above each floor it is the line of least
    squares through logarithms. None with fewer than LEAST_SIZES, if the loss does not fall with
    compute, or if one is nan.
    """
    log_compute, values = np.log(compute), np.asarray(losses)
    if len(values) < LEAST_SIZES or not np.isfinite(values).all():
        return None
    if np.polyfit(log_compute, values, 1)[0] >= 0:
        return None

    def law(floor: float) -> Law:
        slope, log_scale = np.polyfit(log_compute, np.log(values - floor), 1)
        return Law(floor, float(np.exp(log_scale)), float(-slope))

    def error(floor: float) -> float:
        made = law(floor)
        return float(np.square(values - [made.loss(each) for each in compute]).sum())

    room = 1e-6 * values.min()
    found = optimize.minimize_scalar(
        error, bounds=(0, values.min() - room), method="bounded", options={"xatol": 1e-10}
    )
    return law(float(found.x))


def speedup(law: Law, loss: float, lead: float) -> float:
    """The effective speedup (Marin's definition) at equal tokens per second: the time in which the
    baseline would reach the scheme's loss, over the scheme's time. Infinite below the law's floor,
    and above MOST_SPEEDUP.

    loss: of the baseline at this size, L; for a loss of L − lead it needs
          C · ((L − floor) / (L − lead − floor))^(1/exponent)
    """
    ours = loss - lead - law.floor
    theirs = loss - law.floor
    if theirs <= 0:
        return math.nan
    if ours <= 0:
        return math.inf
    log = math.log(theirs / ours) / law.exponent
    return math.exp(log) if log < math.log(MOST_SPEEDUP) else math.inf


def speedups(law: Law | None, loss: float, lead: Interval) -> Interval:
    """The speedup of a lead, and of the ends of its interval; nothing if that includes 0."""
    if law is None or not lead.side:
        return NOTHING
    mean, low, high = (speedup(law, loss, each) for each in (lead.mean, lead.low, lead.high))
    return Interval(mean, low, high, lead.n)


@dataclass(frozen=True)
class Lead:
    """The lead of a scheme over a baseline, at sizes from the smallest to the largest.

    titles: of both, by their names
    """

    rungs: Sequence[Rung]
    scheme: str
    baseline: str
    titles: Mapping[str, str]
    report: TaskReport

    @cached_property
    def by_size(self) -> list[pd.Series]:
        """At each size, by seed."""
        return [rung.leads(self.scheme, self.baseline, self.report) for rung in self.rungs]

    @cached_property
    def doublings(self) -> np.ndarray:
        """log₂ N of each size."""
        return np.log2([rung.parameters for rung in self.rungs])

    @property
    def slope(self) -> Interval:
        """By how much the lead grows with each doubling of N: of the line of least squares through
        the mean leads, as if sizes were independent, though they share the numbers of seeds.
        """
        return combined(self.by_size, self._of_slope)

    def projected(self, parameters: float) -> Interval:
        """The lead at another size, by that line; see `check_projection`."""
        beyond = math.log2(parameters) - self.doublings.mean()
        return combined(self.by_size, 1 / len(self.rungs) + beyond * self._of_slope)

    @property
    def _of_slope(self) -> np.ndarray:
        """The weight of each size in the slope."""
        centred = self.doublings - self.doublings.mean()
        return centred / (centred**2).sum()


def may_change_sign(largest: Interval, slope: Interval) -> bool:
    """Whether a lead may change its sign at larger sizes: unless its interval at the largest size,
    and that of its slope, exclude it.
    """
    side = largest.side
    grows = slope.n >= FEWEST_PAIRS and min(side * slope.low, side * slope.high) >= 0
    return not (side and grows)


def check_projection(parameters: float, largest: int) -> None:
    """Raise ConfigError for a size that is more than FARTHEST times the largest one."""
    if not 0 < parameters <= FARTHEST * largest:
        most = f"must be above 0 and at most {FARTHEST} times the largest size, {largest:,}"
        raise ConfigError(f"--to {parameters:,.0f}: {most}; add a size")
