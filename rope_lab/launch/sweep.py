"""What a sweep says: which run is at hand and, at its end, how each of them ended and what they found."""

import json
import logging
import math
import os
import shlex
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.errors import CompactHydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, open_dict, read_write

from rope_lab.files import append_line
from rope_lab.launch import clusters, signals
from rope_lab.launch.signals import Stop
from rope_lab.text import ConfigError, say
from rope_lab.train.console import SHOWN, Place, as_typed, duration, program, same_command
from rope_lab.train.run import out_folder

log = logging.getLogger(__name__)

EXIT_BAD_CONFIG = 2
FILLED = 2**16  # bytes that a sweep's folder has to take: Hydra's multirun.yaml, and the outcomes
OWN_FOLDER = "rope_lab-sweep-"  # how the folder of a sweep begins, unless the user has named another
SHARED = "sweeps"  # beside the runs, the folder of those whose jobs are elsewhere

_words: list[str] = []  # the overrides of the present job of a sweep
_sweeps: list[tuple[Path, DictConfig]] = []  # the outcomes of which `report` has not spoken, and their launchers


class Report(Callback):
    """Notes that there is a sweep, and makes it the launcher of its worker processes where it is to have such.

    Outcomes are a file in the sweep's folder: a line about the sweep, then lines of its jobs, which may run in several
    processes.
    """

    def __init__(self, outcomes: str):
        self.outcomes = outcomes

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        launcher = config.hydra.launcher
        try:
            clusters.begin(launcher)
            if clusters.is_elsewhere(launcher) and Path(config.hydra.sweep.dir).name.startswith(OWN_FOLDER):
                _share(config)
        except ConfigError as error:
            print(error, file=sys.stderr)
            sys.exit(EXIT_BAD_CONFIG)
        folder = Path(config.hydra.sweep.dir).absolute()
        check_writable("hydra.sweep.dir", folder, FILLED)
        _sweeps.append((folder / self.outcomes, launcher))
        if clusters.has_queue(launcher) or clusters.is_local(launcher):  # of submitit's, which shows none of it
            say(f"the output of the runs is in {as_typed(folder)}")


def _share(config: DictConfig) -> None:
    """Moves a sweep's folder to where all machines see it: beside the runs."""
    folder = out_folder(config) / SHARED / Path(config.hydra.sweep.dir).name
    with read_write(config), open_dict(config):
        config.hydra.sweep.dir = str(folder)
        quoted = str(folder).replace("\\", "\\\\").replace("'", "\\'")
        config.hydra.overrides.hydra.append(f"hydra.sweep.dir='{quoted}'")  # from which each job composes its own


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
    for outcomes, launcher in _sweeps:
        if clusters.is_elsewhere(launcher):
            with suppress(OSError):
                stop_file(outcomes).touch()
            signals.await_jobs(outcomes)
        else:
            signals.end_workers(number, outcomes)


def stop_file(outcomes: Path) -> Path:
    """The file that tells the jobs of a sweep elsewhere to stop."""
    return outcomes.with_suffix(".stop")


def report() -> None:
    """Prints the outcomes of a sweep, however it ended.

    Only their file is removed, and the folder if it is empty then and named as conf/config.yaml names it: a user's,
    hydra.sweep.dir=…, stays.
    """
    while _sweeps:
        outcomes, launcher = _sweeps.pop()
        clusters.end(launcher)
        say(summary(outcomes))
        with suppress(OSError):
            outcomes.unlink(missing_ok=True)
            if not clusters.has_queue(launcher):  # jobs that are still queued have to see it
                stop_file(outcomes).unlink(missing_ok=True)
            if outcomes.parent.name.startswith(OWN_FOLDER):
                (outcomes.parent / "multirun.yaml").unlink(missing_ok=True)  # Hydra's
                outcomes.parent.rmdir()
                if outcomes.parent.parent.name == SHARED:
                    outcomes.parent.parent.rmdir()


def is_sweep() -> bool:
    """Whether the present job belongs to a sweep."""
    return bool(_words)


def in_worker() -> bool:
    """Whether the present job of a sweep runs in a worker process."""
    return is_sweep() and signals.launcher() > 0


def is_elsewhere() -> bool:
    """Whether the present job of a sweep runs in a process that is no child of its launcher's."""
    return is_sweep() and clusters.is_elsewhere(HydraConfig.get().launcher)


def run_elsewhere(job: Callable[[Stop], None]) -> None:
    """Runs a job in a process that Ray, Slurm or submitit has begun. Where its sweep has been told to stop, it does.

    What Slurm wants by a signal it gets once the run is saved: submitit's handler queues the job again, and another
    exit status than 0 is no result. Raises CompactHydraException where this machine does not see the sweep's folder.
    """
    outcomes, launcher = _outcomes(), HydraConfig.get().launcher
    with suppress(OSError):
        os.chdir(HydraConfig.get().runtime.cwd)
    signals.let_through()
    if stop_file(outcomes).exists():
        return
    if not outcomes.exists():
        raise CompactHydraException(
            f"{outcomes.parent}: {socket.gethostname()} does not see what the launcher wrote there; "
            "set out=FOLDER to one on a file system that all machines share"
        )
    process = _read(outcomes)[0].get("launcher", 0) if clusters.is_local(launcher) else 0

    def told() -> int:
        return signal.SIGHUP if stop_file(outcomes).exists() or (process and not signals.is_alive(process)) else 0

    stopping = Stop(told)
    try:
        with signals.under_way(outcomes):
            job(stopping)
    except SystemExit:
        if stopping.caught in (signal.SIGUSR1, signal.SIGUSR2):
            signal.raise_signal(stopping.caught)
        if clusters.has_queue(launcher) and stopping.caught not in (0, signal.SIGHUP):
            raise


def run_in_worker(job: Callable[[Stop], None]) -> None:
    """Runs a job in a worker process. One that has been told to stop begins none: it waits for its sweep to end."""
    stopping = signals.of_worker()
    with signals.under_way(_outcomes()):
        if not stopping.caught:
            with suppress(SystemExit):  # an exit would end the sweep, and with it the other workers at once
                job(stopping)
    if stopping.caught:
        signals.await_end(stopping.caught)


def expect(runs: Sequence[Sequence[str]]) -> None:
    """Notes that the sweep has these runs, each said by its overrides, whatever its own overrides say."""
    words = [dict(word.split("=", 1) for word in overrides) for overrides in runs]
    keys = dict.fromkeys(key for each in words for key in each)
    differ = [key for key in keys if len({each.get(key) for each in words}) > 1]
    fresh = any(each.get("fresh") for each in words)
    _append(_sweeps[-1][0], {"runs": len(runs), "differ": differ, "launcher": os.getpid(), "fresh": fresh})


def as_job(words: Sequence[str], config_dir: Path | None) -> list[str]:
    """The override by which a launcher of Hydra carries a run: its own overrides, in letters that need no quotes."""
    payload = json.dumps([list(words), str(config_dir.resolve()) if config_dir else None])
    return [f"+run='{payload.encode().hex()}'"]


def from_job(cfg: DictConfig) -> tuple[list[str], Path | None]:
    """The overrides of the job at hand, and the folder with more of conf/."""
    words, config_dir = json.loads(bytes.fromhex(cfg.run))
    _words[:] = words
    return words, Path(config_dir) if config_dir else None


def place() -> Place | None:
    """Where the present job stands among the runs of its sweep; None: it is alone."""
    if not is_sweep():
        return None
    sweep, jobs, _ = _read(_outcomes())
    runs, label = sweep.get("runs", 0), _label(_differing(sweep))
    heading = f"run {HydraConfig.get().job.num + 1}" + (f" of {runs}" if runs else "")
    took = [job["seconds"] for job in jobs.values() if "seconds" in job]
    if took and runs:
        rounds = math.ceil((runs - sum("metrics" in job for job in jobs.values())) / _at_once())
        heading += f", {duration(rounds * sum(took) / len(took))} left"
    return Place(label, f"{heading} · {label}" if label else heading, in_worker() or is_elsewhere())


def note(outcome: str, **found: Any) -> None:
    """Notes how the present job of a sweep stands: `started`, a run's status, or why it could not run.

    found: `metrics`, the folder `out` of all runs and, of a run that was trained just now, `seconds`; of one that is
    started, when it `began`
    """
    if not is_sweep():
        return
    job = HydraConfig.get()
    differing = _differing(_read(_outcomes())[0])
    scheme = _label(word for word in differing if _key(word) != "seed") or next(
        (w.partition("=")[2] for w in _words if _key(w) == "position"), "all"
    )
    line = {"job": job.job.num, "overrides": " ".join(differing or _words), "outcome": outcome}
    _append(_outcomes(), line | {"scheme": scheme} | found)


def first_begun() -> str:
    """When the present job of a sweep was first begun, by the clock of the process that it was begun in; else empty."""
    if not is_sweep():
        return ""
    return _read(_outcomes())[1].get(HydraConfig.get().job.num, {}).get("began", "")


def _append(outcomes: Path, line: dict[str, Any]) -> None:
    try:
        append_line(outcomes, line)
    except OSError as error:
        log.warning("%s: cannot be written (%s): the end of this sweep says less", outcomes, error.strerror)


def _differing(sweep: dict[str, Any]) -> list[str]:
    """The overrides of the present job that other jobs of its sweep have otherwise."""
    return [word for word in _words if _key(word) in sweep.get("differ", [])]


def _key(word: str) -> str:
    return word.partition("=")[0]


def _label(words: Iterable[str]) -> str:
    """Overrides in short: `rope seed=1`."""
    return " ".join(word.partition("=")[2] if _key(word) in ("task", "position") else word for word in words)


def _outcomes() -> Path:
    job = HydraConfig.get()
    return Path(job.sweep.dir) / job.callbacks.report.outcomes


def threads_each() -> int | None:
    """CPU threads for each of the runs that the launcher has going at once; None where it is one at a time."""
    if is_elsewhere():
        return clusters.threads(HydraConfig.get().launcher)
    return None if _at_once() == 1 else max(1, (os.cpu_count() or 1) // _at_once())


def _at_once() -> int:
    """How many runs the launcher has going at once."""
    jobs = HydraConfig.get().launcher.get("n_jobs", 1)
    return jobs if jobs > 0 else os.cpu_count() or 1


def _read(outcomes: Path) -> tuple[dict[str, Any], dict[int, dict[str, Any]], int]:
    """What a sweep's file says: about it, the last of each job, and how many of its lines cannot be read.

    Of a job that was begun more than once, `began` is of the first time.
    """
    sweep, jobs, unreadable = {}, {}, 0
    for line in outcomes.read_bytes().splitlines() if outcomes.exists() else []:
        try:
            noted = json.loads(line)
            if "runs" in noted:
                sweep = noted
            else:
                first = {key: value for key, value in jobs.get(noted["job"], {}).items() if key == "began"}
                jobs[noted["job"]] = {"overrides": noted["overrides"], "outcome": noted["outcome"]} | noted | first
        except (ValueError, LookupError, TypeError):  # the disk was full, or a process died in it
            unreadable += 1
    return sweep, jobs, unreadable


def summary(outcomes: Path) -> str:
    """How many runs ended how, each that has not finished with its overrides, and what the others found."""
    sweep, jobs, unreadable = _read(outcomes)
    runs = max(sweep.get("runs", 0), len(jobs))
    finished = [job for job in jobs.values() if job["outcome"] == "finished"]
    lines = [f"sweep: {len(finished)} of {runs} runs finished"]
    if runs > len(jobs):
        lines[0] += f"; {runs - len(jobs)} were not begun"
    if unreadable:
        lines[0] += f"; {unreadable} of its outcomes cannot be read"
    lines += [f"  {job['outcome']}: {job['overrides']}" for job in jobs.values() if job not in finished]
    lines += table([job for job in finished if "metrics" in job])
    if len(finished) < runs and jobs:
        lines.append(f"{same_command(sweep.get('fresh', False))} runs what is missing")
    if folders := sorted({job["out"] for job in finished if "out" in job}):
        typed = " ".join(shlex.quote(as_typed(Path(folder))) for folder in folders)
        lines.append(f"report: {program('python')} -m rope_lab.report {typed}")
    return "\n".join(lines)


def table(jobs: list[dict[str, Any]]) -> list[str]:
    """A line a scheme: how many runs it has, and the mean of each metric with the range over them."""
    found = [key for key in SHOWN if any(key in job["metrics"] for job in jobs)]
    rows = [["", "runs", *(SHOWN[key][0] for key in found)]]
    for scheme in dict.fromkeys(job["scheme"] for job in jobs):
        its = [job["metrics"] for job in jobs if job["scheme"] == scheme]
        rows.append([scheme, str(len(its))])
        for key in found:
            values = [metrics[key] for metrics in its if key in metrics]
            mean, *ends = (f"{n:{SHOWN[key][1]}}" for n in (sum(values) / len(values), min(values), max(values)))
            rows[-1].append(f"{mean:>6}" + (f" ({ends[0]} to {ends[1]})" if len(values) > 1 else ""))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return [f"  {line.rstrip()}" for line in lines] if jobs else []
