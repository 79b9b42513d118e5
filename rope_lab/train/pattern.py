"""The notation of `position.pattern`: `rope window:64 base:1e4 *3 | none`.

Parts stand between `|`. A part is the name of a scheme in conf/position, or a user's own file
(`./mine.py`), its settings, `window:N`, and `*N` for N layers one after another. Hydra takes it
without quotes of its own.
"""

import re
from typing import NamedTuple

from rope_lab.text import ConfigError

FILE = r"[^ |*:]+\.py(?::\w+)?"  # mine.py, or mine.py:MyScheme
PART = re.compile(rf"(?P<name>{FILE}|\w+)(?P<settings>( \w+:[^ |*]+)*)( \*(?P<count>[1-9]\d*))?")


class Written(NamedTuple):
    """A part as written: the name or file of a scheme, its settings and window as text, and the
    number of layers.
    """

    name: str
    settings: dict[str, str | None]
    window: str | None
    count: int


def canonical(text: str) -> str:
    """The pattern with one space between its words, no `*1`, and files without their folders."""
    spaced = " ".join(re.sub(r"([*|])", r" \1", text).replace("|", "| ").split())
    return without_folders(re.sub(r" \*1(?!\d)", "", spaced))


def without_folders(text: str) -> str:
    """The text with the names of Python files instead of their paths."""
    return re.sub(r"[^\s|='\"]*/(?=[^/\s|]+\.py\b)", "", text)


def files(text: str) -> list[str]:
    """The paths of the files in a pattern as typed."""
    return re.findall(r"[^\s|*:]+\.py\b", text)


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
        window = settings.pop("window", None)
        parts.append(Written(match["name"], settings, window, int(match["count"] or 1)))
    return parts
