"""A run table: blocks of runs, the most informative first, as a yaml file names them."""

from collections.abc import Sequence
from dataclasses import field
from itertools import product
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from rope_lab.results.plans.named_measure import check_measure
from rope_lab.results.plans.names import RATE
from rope_lab.results.plans.rates import SEARCH_SEED
from rope_lab.results.plans.study import STRICT, Positive, Seeds
from rope_lab.searches import OWN, Best, Case, case_of
from rope_lab.shipped import choices
from rope_lab.text import ConfigError

REST = "*"  # all schemes that the table does not name


@dataclass(frozen=True, config=STRICT)
class Block:
    """Runs ordered by seed, then task, then scheme.

    task:     one task, or several
    seeds:    scheme → its seeds; a scheme may have settings, `rope position.q=0`, or be REST
    settings: overrides that all of these runs share, unless the scheme has others
    rates:    learning rates to search: each scheme is first run at all of them, on the seed
              `search`, and then at its best on its `seeds`; none: that of the settings
    measure:  what chooses the best rate: `score`, the task's own; `steps`; or a metric such as
              `length/24`
    """

    task: str | list[str]
    scale: str
    seeds: dict[str, Seeds]
    settings: list[str] = field(default_factory=list)
    rates: list[Positive] = field(default_factory=list)
    search: int = SEARCH_SEED
    measure: str = OWN

    @property
    def tasks(self) -> list[str]:
        return [self.task] if isinstance(self.task, str) else self.task

    def runs(self, rest: Sequence[str] = (), best: Best | None = None) -> list[list[str]]:
        """The overrides of each run; REST stands for the schemes `rest`. If rates are searched, the
        runs of the search, and then those whose best rate is known.
        """
        seeds_of_row = self._seeds_of_row(rest)
        runs = self.search_runs(rest)
        every = sorted(set().union(*seeds_of_row.values()))
        for seed, task, row in product(every, self.tasks, seeds_of_row):
            if seed not in seeds_of_row[row]:
                continue
            words = self._run(task, row, seed)
            if not self.rates:
                runs.append(words)
            elif best and case_of(words) in best:
                runs.append(self._run(task, row, seed, best[case_of(words)]))
        return runs

    def search_runs(self, rest: Sequence[str] = ()) -> list[list[str]]:
        """The overrides of each run of its search, none without `rates`."""
        rows = self._seeds_of_row(rest)
        return [
            self._run(task, row, self.search, f"{RATE}{rate:g}")
            for task, row, rate in product(self.tasks, rows, self.rates)
        ]

    def _seeds_of_row(self, rest: Sequence[str]) -> dict[str, Seeds]:
        seeds_of_row = {}
        for row, seeds in self.seeds.items():
            seeds_of_row |= dict.fromkeys(rest if row == REST else [row], seeds)
        return seeds_of_row

    def _run(self, task: str, row: str, seed: int, *rate: str) -> list[str]:
        """The overrides of a run; rate: `train.lr=0.002`, if it is searched."""
        scheme, *own = row.split()
        chosen = [f"task={task}", f"position={scheme}", f"seed={seed}", f"scale={self.scale}"]
        return [*chosen, *self.settings, *rate, *own]


@dataclass(frozen=True, config=STRICT)
class RunTable:
    """Blocks of runs, the most informative first, and their subject in a line.

    plan: the digest of a study, if these are its runs: each records it, and no score is shown
          before all have ended
    """

    about: str
    blocks: Annotated[list[Block], Field(min_length=1)]
    plan: str = ""

    def runs(self, best: Best | None = None, first: int | None = None) -> list[list[str]]:
        """The overrides of each run, as in Block, or of those of the `first` blocks."""
        runs = []
        for block in self.blocks[:first]:
            runs += block.runs(self._rest(), best)
        return runs

    def search_runs(self, first: int | None = None) -> list[list[str]]:
        """The overrides of each run of the searches, or of those of the `first` blocks."""
        runs = []
        for block in self.blocks[:first]:
            runs += block.search_runs(self._rest())
        return runs

    def measures(self) -> dict[Case, str]:
        """What chooses the best rate of each case whose rates are searched. Raises ConfigError."""
        found: dict[Case, Block] = {}
        for block in self.blocks:
            for task in block.tasks:
                check_measure(task, block.measure)
            if block.measure != OWN and not block.rates:
                raise ConfigError(f"measure {block.measure}: no `rates` are searched in this block")
            for words in block.search_runs(self._rest()):
                first = found.setdefault(case_of(words), block)
                for key in ("measure", "rates", "search"):
                    if getattr(first, key) != getattr(block, key):
                        case = " ".join(case_of(words))
                        raise ConfigError(f"{case}: two blocks differ in `{key}`")
        return {case: block.measure for case, block in found.items()}

    def _rest(self) -> list[str]:
        """The schemes that no block names."""
        named = set()
        for block in self.blocks:
            named |= {row.split()[0] for row in block.seeds}
        return [name for name in choices("position") if name not in named]
