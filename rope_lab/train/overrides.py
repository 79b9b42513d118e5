"""The overrides of a command line, parsed once, and hints for mistyped ones."""

import functools
import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override, Quote, QuotedString
from hydra.errors import HydraException

from rope_lab.places import CONF
from rope_lab.shipped import choices
from rope_lab.text import ConfigError, first_line, near, nearest, show
from rope_lab.train import pattern
from rope_lab.train.instantiate import SWAPPED, register
from rope_lab.train.plugin import FILE
from rope_lab.train.settings import declared

GROUPS = (*SWAPPED, "scale")  # of conf/: a run takes one file of each
SETTINGS = {name: field.default.description for name, field in declared().items()}
SYNTAX = re.compile(r"""[,'"(){}\[\]$\\:=]""")  # of Hydra's lists, functions and quotes
NOUNS = {"position": "scheme"}  # where another word is better than the setting's
HELP = "--help shows every setting"
OPTIONS = {"-h": "--help", "--help": "--help", "-m": "-m", "--multirun": "-m"}


def read_arguments(words: Sequence[str]) -> tuple[set[str], list[str]]:
    """Options, `--help` and `-m`, and overrides of a command line, in any order. Raises
    ConfigError.
    """
    options = {OPTIONS[word] for word in words if word in OPTIONS}
    rest = [word for word in words if word not in OPTIONS]
    for word in rest:
        if word.startswith("-"):
            name = _setting(word.lstrip("-").partition("=")[0].replace("-", "_"))
            hint = (
                f"a setting has no dashes, write {name}=…"
                if name
                else f"there is no such option; {HELP}"
            )
            raise ConfigError(f"{word}: {hint}")
    return options, rest


def parse(words: Sequence[str]) -> list[Override]:
    """Overrides as Hydra reads them; the path of a plug-in may hold any character. Raises
    ConfigError.
    """
    parsed, seen = [], set()
    for word in words:
        key, _, value = word.partition("=")
        setting = key_of(word)
        if setting in (*GROUPS, "seed") and setting in seen:  # as a shell reads seed={0..4}
            sweep = f"rope-lab sweep {setting}=A,B"
            raise ConfigError(f"{setting} is given twice; several values are a sweep: {sweep}")
        seen.add(setting)
        file = FILE.fullmatch(value) if key in SWAPPED else None
        if file and os.path.isfile(os.path.expanduser(file["path"])):
            value = QuotedString(value, Quote.single).with_quotes()
        if value and not (value.isascii() or SYNTAX.search(value)):  # task.path=/home/jürgen/a.txt
            word = f"{key}={QuotedString(value, Quote.single).with_quotes()}"
        try:
            override = _parsed(f"{key}={value}" if file else word)
        except (HydraException, ValueError, RecursionError):
            how = (
                "write NAME=VALUE without spaces, "
                "a value with brackets or other signs in quotes, \"NAME='VALUE'\""
            )
            raise ConfigError(f"{show(word)}: cannot be read; {how}; {HELP}") from None
        parsed.append(replace(override, input_line=word))
    return parsed


@functools.cache  # a millisecond for each word, and the runs of a sweep share most of theirs
def _parsed(word: str) -> Override:
    return OverridesParser.create().parse_override(word)


def typed(value: Any) -> str:
    """A Python value as one types it behind NAME=."""
    if not isinstance(value, str | os.PathLike):
        return json.dumps(value)
    text = os.fspath(value)
    if FILE.fullmatch(text) or re.fullmatch(r"[\w./~:+-]+", text):  # `parse` quotes a file
        return text
    return QuotedString(text, Quote.single).with_quotes()


def expand(words: Sequence[str]) -> list[list[str]]:
    """The runs of a sweep, each as its overrides. Raises ConfigError."""
    return [list(run) for run in product(*map(_values, parse(words)))]


def _values(override: Override) -> list[str]:
    text = override.input_line
    value = override.value()
    if not override.is_sweep_override():
        return [text]
    try:
        is_glob = isinstance(value, Glob)
        values = (
            value.filter(choices(override.key_or_group))
            if is_glob
            else list(override.sweep_string_iterator())
        )
    except (HydraException, ValueError) as error:  # interval(0,1), range(0,3,0)
        raise ConfigError(f"{text}: {first_line(error)}") from None
    if not values:
        raise ConfigError(f"{text}: names no values; write a list")
    return [f"{override.get_key_element()}={each}" for each in values]


def for_hydra(words: Sequence[str]) -> tuple[list[str], list[Override], list[str]]:
    """The overrides of one run as Hydra takes them, the values that they set, and the files of
    schemes and tasks. Raises ConfigError.

    A setting need not be in a yaml: the types of settings and classes decide whether it exists.
    """
    hydra, _ = split_hydra(words)
    if hydra:
        check_launcher(hydra[0])
        chooses = "chooses the launcher of a sweep: write -m, or rope-lab sweep"
        raise ConfigError(f"{hydra[0]}: {chooses}")
    composed, values, files = [], [], []
    for override in parse(words):
        key = override.key_or_group
        text = override.input_line
        value = override.value()
        _check_one_value(override)
        file = FILE.fullmatch(str(value)) if key in SWAPPED and value else None
        if file:
            name, target = register(key, file["path"], file["name"])
            text = f"{key}='{name}'"  # nan.py is not a number
            values.insert(0, _parsed(f"{key}._target_='{target}'"))
            files.append(os.path.realpath(os.path.expanduser(file["path"])))
        elif key in GROUPS:
            _check_choice(key, value)
        elif not ((CONF / key).is_dir() or override.is_delete()):
            text = "++" + text.lstrip("+")
            values.append(override)
            files += _files_within(key, value)
        composed.append(text)
    return composed, values, files


def _check_one_value(override: Override) -> None:
    """Raise ConfigError for several values, which only a sweep has."""
    key, text = override.key_or_group, override.input_line
    is_list_of_choices = key in GROUPS and isinstance(override.value(), list)
    if not (override.is_sweep_override() or is_list_of_choices):
        return
    given = text.partition("=")[2]
    as_one = f"; a list is written {key}=[{given}]" if "." in key else ""
    if "/" in given and key not in SWAPPED:
        as_one += f"; a path with a comma is written \"{key}='{given}'\""
    sweep = f"rope-lab sweep {key}={given.strip('[]')}"
    raise ConfigError(f"{text}: several values are a sweep: {sweep}{as_one}")


def _check_choice(group: str, value: Any) -> None:
    """Raise ConfigError unless conf/ has an alternative of this name."""
    if value is not None and str(value) in choices(group):
        return
    hint = nearest("none" if value is None else str(value), choices(group), "")
    if group in SWAPPED and os.path.isfile(f"{value}.py"):
        here = "" if "/" in str(value) else "./"
        hint = f"did you mean {group}={here}{value}.py?"
    noun = NOUNS.get(group, group)
    raise ConfigError(f"{group}={show(value)}: there is no such {noun}; {hint}")


def key_of(word: str) -> str:
    """The setting of an override: `train.steps` of `+train.steps=3`."""
    return word.lstrip("+~").partition("=")[0]


def _files_within(key: str, value: Any) -> list[str]:
    """The files of schemes in a pattern of layers."""
    if not key.startswith("position.") or not isinstance(value, str):
        return []
    paths = [os.path.realpath(os.path.expanduser(path)) for path in pattern.files(value)]
    return list(filter(os.path.isfile, paths))


def is_hydra(word: str) -> bool:
    """Whether an override is one of Hydra's own settings."""
    return word.lstrip("+~").startswith(("hydra.", "hydra/"))


def split_hydra(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Hydra's own overrides, and all others. Raises ConfigError for what is no text."""
    for word in words:
        if not isinstance(word, str):
            raise ConfigError(f"{word!r}: must be NAME=VALUE as text; in Python also NAME=VALUE")
    others = [word for word in words if not is_hydra(word)]
    return list(filter(is_hydra, words)), others


def check_launcher(word: str) -> None:
    """Raise ConfigError for a setting of Hydra that does not concern the launcher."""
    if not word.lstrip("+~").startswith(("hydra/launcher", "hydra.launcher")):
        only = "of Hydra's settings only those of hydra/launcher have an effect"
        raise ConfigError(f"{word}: {only}; out=FOLDER names the folder of runs")


def _setting(key: str) -> str | None:
    """The setting `key`, or one whose last part it is: `train.lr` of `lr`."""
    return next(
        (name for name in [*SETTINGS, *GROUPS] if key in (name, name.rpartition(".")[2])), None
    )


def meant(key: str) -> str:
    """A hint at the settings that a mistyped `key` may mean, by their names or explanations."""
    if within := [name for name in SETTINGS if name.startswith(f"{key}.")]:
        return f"{key} is a group of settings: {', '.join(within)}"
    name = _setting(key.replace("/", "."))
    words = key.rpartition(".")[2].replace("_", " ")
    meaning = [name for name, help in SETTINGS.items() if " " in words and words in help]
    close = [name] if name else meaning or near(key, [*SETTINGS, *GROUPS])
    hint = f"did you mean {' or '.join(close[:3])}?" if close else HELP
    return f"there is no such setting; {hint}"
