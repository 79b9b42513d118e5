"""The search for the learning rates of schemes: the same rates for all, on the same seeds.

First every rate on one seed; then the best two of each scheme on the other seeds. If the best rate
of a scheme is the lowest or the highest, all schemes get one more rate there.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

SEARCH_SEED = 100  # the first one of a search
FINALISTS = 2  # rates of each scheme that all seeds are run at
WIDENINGS = 2  # at most


class Cell(NamedTuple):
    """A run of the search."""

    scheme: str
    rate: float
    seed: int


Rates = dict[str, list[float]]  # of each scheme
Gains = Mapping[Cell, float]  # of ended runs, higher is better; -inf of a diverged one


@dataclass(frozen=True)
class SearchState:
    """How far a search is.

    missing: runs to make next; none if it has ended
    rates:   all that are tried, from the lowest
    left:    how many runs it still takes if no rate is added
    best:    the rate of each scheme; empty before the end
    at_end:  the schemes whose best rate is the lowest or the highest all the same
    """

    missing: list[Cell]
    rates: list[float]
    left: int
    best: dict[str, float] = field(default_factory=dict)
    at_end: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Search:
    """usual: the rate of the recipe; rates: how many are tried at first, each twice the one before,
    ¼ ½ 1 2 4 times the usual one for five; seeds: all rates are tried on the first one.
    """

    schemes: tuple[str, ...]
    usual: float
    rates: int
    seeds: Sequence[int]

    @property
    def grid(self) -> list[float]:
        powers = range(-(self.rates // 2), self.rates - self.rates // 2)
        return [float(f"{self.usual * 2.0**power:.6g}") for power in powers]

    def progress(self, gains: Gains) -> SearchState:
        """The state of the search after the ended runs, and the runs needed next. Replays the
        search from its start, up to the first missing run.
        """
        rates, widenings, is_final = self.grid, WIDENINGS, False
        candidates: Rates = dict.fromkeys(self.schemes, rates)
        while True:
            seeds = self.seeds if is_final else self.seeds[:1]
            cells = self._cells(rates, candidates, seeds)
            missing = [cell for cell in cells if cell not in gains]
            if missing:
                finals = len(self.schemes) * min(FINALISTS, self.rates) * (len(self.seeds) - 1)
                left = len(missing) + (0 if is_final else finals)
                return SearchState(missing, rates, left)
            ranked = {
                scheme: self._ranked(scheme, each, seeds, gains)
                for scheme, each in candidates.items()
            }
            best = {scheme: first for scheme, (first, *_) in ranked.items()}
            beyond = _beyond(rates, best.values())
            if beyond and widenings:
                rates = sorted([*rates, *beyond])
                widenings -= 1
                candidates = {scheme: [*each, *beyond] for scheme, each in candidates.items()}
            elif not is_final:
                is_final = True
                candidates = {scheme: each[:FINALISTS] for scheme, each in ranked.items()}
            else:
                at_end = [scheme for scheme, rate in best.items() if _beyond(rates, [rate])]
                return SearchState([], rates, 0, best, at_end)

    def _cells(self, rates: list[float], candidates: Rates, seeds: Sequence[int]) -> list[Cell]:
        """Every rate on the first seed, then the candidates of each scheme on all."""
        cells = [Cell(scheme, rate, seeds[0]) for rate in rates for scheme in self.schemes]
        for seed in seeds:
            for scheme, each in candidates.items():
                cells += [Cell(scheme, rate, seed) for rate in sorted(each)]
        return list(dict.fromkeys(cells))

    def _ranked(
        self, scheme: str, rates: Sequence[float], seeds: Sequence[int], gains: Gains
    ) -> list[float]:
        """Rates from the best mean over seeds; of equal ones the nearest to the usual rate first,
        then the lower.
        """

        def order(rate: float) -> tuple[float, float, float]:
            mean = sum(gains[Cell(scheme, rate, seed)] for seed in seeds) / len(seeds)
            return -mean, abs(math.log2(rate / self.usual)), rate

        return sorted(rates, key=order)


def _beyond(rates: list[float], best: Iterable[float]) -> list[float]:
    """The rates to add: below the lowest if it is the best of a scheme, above the highest too."""
    bests, new = set(best), []
    if rates[0] in bests:
        new.append(rates[0] / 2)
    if rates[-1] in bests:
        new.append(rates[-1] * 2)
    return new
