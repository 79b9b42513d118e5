"""Markdown in a terminal: no table is wider than it, and escapes are removed."""

import html
import re
import shutil
import sys
import textwrap
from itertools import groupby

from rope_lab.text import say


def say_markdown(text: str) -> None:
    """Print Markdown; in a terminal, for people to read."""
    if sys.stdout.isatty():
        text = fitted(text, shutil.get_terminal_size().columns)
    say(text)


def fitted(text: str, width: int) -> str:
    """Markdown as plain text; tables that are wider than `width` have a line a cell."""
    parts = []
    for is_table, group in groupby(text.splitlines(), lambda line: line.startswith("|")):
        lines = list(group)
        if is_table and max(map(len, map(_plain, lines))) > width:
            lines = list(_stacked(lines, width))
        parts += map(_plain, lines)
    return "\n".join(parts)


def _stacked(lines: list[str], width: int) -> list[str]:
    """A row's first cell as its heading, then a line for each other cell, after the name of its
    column.
    """
    columns, _, *rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    shown = []
    for heading, *cells in rows:
        shown.append(heading.strip())
        for column, cell in zip(columns[1:], cells, strict=True):
            line = f"  {column.strip()}: {cell.strip()}"
            shown += textwrap.wrap(line, width, subsequent_indent="    ")
    return shown


def _plain(line: str) -> str:
    """A line without emphasis and escapes."""
    without = re.sub(r"(?<!\\)\*\*", "", line)
    return html.unescape(re.sub(r"\\([\\`*|~$_\]])", r"\1", without))
