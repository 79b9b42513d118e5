"""Which number of a run counts: its metric, at which point of training, and how it is shown."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rope_lab.results.records.run import Run

At = Literal["last", "mean", "first step", "log steps", "reached", "ever reached"]
POSITION, LENGTH, LENGTH_LOSS = "answer_position", "length", "length_loss"  # slices
# Problems of one length are metrics too, `length/24`, of the same kind as these.
OF_LENGTHS = {LENGTH: "eval/accuracy", LENGTH_LOSS: "eval/loss"}
AT = "_at_"  # within a slice's name: of an attribute, at a length
TITLES = {
    "eval/loss": "held-out loss",
    "eval/accuracy": "problems correct",
    "eval/sum_accuracy": "sums correct",
    "eval/token_accuracy": "tokens correct",
    "eval/score": "problems correct of the first 128",
    "eval/bits_per_byte": "bits per byte",
    "train/loss": "training loss",
    "train/grad_norm": "norm of the gradient",
    LENGTH: "problems correct at length",
    LENGTH_LOSS: "held-out loss at length",
}
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
        return "higher" if self.sign > 0 else "lower"

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
        return SIGNS.get(self.at, 1 if self.higher_is_better else -1)

    @property
    def is_log(self) -> bool:
        """Whether values are logarithms, of steps: readers see the steps."""
        return self.at == "log steps"

    @property
    def shown_unit(self) -> str:
        """The unit of what readers see."""
        return self.unit.removeprefix("logarithm of ")

    def shown(self, value: float) -> float:
        """What readers see in place of a value."""
        return math.exp(value) if self.is_log else value

    def text(self, value: float) -> str:
        """A value as readers see it."""
        digits = 0 if self.is_log else self.digits
        return f"{self.shown(value):,.{digits}f}"

    def of(self, run: Run) -> float:
        """The number of a run; nan if it is not recorded, infinite if `reaches` is not reached."""
        diverged = run.status == "diverged"
        if not run.ended or (diverged and self.diverged is None):
            return math.nan
        if self.at in ("first step", "log steps", "ever reached"):
            return self._of_step(run)
        value = self.diverged if diverged else self._value(run)
        if self.at == "reached" and not math.isnan(value):
            return float(self._reaches(value))
        return value * self.times

    def gain(self, run: Run) -> float:
        """The number of a run, higher is better; −inf without one, as of a diverged run."""
        gain = self.sign * self.of(run)
        return -math.inf if math.isnan(gain) else gain

    def values(self, runs: Iterable[Run]) -> list[float]:
        """The numbers of those runs that have one."""
        every = map(self.of, runs)
        return [value for value in every if not math.isnan(value)]

    def _of_step(self, run: Run) -> float:
        """From the first step that reaches it, which a diverged run never does."""
        first = math.inf
        points = run.points(self.metric)
        if run.status != "diverged":
            reached = [step for step, value in points if self._reaches(value)]
            first = float(min(reached, default=math.inf if points else math.nan))
        if self.at == "first step" or math.isnan(first):
            return first
        if self.at == "ever reached":
            return float(first < math.inf)
        end = run.settings["train.steps"] + run.settings.get("eval.every", 0)
        return math.log(max(min(first, end), 1))

    def _value(self, run: Run) -> float:
        if self.at == "mean":
            later = [value for step, value in run.points(self.metric) if step > 0]
            return float(np.mean(later)) if later else math.nan
        value = run.final(self.metric)
        return math.nan if value is None else value

    def _reaches(self, value: float) -> bool:
        return value >= self.reaches if self.higher_is_better else value <= self.reaches


SIGNS = {"first step": -1, "log steps": -1, "reached": 1, "ever reached": 1}  # else of the metric
ACCURACY = Measure(
    "eval/accuracy", "share of problems correct", higher_is_better=True, share=True, digits=3
)
# Every metric that is shown, after the last step: a task without a report is compared by the first
# that its runs recorded. Others, as train/lr, are only recorded.
DECLARED = (
    ACCURACY,
    Measure("eval/bits_per_byte", "bits per byte", higher_is_better=False),
    Measure("eval/loss", "nats per token", higher_is_better=False),
    Measure("train/loss", "nats per token", higher_is_better=False),
    Measure("train/grad_norm", "norm of the gradient", higher_is_better=False),
    Measure("eval/score", "correct out of the first 128", higher_is_better=True, digits=2),
    replace(ACCURACY, metric="eval/sum_accuracy", unit="share right"),
    replace(ACCURACY, metric="eval/token_accuracy", unit="share right"),
)
MEASURES = {measure.metric: measure for measure in DECLARED}


def like(metric: str) -> Measure | None:
    """The declared measure of a metric, or the one that problems of one length are like; None if
    no run records it.
    """
    return MEASURES.get(OF_LENGTHS.get(metric.partition("/")[0], metric))


def in_words(metric: str) -> str:
    """`problems correct at length 24` for `length/24`; a metric without words is itself."""
    kind, _, length = metric.partition("/")
    return f"{TITLES[kind]} {length}" if kind in OF_LENGTHS else TITLES.get(metric, metric)
