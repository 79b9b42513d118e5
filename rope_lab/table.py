"""Run a whole comparison: `rope-lab table TABLE [--jobs N]`.

The same command again resumes: finished runs are skipped, interrupted ones resumed. It can be
stopped at any time: the most informative runs come first. --bill runs nothing and says how long the
missing runs take. Runs go side by side on the cores of this machine; hydra/launcher=ray or
hydra/launcher=submitit_slurm sends them to a cluster, hydra/launcher=basic runs one after the other
in this process.
"""

import json
from collections.abc import Sequence
from dataclasses import field, replace
from itertools import product
from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from rope_lab.experiments.asking import exit_after
from rope_lab.files import digest
from rope_lab.launch import sweep
from rope_lab.launch.jobs import Job, compose_jobs
from rope_lab.results.plans import study as studies
from rope_lab.results.plans.freeze import check_measure
from rope_lab.results.plans.names import RATE
from rope_lab.results.plans.rates import SEARCH_SEED
from rope_lab.results.plans.study import STRICT, Plan, Positive, Seeds, Study
from rope_lab.searches import OWN, Best, Case, best_rates, bill_of, case_of, searched_rates
from rope_lab.shipped import choices
from rope_lab.text import (
    ConfigError,
    Record,
    Words,
    argument_parser,
    filled,
    flat,
    nearest,
    say,
    show,
)
from rope_lab.train import config
from rope_lab.train.overrides import key_of, split_hydra, typed
from rope_lab.train.plugin import FILE, sources_of
from rope_lab.train.trainer import CORES

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
        seeds_of_row = {}
        for row, seeds in self.seeds.items():
            seeds_of_row |= dict.fromkeys(rest if row == REST else [row], seeds)
        runs = []
        for task, row, rate in product(self.tasks, seeds_of_row, self.rates):
            runs.append(self._run(task, row, self.search, f"{RATE}{rate:g}"))
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

    def runs(self, best: Best | None = None) -> list[list[str]]:
        """The overrides of each run, as in Block."""
        runs = []
        for block in self.blocks:
            runs += block.runs(self._rest(), best)
        return runs

    def measures(self) -> dict[Case, str]:
        """What chooses the best rate of each case whose rates are searched. Raises ConfigError."""
        found: dict[Case, str] = {}
        for block in self.blocks:
            for task in block.tasks:
                check_measure(task, block.measure)
            if block.measure != OWN and not block.rates:
                raise ConfigError(f"measure {block.measure}: no `rates` are searched in this block")
            if not block.rates:
                continue
            for words in block.runs(self._rest()):
                if found.setdefault(case_of(words), block.measure) != block.measure:
                    raise ConfigError(f"{' '.join(case_of(words))}: two blocks differ in `measure`")
        return found

    def _rest(self) -> list[str]:
        """The schemes that no block names."""
        named = set()
        for block in self.blocks:
            named |= {row.split()[0] for row in block.seeds}
        return [name for name in choices("position") if name not in named]


def of_study(study: Study) -> RunTable:
    """The runs of a planned study. Raises ConfigError."""
    _check_code(study)
    _check_task(study)
    settings = [f"{key}={typed(value)}" for key, value in study.settings.items()]
    block = Block(study.task, study.scale, study.seeds, settings)
    return RunTable(study.hypothesis, [block], study.digest)


def _check_task(study: Study) -> None:
    """Raises ConfigError unless the plan names every setting of the user's own task."""
    if not FILE.fullmatch(study.task):
        return
    every = flat({"task": config.load(f"task={study.task}").task})
    lacking = {key: each for key, each in every.items() if key not in study.settings}
    lacking.pop("task._target_", None)
    if lacking:
        line = ", ".join(f"{key}: {json.dumps(each)}" for key, each in lacking.items())
        raise ConfigError(f"{study.name}: the plan does not fix its task; add {line} to settings")


def _check_code(study: Study) -> None:
    """Raises ConfigError unless the plan names the digest of each of the user's own files."""
    given = [name.partition(" ")[0] for name in (study.task, *study.seeds)]
    for file, content in sources_of(given).items():
        if study.code.get(file) != digest(content):
            line = f"code: {{{file}: {digest(content)}}}"
            raise ConfigError(f"{study.name}: the plan does not fix {file}; write {line}")


def find(name: str) -> list[RunTable]:
    """A table of ours, a study of results/plan.yaml by its name, or a table or the studies of a
    plan in a file. Raises ConfigError.
    """
    tables, path = choices("table"), Path(name)
    planned = studies.load().studies if studies.PLAN.exists() else {}
    if name in planned:
        return [of_study(planned[name])]
    if name in tables:
        path = config.CONF / "table" / f"{name}.yaml"
    if not path.is_file():
        hint = nearest(name, [*tables, *planned], "")
        raise ConfigError(f"{show(name)}: there is no such table; {hint}")
    text = path.read_text("utf-8", "replace")
    if "\nstudies:" in f"\n{text}":
        return list(map(of_study, studies.from_yaml(Plan, text, path.name).studies.values()))
    return [studies.from_yaml(RunTable, text, path.name)]


def main(arguments: Words = None) -> None:
    about = [
        __doc__ or "",
        "TABLE is a study of results/plan.yaml, the path of a table or plan of your own, or one of",
    ]
    about += [f"  {name:<8} {find(name)[0].about}" for name in choices("table")]
    parser = argument_parser("table", "\n".join(about))
    parser.add_argument("table", metavar="TABLE")
    parser.add_argument("--jobs", type=int, help=f"parallel runs (default: one per core, {CORES})")
    parser.add_argument(
        "--list", action="store_true", help="run nothing, only list what is missing"
    )
    parser.add_argument(
        "--bill", action="store_true", help="run nothing, only say how long the missing runs take"
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        default=[],
        metavar="NAME=VALUE",
        help="settings of all runs: wandb.mode=disabled",
    )
    given = parser.parse_intermixed_args(arguments)
    asked = given.table, given.overrides, given.jobs
    if given.bill:
        exit_after(lambda: say(filled(bill_text(*asked))))
    exit_after(lambda: run(*asked, given.list))


def run(name: str, overrides: list[str], jobs: int | None, only_list: bool) -> int:
    """Run what is missing of a table, or only list it; the exit status. Raises ConfigError.

    overrides: of all runs, and Hydra's own
    jobs:      parallel runs; None: as the launcher has it
    """
    tables, extra, settings = _asked(name, overrides, jobs)
    shows_scores = not any(table.plan for table in tables)
    searches, measures = _jobs(tables, {}, extra), _measures(tables)
    if not any(block.rates for table in tables for block in table.blocks):
        return sweep.launch(searches, settings, Path(name).stem, not only_list, shows_scores)
    known = best_rates(searches, extra, measures)
    while True:  # the search, then the runs at the best rates
        every = _jobs(tables, known, extra)
        status = sweep.launch(every, settings, Path(name).stem, not only_list)
        best = best_rates(searches, extra, measures)
        if status or best == known:
            return status
        known = best


def bill_text(name: str, overrides: list[str], jobs: int | None) -> str:
    """How long the missing runs of a table take, a line for each task. Raises ConfigError.

    A rate that is still to be searched changes no time: the runs that follow it count too.
    """
    tables, extra, settings = _asked(name, overrides, jobs)
    searches = _jobs(tables, {}, extra)
    rates = {case: next(iter(jobs)) for case, jobs in searched_rates(searches, extra).items()}
    rates |= best_rates(searches, extra, _measures(tables))
    return bill_of(_jobs(tables, rates, extra), settings)


def _asked(
    name: str, overrides: list[str], jobs: int | None
) -> tuple[list[RunTable], list[str], Record]:
    """Tables, the settings of all their runs, and those of the launcher. Raises ConfigError, also
    if a table itself sets one of these settings.
    """
    tables = find(name)
    hydra, extra = split_hydra(overrides)
    settings = sweep.side_by_side(hydra, jobs)
    chosen = set()
    for table in tables:
        for words in table.runs():
            chosen |= set(map(key_of, words))
    for word in extra:
        if key_of(word) in chosen:
            raise ConfigError(f"{word}: the table sets it")
    return tables, extra, settings


def _measures(tables: list[RunTable]) -> dict[Case, str]:
    """What chooses the best rate of each case of the tables. Raises ConfigError."""
    found: dict[Case, str] = {}
    for table in tables:
        found |= table.measures()
    return found


def _jobs(tables: list[RunTable], best: Best, extra: list[str]) -> list[Job]:
    """The runs of the tables, as far as they are known, each once."""
    every: dict[str, Job] = {}
    for table in tables:
        for job in compose_jobs([[*words, *extra] for words in table.runs(best)]):
            planned = replace(job, cfg=replace(job.cfg, plan=table.plan))
            every.setdefault(job.identity.run_id, planned)
    return list(every.values())
