"""The command line before Hydra reads it: mistakes that Hydra would answer with a traceback or a riddle."""

import argparse
import difflib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, QuotedString
from hydra.errors import HydraException

from rope_lab import compat
from rope_lab.text import ConfigError, flat, near, nearest, plain, show
from rope_lab.train.instantiate import DEEPEST, SWAPPED

GROUPS = (*SWAPPED, "scale")  # of conf/: a run takes one file of each
LONGEST = 10_000  # characters of an override; the time that Hydra's parser takes grows with their square


@dataclass(frozen=True)
class Known:
    """What may be set.

    settings: what each means, by its whole name, `train.lr`; those within task and position stand in `files`
    defaults: their values in conf/config.yaml
    files:    of each of GROUPS, the yaml files that may be chosen, by name, and the settings of plug-ins
    """

    settings: Mapping[str, str]
    defaults: dict[str, Any]
    files: dict[str, dict[str, Path | dict[str, Any]]]


def read_arguments(arguments: list[str], settings: Iterable[str]) -> tuple[argparse.Namespace, list[str]]:
    """Hydra's options and overrides among `arguments`, and these again with all options first.

    Hydra itself reads no override behind an option that stands behind an override. Raises ConfigError where an argument
    is neither, or one is given twice in a row, as a shell makes it of `seed={0..4}`.
    """
    for word, after in pairwise([*arguments, ""]):
        key, equals, value = word.lstrip("-").partition("=")
        if word.startswith("-") and (name := _of_that_name(key.replace("-", "_"), [*settings, *GROUPS])):
            value = value if equals else after if re.fullmatch("[^-=][^=]*", after) else ""
            raise ConfigError(f"{word}: a setting has no dashes, write {name}={value or '…'}")
    parser = get_args_parser()
    parser.prog, parser.usage = "python -m rope_lab.train", "%(prog)s [-m] [NAME=VALUE …]; --help shows every setting"
    given, unknown = parser.parse_known_intermixed_args(arguments)
    if unknown:
        raise ConfigError(f"{unknown[0]}: there is no such option; write NAME=VALUE, --help shows every setting")
    for word, after in pairwise(given.overrides):
        key, _, value = word.partition("=")
        if key in (*GROUPS, "seed") and after.startswith(f"{key}="):
            both = f"{value},{after.partition('=')[2]}"
            raise ConfigError(f"{word} {after}: several values are a sweep, write -m {key}={both}")
    options = list(arguments)
    for word in given.overrides:
        options.remove(word)
    return given, [*options, *given.overrides]


def check_overrides(
    overrides: Iterable[str],
    folders: Sequence[Path],
    settings: Mapping[str, str],
    sweep: bool = False,
    made: Mapping[str, Mapping[str, dict[str, Any]]] | None = None,
) -> None:
    """Raises ConfigError, with the remedy, where Hydra would not say well what is wrong with an override.

    folders:  conf/, and others like it that come before it
    settings: names and meanings of all settings but those of task and position
    sweep:    whether a setting may have several values
    made:     of task and position, the settings of plug-ins, by name
    """
    words, main = list(overrides), _content(folders[0] / "config.yaml")
    elsewhere = any("hydra.searchpath" in word for word in words)  # there may be more files than those of `folders`
    paths = {group: sorted(path for folder in folders for path in (folder / group).glob("*.yaml")) for group in GROUPS}
    files = {
        group: {path.stem: path for path in found if not elsewhere} | dict((made or {}).get(group, {}))
        for group, found in paths.items()
    }
    known = Known(settings, flat(main), files)
    defaults = [item for item in main.get("defaults", []) if isinstance(item, dict)]
    chosen = {group: [name] for item in defaults for group, name in item.items()}
    _check_pieces(words)
    parsed = [_parsed(word, known) for word in words]
    for override in parsed:
        key, text = override.key_or_group, override.input_line
        if not key:
            raise ConfigError(f"{text}: names no setting; write NAME=VALUE")
        if new := compat.SETTINGS.get(compat.general(key)):
            raise ConfigError(f"{text}: is now called {new}")
        if not text.startswith(("+", "~")):
            _check_name(text, key, settings)
        if override.is_sweep_override() and not (sweep or "hydra.mode=MULTIRUN" in words):
            hint = f"; as a list: {key}=[{text.partition('=')[2]}]" if isinstance(known.defaults.get(key), list) else ""
            raise ConfigError(f"{text}: several values are a sweep, add -m{hint}")
        chosen[key] = _values(override)
        _check_values(text, key, chosen[key], files)
    for override in parsed:
        group, _, name = override.key_or_group.partition(".")
        if group in GROUPS and name and not override.input_line.startswith(("+", "~")):
            for choice in chosen.get(group, []):
                _check_within(override.input_line, name, f"{group}={choice}", files[group].get(choice))


def told(error: Exception, overrides: Iterable[str]) -> str:
    """What Hydra, or a launcher of it, has against the command line, in one line with its own settings in that."""
    said = " ".join(re.split("To append to your|Config search path|\n *full_key:", str(error))[0].split()).rstrip(".")
    its_own = [word for word in overrides if word.lstrip("+~").startswith("hydra")]
    if "'hydra.launcher." in said and not any(word.startswith("hydra/launcher=") for word in its_own):
        its_own.append("which may need hydra/launcher=joblib")
    return plain(f"{said}; look at {' '.join(its_own)}" if its_own else said)


def _check_pieces(words: list[str]) -> None:
    """Raises ConfigError where spaces have cut an override into several words: `position = rope`, `seed=0, 1`."""
    whole = words[:1]
    for before, word in pairwise(words):
        of_before = word.startswith(("=", ",")) or (before.endswith(("=", ",")) and "=" not in word)
        whole[-1:] = [whole[-1] + word] if of_before else [whole[-1], word]
    if len(whole) < len(words):
        raise ConfigError(f"write it without spaces: {next(word for word in whole if word not in words)}")


def _parsed(text: str, known: Known) -> Override:
    """An override as Hydra reads it. Raises ConfigError, with what may have been meant, where it cannot."""
    if len(text) > LONGEST:
        raise ConfigError(f"{show(text)}: has {len(text):,} characters, at most {LONGEST:,} are read")
    try:
        return _parse(text)
    except RecursionError:
        raise ConfigError(f"{show(text)}: cannot be read, nested too deeply") from None
    except ValueError as error:
        raise ConfigError(f"{show(text)}: cannot be read, {str(error).partition(':')[0]}") from None
    except HydraException:
        meant = [word for word in _repairs(text, known) if _can_be_read(word)]
        if meant:
            hint = f"did you mean {meant[0]}?"
        elif "=" not in text:
            hint = "is not NAME=VALUE; --help shows every setting"
        elif type(known.defaults.get(text.partition("=")[0])) in (int, float):
            hint = "must be a number"
        else:
            hint = "cannot be read; a value with brackets or other signs needs quotes, \"NAME='VALUE'\""
        raise ConfigError(f"{show(text)}: {hint}") from None


def _parse(text: str) -> Override:
    return OverridesParser.create().parse_overrides([text])[0]


def _can_be_read(text: str) -> bool:
    with suppress(HydraException, ValueError, RecursionError):
        return text.endswith("…") or bool(_parse(text.strip('"')))
    return False


def _repairs(text: str, known: Known) -> Iterator[str]:
    """What a word may have been meant for that is no override."""
    key, equals, value = text.partition("=")
    if not equals:
        if name := _of_that_name(text, [*known.settings, *GROUPS]):
            yield f"{name}=…"
        names = {name: group for group, found in known.files.items() for name in found}
        for name in (text, *difflib.get_close_matches(text.lower(), names, n=1)):
            yield from [f"{names[name]}={name}"] if name in names else []
        yield text.replace(":", "=", 1)
        return
    yield f"{key}={value.strip('=,;')}"
    default = known.defaults.get(key, "")
    if isinstance(default, list):
        yield f"{key}=[{value.strip('()[]{}')}]"
    elif not (type(default) in (int, float) or re.search("""['"()[\\]{}]""", value)):
        yield f"\"{key}='{value}'\""


def _check_name(text: str, key: str, settings: Mapping[str, str]) -> None:
    """Raises ConfigError where there is no setting or group `key`, with the name that may have been meant."""
    first = key.replace("/", ".").replace("@", ".").partition(".")[0]
    if within := [name for name in settings if name.startswith(f"{key}.")]:
        raise ConfigError(f"{show(text)}: {key} is a group of settings: {', '.join(within)}")
    if key in settings or first in (*GROUPS, "recipe", "hydra"):
        return
    name, word = _of_that_name(key, settings), key.rpartition(".")[2].replace("_", " ")
    meant = [name] if name else near(key, {**settings, **dict.fromkeys(GROUPS)})
    meant = meant or [name for name, help in settings.items() if " " in word and word in help]
    hint = f"did you mean {' or '.join(meant[:3])}?" if meant else "--help shows every setting"
    raise ConfigError(f"{show(text)}: there is no such setting; {hint}")


def _of_that_name(key: str, settings: Iterable[str]) -> str | None:
    """The setting `key`, or one whose last part it is: `train.lr` of `lr`."""
    return next((name for name in settings if key in (name, name.rpartition(".")[2])), None)


def _values(override: Override) -> list[Any]:
    """The value of an override, or those of a sweep; none where they are a range or a pattern."""
    if override.is_choice_sweep():
        return [value.text if isinstance(value, QuotedString) else value for value in override.value().list]
    return [] if override.is_sweep_override() else [override.value()]


def _check_values(text: str, key: str, values: list[Any], files: dict[str, dict[str, Any]]) -> None:
    """Raises ConfigError where a number is too large, or what is chosen from a group is no name of a file there."""
    if any(type(value) is int and abs(value) > sys.float_info.max for value in values):  # OmegaConf's float() fails
        raise ConfigError(f"{show(text)}: is too large, must be a finite number")
    if "." in key or key.partition("/")[0] not in (*GROUPS, "recipe", "hydra"):
        return
    if key not in GROUPS:
        if not all(isinstance(name, str) for name in values):
            raise ConfigError(f"{text}: must be the name of a file in conf/{key}/")
        return
    if text.startswith("~"):
        raise ConfigError(f"{text}: a run needs one; choose another with {key}=…")
    if text.startswith("+"):
        raise ConfigError(f"{text}: a run has one already; choose another with {text.lstrip('+')}")
    for name in values:
        if isinstance(name, list):
            raise ConfigError(f"{text}: several values are a sweep, write -m {key}={','.join(map(str, name))}")
        if str(name) in files[key]:
            if isinstance(path := files[key][str(name)], Path):
                _check_nesting(path)
        elif files[key] and "${" not in str(name):
            file = Path(f"{name}.py")
            if key in SWAPPED and file.is_file():
                hint = f"did you mean {key}={file}?"
            elif key in SWAPPED and name and Path(str(name)).is_dir():
                hint = f"that is a folder: name a file, {key}={Path(str(name)) / 'mine.py'}"
            else:
                hint = nearest("none" if name is None else str(name), files[key], "")
            raise ConfigError(f"{key}={show(name)}: there is no such file in conf/{key}/; {hint}")


def _check_within(text: str, name: str, choice: str, found: Path | dict[str, Any] | None) -> None:
    """Raises ConfigError where a task or scheme, whose yaml file or settings are `found`, has no setting `name`."""
    node, group = _content(found) if isinstance(found, Path) else found or {}, choice.partition("=")[0]
    for part in name.split("."):
        if not isinstance(node, dict) or "_target_" not in node or "defaults" in node:
            return
        if part not in node:
            known = [key for key in node if not key.startswith("_")]
            hint = nearest(part, known, group) if known else "it has none"
            raise ConfigError(f"{text}: {choice} has no such setting; {hint}")
        node, group = node[part], f"{group}.{part}"


def _content(path: Path) -> dict[str, Any]:
    """What a yaml file says; nothing where it cannot be read, which Hydra says well."""
    with suppress(OSError, ValueError, yaml.YAMLError):
        content = yaml.safe_load(path.read_text("utf-8"))
        return content if isinstance(content, dict) else {}
    return {}


def _check_nesting(path: Path) -> None:
    """Raises ConfigError where a yaml file is nested too deeply, or within itself, for Hydra to read, or is no text."""
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path}: is not a regular file")
    within: list[str | None] = []  # the anchors of all groups and lists that are open
    with suppress(OSError, yaml.YAMLError):  # Hydra says these well
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path}: holds a byte that is not UTF-8, at {error.start}") from None
        for event in yaml.parse(text):
            if isinstance(event, yaml.CollectionStartEvent):
                within.append(event.anchor)
            elif isinstance(event, yaml.CollectionEndEvent):
                within.pop()
            if len(within) > DEEPEST or (isinstance(event, yaml.AliasEvent) and event.anchor in within):
                raise ConfigError(f"{path}: more than {DEEPEST} groups or lists within one another")
