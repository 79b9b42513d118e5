"""The summary of a sweep: how many runs finished, the others by status, and means over seeds."""

import math
import shlex
from collections import defaultdict
from pathlib import Path

from rope_lab.launch.jobs import Job
from rope_lab.text import Record, filled, first_three, screen_width, short_path
from rope_lab.train.console import SHOWN
from rope_lab.train.run_folder import OUTCOMES
from rope_lab.train.stop import same_command

Records = dict[Job, Record]  # the content of the run.json of each run
NOT_AGAIN = "not run again, the earlier record stays"  # the status of a run that fresh=true names


def text(records: Records, name: str, every: bool, shows_scores: bool) -> str:
    """The summary of a sweep, and the next steps.

    name:         of the sweep
    every:        name every unfinished run; otherwise three of each status
    shows_scores: print the mean metrics
    """
    finished = {job: each for job, each in records.items() if each["status"] == "finished"}
    lines = [f"{name}: {len(finished)} of {len(records)} runs finished"]
    lines += _unfinished(records, every)
    if finished and shows_scores:
        lines.append(_means(finished))
    elif finished:
        lines.append("  planned runs: scores are shown when the last one has ended")
    left = {record["status"] for record in records.values()}.difference(OUTCOMES)
    if left - {NOT_AGAIN}:
        fresh = any(job.cfg.fresh for job in records)
        lines.append(f"{same_command(fresh)} runs what is missing")
    if NOT_AGAIN in left:
        lines.append("fresh=true with the settings of those not run again replaces their records")
    if finished and shows_scores:
        for folder in dict.fromkeys(job.cfg.out for job in records):
            out = shlex.quote(short_path(Path(folder)))
            lines.append(f"tables and figures: rope-lab results {out}")
            lines.append(f"verdicts and charts: rope-lab report {out}")
    return "\n".join(lines)


def _unfinished(records: Records, every: bool) -> list[str]:
    """The runs of each status other than finished."""
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
        shown = "\n    ".join(["", *described]) if every else f" {first_three(described)}"
        lines.append(filled(f"  {status}:{shown}", indent="      "))
    return lines


def _means(finished: Records) -> str:
    """Each metric over the finished runs that differ only in their seed; each code has its row."""
    import pandas as pd  # takes half a second, at the end of a sweep alone

    rows = []
    for job, record in finished.items():
        words = [word for word in job.label.split() if not word.startswith("seed=")]
        name = " ".join(words) or job.cfg.names.position
        if job.is_of_other_code(record):
            name += " (other code)"
        rows.append({"": name} | record["metrics"])
    frame = pd.DataFrame(rows)
    shown = {key: SHOWN[key] for key in frame.columns.intersection(SHOWN)}
    runs = frame.groupby("", sort=False)
    table = runs[list(shown)].agg(["mean", "min", "max"])
    for key, (_, form) in shown.items():
        table[key] = table[key].map(form)
    table = table.rename(columns={key: title for key, (title, _) in shown.items()})
    table.insert(0, ("runs", ""), runs.size())
    width = screen_width()
    line_width = None if width == math.inf else int(width)
    return table.rename_axis(index=None).to_string(line_width=line_width)
