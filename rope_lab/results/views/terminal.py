"""Markdown in a terminal: its tables as wide as the terminal, its escapes removed."""

import html
import re
import shutil
import sys
import textwrap
from itertools import groupby, zip_longest

from rope_lab.text import say

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
    """Rows of cells whose columns are wrapped between words; below each other if words are too
    long for that.
    """
    rows = []
    for line in lines:
        if line.startswith("|-"):  # the ruler
            continue
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        rows.append([_plain(cell.strip()) for cell in cells])
    columns = list(zip(*rows, strict=True))
    words = [" ".join(column).split() for column in columns]
    least = [max(map(len, each), default=1) for each in words]
    widths = [max(1, *map(len, column)) for column in columns]
    room = width - len(BETWEEN) * (len(widths) - 1)
    if sum(least) > room:
        return _stacked(rows, width)
    while sum(widths) > room:
        spare = [have - need for have, need in zip(widths, least, strict=True)]
        widths[spare.index(max(spare))] -= 1
    return _side_by_side(rows, widths)


def _side_by_side(rows: list[list[str]], widths: list[int]) -> list[str]:
    shown, ruler = [], ["-" * most for most in widths]
    for row in [rows[0], ruler, *rows[1:]]:
        wrapped = [textwrap.wrap(cell, most) for cell, most in zip(row, widths, strict=True)]
        for parts in zip_longest(*wrapped, fillvalue=""):
            shown.append(BETWEEN.join(map(str.ljust, parts, widths)).rstrip())
    return shown


def _stacked(rows: list[list[str]], width: int) -> list[str]:
    """A line a cell, after the name of its column; the first cell of a row is its heading."""
    (_, *columns), *body = rows
    shown = []
    for heading, *cells in body:
        shown += textwrap.wrap(heading, width)
        for column, cell in zip(columns, cells, strict=True):
            line = f"  {column}: {cell}"
            shown += textwrap.wrap(line, width, subsequent_indent="    ") if cell else []
    return shown


def _plain(line: str) -> str:
    """A line without emphasis and escapes."""
    without = re.sub(r"(?<!\\)\*\*", "", line)
    return html.unescape(re.sub(r"\\([\\`*|~$_\]])", r"\1", without))
