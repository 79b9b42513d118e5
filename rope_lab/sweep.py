"""What a sweep says at its end: how each of its runs ended, and which of them are missing."""

import atexit
import json
import os
import shutil
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from rope_lab.files import append_line, say

OUTCOMES = "outcomes.jsonl"  # in the sweep's own folder, a line a job; jobs may run in several processes


class Report(Callback):
    """Prints the outcomes of a sweep, however it ends, and removes the folder that Hydra made for it."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        atexit.register(_report, Path(config.hydra.sweep.dir))


def _report(folder: Path) -> None:
    say(summary(folder / OUTCOMES))
    shutil.rmtree(folder, ignore_errors=True)


def is_sweep() -> bool:
    """Whether the job that Hydra is running belongs to a sweep."""
    return HydraConfig.get().mode == RunMode.MULTIRUN


def note(outcome: str) -> None:
    """Notes how the present job of a sweep stands: `started`, a run's status, or why it could not run."""
    if not is_sweep():
        return
    job = HydraConfig.get()
    line = {"job": job.job.num, "overrides": " ".join(job.overrides.task), "outcome": outcome}
    append_line(Path(job.sweep.dir) / OUTCOMES, line)


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
