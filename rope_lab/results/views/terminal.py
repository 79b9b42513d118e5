"""Markdown in a terminal: its tables as wide as the terminal, its escapes removed."""

import html
import re
import shutil
import sys
import textwrap
from itertools import groupby, zip_longest

from rope_lab.text import say

LEAST = 6  # characters of a column, however narrow the terminal is
BETWEEN = "  "  # columns


def say_markdown(text: str) -> None:
    """Print Markdown; in a terminal, for people to read."""
    if sys.stdout.isatty():
        text = fitted(text, shutil.get_terminal_size().columns)
    say(text)


def fitted(text: str, width: int) -> str:
    """Markdown as plain text whose tables are at most `width` characters wide, if they can be."""
    parts = []
    for is_table, lines in groupby(text.splitlines(), lambda line: line.startswith("|")):
        if is_table:
            parts += _table(list(lines), width)
        else:
            parts += map(_plain, lines)
    return "\n".join(parts)


def _table(lines: list[str], width: int) -> list[str]:
    """Rows of cells, the longest columns wrapped until all fit."""
    rows = []
    for line in lines:
        if line.startswith("|-"):  # the ruler
            continue
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        rows.append([_plain(cell.strip()) for cell in cells])
    widths = [max(1, *map(len, column)) for column in zip(*rows, strict=True)]
    room = width - len(BETWEEN) * (len(widths) - 1)
    while sum(widths) > room and max(widths) > LEAST:
        widths[widths.index(max(widths))] -= 1
    shown, ruler = [], ["-" * most for most in widths]
    for row in [rows[0], ruler, *rows[1:]]:
        wrapped = [textwrap.wrap(cell, most) for cell, most in zip(row, widths, strict=True)]
        for parts in zip_longest(*wrapped, fillvalue=""):
            shown.append(BETWEEN.join(map(str.ljust, parts, widths)).rstrip())
    return shown


def _plain(line: str) -> str:
    """A line without emphasis and escapes."""
    without = re.sub(r"(?<!\\)\*\*", "", line)
    return html.unescape(re.sub(r"\\([\\`*|~$_\]])", r"\1", without))
