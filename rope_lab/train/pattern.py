"""The notation of `position.pattern`: `rope window:64 base:1e4 *3 | none`.

Parts stand between `|`. A part is the name of a scheme in conf/position, its settings, `window:N`,
and `*N` for N layers one after another. Hydra takes it without quotes of its own.
"""

import re
from typing import Any, NamedTuple

from rope_lab.text import ConfigError

PART = re.compile(r"(?P<name>\w+)(?P<settings>( \w+:[^ |*]+)*)( \*(?P<count>[1-9]\d*))?")


class Written(NamedTuple):
    """A part as written: the name of a scheme, its settings as text, and the number of layers."""

    name: str
    settings: dict[str, str | None]
    count: int


def canonical(text: str) -> str:
    """The pattern with one space between its words, and no `*1`."""
    spaced = " ".join(re.sub(r"([*|])", r" \1", text).replace("|", "| ").split())
    return re.sub(r" \*1(?!\d)", "", spaced)


def read(key: str, text: str) -> list[Written]:
    """The parts of a canonical pattern. Raises ConfigError."""
    parts = []
    for part in text.split(" | "):
        match = PART.fullmatch(part)
        if not match:
            form = "NAME SETTING:VALUE … *COUNT, as in 'rope window:64 *3 | none'"
            raise ConfigError(f"{key}={text}: {part!r} must be {form}")
        pairs = [word.split(":", 1) for word in match["settings"].split()]
        settings = {name: None if value == "null" else value for name, value in pairs}
        parts.append(Written(match["name"], settings, int(match["count"] or 1)))
    return parts


def without_window(written: Written) -> tuple[dict[str, Any], str | None]:
    """The settings of a part's scheme, and its window."""
    settings = dict(written.settings)
    return settings, settings.pop("window", None)
