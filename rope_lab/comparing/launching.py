"""The runs of a comparison: their settings, launching them, and which have ended."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rope_lab.launch import sweep
from rope_lab.launch.job import EXIT_FAILED
from rope_lab.launch.jobs import Job
from rope_lab.places import RESULTS
from rope_lab.results.plans.bill import Bill
from rope_lab.results.plans.rates import Cell, Search, SearchState
from rope_lab.results.records.folders import read_ended
from rope_lab.results.records.run import Run
from rope_lab.text import ConfigError, Record
from rope_lab.train.overrides import typed
from rope_lab.train.plugin import FILE

RUNS = "runs"  # within the folder of a comparison
OPEN, NO_ROOM = 12, 13  # exit statuses: runs are to come; no difference can be seen
Asks = Callable[[Bill], None]  # raises Stopped at a no
Ended = dict[Job, Run]
Progress = tuple[dict[Cell, Run], SearchState]  # runs that have ended, and how far the search is
Before = Callable[[list[Job], list[Run]], None]


class Stopped(Exception):
    """A comparison without a verdict: why, and the exit status of the command."""

    def __init__(self, message: str, status: int = OPEN):
        super().__init__(message)
        self.status = status


def folder_of(out: str | Path | None, command: str, *names: str) -> Path:
    """The folder of a command's runs and page: `out`, or the one of these names in results/."""
    if out:
        return Path(out).expanduser().absolute()
    return (RESULTS / command / "-".join(names)).absolute()


def path_of(given: str, folder: Path) -> str:
    """A scheme or task as a plan in a folder names it, as `position=` or `task=` takes it."""
    return str(folder / given) if FILE.fullmatch(given) else given


def jobs_of(every: Sequence[list[str]], folder: Path, plan: str = "") -> list[Job]:
    """A job for each run, given as overrides; plan: the digest of its study. W&B would show
    scores: it is off unless an override sets it.
    """
    placed = [["wandb.mode=disabled", *words, f"out={typed(folder / RUNS)}"] for words in every]
    jobs = []
    for job in sweep.compose_jobs(placed):
        name, lr, seed = job.cfg.names.position, job.cfg.train.lr, job.cfg.seed
        label = f"{name} train.lr={lr:g} seed={seed}"
        jobs.append(replace(job, cfg=replace(job.cfg, plan=plan), label=label))
    return jobs


def ended(jobs: Sequence[Job], folder: Path) -> Ended:
    """The runs of those jobs that have ended. Raises ConfigError if other code of ours made one."""
    by_id = read_ended(folder / RUNS) if jobs else {}
    found = {job: by_id[job.identity.run_id] for job in jobs if job.identity.run_id in by_id}
    other = [job.label for job in found if job.is_of_other_code(job.record())]
    if other:
        remedy = f"go back to that code, or begin another comparison: --out {folder}-2"
        raise ConfigError(f"{other[0]}: was run by other code of rope_lab; {remedy}")
    return found


def made(
    jobs: Sequence[Job],
    folder: Path,
    launcher: Record,
    name: str,
    before: Before,
    shows_scores: bool,
) -> Ended:
    """The runs of all jobs; those that are missing are made, after a call of `before` with their
    jobs and the runs that have ended. Raises Stopped and ConfigError.
    """
    runs = ended(jobs, folder)
    waiting = [job for job in jobs if job not in runs]
    if waiting:
        before(waiting, list(runs.values()))
        launch(launcher, waiting, name, shows_scores)
        runs = ended(jobs, folder)
    if len(runs) < len(jobs):
        raise Stopped(f"{len(runs)} of {len(jobs)} runs have ended; the same command resumes")
    return runs


def searched(
    search: Search,
    jobs: dict[Cell, Job],
    words: Callable[[Cell], list[str]],
    gain: Callable[[Run], float],
    folder: Path,
) -> Progress:
    """The runs of a search that have ended, and how far it is.

    jobs:  gets a job for each run so far, ended or missing
    words: the overrides of a run; gain: its value, higher is better
    """
    while True:
        of_jobs = ended(list(jobs.values()), folder)
        runs = {cell: of_jobs[job] for cell, job in jobs.items() if job in of_jobs}
        progress = search.progress({cell: gain(run) for cell, run in runs.items()})
        new = [cell for cell in progress.missing if cell not in jobs]
        if not new:
            return runs, progress
        jobs |= dict(zip(new, jobs_of(list(map(words, new)), folder), strict=True))


def launch(launcher: Record, jobs: Sequence[Job], name: str, shows_scores: bool) -> None:
    """Make runs. Raises Stopped if one has not ended."""
    status = sweep.launch(jobs, launcher, name, shows_scores=shows_scores)
    if status == EXIT_FAILED:
        raise Stopped("a run failed, see above; the same command tries it again", status)
    if status:
        raise Stopped("stopped; the same command resumes", status)
