"""The words of a command line, parsed once, and what a mistyped one may have been meant for."""

import argparse
import os
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise, product
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override, Quote, QuotedString
from hydra.errors import HydraException

from rope_lab.text import ConfigError, near, nearest, show
from rope_lab.train.instantiate import FILE, SWAPPED, Plugin, find_plugin, names
from rope_lab.train.settings import declared

GROUPS = (*SWAPPED, "scale")  # of conf/: a run takes one file of each
SETTINGS = {name: field.default.description for name, field in declared().items()}
HELP = "--help shows every setting"


def read_arguments(words: list[str]) -> argparse.Namespace:
    """Options and overrides of a command line, in any order. Raises ConfigError."""
    usage = f"%(prog)s [-m] [NAME=VALUE …]; {HELP}"
    parser = argparse.ArgumentParser("rope-lab train", usage, add_help=False, allow_abbrev=False)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("-m", "--multirun", action="store_true")
    parser.add_argument("-c", "--cfg", choices=["job"])
    parser.add_argument("-cd", "--config-dir", type=Path)
    given, unknown = parser.parse_known_intermixed_args(words)
    for word in unknown:
        key, _, value = word.lstrip("-").partition("=")
        name, after = _setting(key.replace("-", "_")), words[words.index(word) + 1 :]
        if name and not value and after and not after[0].startswith("-"):
            value = after[0]
        if name:
            raise ConfigError(f"{word}: a setting has no dashes, write {name}={value or '…'}")
        raise ConfigError(f"{word}: there is no such option; write NAME=VALUE, {HELP}")
    return given


def parse(words: Sequence[str], folders: Sequence[Path]) -> list[Override]:
    """Overrides as Hydra reads them; the path of a plug-in may hold any character. Raises ConfigError.

    folders: conf/, and others like it
    """
    parser, parsed, seen = OverridesParser.create(), [], {}
    for before, word in pairwise(words):
        if word.startswith(("=", ",")) or (before.endswith(("=", ",")) and "=" not in word):
            whole = re.sub(r" *([=,]) *", r"\1", " ".join(words)).split()
            raise ConfigError(f"write it without spaces: {next(each for each in whole if each not in words)}")
    for word in words:
        group, _, value = word.partition("=")
        if group in (*GROUPS, "seed") and group in seen:  # as a shell reads seed={0..4}
            raise ConfigError(
                f"{group} is given twice; several values are a sweep, write -m {group}={seen[group]},{value}"
            )
        seen[group] = value
        file = FILE.fullmatch(value) if group in SWAPPED else None
        is_file = file and os.path.isfile(os.path.expanduser(file["path"]))
        try:
            quoted = f"{group}={QuotedString(value, Quote.single).with_quotes()}" if is_file else word
            parsed.append(parser.parse_override(quoted))
            parsed[-1].input_line = word
        except (HydraException, ValueError, RecursionError):
            raise ConfigError(f"{show(word)}: {_unreadable(word, folders)}") from None
    return parsed


def _unreadable(word: str, folders: Sequence[Path]) -> str:
    key, equals, value = re.sub("^([^=]+):", r"\1=", word).partition("=")
    if equals and value.strip("=,;") != word.partition("=")[2]:
        return f"did you mean {key}={value.strip('=,;')}?"
    if equals:
        return f"cannot be read; a value with brackets or other signs needs quotes, \"{key}='VALUE'\""
    if name := _setting(word):
        return f"did you mean {name}=…?"
    meant = [f"{group}={name}" for group in GROUPS for name in near(word, names(group, folders))[:1]]
    return f"did you mean {meant[0]}?" if meant else f"is not NAME=VALUE; {HELP}"


def expand(words: Sequence[str], folders: Sequence[Path]) -> list[list[str]]:
    """The runs of a sweep, each as its overrides. Raises ConfigError."""
    return [list(run) for run in product(*(_values(override, folders) for override in parse(words, folders)))]


def _values(override: Override, folders: Sequence[Path]) -> list[str]:
    key, text, value = override.key_or_group, override.input_line, override.value()
    if not override.is_sweep_override():
        return [text]
    if override.is_interval_sweep():
        raise ConfigError(f"{text}: an interval names no values; write a list, {key}=1,2, or '{key}=range(1,3)'")
    there = names(key, folders)
    try:
        values = value.filter(there) if isinstance(value, Glob) else list(override.sweep_string_iterator())
    except ValueError as error:  # range(0,3,0)
        raise ConfigError(f"{text}: {error}") from None
    if not values:
        hint = f"matches nothing; {nearest('', there, '')}" if there else "names no values; write a list"
        raise ConfigError(f"{text}: {hint}")
    return [f"{override.get_key_element()}={each}" for each in values]


def check(parsed: Iterable[Override], folders: Sequence[Path]) -> list[Plugin]:
    """The plug-ins that a run's overrides choose. Raises ConfigError if one names nothing that can be chosen."""
    chosen = []
    for override in parsed:
        key, text = override.key_or_group, override.input_line
        if key.startswith(("hydra.sweeper", "hydra/sweeper")):
            raise ConfigError(f"{text}: values of a sweep are overrides: a list, seed=0,1, or 'seed=range(0,2)'")
        if override.is_sweep_override() and not is_hydra(text):
            as_list = f"; a list is written {key}=[{text.partition('=')[2]}]" if "." in key else ""
            raise ConfigError(f"{text}: several values are a sweep, add -m{as_list}")
        if key in GROUPS:
            chosen += _chosen(key, override, folders)
    return chosen


def is_hydra(word: str) -> bool:
    """Whether an override is of Hydra's own settings."""
    return word.lstrip("+~").startswith(("hydra.", "hydra/"))


def _setting(key: str) -> str | None:
    """The setting `key`, or one whose last part it is: `train.lr` of `lr`."""
    return next((name for name in [*SETTINGS, *GROUPS] if key in (name, name.rpartition(".")[2])), None)


def meant(key: str) -> str:
    """A hint at the settings that `key` may have been meant for, by their names or by their meaning."""
    if within := [name for name in SETTINGS if name.startswith(f"{key}.")]:
        return f"{key} is a group of settings: {', '.join(within)}"
    name, words = _setting(key.replace("/", ".")), key.rpartition(".")[2].replace("_", " ")
    close = [name] if name else near(key, [*SETTINGS, *GROUPS])
    close = close or [name for name, help in SETTINGS.items() if " " in words and words in help]
    hint = f"did you mean {' or '.join(close[:3])}?" if close else HELP
    return f"there is no such setting; {hint}"


def _chosen(key: str, override: Override, folders: Sequence[Path]) -> list[Plugin]:
    """The plug-in that a choice names, if it names one. Raises ConfigError if there is nothing of that name."""
    text, value, there = override.input_line, override.value(), names(key, folders)
    if override.is_delete() or override.is_add():
        raise ConfigError(f"{text}: a run needs one; choose it with {key}=…")
    if isinstance(value, list):
        raise ConfigError(f"{text}: several values are a sweep, write -m {key}={','.join(map(str, value))}")
    name = "none" if value is None else str(value)
    plugin = find_plugin(key, name, folders) if key in SWAPPED else None
    if value is None or (not plugin and name not in there):
        is_file = key in SWAPPED and Path(f"{name}.py").is_file()
        hint = f"did you mean {key}=./{name}.py?" if is_file else nearest(name, there, "")
        raise ConfigError(f"{key}={show(value)}: there is no such file in conf/{key}/; {hint}")
    return [plugin] if plugin else []
