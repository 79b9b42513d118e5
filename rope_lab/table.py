"""Run a whole comparison: `rope-lab table TABLE [--jobs N]`.

The same command again resumes: finished runs are skipped, interrupted ones resumed. It can be
stopped at any time: the most informative runs come first. --bill runs nothing and says how long the
missing runs take. Runs go side by side on the cores of this machine; hydra/launcher=ray or
hydra/launcher=submitit_slurm sends them to a cluster, hydra/launcher=basic runs one after the other
in this process.
"""

import json
from dataclasses import replace
from pathlib import Path

from rope_lab.blocks import Block, RunTable
from rope_lab.experiments.asking import exit_after
from rope_lab.files import digest
from rope_lab.launch import sweep
from rope_lab.launch.job import EXIT_FAILED
from rope_lab.launch.jobs import Job, compose_jobs
from rope_lab.results.plans import study as studies
from rope_lab.results.plans.study import Plan, Study
from rope_lab.searches import Best, Case, Searches, best_rates, bill_of, case_of, searched_rates
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
from rope_lab.train.run_folder import OUTCOMES
from rope_lab.train.trainer import CORES


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
    title, measures = Path(name).stem, _measures(tables)
    searched = _searched(tables, extra)
    is_fresh = any(job.cfg.fresh for at_rate in searched.values() for job in at_rate.values())
    best = {} if is_fresh else best_rates(searched, measures)
    if only_list:
        return sweep.launch(_jobs(tables, best, extra), settings, title, False, shows_scores)
    worst, begun = 0, set()
    for first in _stages(tables):
        if first and _cases(tables, first) <= best.keys():
            continue  # the next stage has these runs too
        jobs = _not_again(_jobs(tables, best, extra, first), begun)
        status = sweep.launch(jobs, settings, title, True, shows_scores)
        if status > EXIT_FAILED:  # a signal
            return status
        worst = max(worst, status)
        begun |= {job.identity.run_id for job in jobs}
        best = best_rates(searched, measures)
        if is_fresh:  # searches of later blocks that have ended are of earlier commands
            best = {case: best[case] for case in _cases(tables, first) & best.keys()}
    if not worst and (unknown := _cases(tables) - best.keys()):
        case = " ".join(min(unknown))
        raise ConfigError(f"{case}: a run of its search cannot be read; fresh=true makes it again")
    return worst


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


def bill_text(name: str, overrides: list[str], jobs: int | None) -> str:
    """How long the missing runs of a table take, a line for each task. Raises ConfigError.

    A rate that is still to be searched changes no time: the runs that follow it count too.
    """
    tables, extra, settings = _asked(name, overrides, jobs)
    searched = _searched(tables, extra)
    rates = {case: next(iter(at_rate)) for case, at_rate in searched.items()}
    rates |= best_rates(searched, _measures(tables))
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


def _searched(tables: list[RunTable], extra: list[str]) -> Searches:
    """The runs of the searches of the tables."""
    return searched_rates([words for table in tables for words in table.search_runs()], extra)


def _jobs(
    tables: list[RunTable], best: Best, extra: list[str], first: int | None = None
) -> list[Job]:
    """The runs of the tables, or of their `first` blocks, as far as they are known, each once."""
    every: dict[str, Job] = {}
    for table in tables:
        runs = table.runs(best, first)
        for job in compose_jobs([[*words, *extra] for words in runs]):
            planned = replace(job, cfg=replace(job.cfg, plan=table.plan))
            every.setdefault(job.identity.run_id, planned)
    return list(every.values())
