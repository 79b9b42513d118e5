"""Tables as data, and as Markdown, LaTeX and CSV; the report renders the same tables as HTML."""

import itertools
import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from rope_lab.files import NOT_OURS, check_ours, write_files, write_whole
from rope_lab.results.comparisons.answers import Result
from rope_lab.results.comparisons.stats import ALPHA, Interval, t_interval
from rope_lab.results.records.measures import Measure
from rope_lab.results.views.terminal import say_markdown
from rope_lab.text import ConfigError, plain

# Markdown's special characters within a line, except HTML's; a bracket is special only at the end
# of a link's text
ACTIVE = re.compile(r"[\\`*|~$]|\](?=[(\[:])|(?<!\w)_|_(?!\w)")
NONE = "–"
Row = dict[str, str]  # cells by the names of their columns, as plain text
# What LaTeX would read as a command or an option, and signs that its fonts lack
LATEX = str.maketrans(
    {
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "[": "{[}",
        "*": "{*}",
        "−": "$-$",
        "→": r"$\rightarrow$",
        "±": r"$\pm$",
    }
)


class Strong(str):
    """Text that every medium emphasizes."""


@dataclass(frozen=True)
class Table:
    """Rows of cells by the names of their columns, as plain text; `Strong` text is emphasized.

    title: a heading for media that give each table one; note: a sentence that explains it
    """

    rows: list[Row]
    title: str = ""
    note: str = ""

    @property
    def columns(self) -> list[str]:
        return list(self.rows[0]) if self.rows else []


@dataclass(frozen=True)
class Section:
    """A part of a page: a table, sentences, perhaps a second table, then those of every seed, with
    details, which are folded.
    """

    title: str
    table: Table
    sentences: list[str] = field(default_factory=list)
    more: Table = Table([])
    every_seed: Table = Table([])
    details: list[str] = field(default_factory=list)


def escaped(text: str) -> str:
    """Text as Markdown that shows it unchanged, in one line and one cell."""
    shown = plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    shown = ACTIVE.sub(r"\\\g<0>", shown)
    return f"**{shown}**" if isinstance(text, Strong) else shown


def markdown(table: Table) -> str:
    """A table whose columns are as wide as their cells, behind its note; empty without rows."""
    if not table.rows:
        return ""
    lines = [list(map(escaped, table.columns))]
    lines += [list(map(escaped, row.values())) for row in table.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n\n".join(filter(None, [escaped(table.note), "\n".join(text)]))


def latex(table: Table, caption: str) -> str:
    r"""A table as a LaTeX `table` that needs `\usepackage{booktabs}`; cells as `escaped` has
    them.
    """
    frame = pd.DataFrame(table.rows).map(_latex).rename(columns=_latex)
    return frame.to_latex(index=False, escape=False, caption=_latex(caption))


def _latex(text: str) -> str:
    shown = plain(text).translate(LATEX)
    return rf"\textbf{{{shown}}}" if isinstance(text, Strong) else shown


def csv(table: Table) -> str:
    """A table as CSV, its columns' names first."""
    return pd.DataFrame(table.rows).to_csv(index=False)


def bullets(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {escaped(sentence)}" for sentence in sentences)


def write_page(page: Path, parts: list[str], figures: dict[str, bytes] | None = None) -> None:
    """Write and print a generated page; its figures go into figures/ beside it, by the names of
    their files.

    Raises ConfigError if another page, with another first line, has its name.
    """
    text = "\n\n".join(parts) + "\n"
    check_ours(page, text.partition("\n")[0])
    for name in figures or {}:
        figure = page.parent / "figures" / name
        if figure.exists() and not page.exists():
            raise ConfigError(f"{figure}: {NOT_OURS}")
    page.parent.mkdir(parents=True, exist_ok=True)
    write_whole(page, text.encode())
    write_figures(page.parent, figures or {})
    say_markdown(text)


def between(page: Path, text: str, begin: str, end: str, part: str) -> str:
    """The text of a page with another part between two marks. Raises ConfigError without them."""
    before, has_begin, rest = text.partition(begin)
    _, has_end, after = rest.partition(end)
    if not (has_begin and has_end):
        raise ConfigError(f"{page} has no marks {begin} and {end} to write between")
    return f"{before}{begin}{part}{end}{after}"


def write_figures(folder: Path, figures: dict[str, bytes]) -> None:
    """Write SVGs, by the names of their files, into figures/ of a folder of pages."""
    if figures:
        write_files(folder / "figures", figures)


def number(value: float, digits: int | None) -> str:
    """A value with so many digits, or with two significant ones; a dash for nan."""
    if math.isnan(value):
        return NONE
    return f"{value:.2g}" if digits is None else f"{value:.{digits}f}"


def signed(difference: Interval, digits: int) -> str:
    """A difference with its sign and its interval; of two seeds, with both differences."""
    if difference.n == 2:
        low, high = difference.of_two
        return f"{difference.mean:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})"
    return interval(difference, f"+.{digits}f")


def mean_of(values: Sequence[float], measure: Measure, diverged: int = 0) -> str:
    """The mean of a scheme's runs with its 95% interval, and how many others diverged; of
    logarithms of steps, the geometric mean of steps.

    The range instead, in round brackets, of two runs or if the interval would leave 0 … `most`, the
    possible values.
    """
    found = t_interval(values)
    form = f".{measure.digits}f"
    is_outside = found.low < 0 or found.high > measure.most
    if measure.is_log:
        found, form, is_outside = found.exp, ",.0f", False
    text = interval(found, form)
    if found.n == 2 or is_outside:
        least, most = (format(measure.shown(end(values)), form) for end in (min, max))
        text = f"{found.mean:{form}} ({least}–{most})"
    text = counted(text, found.n)
    return f"{text}, {diverged} diverged" if diverged else text


def counted(text: str, n: int) -> str:
    """A mean or a difference, and of how many."""
    return f"{text} n={n}" if n > 1 else text


def paired(result: Result) -> str:
    """A difference of pairs, and their number."""
    return counted(signed(result.difference, result.measure.digits), result.difference.n)


def tested(result: Result | None, column: str) -> Row:
    """The cells of a difference, emphasized if it is significant, and of its p value."""
    if result is None:
        return {column: NONE, "p": NONE}
    significant = result.p_family < ALPHA
    return {column: strong_if(significant, paired(result)), "p": number(result.p_family, None)}


def interval(found: Interval, form: str) -> str:
    """`2.3 [2.1, 2.5]`; `form`: of each number, such as `+.1f`."""
    mean, low, high = (format(each, form) for each in (found.mean, found.low, found.high))
    if not found.n:
        return NONE
    return f"{mean} [{low}, {high}]" if found.n > 1 else f"{mean} (one seed)"


def strong_if(condition: bool, text: str) -> str:
    return Strong(text) if condition else text


def unused(taken: Collection[str], *names: str) -> str:
    """The first of these names that is not taken; if all are, the last with a number."""
    numbered = (f"{names[-1]}-{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain(names, numbered) if name not in taken)
