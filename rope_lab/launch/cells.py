"""Tables: which runs make a comparison, as conf/table/*.yaml say it, or a file of the user's."""

from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BeforeValidator, ConfigDict, ValidationError
from pydantic.dataclasses import dataclass
from yaml import YAMLError

from rope_lab.files import read_file
from rope_lab.text import first_line, nearest, show

MOST_SEEDS = 10_000
REST = "*"  # every scheme that its table does not name


class TableError(ValueError):
    """A table that cannot be read: the message names the table, the key and the remedy."""


def _seeds(given: Any) -> Any:
    """`8-31`, one seed or a list of them."""
    if isinstance(given, list):
        return given
    first, _, last = str(given).partition("-")
    if not (first.isdigit() and (last or first).isdigit()):
        raise ValueError("must be seeds, 8-31 for example")
    seeds = range(int(first), int(last or first) + 1)
    if not seeds:
        raise ValueError("must be seeds from the lower to the higher, 8-31 for example")
    if len(seeds) > MOST_SEEDS:
        raise ValueError(f"must be at most {MOST_SEEDS:,} seeds")
    return list(seeds)


Seeds = Annotated[list[int], BeforeValidator(_seeds)]
Names = Annotated[list[str], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)]


@dataclass(frozen=True)
class Cell:
    """One run of a comparison, as overrides of the training command."""

    task: str
    position: str
    seed: int
    scale: str
    settings: tuple[str, ...] = ()

    def overrides(self) -> list[str]:
        named = {key: value for key, value in vars(self).items() if key != "settings"}
        return [*(f"{key}={value}" for key, value in named.items()), *self.settings]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Block:
    """Runs seed by seed; in each seed task by task; in each task scheme by scheme.

    task:     one task, or several
    seeds:    scheme → its seeds; behind a scheme may stand settings, as one types them: `rope position.q=0`. A scheme
              REST is every other one, in alphabetical order
    settings: overrides that all of these runs share
    """

    task: Names
    scale: str
    seeds: dict[str, Seeds]
    settings: list[str] = field(default_factory=list)

    def __post_init__(self):
        if not all(row.split() for row in self.seeds):
            raise ValueError("seeds: names no scheme")

    def cells(self, rest: Sequence[str]) -> list[Cell]:
        """Its runs, where REST stands for the schemes `rest`."""
        rows = {row: set(seeds) for key, seeds in self.seeds.items() for row in (rest if key == REST else [key])}
        return [
            Cell(task, row.split()[0], seed, self.scale, (*row.split()[1:], *self.settings))
            for seed in sorted(set().union(*rows.values()))
            for task in self.task
            for row, seeds in rows.items()
            if seed in seeds
        ]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Table:
    """Blocks of runs, the most telling ones first, and what they are about in a line."""

    about: str
    blocks: list[Block]

    def cells(self, schemes: Sequence[str]) -> list[Cell]:
        """Its runs, in order. `schemes` are all that there are. Raises TableError where a run stands in it twice."""
        named = {row.split()[0] for block in self.blocks for row in block.seeds}
        cells = [cell for block in self.blocks for cell in block.cells([s for s in schemes if s not in named])]
        seen: set[Cell] = set()
        for cell in cells:
            if cell in seen:
                raise TableError(f"{' '.join(cell.overrides())}: stands in it twice")
            seen.add(cell)
        return cells


def paths(folders: Sequence[Path]) -> dict[str, Path]:
    """The tables that there are in folders like conf/, by name; an earlier folder comes before a later one."""
    return {path.stem: path for folder in reversed(folders) for path in sorted((folder / "table").glob("*.yaml"))}


def schemes(folders: Sequence[Path]) -> list[str]:
    """The names of all schemes in folders like conf/."""
    return sorted({path.stem for folder in folders for path in (folder / "position").glob("*.yaml")})


def load(path: Path) -> Table:
    """The table in a yaml file. Raises TableError."""
    try:
        content = OmegaConf.to_container(OmegaConf.create(read_file(path).decode()), resolve=True)
        return Table(**content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise TableError(f"{path.name}: {where}: {first['msg'].removeprefix('Value error, ')}") from None
    except OSError as error:
        raise TableError(f"{path}: cannot be read ({error.strerror})") from None
    except (OmegaConfBaseException, YAMLError, ValueError, TypeError, AttributeError) as error:
        raise TableError(f"{path.name}: is no table ({type(error).__name__}: {first_line(error)})") from None


def find(name: str, folders: Sequence[Path], others: Sequence[str] = ()) -> Path:
    """The file of a table, by its name or its path. Raises TableError, which may suggest names of `others` too."""
    there = paths(folders)
    if name in there:
        return there[name]
    if "/" in name or name.endswith((".yaml", ".yml")):
        return Path(name)
    raise TableError(f"{show(name)}: there is no such table; {nearest(name, [*there, *others], '')}")
