"""Tables: yaml files that list the runs of a comparison, in conf/table/ or by the user."""

from collections.abc import Iterable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BeforeValidator, ConfigDict, ValidationError
from pydantic.dataclasses import dataclass
from yaml import YAMLError

from rope_lab.files import read_file
from rope_lab.seeds import Seeds
from rope_lab.text import first_line, nearest, show

REST = "*"  # all schemes that the table does not name


class TableError(ValueError):
    """A table that cannot be read: the message names the table, the key and the remedy."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Block:
    """Runs ordered by seed, then task, then scheme.

    task:     one task, or several
    seeds:    scheme → its seeds; a scheme may have settings, `rope position.q=0`, or be REST
    settings: overrides that all of these runs share
    """

    task: Annotated[list[str], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)]
    scale: str
    seeds: dict[str, Seeds]
    settings: list[str] = field(default_factory=list)

    def __post_init__(self):
        if not all(row.split() for row in self.seeds):
            raise ValueError("seeds: names no scheme")

    def runs(self, rest: Sequence[str]) -> list[list[str]]:
        """The overrides of each run; REST stands for the schemes `rest`."""
        rows = {row: set(seeds) for key, seeds in self.seeds.items() for row in (rest if key == REST else [key])}
        every = [
            [f"task={task}", f"position={row.split()[0]}", f"seed={seed}", f"scale={self.scale}", *row.split()[1:]]
            for seed in sorted(set().union(*rows.values()))
            for task in self.task
            for row, seeds in rows.items()
            if seed in seeds
        ]
        return [[*words, *self.settings] for words in every]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Table:
    """Blocks of runs, the most informative first, and their subject in a line."""

    about: str
    blocks: list[Block]

    def runs(self, schemes: Sequence[str]) -> list[list[str]]:
        """The overrides of each run; `schemes`: the names of all that there are."""
        named = {row.split()[0] for block in self.blocks for row in block.seeds}
        return [run for block in self.blocks for run in block.runs([name for name in schemes if name not in named])]


def paths(folders: Sequence[Path]) -> dict[str, Path]:
    """The tables in folders like conf/, by name; an earlier folder wins."""
    return {path.stem: path for folder in reversed(folders) for path in sorted((folder / "table").glob("*.yaml"))}


def find(name: str, folders: Sequence[Path], others: Iterable[str] = ()) -> Path:
    """The file of a table, by name or path. Raises TableError, which may suggest names of `others` too."""
    if name in (there := paths(folders)):
        return there[name]
    if "/" in name or name.endswith((".yaml", ".yml")):
        return Path(name)
    raise TableError(f"{show(name)}: there is no such table; {nearest(name, [*there, *others], '')}")


def load(path: Path) -> Table:
    """The table in a yaml file. Raises TableError."""
    try:
        return Table(**OmegaConf.to_container(OmegaConf.create(read_file(path).decode()), resolve=True))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise TableError(f"{path.name}: {where}: {first['msg'].removeprefix('Value error, ')}") from None
    except OSError as error:
        raise TableError(f"{path}: cannot be read ({error.strerror})") from None
    except (OmegaConfBaseException, YAMLError, ValueError, TypeError, AttributeError) as error:
        raise TableError(f"{path.name}: is not a table ({type(error).__name__}: {first_line(error)})") from None
