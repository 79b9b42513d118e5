"""Which number of a run counts: its metric, at which point of training, and how it is shown."""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rope_lab.results.records.run import Run

At = Literal["last", "mean", "first step", "log steps", "reached", "ever reached"]
POSITION, LENGTH, LENGTH_LOSS = "answer_position", "length", "length_loss"  # slices
AT = "_at_"  # within a slice's name: of an attribute, at a length
LOSS_ATTRIBUTES = {POSITION, LENGTH_LOSS}  # others: shares of problems


@dataclass(frozen=True)
class Measure:
    """A number of a run.

    metric:  in a record, or problems of one kind after the last step, such as `length/24`
    unit:    of a value that was multiplied by `times`
    share:   whether it is a share of problems or tokens, between 0 and 1; charts then span all of
             it
    times, digits: how a value is shown; a task's report in published.yaml may replace them and
                   `unit`
    at:      `last`: the value after the last step; `mean`: over all evaluations after step 0;
             `first step`: the first evaluated step at `reaches`; `log steps`: the logarithm of
             that step; `reached`: 1 if the last value is at `reaches`, else 0; `ever reached`: 1
             if any evaluation is
    diverged: the value of a run that diverged, in the metric's own unit; None: it does not count
    """

    metric: str
    unit: str
    higher_is_better: bool
    share: bool = False
    times: float = 1
    digits: int = 4
    at: At = "last"
    reaches: float | None = None
    diverged: float | None = None

    @property
    def better(self) -> str:
        return "higher" if self.higher_is_better else "lower"

    @property
    def most(self) -> float:
        """The largest possible value, in the unit of tables."""
        return self.times if self.share else math.inf

    @property
    def counts(self) -> bool:
        """Whether pairs are only counted, by which run is ahead, so that no mean is shown."""
        return self.at in ("first step", "reached", "ever reached")

    @property
    def sign(self) -> int:
        """The sign that turns a difference into a gain."""
        if self.at in ("first step", "log steps"):
            return -1
        if self.at in ("reached", "ever reached"):
            return 1
        return 1 if self.higher_is_better else -1

    def of(self, run: Run) -> float:
        """The number of a run; nan if it is not recorded, infinite if `reaches` is not reached."""
        diverged = run.status == "diverged"
        if not run.ended or (diverged and self.diverged is None):
            return math.nan
        if self.at in ("first step", "log steps", "ever reached"):
            return self._of_steps(run)
        value = self.diverged if diverged else self._value(run)
        if self.at == "reached":
            return float(self._reaches(value))
        return value * self.times

    def _of_steps(self, run: Run) -> float:
        first = self._first_step(run)
        if math.isnan(first) or self.at == "first step":
            return first
        if self.at == "ever reached":
            return float(first < math.inf)
        never = run.settings["train.steps"] + run.settings.get("eval.every", 0)
        return math.log(max(min(first, never), 1))

    def _first_step(self, run: Run) -> float:
        if run.status == "diverged":
            return math.inf
        if self.metric not in run.curves:
            return math.nan
        for step, value in zip(*run.curves[self.metric], strict=True):
            if self._reaches(value):
                return float(step)
        return math.inf

    def _value(self, run: Run) -> float:
        if self.at == "mean":
            steps, values = run.curves.get(self.metric, ([], []))
            after_first = [value for step, value in zip(steps, values, strict=True) if step > 0]
            return float(np.mean(after_first)) if after_first else math.nan
        value = run.final(self.metric)
        return math.nan if value is None else value

    def _reaches(self, value: float) -> bool:
        return value >= self.reaches if self.higher_is_better else value <= self.reaches


ACCURACY = Measure(
    "eval/accuracy", "share of problems correct", higher_is_better=True, share=True, digits=3
)
MEASURES = {  # a task without a report is compared by the first that its runs recorded
    measure.metric: measure
    for measure in (
        ACCURACY,
        Measure("eval/bits_per_byte", "bits per byte", higher_is_better=False),
        Measure("eval/loss", "nats per token", higher_is_better=False),
        Measure("train/loss", "nats per token", higher_is_better=False),
        Measure("train/grad_norm", "norm of the gradient", higher_is_better=False),
        Measure("eval/score", "correct out of the first 128", higher_is_better=True, digits=2),
    )
}


def declared(metric: str) -> Measure | None:
    """The measure of a metric after the last step; None if it is only recorded, as `train/lr`."""
    if metric.startswith("eval/") and metric.endswith("_accuracy"):
        return replace(ACCURACY, metric=metric, unit="share right")
    return MEASURES.get(metric)
