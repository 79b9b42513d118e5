"""The stages of a ladder, each read from its folder and never stored: the rates are searched at the
two smallest sizes; then every scheme is trained at every size, in pairs by seed.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rope_lab.comparing.launching import Asks, Stopped, ended, jobs_of, launch
from rope_lab.comparing.timing import run_seconds
from rope_lab.laddering.sizes import SEARCHED, ModelSize, carried
from rope_lab.launch import sweep
from rope_lab.launch.jobs import Job
from rope_lab.results.comparisons.ladder import LOSS, Rung
from rope_lab.results.plans.bill import Bill
from rope_lab.results.plans.freeze import FIRST_SEED
from rope_lab.results.plans.rates import FINALISTS, Cell, Search, SearchState
from rope_lab.results.records.run import Run

SEARCH_SEED = 100  # the first seed of the search
Rates = Mapping[str, list[float]]  # of each scheme, at each size


@dataclass(frozen=True)
class Ladder:
    """A ladder as it was asked for.

    schemes:  as `position=` takes them, the baseline first
    common:   the overrides of all runs
    usual:    the recipe's learning rate
    tried:    rates of the search, and seeds at the best ones
    pairs:    seeds at each size
    """

    schemes: tuple[str, ...]
    common: tuple[str, ...]
    sizes: tuple[ModelSize, ...]
    usual: float
    tried: tuple[int, int]
    pairs: int
    folder: Path
    launcher: dict[str, Any]

    @property
    def search(self) -> Search:
        """That of one size."""
        rates, seeds = self.tried
        return Search(self.schemes, self.usual, rates, range(SEARCH_SEED, SEARCH_SEED + seeds))

    @property
    def cells(self) -> int:
        """How many runs each size has."""
        return len(self.schemes) * self.pairs

    def words(self, size: ModelSize, cell: Cell) -> list[str]:
        """The overrides of a run."""
        own = [f"position={cell.scheme}", f"train.lr={cell.rate:g}", f"seed={cell.seed}"]
        return [*self.common, *size.words, *own]


@dataclass(frozen=True)
class Climbed:
    """A ladder with all its runs.

    rungs:  of each size; rates: of each scheme at each size
    at_end: scheme and size of each search whose best rate is the lowest or the highest tried
    """

    rungs: list[Rung]
    rates: Rates
    at_end: list[tuple[str, str]]


def climb(ladder: Ladder, asks: Asks) -> Climbed:
    """Make the runs that are missing. Raises Stopped."""
    small = ladder.sizes[:SEARCHED]
    states = [_searched(ladder, size) for size in small]
    _ask(ladder, [state for state, _ in states], asks)
    best, at_end = [], []
    for size, (state, waiting) in zip(small, states, strict=True):
        while state.missing:
            launch(ladder.launcher, waiting, f"search at {size.name}", shows_scores=True)
            state, waiting = _searched(ladder, size)
        best.append(state.best)
        at_end += [(scheme, size.name) for scheme in state.at_end]
    rates = {}
    for scheme in ladder.schemes:
        rates[scheme] = carried([each[scheme] for each in best], ladder.sizes)
    rungs = [_rung(ladder, number, rates) for number in range(len(ladder.sizes))]
    return Climbed(rungs, rates, at_end)


def _searched(ladder: Ladder, size: ModelSize) -> tuple[SearchState, list[Job]]:
    """How far the search at a size is, and the jobs that are missing."""
    jobs: dict[Cell, Job] = {}
    while True:
        now = ended(list(jobs.values()), ladder.folder)
        runs = {cell: now[job] for cell, job in jobs.items() if job in now}
        state = ladder.search.progress({cell: _gain(run) for cell, run in runs.items()})
        new = [cell for cell in state.missing if cell not in jobs]
        if not new:
            return state, [jobs[cell] for cell in state.missing]
        words = [ladder.words(size, cell) for cell in new]
        jobs |= dict(zip(new, jobs_of(words, ladder.folder), strict=True))


def _gain(run: Run) -> float:
    """Higher is better; the worst of a run that diverged."""
    gain = LOSS.sign * LOSS.of(run)
    return -math.inf if math.isnan(gain) else gain


def _rung(ladder: Ladder, number: int, rates: Rates) -> Rung:
    """The runs of one size, made if they are missing. Raises Stopped."""
    size, jobs = ladder.sizes[number], _jobs(ladder, number, rates)
    every = list(itertools.chain(*jobs.values()))
    before = ended(every, ladder.folder)
    waiting = [job for job in every if job not in before]
    if waiting:
        launch(ladder.launcher, waiting, f"size {size.name}", shows_scores=False)
    now = ended(every, ladder.folder)
    if len(now) < len(every):
        raise Stopped(f"{len(now)} of {len(every)} runs of {size.name} have ended")
    runs = {}
    for scheme, those in jobs.items():
        runs[scheme] = [now[job] for job in those]
    return Rung(size.name, size.parameters, runs)


def _jobs(ladder: Ladder, number: int, rates: Rates) -> dict[str, list[Job]]:
    """The runs of each scheme at one size."""
    jobs = {}
    for scheme in ladder.schemes:
        seeds = range(FIRST_SEED, FIRST_SEED + ladder.pairs)
        cells = [Cell(scheme, rates[scheme][number], seed) for seed in seeds]
        words = [ladder.words(ladder.sizes[number], cell) for cell in cells]
        jobs[scheme] = jobs_of(words, ladder.folder)
    return jobs


def _ask(ladder: Ladder, states: list[SearchState], asks: Asks) -> None:
    """Show the bill of all runs that are missing, from a few steps at each size, and ask."""
    counts = _missing(ladder, states)
    if not any(counts):
        return
    total = 0.0
    for size, count in zip(ladder.sizes, counts, strict=True):
        if not count:
            continue
        cell = Cell(ladder.schemes[0], ladder.usual, FIRST_SEED)
        seconds = run_seconds(jobs_of([ladder.words(size, cell)], ladder.folder), ladder.launcher)
        if seconds is None:  # on a cluster
            total = math.nan
            break
        total += count * seconds
    runs, at_once = sum(counts), sweep.shares(ladder.launcher)[0]
    seconds = None if math.isnan(total) else total / runs
    asks(Bill("ladder", runs, seconds, "from a few steps at each size", at_once))


def _missing(ladder: Ladder, states: list[SearchState]) -> list[int]:
    """How many runs each size lacks; of a search that has not ended, if no rate is added."""
    counts = [ladder.cells] * len(ladder.sizes)
    if not any(state.missing for state in states):
        rates = {}
        for scheme in ladder.schemes:
            rates[scheme] = carried([state.best[scheme] for state in states], ladder.sizes)
        for number in range(len(ladder.sizes)):
            jobs = _jobs(ladder, number, rates)
            every = list(itertools.chain(*jobs.values()))
            counts[number] -= len(ended(every, ladder.folder))
    for number, state in enumerate(states):
        if state.missing:
            counts[number] += _left(ladder, state)
    return counts


def _left(ladder: Ladder, state: SearchState) -> int:
    """The runs that a search still takes: the missing ones and, on its first seed, those of the
    finalists.
    """
    on_first_seed = all(cell.seed == SEARCH_SEED for cell in state.missing)
    rates, seeds = ladder.tried
    later = len(ladder.schemes) * min(FINALISTS, rates) * (seeds - 1)
    return len(state.missing) + (later if on_first_seed else 0)
