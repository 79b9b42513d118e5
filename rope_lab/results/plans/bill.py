"""What runs will cost, before they begin."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from rope_lab.results.records.known import Known


@dataclass(frozen=True)
class Bill:
    """Of a stage: how many runs, the seconds of one, how many go side by side.

    seconds: None if unknown; source: where they are from
    """

    stage: str
    runs: int
    seconds: float | None
    at_once: int
    source: str

    @property
    def hours(self) -> float | None:
        if self.seconds is None:
            return None
        return self.runs * self.seconds / self.at_once / 3600

    def __str__(self) -> str:
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        if self.hours is None:
            return f"{self.stage}: {runs}; their time is not known before the first one"
        each = f"{self.seconds:.0f} s a run, {self.source}"
        return f"{self.stage}: {runs}, {self.at_once} at once, {duration(self.hours)} ({each})"


def duration(hours: float) -> str:
    """`25 min`, `3.5 h`."""
    return f"{max(1, round(hours * 60))} min" if hours < 2 else f"{hours:.1f} h"


def run_seconds(
    known: Iterable[Known], task: str, scale: str, steps: int, hardware: str
) -> tuple[float | None, str]:
    """The median time of a run of so many steps, of known runs of a task and scale: of those on
    this processor if there are any; and which runs these are.
    """
    alike = [run for run in known if (run.task, run.scale) == (task, scale)]
    here = [run for run in alike if run.hardware == hardware]
    used = here or alike
    if not used:
        return None, ""
    where = "on this processor" if here else "on other processors"
    seconds = statistics.median(run.step_seconds for run in used) * steps
    return seconds, f"median of {len(used)} known runs {where}"
