"""What the metrics are: the one table that says how each is read, shown and compared."""

import functools
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """How a metric is called, read and shown.

    name:     in a record; without a folder, what other metrics' names end with (`accuracy` is of `eval/sum_accuracy`)
    unit:     of a value that was multiplied by `times`
    share:    whether it is a share of problems or tokens, between 0 and 1
    wilson:   whether it is a share of independent problems, so that Wilson's interval holds of one run's value
    baseline: what the Bayes-optimal predictor's value is called, which records give as `floor`; empty: there is none
    times, digits: how a value is shown
    """

    name: str
    unit: str
    higher_is_better: bool
    share: bool = False
    wilson: bool = False
    baseline: str = ""
    times: float = 1
    digits: int = 4


METRICS = (  # a task that was not published is compared by the first of them that its runs have
    Metric("eval/accuracy", "share of problems right", higher_is_better=True, share=True, wilson=True, digits=3),
    Metric("accuracy", "share right", higher_is_better=True, share=True, digits=3),
    Metric("eval/bits_per_byte", "bits per byte", higher_is_better=False),
    Metric("eval/loss", "nats per token", higher_is_better=False, baseline="Bayes-optimal loss"),
    Metric("train/loss", "nats per token", higher_is_better=False),
    Metric("eval/score", "problems right of the first 128", higher_is_better=True, digits=2),
)
POSITION, LENGTH, LENGTH_LOSS = "answer_position", "length", "length_loss"  # slices
LOSS_ATTRIBUTES = {POSITION, LENGTH_LOSS}  # others: shares of problems


def declared(name: str) -> Metric | None:
    """The line of `METRICS` that a metric has; None of one that is only recorded, such as `train/lr`."""
    return next((metric for metric in METRICS if name.endswith(metric.name)), None)


@functools.cache
def is_share(name: str) -> bool:
    """Whether values of a metric are shares, between 0 and 1."""
    return name.endswith(tuple(metric.name for metric in METRICS if metric.share))
