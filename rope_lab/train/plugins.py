"""Schemes and tasks of the user's own: `position=mine.py`, or by a name that an installed package gives them.

Such a name is an entry point of the group `rope_lab.positions` or `rope_lab.tasks`. Neither needs a yaml file. A file
that the user names, or a package that they installed and name, is one whose code may run.
"""

import inspect
import re
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

from rope_lab.text import ConfigError
from rope_lab.train.instantiate import SWAPPED, error_line, import_file

FILE = re.compile(r"(?P<path>.+\.py)(?::(?P<name>\w+))?")  # mine.py, or mine.py:MyScheme if it has several


class Plugin(NamedTuple):
    """A class of the user's own, the name of its runs, and what `allowed_packages` must hold: a package, or a file."""

    group: str
    name: str
    cls: type
    allowed: str


def find(group: str, value: str, folders: Sequence[Path]) -> Plugin | None:
    """The plug-in that a value of `task` or `position` names, if it names one. Raises ConfigError."""
    if match := FILE.fullmatch(value):
        path, name = Path(match["path"]), match["name"]
        run_name = f"{path.stem}-{name}" if name else path.stem
        try:
            cls = _class(group, vars(sys.modules[import_file(path)]), name)
        except ConfigError as error:
            raise ConfigError(f"{group}={error if str(error).startswith(str(path)) else f'{value}: {error}'}") from None
        if run_name in names(group, folders):
            raise ConfigError(f"{group}={value}: conf/{group}/ has a {run_name}; give the file another name")
        return Plugin(group, run_name, cls, str(path.expanduser().resolve()))
    for entry in () if value in names(group, folders) else entry_points(group=f"rope_lab.{group}s", name=value):
        try:
            cls = _class(group, {value: entry.load()}, value)
        except (Exception, SystemExit) as error:
            raise ConfigError(f"{group}={value}: {entry.value} cannot be imported, {error_line(error)}") from None
        return Plugin(group, value, cls, cls.__module__.partition(".")[0])
    return None


def names(group: str, folders: Sequence[Path]) -> list[str]:
    """The names of the yaml files of a group in folders like conf/."""
    return sorted({path.stem for folder in folders for path in (folder / group).glob("*.yaml")})


def _class(group: str, there: dict[str, Any], name: str | None) -> type:
    """The class of that name in a module, or the only one that the module has. Raises ConfigError."""
    kind = SWAPPED[group]
    classes = [each for key, each in there.items() if inspect.isclass(each) and issubclass(each, kind)]
    own = [there.get(name)] if name else [each for each in classes if each.__module__ == there["__name__"]]
    fit = [each for each in own if each in classes and not inspect.isabstract(each)]
    if len(fit) == 1:
        return fit[0]
    if fit:
        several = " or ".join(f":{each.__name__}" for each in fit)
        raise ConfigError(f"has several classes that are a {kind.__name__}, write one behind it, {several}")
    lacks = [f"{each.__name__} lacks {', '.join(each.__abstractmethods__)}" for each in own if each in classes]
    hint = "; ".join(lacks) or "docs/extending.md has an example of each"
    raise ConfigError(f"has no {name or 'class'} that is a {kind.__name__}; {hint}")
