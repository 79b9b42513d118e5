"""What a sweep says at its end: how each of its runs ended, and which of them are missing."""

import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from rope_lab import signals
from rope_lab.files import append_line
from rope_lab.signals import Stop
from rope_lab.text import say

log = logging.getLogger(__name__)

EXIT_BAD_CONFIG = 2
FILLED = 2**16  # bytes that a sweep's folder has to take: Hydra's multirun.yaml, and the outcomes
OWN_FOLDER = "rope_lab-sweep-"  # how the folder of a sweep begins, unless the user has named another

_sweeps: list[Path] = []  # the outcomes of which `report` has not spoken


class Report(Callback):
    """Notes that there is a sweep, and makes it the launcher of its worker processes where it is to have such.

    Outcomes are a file in the sweep's folder, a line a job; jobs may run in several processes.
    """

    def __init__(self, outcomes: str):
        self.outcomes = outcomes

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        check_writable("hydra.run.dir", Path(config.hydra.run.dir))

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        check_writable("hydra.sweep.dir", Path(config.hydra.sweep.dir), FILLED)
        _sweeps.append(Path(config.hydra.sweep.dir) / self.outcomes)
        if "joblib" in config.hydra.launcher._target_:
            signals.lead()


def check_writable(key: str, folder: Path, size: int = 0) -> None:
    """Exits with one line where Hydra, which would say it by a traceback, cannot make or write to its folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if size:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(bytes(size))
    except OSError as error:
        with suppress(OSError):
            if folder.name.startswith(OWN_FOLDER):
                folder.rmdir()
        print(f"{key}={folder}: cannot be written ({error.strerror}); set it, or TMPDIR, to another", file=sys.stderr)
        sys.exit(EXIT_BAD_CONFIG)


def end_workers(number: int) -> None:
    """Passes a signal on to the worker processes of this sweep, if it has any, and waits until their runs are saved."""
    for outcomes in _sweeps:
        signals.end_workers(number, outcomes)


def report() -> None:
    """Prints the outcomes of a sweep, however it ended.

    Only their file is removed, and the folder if it is empty then and named as conf/config.yaml names it: a user's,
    hydra.sweep.dir=…, stays.
    """
    while _sweeps:
        _report(_sweeps.pop())


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


def in_worker() -> bool:
    """Whether the present job of a sweep runs in a worker process."""
    return is_sweep() and signals.launcher() > 0


def run_in_worker(job: Callable[[Stop], None]) -> None:
    """Runs a job in a worker process. One that has been told to stop begins none: it waits for its sweep to end."""
    stopping = signals.of_worker()
    with signals.under_way(_outcomes()):
        if not stopping.caught:
            with suppress(SystemExit):  # an exit would end the sweep, and with it the other workers at once
                job(stopping)
    if stopping.caught:
        signals.await_end(stopping.caught)


def note(outcome: str) -> None:
    """Notes how the present job of a sweep stands: `started`, a run's status, or why it could not run."""
    if not is_sweep():
        return
    job = HydraConfig.get()
    line = {"job": job.job.num, "overrides": " ".join(job.overrides.task), "outcome": outcome}
    try:
        append_line(_outcomes(), line)
    except OSError as error:
        log.warning("%s: cannot be written (%s): the end of this sweep says less", _outcomes(), error.strerror)


def _outcomes() -> Path:
    job = HydraConfig.get()
    return Path(job.sweep.dir) / job.callbacks.report.outcomes


def threads_each() -> int | None:
    """CPU threads for each of the runs that the launcher has going at once; None where it is one at a time."""
    at_once = HydraConfig.get().launcher.get("n_jobs", 1)
    cores = os.cpu_count() or 1
    return None if at_once == 1 else max(1, cores // (at_once if at_once > 0 else cores))


def summary(path: Path) -> str:
    """The outcomes in a few lines: how many runs ended how, and each that has not finished with its overrides."""
    last, unreadable = {}, 0
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            noted = json.loads(line)
            last[noted["job"]] = {"overrides": noted["overrides"], "outcome": noted["outcome"]}
        except (ValueError, LookupError, TypeError):  # the disk was full, or a process died in it
            unreadable += 1
    finished = [line for line in last.values() if line["outcome"] == "finished"]
    missing = [f"  {line['outcome']}: {line['overrides']}" for line in last.values() if line["outcome"] != "finished"]
    head = f"sweep: {len(finished)} of {len(last)} runs finished"
    if any(line["outcome"] == "interrupted" for line in last.values()):
        head += "; it was stopped, and what it had not begun is not listed"
    if unreadable:
        head += f"; {unreadable} of its outcomes cannot be read"
    return "\n".join([head, *missing, *(["the same command runs what is missing"] if missing else [])])
