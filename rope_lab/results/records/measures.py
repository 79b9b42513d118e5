"""The registry of metrics: unit, direction and display of each."""

import functools
import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A metric's name, unit, direction and display.

    name:     in a record; without a slash, the end of several names (`accuracy` of
              `eval/sum_accuracy`)
    unit:     of a value that was multiplied by `times`
    share:    whether it is a share of problems or tokens, between 0 and 1; charts then span all of
              it
    times, digits: how a value is shown; a task's report in published.yaml may replace them and
                   `unit`
    """

    name: str
    unit: str
    higher_is_better: bool
    share: bool = False
    times: float = 1
    digits: int = 4

    @property
    def better(self) -> str:
        return "higher" if self.higher_is_better else "lower"

    @property
    def most(self) -> float:
        """The largest possible value, in the unit of tables."""
        return self.times if self.share else math.inf

    @property
    def sign(self) -> int:
        """The sign that turns a difference into a gain."""
        return 1 if self.higher_is_better else -1


METRICS = (  # a task without a report is compared by the first that its runs recorded
    Metric("eval/accuracy", "share of problems right", higher_is_better=True, share=True, digits=3),
    Metric("accuracy", "share right", higher_is_better=True, share=True, digits=3),
    Metric("eval/bits_per_byte", "bits per byte", higher_is_better=False),
    Metric("eval/loss", "nats per token", higher_is_better=False),
    Metric("train/loss", "nats per token", higher_is_better=False),
    Metric("train/grad_norm", "norm of the gradient", higher_is_better=False),
    Metric("eval/score", "problems right of the first 128", higher_is_better=True, digits=2),
)
POSITION, LENGTH, LENGTH_LOSS = "answer_position", "length", "length_loss"  # slices
AT = "_at_"  # within a slice's name: of an attribute, at a length
LOSS_ATTRIBUTES = {POSITION, LENGTH_LOSS}  # others: shares of problems


@functools.cache
def declared(name: str) -> Metric | None:
    """The registry's entry for a metric; None if it is only recorded, as `train/lr`."""
    return next((metric for metric in METRICS if name.endswith(metric.name)), None)
