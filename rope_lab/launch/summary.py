"""The summary of a sweep: how many runs finished, the others by status, and means over seeds."""

import shlex
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rope_lab.text import first_three, short_path
from rope_lab.train import provenance
from rope_lab.train import run as runs
from rope_lab.train.config import Config
from rope_lab.train.console import SHOWN
from rope_lab.train.stop import same_command

ENDS = ("finished", "diverged")  # statuses of a run that is not run again


@dataclass(frozen=True)
class JobOutcome:
    """A run of a sweep: its settings, its label, and the content of run.json, empty without one."""

    cfg: Config
    label: str
    content: dict[str, Any]

    @property
    def status(self) -> str:
        return self.content.get("status", "not run")

    @property
    def ended(self) -> bool:
        return self.status in ENDS

    @property
    def name(self) -> str:
        return self.label or self.cfg.names.position

    @property
    def is_of_other_code(self) -> bool:
        """Whether its numbers are from other code than today's."""
        if not self.content:
            return False
        recorded = self.content["provenance"]
        changed = provenance.differences(recorded, provenance.code(self.cfg))
        return bool(changed or provenance.edited(recorded))


def text(outcomes: Sequence[JobOutcome], name: str, every: bool, shows_scores: bool) -> str:
    """The summary of a sweep, and the next steps.

    name:         of the sweep
    every:        name every unfinished run; otherwise three of each status
    shows_scores: print the mean metrics
    """
    finished = [outcome for outcome in outcomes if outcome.status == "finished"]
    lines = [f"{name}: {len(finished)} of {len(outcomes)} runs finished"]
    lines += _unfinished(outcomes, every)
    if shows_scores:
        lines += _means(finished)
    elif finished:
        lines.append("  planned runs: scores are shown when the last one has ended")
    lines += _earlier(outcomes)
    if not all(outcome.ended for outcome in outcomes):
        fresh = any(outcome.cfg.fresh for outcome in outcomes)
        lines.append(f"{same_command(fresh)} runs what is missing")
    if finished and shows_scores:
        out = shlex.quote(short_path(Path(outcomes[0].cfg.out)))
        lines.append(f"tables and figures: rope-lab results {out}")
        lines.append(f"verdicts and charts: rope-lab report {out}")
    return "\n".join(lines)


def _unfinished(outcomes: Sequence[JobOutcome], every: bool) -> list[str]:
    """A line for each status other than finished, with its runs."""
    by_status = defaultdict(list)
    for outcome in outcomes:
        if outcome.status != "finished":
            status = outcome.status.replace("running", "still running, or killed")
            by_status[status].append(_unfinished_run(outcome))
    lines = []
    for status, described in by_status.items():
        if every:
            lines += [f"  {status}:", *(f"    {run}" for run in described)]
        else:
            lines.append(f"  {status}: {first_three(described)}")
    return lines


def _unfinished_run(outcome: JobOutcome) -> str:
    described = outcome.label or " ".join(outcome.cfg.overrides)
    if "progress" in outcome.content:
        described += f" at step {outcome.content['progress']['steps']}"
    if "error" in outcome.content:
        described += f", {outcome.content['error']}"
    return described


def _means(finished: Sequence[JobOutcome]) -> list[str]:
    """A line for the finished runs that differ only in their seed; each code has its own."""
    rows = defaultdict(list)
    for outcome in finished:
        words = [word for word in outcome.label.split() if not word.startswith("seed=")]
        row = " ".join(words) or outcome.cfg.names.position
        if outcome.is_of_other_code:
            row += " (other code)"
        rows[row].append(outcome.content["metrics"])
    width = max(map(len, rows), default=0)
    lines = []
    for row, metrics in rows.items():
        runs_of_row = "1 run" if len(metrics) == 1 else f"{len(metrics)} runs"
        parts = [f"  {row:<{width}}  {runs_of_row}", *_ranges(metrics)]
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


def _earlier(outcomes: Sequence[JobOutcome]) -> list[str]:
    """A line that names the runs of earlier versions of the user's own files."""
    folders = []
    for outcome in outcomes:
        if outcome.content:
            folders += of_earlier_code(Path(outcome.cfg.out), outcome.content)
    if not folders:
        return []
    names = first_three([short_path(folder) for folder in folders])
    return [f"  not counted, from before your file was edited: {names}"]


def of_earlier_code(out: Path, content: dict[str, Any]) -> list[Path]:
    """The run folders in `out` with the settings and seed of a run, but other code of the user's
    own file.

    content: of the run's run.json
    """
    own = content["provenance"].get("plugin")
    if not own:
        return []
    same = ("recipe_id", "scheme_id", "seed")
    folders = []
    for path in sorted(out.glob(f"{content['task']}-{content['position']}-s{content['seed']}-*")):
        other = runs.read(path)
        if not other or other["provenance"].get("plugin") == own:
            continue
        if all(other[key] == content[key] for key in same):
            folders.append(path)
    return folders
