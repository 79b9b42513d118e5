"""Markdown in a terminal: plain text, no wider than it except for code and long words."""

import html
import math
import re

from rope_lab.text import say, screen_width, wrapped

FENCE = "```"
BEGINS = re.compile(r"\s*([-*] |\d+\. |[#|]|```|!\[|$)")  # a line that continues no paragraph
ITEM = re.compile(r"\s*([-*] |\d+\. )?")
STARS = re.compile(r"(`[^`]*`)|(?<!\\)\*\*")  # emphasis; or code, which may have stars of its own
FOLD = re.compile("</?(details|summary)>")
BETWEEN_CELLS = re.compile(r"(?<!\\)\|")
EMPTY = ("", "–")  # cells without a value


def say_markdown(text: str) -> None:
    """Print Markdown; in a terminal, for people to read."""
    width = screen_width()
    say(text if width == math.inf else fitted(text, width))


def fitted(text: str, width: float) -> str:
    """Markdown as plain text: a paragraph with a line wider than `width` is wrapped, and a wider
    table has a line per cell, none for an empty one.
    """
    parts = []
    for lines in _blocks(text):
        shown = list(map(_plain, lines))
        if lines[0].startswith(FENCE):
            parts += lines
        elif max(map(len, shown)) <= width:
            parts += shown
        elif lines[0].startswith("|"):
            parts += _stacked(lines, width)
        else:  # a paragraph, or a list item with later lines below its text
            joined = " ".join([shown[0], *map(str.strip, shown[1:])])
            parts += wrapped(joined, width, " " * len(ITEM.match(lines[0])[0]))
    return "\n".join(parts)


def _blocks(text: str) -> list[list[str]]:
    """The lines of each piece of code, table, paragraph, list item and gap."""
    blocks: list[list[str]] = []
    for line in text.splitlines():
        if blocks and _continues(blocks[-1], line):
            blocks[-1].append(line)
        else:
            blocks.append([line])
    return blocks


def _continues(block: list[str], line: str) -> bool:
    """Whether a line belongs to the block before it."""
    if block[0].startswith(FENCE):
        return len(block) == 1 or block[-1] != FENCE
    if block[0].startswith("|"):
        return line.startswith("|")
    return bool(block[0].strip()) and not BEGINS.match(line)


def _stacked(lines: list[str], width: float) -> list[str]:
    """A table: the first cell of each row, and below it a line for each other cell, after the name
    of its column.
    """
    names, _, *rows = [BETWEEN_CELLS.split(line)[1:-1] for line in lines]
    columns = list(map(str.strip, names))
    stacked = []
    for row in rows:
        indent = ""
        for column, cell in zip(columns, map(str.strip, row), strict=True):
            if cell not in EMPTY or not indent:
                named = f"{column}: {cell}" if column else cell
                stacked += wrapped(indent + _plain(named), width, f"{indent}  ")
            indent = "  "
    return stacked


def _plain(line: str) -> str:
    """A line without emphasis, escapes and folds."""
    without = STARS.sub(lambda match: match[1] or "", FOLD.sub("", line))
    return html.unescape(re.sub(r"\\([\\`*|~$_\]])", r"\1", without))
