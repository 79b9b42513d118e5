"""What is checked of overrides before Hydra reads them: mistakes that it would answer with a traceback or a riddle."""

import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString

from rope_lab import compat
from rope_lab.instantiate import DEEPEST, SWAPPED, ConfigError
from rope_lab.text import nearest, show


def check_overrides(overrides: Iterable[str], folders: Iterable[Path], settings: Iterable[str] = ()) -> None:
    """Raises ConfigError where an override is of a kind of which Hydra does not say well what is wrong.

    It has an old name, chooses something else than a name from a group of conf/, or is nested too deeply.
    `folders`: where groups are looked for; `settings`: the names of all settings but those of task and position. Raises
    Hydra's own error where an override cannot be read.
    """
    for text in overrides:
        try:
            (override,) = OverridesParser.create().parse_overrides([text])
        except (RecursionError, ValueError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error).partition(":")[0]
            raise ConfigError(f"{show(text)}: cannot be read, {reason}") from None
        chosen_from = override.key_or_group
        if new := compat.SETTINGS.get(compat.general(chosen_from)):
            raise ConfigError(f"{override.input_line}: is now called {new}")
        if settings and not override.input_line.startswith(("+", "~")):
            _check_name(override.input_line, chosen_from, list(settings))
        if override.is_sweep_override() and not override.is_choice_sweep():
            continue
        chosen = override.value().list if override.is_choice_sweep() else [override.value()]
        if any(type(value) is int and abs(value) > sys.float_info.max for value in chosen):  # OmegaConf's float() fails
            raise ConfigError(f"{show(text)}: is too large, must be a finite number")
        if not chosen_from:
            raise ConfigError(f"{override.input_line}: names no setting")
        if "." in chosen_from or chosen_from.partition("/")[0] not in ("task", "position", "scale", "recipe", "hydra"):
            continue
        if override.is_delete() and chosen_from in (*SWAPPED, "scale"):
            raise ConfigError(f"{override.input_line}: a run needs one; choose another with {chosen_from}=…")
        if not all(isinstance(name, str | QuotedString) for name in chosen):
            raise ConfigError(f"{override.input_line}: must be the name of a file in conf/{chosen_from}/")
        if chosen_from in SWAPPED and any("/" in str(name) for name in chosen):
            raise ConfigError(f"{override.input_line}: must be a file in conf/{chosen_from}/, not in a folder there")
        if chosen_from in SWAPPED:
            for path in (folder / chosen_from / f"{name}.yaml" for folder in folders for name in chosen):
                _check_nesting(path)


def _check_name(override: str, key: str, settings: list[str]) -> None:
    """Raises ConfigError where there is no setting or group `key`, with the name that may have been meant."""
    groups = {name.partition(".")[0] for name in settings} | {*SWAPPED, "scale", "recipe", "hydra"}
    first = key.replace("/", ".").replace("@", ".").partition(".")[0]
    if key in settings or first in {*SWAPPED, "hydra"} or key in groups:
        return
    within = [name for name in settings if name.rpartition(".")[2] == key]
    hint = f"did you mean {within[0]}?" if within else nearest(key, [*settings, *sorted(groups - {"recipe"})], "")
    raise ConfigError(f"{show(override)}: there is no such setting; {hint}")


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
