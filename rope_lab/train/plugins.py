"""Schemes and tasks of the user's own: `position=mine.py`, or by a name that an installed package gives them.

Such a name is an entry point of the group `rope_lab.positions` or `rope_lab.tasks`. Neither needs a yaml file: its
settings are the arguments of the class, with their defaults.
"""

import inspect
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore

from rope_lab.text import ConfigError
from rope_lab.train.instantiate import SWAPPED, import_file, told

FILE = re.compile(r"(?P<path>.+\.py)(?::(?P<name>\w+))?")  # mine.py, or mine.py:MyScheme where it has several
ALLOWED = "allowed_packages="
SEE = "docs/extending.md has an example of each"
PLAIN = (str, int, float, bool, type(None), list)


@dataclass(frozen=True)
class Plugin:
    """A class of the user's own.

    name:    what its runs are called
    node:    its settings, as a yaml file of conf/ has them
    allowed: what `allowed_packages` must hold for it: a package, or the path of a file
    """

    name: str
    node: dict[str, Any]
    allowed: str


def read(overrides: Iterable[str], conf: Path) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Overrides in which a plug-in has a name that Hydra finds, and of each group the settings of these plug-ins.

    A file that the user names, or a package that they installed and name, is one whose code may run. Raises
    ConfigError.
    """
    words, found = [], {group: {} for group in SWAPPED}
    for word in overrides:
        group, equals, value = word.partition("=")
        if group in SWAPPED and equals:
            pieces = value.split(",")
            for i, piece in enumerate(pieces):
                if plugin := _plugin(group, piece.strip(), conf):
                    found[group][plugin.name], pieces[i] = plugin, plugin.name
            word = f"{group}={','.join(pieces)}"
        words.append(word)
    store = ConfigStore.instance()
    for group in SWAPPED:  # what was named before in this process
        store.repo.pop(group, None)
    plugins = [(group, plugin) for group, each in found.items() for plugin in each.values()]
    for group, plugin in plugins:
        store.store(group=group, name=plugin.name, node=plugin.node)
    if plugins:
        words = _allowing(words, dict.fromkeys(plugin.allowed for _, plugin in plugins))
    return words, {group: {name: plugin.node for name, plugin in each.items()} for group, each in found.items()}


def as_typed(words: list[str], allowed_packages: list[str]) -> list[str]:
    """Overrides as they name a plug-in's file again, without its folder, which is this machine's own."""
    files = {Path(each).stem for each in allowed_packages if each.endswith(".py")}
    found = []
    for word in words:
        group, _, value = word.partition("=")
        stem, _, name = value.partition("-")
        if group in SWAPPED and stem in files:
            word = f"{group}={stem}.py" + (f":{name}" if name else "")
        if not (files and word.startswith(ALLOWED)):
            found.append(word)
    return found


def _plugin(group: str, value: str, conf: Path) -> Plugin | None:
    """The plug-in that a value of `task` or `position` names. Raises ConfigError."""
    if match := FILE.fullmatch(value):
        path = Path(match["path"])
        try:
            module = sys.modules[import_file(path)]
        except ConfigError as error:
            raise ConfigError(f"{group}={error}") from None
        cls = _class(group, value, vars(module), match["name"])
        name = "-".join(filter(None, [path.stem, match["name"]]))
        if (conf / group / f"{name}.yaml").exists():
            raise ConfigError(f"{group}={value}: there is a {name} in conf/{group}/; give the file another name")
        return Plugin(name, node(cls), str(path.expanduser().resolve()))
    if (conf / group / f"{value}.yaml").exists():
        return None
    *_, entry = [None, *entry_points(group=f"rope_lab.{group}s", name=value)]
    if entry is None:
        return None
    try:
        cls = entry.load()
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{group}={value}: {entry.value} cannot be imported, {told(error)}") from None
    return Plugin(value, node(_checked(group, value, cls)), cls.__module__.partition(".")[0])


def _class(group: str, value: str, there: dict[str, Any], name: str | None) -> type:
    """The class of that name in a module, or the only one that the module has. Raises ConfigError."""
    kind = SWAPPED[group]
    if name:
        if name not in there:
            raise ConfigError(f"{group}={value}: there is no {name} in that file")
        return _checked(group, value, there[name])
    own = [each for each in there.values() if inspect.isclass(each) and each.__module__ == there["__name__"]]
    fit = [each for each in own if issubclass(each, kind) and not inspect.isabstract(each)]
    if not fit:
        half = [
            f"{each.__name__} lacks {', '.join(each.__abstractmethods__)}" for each in own if issubclass(each, kind)
        ]
        raise ConfigError(f"{group}={value}: has no class that is a {kind.__name__}; {'; '.join(half) or SEE}")
    if len(fit) > 1:
        classes = " or ".join(f"{group}={value}:{each.__name__}" for each in fit)
        raise ConfigError(f"{group}={value}: has several classes that are a {kind.__name__}, write {classes}")
    return fit[0]


def _checked(group: str, value: str, cls: Any) -> type:
    if not (inspect.isclass(cls) and issubclass(cls, SWAPPED[group])):
        raise ConfigError(f"{group}={value}: must be a {SWAPPED[group].__name__}; {SEE}")
    return cls


def node(cls: type) -> dict[str, Any]:
    """The settings of a class as a yaml file would hold them: `???` where an argument has no default."""
    parameters = dict(inspect.signature(cls).parameters)
    settings = {"_target_": f"{cls.__module__}.{cls.__qualname__}"}
    if parameters.pop("dims", None) is not None:
        settings["_partial_"] = True
    for name, parameter in parameters.items():
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            default = "???" if parameter.default is parameter.empty else parameter.default
            settings |= {name: default} if isinstance(default, PLAIN) else {}
    return settings


def _allowing(words: list[str], more: Iterable[str]) -> list[str]:
    """Overrides whose `allowed_packages` also holds `more`."""
    typed = [word.removeprefix(ALLOWED).strip("[]") for word in words if word.startswith(ALLOWED)]
    quoted = ("'" + re.sub(r"(['\\\\])", r"\\\1", each) + "'" for each in more)
    others = [word for word in words if not word.startswith(ALLOWED)]
    return [*others, f"{ALLOWED}[{','.join(filter(None, [*typed, *quoted]))}]"]
