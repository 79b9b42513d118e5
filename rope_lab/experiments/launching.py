"""The runs of a comparison: their settings, launching them, and which have ended."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from rope_lab.files import check_writable
from rope_lab.launch import sweep
from rope_lab.launch.job import EXIT_FAILED
from rope_lab.launch.jobs import Job, compose_jobs
from rope_lab.places import RESULTS, RUNS
from rope_lab.results.plans.bill import Bill
from rope_lab.results.plans.rates import Cell, Search, SearchState
from rope_lab.results.records.folders import read_ended
from rope_lab.results.records.kept import keep, read_kept
from rope_lab.results.records.run import Run, differing
from rope_lab.text import ConfigError, Record, first_three, say, short_path
from rope_lab.train import provenance
from rope_lab.train.overrides import typed
from rope_lab.train.plugin import FILE
from rope_lab.train.run_folder import OUTCOMES

# Exit statuses: runs are to come; no difference can be seen; the runs are not those of the plan.
OPEN, NO_ROOM, NOT_PLANNED = 12, 13, 14
Asks = Callable[[Bill], None]  # raises Stopped at a no
Ended = dict[Job, Run]
Progress = tuple[dict[Cell, Run], SearchState]  # runs that have ended, and how far the search is


class Stopped(Exception):
    """A comparison without a verdict: why, and the exit status of the command."""

    def __init__(self, message: str, status: int = OPEN):
        super().__init__(message)
        self.status = status


def folder_of(out: str | Path | None, command: str, *names: str) -> Path:
    """The folder of a command's runs and page: `out`, or the one of these names in results/. Raises
    ConfigError if it cannot be written.
    """
    folder = Path(out).expanduser() if out else RESULTS / command / "-".join(names)
    check_writable(folder.absolute())
    return folder.absolute()


def path_of(given: str, folder: Path) -> str:
    """A scheme or task as a plan in a folder names it, as `position=` or `task=` takes it."""
    return str(folder / given) if FILE.fullmatch(given) else given


def jobs_of(every: Sequence[list[str]], folder: Path, plan: str = "") -> list[Job]:
    """A job for each run, given as overrides; plan: the digest of its study. W&B would show
    scores: it is off unless an override sets it.
    """
    placed = [["wandb.mode=disabled", *words, f"out={typed(folder / RUNS)}"] for words in every]
    jobs = []
    for job in compose_jobs(placed):
        name = job.cfg.names.position
        lr = job.cfg.train.lr
        seed = job.cfg.seed
        label = f"{name} train.lr={lr:g} seed={seed}"
        jobs.append(replace(job, cfg=replace(job.cfg, plan=plan), label=label))
    return jobs


def ended(jobs: Sequence[Job], folder: Path, rows: Path | None = None) -> Ended:
    """The runs of those jobs that have ended: those with a run folder, and those kept in `rows`,
    made on a machine that is gone. Raises ConfigError if other code of ours made one, if the two
    differ, or if one cannot be read.
    """
    here, damaged = read_ended(folder / RUNS) if jobs else ({}, [])
    elsewhere = _kept(rows) if jobs and rows else {}
    found: Ended = {}
    unlike = 0
    for job in jobs:
        run = here.get(job.identity.run_id)
        row = elsewhere.get(job.identity.run_id)
        record = job.record()
        if run and record["status"] != "not run":  # its parent was not trained again
            found[job] = run
            is_other = job.is_of_other_code(record)
            unlike += bool(row and differing(run, row))
        elif row:
            found[job] = row
            is_other = not _is_of_todays_code(row, job)
        elif damaged and record["status"] in OUTCOMES:
            remedy = "delete its folder (rope-lab rm FOLDER), and the same command makes it again"
            raise ConfigError(f"{short_path(folder / RUNS)}: {first_three(damaged)}; {remedy}")
        else:
            continue
        if is_other:
            remedy = f"go back to that code, or begin another comparison: --out {folder}-2"
            raise ConfigError(f"{job.label}: was run by other code of rope_lab; {remedy}")
    if unlike:  # without the numbers, which a plan hides
        both = f"{short_path(folder / RUNS)} and {rows}"
        raise ConfigError(f"{both}: {unlike} runs have other numbers; move one of the two away")
    return found


def _kept(rows: Path) -> dict[str, Run]:
    """The kept runs that have ended, by their id. Raises ConfigError if a row is damaged."""
    runs, problems = read_kept(rows)
    if problems:
        raise ConfigError(f"{rows}: {first_three(problems)}; restore the file")
    return {run.run_id: run for run in runs if run.ended}


def _is_of_todays_code(row: Run, job: Job) -> bool:
    """Whether today's code made a kept run. A row that does not record our code's digest, of a
    version before this field, is taken to be of today's.
    """
    return row.is_of_code(job.identity.code) and row.source in ("", provenance.source())


def missing(jobs: Sequence[Job], folder: Path, rows: Path | None = None) -> list[Job]:
    """Those of these jobs whose run has not ended. Raises ConfigError as `ended`."""
    runs = ended(jobs, folder, rows)
    return [job for job in jobs if job not in runs]


def made(
    jobs: Sequence[Job],
    folder: Path,
    launcher: Record,
    name: str,
    shows_scores: bool,
    rows: Path | None = None,
) -> Ended:
    """The runs of all jobs; those that are missing are made, and kept in `rows` if the command is
    stopped. Raises Stopped and ConfigError.
    """
    waiting = missing(jobs, folder, rows)
    if waiting:
        with kept_if_stopped(jobs, folder, rows):
            launch(launcher, waiting, name, shows_scores)
    runs = ended(jobs, folder, rows)
    if len(runs) < len(jobs):  # a record cannot be read
        raise Stopped(f"{len(runs)} of {len(jobs)} runs have ended; the same command resumes")
    return runs


@contextmanager
def kept_if_stopped(jobs: Sequence[Job], folder: Path, rows: Path | None) -> Iterator[None]:
    """If launching runs is stopped, keep those that have ended in `rows`: their folders may go with
    this machine.
    """
    try:
        yield
    except Stopped:
        if rows:
            _keep(jobs, folder, rows)
        raise


def _keep(jobs: Sequence[Job], folder: Path, rows: Path) -> None:
    """Keep the runs of those jobs that have ended, if that is possible."""
    try:
        runs = ended(jobs, folder, rows)
        if runs:
            rows.mkdir(parents=True, exist_ok=True)
            keep(list(runs.values()), rows)
    except (ConfigError, OSError):  # which may name scores that a plan hides
        say(f"{rows}: the runs that have ended could not be kept there")


def words_of(common: Sequence[str], cell: Cell) -> list[str]:
    """The overrides of a run; common: those of all runs."""
    return [*common, f"position={cell.scheme}", f"train.lr={cell.rate:g}", f"seed={cell.seed}"]


@dataclass
class RateSearch:
    """A search for learning rates, whose runs are made in a folder.

    search: which runs it needs
    common: the overrides of all its runs
    gain:   the value of a run, higher is better
    rows:   a folder in which its runs are kept if it is stopped
    jobs:   of the runs so far, ended or missing; `progress` adds to them
    """

    search: Search
    common: Sequence[str]
    gain: Callable[[Run], float]
    folder: Path
    rows: Path | None = None
    jobs: dict[Cell, Job] = field(default_factory=dict)

    def progress(self) -> Progress:
        """The ended runs and the state of the search; gives each missing run a job."""
        while True:
            of_jobs = ended(list(self.jobs.values()), self.folder, self.rows)
            runs = {cell: of_jobs[job] for cell, job in self.jobs.items() if job in of_jobs}
            state = self.search.progress({cell: self.gain(run) for cell, run in runs.items()})
            new = [cell for cell in state.missing if cell not in self.jobs]
            if not new:
                return runs, state
            words = [words_of(self.common, cell) for cell in new]
            self.jobs.update(zip(new, jobs_of(words, self.folder), strict=True))

    def made(self, launcher: Record, name: str) -> Progress:
        """All its runs, made if they are missing, and what it found. Raises Stopped."""
        while True:
            runs, state = self.progress()
            if not state.missing:
                return runs, state
            waiting = [self.jobs[cell] for cell in state.missing]
            with kept_if_stopped(list(self.jobs.values()), self.folder, self.rows):
                launch(launcher, waiting, name, shows_scores=True)


def launch(launcher: Record, jobs: Sequence[Job], name: str, shows_scores: bool) -> None:
    """Make runs. Raises Stopped if one has not ended."""
    status = sweep.launch(jobs, launcher, name, shows_scores=shows_scores)
    if status == EXIT_FAILED:
        raise Stopped("a run failed, see above; the same command tries it again", status)
    if status:
        raise Stopped("stopped; the same command resumes", status)
