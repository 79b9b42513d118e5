"""The summary of a sweep: how many runs finished, the others by status, and means over seeds."""

import shlex
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rope_lab.launch.jobs import ENDS, Job
from rope_lab.text import first_three, short_path
from rope_lab.train.console import SHOWN
from rope_lab.train.stop import same_command


def text(records: dict[Job, dict[str, Any]], name: str, every: bool, shows_scores: bool) -> str:
    """The summary of a sweep, and the next steps.

    records:      content of the run.json of each run
    name:         of the sweep
    every:        name every unfinished run; otherwise three of each status
    shows_scores: print the mean metrics
    """
    finished = {job: each for job, each in records.items() if each["status"] == "finished"}
    lines = [f"{name}: {len(finished)} of {len(records)} runs finished"]
    lines += _unfinished(records, every)
    if shows_scores:
        lines += _means(finished)
    elif finished:
        lines.append("  planned runs: scores are shown when the last one has ended")
    if any(record["status"] not in ENDS for record in records.values()):
        fresh = any(job.cfg.fresh for job in records)
        lines.append(f"{same_command(fresh)} runs what is missing")
    if finished and shows_scores:
        out = shlex.quote(short_path(Path(next(iter(records)).cfg.out)))
        lines.append(f"tables and figures: rope-lab results {out}")
        lines.append(f"verdicts and charts: rope-lab report {out}")
    return "\n".join(lines)


def _unfinished(records: dict[Job, dict[str, Any]], every: bool) -> list[str]:
    """A line for each status other than finished, with its runs."""
    by_status = defaultdict(list)
    for job, record in records.items():
        described = job.name
        if "progress" in record:
            described += f" at step {record['progress']['steps']}"
        if "error" in record:
            described += f", {record['error']}"
        by_status[record["status"].replace("running", "still running, or killed")].append(described)
    by_status.pop("finished", None)
    lines = []
    for status, described in by_status.items():
        if every:
            lines += [f"  {status}:", *(f"    {run}" for run in described)]
        else:
            lines.append(f"  {status}: {first_three(described)}")
    return lines


def _means(finished: dict[Job, dict[str, Any]]) -> list[str]:
    """A line for the finished runs that differ only in their seed; each code has its own."""
    rows = defaultdict(list)
    for job, record in finished.items():
        words = [word for word in job.label.split() if not word.startswith("seed=")]
        row = " ".join(words) or job.cfg.names.position
        if job.is_of_other_code(record):
            row += " (other code)"
        rows[row].append(record["metrics"])
    width = max(map(len, rows), default=0)
    lines = []
    for row, metrics in rows.items():
        plural = "" if len(metrics) == 1 else "s"
        parts = [f"  {row:<{width}}  {len(metrics)} run{plural}", *_ranges(metrics)]
        lines.append(" · ".join(parts))
    return lines


def _ranges(metrics: Sequence[dict[str, float]]) -> list[str]:
    """The mean of each metric over several runs, with its lowest and highest value."""
    parts = []
    for key, (title, form) in SHOWN.items():
        values = [of_run[key] for of_run in metrics if key in of_run]
        if not values:
            continue
        part = f"{title} {sum(values) / len(values):{form}}"
        if len(values) > 1:
            part += f" (min {min(values):{form}} to max {max(values):{form}})"
        parts.append(part)
    return parts
