"""Run a whole comparison: `rope-lab table TABLE [--jobs N]`.

The same command again resumes: finished runs are skipped, interrupted ones resumed. It can be
stopped at any time: the most informative runs come first. Runs go side by side on the cores of this
machine; hydra/launcher=ray or hydra/launcher=submitit_slurm sends them to a cluster,
hydra/launcher=basic runs one after the other in this process.
"""

import re
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, StringConstraints
from pydantic.dataclasses import dataclass

from rope_lab import command
from rope_lab.launch import sweep
from rope_lab.launch.job import EXIT_BAD_CONFIG
from rope_lab.results import studies
from rope_lab.results.studies import STRICT, Plan, Seeds
from rope_lab.text import ConfigError, argument_parser, nearest, show
from rope_lab.train import config
from rope_lab.train.instantiate import names
from rope_lab.train.overrides import is_hydra
from rope_lab.train.stop import ignore
from rope_lab.train.trainer import CORES

TABLES = config.CONF / "table"
REST = "*"  # all schemes that the table does not name
Tasks = Annotated[
    list[str], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)
]
Row = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1)
]  # a scheme, with settings or without


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
        rows = {
            row: set(seeds)
            for key, seeds in self.seeds.items()
            for row in (rest if key == REST else [key])
        }
        every = []
        for seed in sorted(set().union(*rows.values())):
            for task in self.task:
                for scheme, *own in (row.split() for row, seeds in rows.items() if seed in seeds):
                    words = [
                        f"task={task}",
                        f"position={scheme}",
                        f"seed={seed}",
                        f"scale={self.scale}",
                    ]
                    every.append([*words, *self.settings, *own])
        return every


@dataclass(frozen=True, config=STRICT)
class RunTable:
    """Blocks of runs, the most informative first, and their subject in a line."""

    about: str
    blocks: Annotated[list[Block], Field(min_length=1)]

    def runs(self, schemes: Sequence[str]) -> list[list[str]]:
        """The overrides of each run; `schemes`: the names of all that there are."""
        named = {row.split()[0] for block in self.blocks for row in block.seeds}
        return [
            run
            for block in self.blocks
            for run in block.runs([name for name in schemes if name not in named])
        ]


def load(path: Path) -> RunTable | Plan:
    """The table or the plan in a yaml file. Raises ConfigError."""
    try:
        text = path.read_text("utf-8", "replace")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    return studies.from_yaml(
        Plan if re.search("^studies:", text, re.MULTILINE) else RunTable, text, path.name
    )


def runs_of(name: str) -> list[list[str]]:
    """The runs of a table, of a study by its name, or of all studies of a plan. Raises
    ConfigError.
    """
    tables = names("table")
    ours = studies.load().studies if studies.PLAN.exists() else {}
    if (
        name not in tables
        and name not in ours
        and "/" not in name
        and Path(name).suffix not in (".yaml", ".yml")
    ):
        raise ConfigError(
            f"{show(name)}: there is no such table; {nearest(name, [*tables, *ours], '')}"
        )
    if name in ours and name not in tables:
        chosen = [ours[name]]
    else:
        found = load(TABLES / f"{name}.yaml" if name in tables else Path(name))
        if isinstance(found, RunTable):
            return found.runs(names("position"))
        chosen = found.studies.values()
    every = []
    for study in chosen:
        settings = [
            f"{key}={'null' if value is None else value}" for key, value in study.settings.items()
        ]
        every += Block([study.task], study.scale, study.seeds, settings).runs()
    return every


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
        table = runs_of(given.table)
        hydra = [word for word in given.overrides if is_hydra(word)]
        extra = [word for word in given.overrides if word not in hydra]
        chosen = {word.partition("=")[0] for words in table for word in words}
        if twice := [word for word in extra if word.lstrip("+~").partition("=")[0] in chosen]:
            raise ConfigError(f"{twice[0]}: the table sets it")
        if not any(word.startswith("hydra/launcher=") for word in hydra):
            hydra.append("hydra/launcher=joblib")
        if given.jobs is not None:
            hydra.append(f"hydra.launcher.n_jobs={given.jobs}")
        settings = sweep.launcher_settings(hydra)
        jobs = sweep.compose_jobs([[*words, *extra] for words in table])
        parser.exit(sweep.launch(jobs, settings, Path(given.table).stem, begin=not given.list))
    except ConfigError as error:
        parser.exit(EXIT_BAD_CONFIG, f"{error}\n")


if __name__ == "__main__":
    command.begin()
    main()
