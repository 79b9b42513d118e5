"""The measure that a user names: `score`, `steps`, or a metric of the records."""

import math
from collections.abc import Collection
from dataclasses import replace

from rope_lab.results.plans.names import recorded_name
from rope_lab.results.records.catalogue import Catalogue, TaskReport
from rope_lab.results.records.measures import OF_LENGTHS, Measure
from rope_lab.results.records.run import Run
from rope_lab.text import ConfigError


def measure_of(report: TaskReport, name: str) -> Measure:
    """The measure that a name means: `score`, the task's own; `steps`, the logarithm of the first
    step at its first threshold; or a metric of the records. Raises ConfigError.
    """
    if name == "score":
        return report.measure
    if name == "steps":
        if report.first_threshold is None:
            raise ConfigError(f"measure steps: {report.title} has no threshold to reach")
        title, threshold = report.first_threshold
        shown = {"unit": f"logarithm of steps until {title}", "digits": 3, "times": 1}
        return replace(threshold, at="log steps", share=False, **shown)
    if measure := report.measure_of(name):
        return measure
    raise ConfigError(
        f"measure {name}: no run records it; score, steps, or a metric such as "
        "eval/loss or length/24"
    )


def check_measure(task: str, name: str) -> None:
    """Raise ConfigError if runs of a task, a name or a file, cannot have such a measure; `gain_of`
    raises if they do not.
    """
    report = Catalogue().report(recorded_name(task), {"eval/accuracy", "eval/loss"}, {})
    measure_of(report, name)


def check_length(name: str, lengths: Collection[int]) -> None:
    """Raise ConfigError if a measure is of problems of a length that is not in eval.lengths."""
    kind, _, length = name.partition("/")
    if kind in OF_LENGTHS and length not in map(str, lengths):
        raise ConfigError(f"measure {name}: eval.lengths={[*lengths]} has no {length}")


def gain_of(run: Run, name: str) -> float:
    """The value of an ended run by a measure, higher is better; −inf of one that diverged. Raises
    ConfigError if the run did not record it.
    """
    if run.status == "diverged":
        return -math.inf
    measure = measure_of(Catalogue().report_of(run), name)
    gain = measure.gain(run)
    if gain == -math.inf:
        raise ConfigError(f"measure {name}: the runs do not record it")
    return gain
