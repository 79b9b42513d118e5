"""What a sweep says at its end: how each of its runs ended, and which of them are missing."""

import atexit
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from rope_lab.files import append_line, say

OWN_FOLDER = "rope_lab-sweep-"  # how the folder of a sweep begins, unless the user has named another


class Report(Callback):
    """Prints the outcomes of a sweep, however it ends.

    They are a file in the sweep's folder, a line a job; jobs may run in several processes. Only this file is removed,
    and the folder if it is empty then and named as conf/config.yaml names it: a user's, hydra.sweep.dir=…, stays.
    """

    def __init__(self, outcomes: str):
        self.outcomes = outcomes

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        atexit.register(_report, Path(config.hydra.sweep.dir) / self.outcomes)


def _report(outcomes: Path) -> None:
    say(summary(outcomes))
    with suppress(OSError):
        outcomes.unlink(missing_ok=True)
        if outcomes.parent.name.startswith(OWN_FOLDER):
            (outcomes.parent / "multirun.yaml").unlink(missing_ok=True)  # Hydra's
            outcomes.parent.rmdir()


def is_sweep() -> bool:
    """Whether the job that Hydra is running belongs to a sweep."""
    return HydraConfig.get().mode == RunMode.MULTIRUN


def note(outcome: str) -> None:
    """Notes how the present job of a sweep stands: `started`, a run's status, or why it could not run."""
    if not is_sweep():
        return
    job = HydraConfig.get()
    line = {"job": job.job.num, "overrides": " ".join(job.overrides.task), "outcome": outcome}
    append_line(Path(job.sweep.dir) / job.callbacks.report.outcomes, line)


def threads_each() -> int | None:
    """CPU threads for each of the runs that the launcher has going at once; None where it is one at a time."""
    at_once = HydraConfig.get().launcher.get("n_jobs", 1)
    cores = os.cpu_count() or 1
    return None if at_once == 1 else max(1, cores // (at_once if at_once > 0 else cores))


def summary(path: Path) -> str:
    """The outcomes in a few lines: how many runs ended how, and each that has not finished with its overrides."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    last = {line["job"]: line for line in lines}
    finished = [line for line in last.values() if line["outcome"] == "finished"]
    missing = [f"  {line['outcome']}: {line['overrides']}" for line in last.values() if line["outcome"] != "finished"]
    head = f"sweep: {len(finished)} of {len(last)} runs finished"
    if any(line["outcome"] == "interrupted" for line in last.values()):
        head += "; it was stopped, and what it had not begun is not listed"
    return "\n".join([head, *missing, *(["the same command goes on with what is missing"] if missing else [])])
