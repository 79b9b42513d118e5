"""What runs will cost, before they begin."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Bill:
    """Of a stage: how many runs, the seconds of one, how many go side by side.

    seconds: None if unknown, as before the first run on a cluster; source: where they are from
    """

    stage: str
    runs: int
    seconds: float | None
    source: str
    at_once: int

    @property
    def hours(self) -> float | None:
        if self.seconds is None:
            return None
        rounds = math.ceil(self.runs / self.at_once)
        return rounds * self.seconds / 3600

    def __str__(self) -> str:
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        if self.hours is None:
            return f"{self.stage}: {runs}; how long they take on a cluster is not known"
        each = f"{self.seconds:.0f} s a run, {self.source}"
        return f"{self.stage}: {runs}, {self.at_once} at once, {duration(self.hours)} ({each})"


def summed(bills: Sequence[Bill]) -> str:
    """A line for each bill, and their sum if all times are known."""
    lines = [str(bill) for bill in bills]
    hours = [bill.hours for bill in bills]
    if None not in hours:
        lines.append(f"together: {duration(sum(hours))}")
    return "\n".join(lines)


def duration(hours: float) -> str:
    """`25 min`, `3.5 h`."""
    return f"{max(1, round(hours * 60))} min" if hours < 2 else f"{hours:.1f} h"
