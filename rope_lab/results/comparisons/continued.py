"""Ways to continue trained runs, the parents: to read longer texts, or with another scheme.

Each way has a run for each parent; runs of one parent are pairs.
"""

import math
from dataclasses import dataclass, replace

from rope_lab.results.comparisons.answers import Comparison, answered
from rope_lab.results.comparisons.stats import NOTHING, Interval
from rope_lab.results.records.catalogue import TaskReport
from rope_lab.results.records.measures import LENGTH, LENGTH_LOSS, Measure
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import Arm
from rope_lab.text import ConfigError

AS_IS, WINDOWS = "unchanged", "sliding window"  # ways that others are compared with
# Settings in which runs that are trained at different lengths may differ.
OF_LENGTH = ("train.seq_len", "train.batch_size")


@dataclass(frozen=True)
class Key:
    """A way to continue.

    times:  the name of the length to be read, `2x`, empty if that is the parents'; length: in the
            task's unit
    way:    its name
    steps:  of further training; at: the tokens of the texts that it is trained on, 0 without
    """

    times: str
    length: int
    way: str
    steps: int = 0
    at: int = 0

    @property
    def label(self) -> str:
        """In the lines of its runs."""
        further = f", {self.steps} steps at {self.at}" if self.steps else ""
        return f"{self.way} {self.times}".rstrip() + further


Ways = dict[Key, list[Run]]


def check_alike(ways: Ways) -> None:
    """Raise ConfigError unless all runs with further training had the same steps, rates and
    batches, and began from the same parents: else the control is none.
    """
    trained = {key: runs for key, runs in ways.items() if key.steps}
    for key, runs in trained.items():
        control = trained[control_of(key)]
        other = next(iter(trained.values()))
        for line in [*_unlike(runs, control, at_one_length=True), *_unlike(runs, other)]:
            raise ConfigError(f"{key.label} is no fair comparison: {line}; delete its runs")


def control_of(key: Key) -> Key:
    """The way that changes nothing, with the same training."""
    return replace(key, way=AS_IS)


def _unlike(runs: list[Run], control: list[Run], at_one_length: bool = False) -> list[str]:
    """How runs differ from their control, besides the way itself."""
    seeds, of_control = _seeds(runs), _seeds(control)
    if seeds != of_control:
        return [f"its parents have seeds {seeds}, those of the control {of_control}"]
    ours, theirs = runs[0].all_settings, control[0].all_settings
    lines = []
    for name in sorted({*ours, *theirs}):
        compared = name.startswith("train.") and (at_one_length or name not in OF_LENGTH)
        compared |= at_one_length and name.startswith(("task.", "eval."))
        if compared and ours.get(name) != theirs.get(name):
            lines.append(f"{name} is {ours.get(name)}, that of the control {theirs.get(name)}")
    return lines


def _seeds(runs: list[Run]) -> list[int]:
    return sorted(run.seed for run in runs)


def measure_at(report: TaskReport, length: int) -> Measure:
    """The share of problems correct at a length or, of a task without grades, the loss at the
    positions up to it.
    """
    kind = LENGTH if report.measure.share else LENGTH_LOSS
    return report.measure_of(f"{kind}/{length}")


@dataclass(frozen=True)
class Continued:
    """Ways to continue the same parents, and the measure that compares them."""

    ways: Ways
    report: TaskReport
    measure: Measure

    @property
    def first(self) -> Key:
        """One of the ways: all have its length and the name of that."""
        return next(iter(self.ways))

    def by_steps(self) -> list["Continued"]:
        """The ways without further training, then those with it."""
        found = []
        for steps in sorted({key.steps for key in self.ways}):
            alike = {key: runs for key, runs in self.ways.items() if key.steps == steps}
            found.append(replace(self, ways=alike))
        return found

    def windows(self, key: Key) -> Key | None:
        """Windows of the training length, with further training too if the way has it."""
        for other in self.ways:
            if other.way == WINDOWS and bool(other.steps) == bool(key.steps):
                return other
        return None

    def difference(self, key: Key, other: Key | None) -> Interval:
        """One way − another over parents, with its 95% interval; nothing without another, or if a
        run of either diverged.
        """
        if other in (None, key) or self.diverged(key) or self.diverged(other):
            return NOTHING
        arms = (Arm(each.label, tuple(self.ways[each])) for each in (key, other))
        return answered(Comparison(self.report, self.measure, *arms)).difference

    def diverged(self, key: Key) -> int:
        """How many runs of a way diverged."""
        return sum(run.status == "diverged" for run in self.ways[key])


def by_length(ways: Ways, report: TaskReport) -> list[Continued]:
    """The ways to read each length, compared by what they read there."""
    found: dict[str, Ways] = {}
    for key, runs in ways.items():
        found.setdefault(key.times, {})[key] = runs
    continued = []
    for own in found.values():
        length = next(iter(own)).length
        continued.append(Continued(own, report, measure_at(report, length)))
    return continued


def steps_until_as_good(continued: Continued, key: Key) -> list[float]:
    """For each run of a way the first evaluated step from which on it is as good as its parent was:
    0 if it is so without further training, infinite if not even at its end.

    A parent is evaluated on the same problems: before the first step of the control or, if more are
    graded at the end, by the control without any steps.
    """
    metric, sign = continued.measure.metric, continued.measure.sign
    control = control_of(key)
    before = {run.seed: dict(run.points(metric))[0] for run in continued.ways[control]}
    untrained = continued.ways[replace(control, steps=0, at=0)]
    at_end = {run.seed: run.final(metric) for run in untrained}
    found = []
    for run in continued.ways[key]:
        points = run.points(metric)
        parents = [*[before[run.seed]] * (len(points) - 1), at_end[run.seed]][: len(points)]
        since = 0.0 if points else math.inf
        for (step, value), parent in zip(points, parents, strict=True):
            if since == math.inf:
                since = float(step)
            if sign * value < sign * parent:
                since = math.inf  # until the next step
        found.append(math.inf if run.status == "diverged" else since)
    return found
