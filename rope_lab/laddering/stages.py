"""The stages of a ladder, each read from its folder and never stored: the rates are searched at the
two smallest sizes; then every scheme is trained at every size, in pairs by seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rope_lab.experiments.launching import Asks, RateSearch, jobs_of, made, missing, words_of
from rope_lab.experiments.timing import bill_of
from rope_lab.laddering.sizes import SEARCHED, ModelSize, carried
from rope_lab.launch.jobs import Job
from rope_lab.results.comparisons.ladder import LOSS, Rung
from rope_lab.results.plans.freeze import FIRST_SEED
from rope_lab.results.plans.rates import SEARCH_SEED, Cell, Rates, Search, SearchState
from rope_lab.text import Record


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
    launcher: Record

    def search(self, size: ModelSize) -> RateSearch:
        """The search for the learning rates at a size."""
        rates, seeds = self.tried
        seeds_of_search = range(SEARCH_SEED, SEARCH_SEED + seeds)
        search = Search(self.schemes, self.usual, rates, seeds_of_search)
        return RateSearch(search, [*self.common, *size.words], LOSS.gain, self.folder)

    def rates(self, best: Sequence[dict[str, float]]) -> Rates:
        """The rate of each scheme at every size; best: at the two smallest."""
        rates = {}
        for scheme in self.schemes:
            rates[scheme] = carried([each[scheme] for each in best], self.sizes)
        return rates

    def cells(self, number: int, rates: Rates) -> list[Cell]:
        """The runs of a size, scheme by scheme."""
        seeds = range(FIRST_SEED, FIRST_SEED + self.pairs)
        cells = []
        for scheme in self.schemes:
            cells += [Cell(scheme, rates[scheme][number], seed) for seed in seeds]
        return cells

    def jobs(self, size: ModelSize, cells: Sequence[Cell]) -> list[Job]:
        """A job for each of these runs of a size."""
        common = [*self.common, *size.words]
        return jobs_of([words_of(common, cell) for cell in cells], self.folder)


def climb(ladder: Ladder, asks: Asks) -> tuple[list[Rung], list[tuple[str, str]]]:
    """Make the runs that are missing: the runs of each size, and scheme and size of each search
    whose best rate is the lowest or the highest tried. Raises Stopped.
    """
    small = ladder.sizes[:SEARCHED]
    searches = [ladder.search(size) for size in small]
    _ask(ladder, [search.progress()[1] for search in searches], asks)
    best, at_end = [], []
    for size, search in zip(small, searches, strict=True):
        _, state = search.made(ladder.launcher, f"search at {size.name}")
        best.append(state.best)
        at_end += [(scheme, size.name) for scheme in state.at_end]
    rates = ladder.rates(best)
    rungs = [_rung(ladder, number, rates) for number in range(len(ladder.sizes))]
    return rungs, at_end


def _rung(ladder: Ladder, number: int, rates: Rates) -> Rung:
    """The runs of one size, made if they are missing. Raises Stopped."""
    size = ladder.sizes[number]
    cells = ladder.cells(number, rates)
    jobs = ladder.jobs(size, cells)
    of_jobs = made(jobs, ladder.folder, ladder.launcher, f"size {size.name}", shows_scores=False)
    runs = {scheme: [] for scheme in ladder.schemes}
    for cell, job in zip(cells, jobs, strict=True):
        runs[cell.scheme].append(of_jobs[job])
    return Rung(size.name, size.parameters, runs)


def _ask(ladder: Ladder, states: Sequence[SearchState], asks: Asks) -> None:
    """Show the bill of all runs that are missing, from a few steps of each scheme at each size, and
    ask.
    """
    timed = {}
    for size, count in zip(ladder.sizes, _missing(ladder, states), strict=True):
        jobs = ladder.jobs(size, [Cell(each, ladder.usual, FIRST_SEED) for each in ladder.schemes])
        each, more = divmod(count, len(jobs))
        for place, job in enumerate(jobs):
            if runs := each + (place < more):
                timed[job] = runs
    if timed:
        asks(bill_of("ladder", timed, ladder.launcher))


def _missing(ladder: Ladder, states: Sequence[SearchState]) -> list[int]:
    """How many runs each size lacks; of a search that has not ended, if no rate is added."""
    if any(state.missing for state in states):
        counts = [len(ladder.schemes) * ladder.pairs] * len(ladder.sizes)
        for number, state in enumerate(states):
            counts[number] += state.left
        return counts
    rates = ladder.rates([state.best for state in states])
    counts = []
    for number, size in enumerate(ladder.sizes):
        jobs = ladder.jobs(size, ladder.cells(number, rates))
        counts.append(len(missing(jobs, ladder.folder)))
    return counts
