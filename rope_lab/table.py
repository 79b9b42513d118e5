"""Run a whole comparison: `rope-lab table TABLE [--jobs N]`.

The same command again resumes: finished runs are skipped, interrupted ones resumed. It can be
stopped at any time: the most informative runs come first. Runs go side by side on the cores of this
machine; hydra/launcher=ray or hydra/launcher=submitit_slurm sends them to a cluster,
hydra/launcher=basic runs one after the other in this process.
"""

import re
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, StringConstraints
from pydantic.dataclasses import dataclass

from rope_lab import command
from rope_lab.files import digest
from rope_lab.launch import sweep
from rope_lab.launch.job import EXIT_BAD_CONFIG
from rope_lab.results.plans import study as studies
from rope_lab.results.plans.study import STRICT, Plan, Seeds, Study
from rope_lab.text import ConfigError, argument_parser, nearest, show
from rope_lab.train import config
from rope_lab.train.instantiate import FILE, names
from rope_lab.train.overrides import is_hydra
from rope_lab.train.plugin import sources
from rope_lab.train.stop import ignore
from rope_lab.train.trainer import CORES

TABLES = config.CONF / "table"
REST = "*"  # all schemes that the table does not name
Tasks = Annotated[
    list[str], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)
]
# A scheme, with settings or without.
Row = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


@dataclass(frozen=True, config=STRICT)
class Block:
    """Runs ordered by seed, then task, then scheme.

    task:     one task, or several
    seeds:    scheme → its seeds; a scheme may have settings, `rope position.q=0`, or be REST
    settings: overrides that all of these runs share, unless the scheme has others
    """

    task: Tasks
    scale: str
    seeds: dict[Row, Seeds]
    settings: list[str] = field(default_factory=list)

    def __post_init__(self):
        for setting in self.settings:
            if setting.partition("=")[0] in ("task", "position", "scale", "seed"):
                raise ValueError(f"settings: {setting}: belongs under task, scale or seeds")

    def runs(self, rest: Sequence[str] = ()) -> list[list[str]]:
        """The overrides of each run; REST stands for the schemes `rest`."""
        seeds_of_row = {}
        for row, seeds in self.seeds.items():
            rows = rest if row == REST else [row]
            seeds_of_row |= dict.fromkeys(rows, seeds)
        runs = []
        for seed in sorted(set().union(*seeds_of_row.values())):
            rows = [row for row, seeds in seeds_of_row.items() if seed in seeds]
            for task in self.task:
                runs += [self._run(task, row, seed) for row in rows]
        return runs

    def _run(self, task: str, row: str, seed: int) -> list[str]:
        scheme, *own = row.split()
        chosen = [f"task={task}", f"position={scheme}", f"seed={seed}", f"scale={self.scale}"]
        return [*chosen, *self.settings, *own]


@dataclass(frozen=True, config=STRICT)
class RunTable:
    """Blocks of runs, the most informative first, and their subject in a line."""

    about: str
    blocks: Annotated[list[Block], Field(min_length=1)]

    def runs(self, schemes: Sequence[str]) -> list[list[str]]:
        """The overrides of each run; `schemes`: the names of all that there are."""
        named = {row.split()[0] for block in self.blocks for row in block.seeds}
        rest = [name for name in schemes if name not in named]
        runs = []
        for block in self.blocks:
            runs += block.runs(rest)
        return runs


def load(path: Path) -> RunTable | Plan:
    """The table or the plan in a yaml file. Raises ConfigError."""
    try:
        text = path.read_text("utf-8", "replace")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    is_plan = re.search("^studies:", text, re.MULTILINE)
    return studies.from_yaml(Plan if is_plan else RunTable, text, path.name)


def find(name: str) -> RunTable | list[Study]:
    """A table, a study of results/plan.yaml by its name, or all studies of a plan. Raises
    ConfigError.
    """
    tables = names("table")
    if name in tables:
        return load(TABLES / f"{name}.yaml")
    planned = studies.load().studies if studies.PLAN.exists() else {}
    if name in planned:
        return [planned[name]]
    if "/" not in name and Path(name).suffix not in (".yaml", ".yml"):
        hint = nearest(name, [*tables, *planned], "")
        raise ConfigError(f"{show(name)}: there is no such table; {hint}")
    found = load(Path(name))
    return list(found.studies.values()) if isinstance(found, Plan) else found


def runs_of(found: RunTable | list[Study]) -> list[list[str]]:
    """The overrides of each run of a table or of studies. Raises ConfigError."""
    if isinstance(found, RunTable):
        return found.runs(names("position"))
    runs = []
    for study in found:
        settings = []
        for key, value in study.settings.items():
            written = "null" if value is None else value
            settings.append(f"{key}={written}")
        runs += Block([study.task], study.scale, study.seeds, settings).runs()
    return runs


def jobs_of(found: RunTable | list[Study], extra: list[str]) -> list[sweep.Job]:
    """The jobs of a table or of studies, whose runs record the digest of their study. Raises
    ConfigError.
    """
    if isinstance(found, RunTable):
        return sweep.compose_jobs([[*words, *extra] for words in runs_of(found)])
    jobs: dict[str, sweep.Job] = {}
    for study in found:
        _check_code(study)
        for job in sweep.compose_jobs([[*words, *extra] for words in runs_of([study])]):
            planned = replace(job, cfg=replace(job.cfg, plan=study.digest))
            jobs.setdefault(job.identity.run_id, planned)
    return list(jobs.values())


def _check_code(study: Study) -> None:
    """Raises ConfigError unless the plan names the digest of each of the user's own files."""
    for name in (study.task, *study.seeds):
        own = FILE.fullmatch(name.partition(" ")[0])
        for file, content in sources(Path(own["path"])).items() if own else ():
            if study.code.get(file) != digest(content):
                line = f"code: {{{file}: {digest(content)}}}"
                raise ConfigError(f"{study.name}: the plan does not fix {file}; write {line}")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; at the end signals are ignored, so that none changes its status."""
    try:
        run(arguments)
    finally:
        ignore()


def run(arguments: list[str] | None) -> None:
    about = [
        __doc__ or "",
        "TABLE is a study of results/plan.yaml, the path of a table or plan of your own, or one of",
    ]
    about += [f"  {name:<8} {load(TABLES / f'{name}.yaml').about}" for name in names("table")]
    parser = argument_parser("table", "\n".join(about))
    parser.add_argument("table", metavar="TABLE")
    parser.add_argument("--jobs", type=int, help=f"parallel runs (default: one per core, {CORES})")
    parser.add_argument(
        "--list", action="store_true", help="run nothing, only list what is missing"
    )
    parser.add_argument(
        "overrides", nargs="*", default=[], help="settings of all runs: wandb.mode=disabled"
    )
    given = parser.parse_intermixed_args(arguments)
    try:
        found = find(given.table)
        table = runs_of(found)
        hydra = [word for word in given.overrides if is_hydra(word)]
        extra = [word for word in given.overrides if word not in hydra]
        chosen = {word.partition("=")[0] for words in table for word in words}
        for word in extra:
            if word.lstrip("+~").partition("=")[0] in chosen:
                raise ConfigError(f"{word}: the table sets it")
        if not any(word.startswith("hydra/launcher=") for word in hydra):
            hydra.append("hydra/launcher=joblib")
        if given.jobs is not None:
            hydra.append(f"hydra.launcher.n_jobs={given.jobs}")
        settings = sweep.launcher_settings(hydra)
        jobs = jobs_of(found, extra)
        status = sweep.launch(
            jobs,
            settings,
            Path(given.table).stem,
            begin=not given.list,
            shows_scores=isinstance(found, RunTable),
        )
        parser.exit(status)
    except ConfigError as error:
        parser.exit(EXIT_BAD_CONFIG, f"{error}\n")


if __name__ == "__main__":
    command.begin()
    main()
