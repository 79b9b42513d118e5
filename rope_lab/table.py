"""Run a whole comparison: `rope-lab table TABLE [--jobs N]`.

The same command again resumes: finished runs are skipped, interrupted ones resumed. It can be
stopped at any time: the most informative runs come first. --bill runs nothing and says how long the
missing runs take. --kept FOLDER lets another machine resume: no run whose row is kept in FOLDER is
made again.

Runs go side by side on the cores of this machine; hydra/launcher=ray or
hydra/launcher=submitit_slurm sends them to a cluster, hydra/launcher=basic runs one after the other
in this process.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from rope_lab.blocks import RunTable
from rope_lab.cores import CORES
from rope_lab.experiments.asking import exit_after
from rope_lab.identity import NUMERICS
from rope_lab.launch import sweep
from rope_lab.launch.job import EXIT_FAILED
from rope_lab.launch.jobs import Job, compose_jobs
from rope_lab.results.records.folders import read_or_warn
from rope_lab.run_tables import find
from rope_lab.searches import (
    Best,
    Case,
    Ended,
    Searches,
    best_rates,
    bills_of,
    case_of,
    searched_rates,
)
from rope_lab.shipped import choices
from rope_lab.text import (
    ConfigError,
    Record,
    Words,
    argument_parser,
    filled,
    say,
    short_path,
)
from rope_lab.train.overrides import key_of, split_hydra
from rope_lab.train.run_folder import OUTCOMES


def main(arguments: Words = None) -> None:
    about = [
        __doc__ or "",
        "TABLE is a study of results/plan.yaml, the path of a table or plan of your own, or one of",
    ]
    about += [f"  {name:<8} {find(name)[0].about}" for name in choices("table")]
    parser = argument_parser("table", "\n".join(about))
    parser.add_argument("table", metavar="TABLE")
    parser.add_argument("--jobs", type=int, help=f"parallel runs (default: one per core, {CORES})")
    instead = {"dest": "act", "action": "store_const", "default": run}
    not_run = parser.add_mutually_exclusive_group()
    not_run.add_argument(
        "--list", const=list_missing, help="run nothing, only list what is missing", **instead
    )
    not_run.add_argument(
        "--bill", const=bill, help="run nothing, only say how long the missing runs take", **instead
    )
    parser.add_argument(
        "--kept",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="make no run that is kept in FOLDER itself; may be repeated",
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        default=[],
        metavar="NAME=VALUE",
        help="settings of all runs: wandb.mode=disabled",
    )
    given = parser.parse_intermixed_args(arguments)
    exit_after(lambda: given.act(request(given.table, given.overrides, given.jobs, given.kept)))


@dataclass(frozen=True)
class Request:
    """Tables whose runs are asked for.

    title:    of them all
    extra:    settings of all their runs
    launcher: its settings
    kept:     runs that ended elsewhere, by their id; they are not made again
    """

    title: str
    tables: list[RunTable]
    extra: list[str]
    launcher: Record
    kept: Ended

    @cached_property
    def measures(self) -> dict[Case, str]:
        """What chooses the best rate of each case. Raises ConfigError."""
        found: dict[Case, str] = {}
        for table in self.tables:
            found |= table.measures()
        return found

    @cached_property
    def searched(self) -> Searches:
        """The runs of the searches."""
        runs = [words for table in self.tables for words in table.search_runs()]
        return searched_rates(runs, self.extra)

    @cached_property
    def is_fresh(self) -> bool:
        """Whether runs of the searches that have ended are made again."""
        jobs = [job for at_rate in self.searched.values() for job in at_rate.values()]
        return any(job.cfg.fresh for job in jobs)

    @property
    def shows_scores(self) -> bool:
        """Whether runs may show their scores: not before all those of a plan have ended."""
        return not any(table.plan for table in self.tables)

    def best(self) -> Best:
        """The best rates, of the searches that have ended."""
        return best_rates(self.searched, self.measures, self.kept)

    def best_before(self) -> Best:
        """The same before the first run: none if all runs are made again."""
        return {} if self.is_fresh else self.best()

    def runs(self, best: Best, first: int | None = None) -> list[Job]:
        """The runs of the tables, or of their `first` blocks, as far as they are known, each
        once.
        """
        every: dict[str, Job] = {}
        for table in self.tables:
            runs = table.runs(best, first)
            for job in compose_jobs([[*words, *self.extra] for words in runs]):
                planned = replace(job, cfg=replace(job.cfg, plan=table.plan))
                every.setdefault(job.identity.run_id, planned)
        return list(every.values())

    def not_kept(self, best: Best, first: int | None = None) -> list[Job]:
        """Those of these runs that are not kept."""
        return [job for job in self.runs(best, first) if job.identity.run_id not in self.kept]


def request(
    name: str,
    overrides: Sequence[str] = (),
    at_once: int | None = None,
    folders: Sequence[Path] = (),
) -> Request:
    """The request for the runs of a table; says how many of them are kept. Raises ConfigError.

    overrides: settings of all runs, and Hydra's own
    at_once:   parallel runs; None: as the launcher has it
    folders:   of kept runs, which are not made again
    """
    tables = find(name)
    hydra, extra = split_hydra(overrides)
    launcher = sweep.side_by_side(hydra, at_once)
    _check_extra(extra, tables)
    if folders and "fresh" in map(key_of, extra):
        raise ConfigError("fresh=true makes all runs again; leave out --kept")
    asked = Request(Path(name).stem, tables, extra, launcher, _ended_in(folders))
    if folders:
        ids = [job.identity.run_id for job in asked.runs(asked.best())]
        found = sum(run_id in asked.kept for run_id in ids)
        say(f"kept in {', '.join(map(short_path, folders))}: {found} of {len(ids)} runs")
    return asked


def _check_extra(extra: Sequence[str], tables: Sequence[RunTable]) -> None:
    """Raises ConfigError if a table itself sets one of the settings of all runs."""
    chosen = set()
    for table in tables:
        for words in table.runs():
            chosen |= set(map(key_of, words))
    for word in extra:
        if key_of(word) in chosen:
            raise ConfigError(f"{word}: the table sets it")


def _ended_in(folders: Sequence[Path]) -> Ended:
    """The runs kept in folders that have ended and have the numbers of today's code. Raises
    ConfigError without such a folder.
    """
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"--kept {folder}: there is no such folder")
    found: Ended = {}
    for run in read_or_warn(folders):
        if run.ended and run.numerics == NUMERICS:
            found[run.run_id] = run
    return found


def list_missing(asked: Request) -> int:
    """List the runs that are missing; the exit status."""
    return _launch(asked, asked.not_kept(asked.best_before()), runs=False)


def bill(asked: Request) -> int:
    """Say how long the missing runs take, a line for each task; the exit status.

    A rate that is still to be searched changes no time: the runs that follow it count too.
    """
    rates = {case: next(iter(at_rate)) for case, at_rate in asked.searched.items()}
    jobs = asked.not_kept(rates | asked.best())
    say(filled(bills_of(jobs, asked.launcher)))
    return 0


def run(asked: Request) -> int:
    """Make the runs that are missing; the exit status. Raises ConfigError."""
    best = asked.best_before()
    worst, begun = 0, set()
    for first in _stages(asked.tables):
        if first and _cases(asked.tables, first) <= best.keys():
            continue  # the next stage has these runs too
        jobs = _not_again(asked.not_kept(best, first), begun)
        status = _launch(asked, jobs)
        if status > EXIT_FAILED:  # a signal
            return status
        worst = max(worst, status)
        begun |= {job.identity.run_id for job in jobs}
        best = asked.best()
        if asked.is_fresh:  # searches of later blocks that have ended are of earlier commands
            best = {case: best[case] for case in _cases(asked.tables, first) & best.keys()}
    if not worst and (unknown := _cases(asked.tables) - best.keys()):
        case = " ".join(min(unknown))
        raise ConfigError(f"{case}: a run of its search cannot be read; fresh=true makes it again")
    return worst


def _launch(asked: Request, jobs: list[Job], runs: bool = True) -> int:
    """Make runs, or only list them; the exit status."""
    if not jobs:  # all are kept
        return 0
    return sweep.launch(jobs, asked.launcher, asked.title, runs, asked.shows_scores)


def _stages(tables: list[RunTable]) -> list[int | None]:
    """How many blocks to run, so that each search is followed by the runs at the best rates before
    the next one begins; None: all.
    """
    ends: set[int] = set()
    for table in tables:
        ends |= {number for number, block in enumerate(table.blocks, 1) if block.rates}
    return [*sorted(ends), None]


def _cases(tables: list[RunTable], first: int | None = None) -> set[Case]:
    """The cases whose rates are searched, or those of the `first` blocks."""
    return {case_of(words) for table in tables for words in table.search_runs(first)}


def _not_again(jobs: list[Job], begun: set[str]) -> list[Job]:
    """The jobs without those that this command has begun and that failed; those that ended are not
    run again.
    """
    left = []
    for job in jobs:
        if job.identity.run_id not in begun:
            left.append(job)
        elif job.record()["status"] in OUTCOMES:
            left.append(replace(job, cfg=replace(job.cfg, fresh=False)))
    return left
