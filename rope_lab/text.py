"""Values and messages, as people type and read them."""

import argparse
import difflib
import json
import math
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

FIND_RUNS = "`rope-lab list` names your runs, `rope-lab train` makes one"
Words = Sequence[str] | None  # of a command line; None: those that the program was called with
Settings = dict[str, Any]  # flat: `train.lr`
Record = dict[str, Any]  # nested, as in JSON
LEAKS = 0.9  # of the Bayes-optimal loss: a lower loss means that the model sees later tokens


class ConfigError(ValueError):
    """A setting that cannot be used: the message, one line, names its key, its value and the
    remedy.
    """

    def __str__(self) -> str:
        return plain(super().__str__())


class MissingText(ConfigError):
    """There is no text at the path of a corpus."""


@contextmanager
def errors_as_exit(*kinds: type[Exception]) -> Iterator[None]:
    """Around a command: exit with one line on a ConfigError, an OSError or an error of `kinds`."""
    try:
        yield
    except (ConfigError, *kinds) as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(of_system(error))


def of_system(error: OSError) -> str:
    """The message of an error of the system, after the file's name if it has one."""
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)


class Filled(argparse.HelpFormatter):
    """Paragraphs as wide as the terminal; indented lines as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        joined = re.sub(r"(?m)^(\S.*)\n(?=\S)", r"\1 ", text)
        lines: list[str] = []
        for line in joined.splitlines():
            lines += [line] if line.startswith(" ") else wrapped(line, width)
        return "\n".join(lines)


def argument_parser(command: str, about: str) -> argparse.ArgumentParser:
    """The parser of `rope-lab COMMAND`, whose help begins with the docstring of its module."""
    return argparse.ArgumentParser(
        prog=f"rope-lab {command}", description=about, formatter_class=Filled
    )


def say(text: str) -> None:
    """Print whole lines; those of parallel runs do not mix."""
    print(text + "\n", end="", flush=True)


def screen_width() -> float:
    """The columns of the terminal that output goes to; infinite for a file or a pipe."""
    return shutil.get_terminal_size().columns if is_terminal(sys.stdout) else math.inf


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a standard stream is a terminal; a process may have none."""
    return stream is not None and stream.isatty()


def wrapped(line: str, width: float, indent: str = "") -> list[str]:
    """A line in lines of at most `width`, broken at spaces; a longer word stays whole.

    indent: what all but the first begin with
    """
    if len(line) <= width:
        return [line]
    return textwrap.wrap(
        line,
        max(1, int(width)),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def filled(text: str, indent: str = "  ") -> str:
    """Text for standard output: in a terminal, the rest of a wider line stands below, indented."""
    width = screen_width()
    lines: list[str] = []
    for line in text.splitlines():
        lines += wrapped(line, width, indent)
    return "\n".join(lines)


def amount(text: str, unit: str) -> float | None:
    """The number before a unit, 1.5 of `1.5h`; None if the text is anything else."""
    found = re.fullmatch(rf"(\d+\.?\d*|\.\d+){unit}", text)
    return float(found[1]) if found else None


def plain(text: str) -> str:
    """`text` in one line; characters that are not printable are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type if it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def first_three(lines: list[str]) -> str:
    """The first three lines in one, and the number of others."""
    more = f"; and {len(lines) - 3} more" if len(lines) > 3 else ""
    return "; ".join(lines[:3]) + more


def written(value: Any) -> str:
    """A value as one types it on the command line."""
    return str(value) if isinstance(value, str | float) else json.dumps(value, default=str)


def show(value: Any) -> str:
    """The same, cut if it is long."""
    text = written(value)
    return text if len(text) <= 100 else f"{text[:99]}…"


def short_path(path: Path) -> str:
    """A path as it is or from the working directory, whichever is shorter."""
    try:
        relative = os.path.relpath(path)
    except FileNotFoundError:  # the working directory was deleted
        return str(path)
    return min(relative, str(path), key=len)


def flat(nested: Record, prefix: str = "") -> Settings:
    """The leaves of nested objects, each under its whole key: `train.lr`."""
    leaves: Settings = {}
    for key, value in nested.items():
        if isinstance(value, dict):
            leaves |= flat(value, f"{prefix}{key}.")
        else:
            leaves[prefix + key] = value
    return leaves


def nested(leaves: Settings) -> Record:
    """The inverse of `flat`."""
    tree: Record = {}
    for key, value in leaves.items():
        *groups, last = key.split(".")
        group = tree
        for name in groups:
            group = group.setdefault(name, {})
        group[last] = value
    return tree


def near(key: str, known: Iterable[str]) -> list[str]:
    """Candidates for a mistyped `key`: the closest name, or up to three with a similar part."""
    names = list(dict.fromkeys(known))
    word = key.lower().rpartition("/")[2].removesuffix(".yaml")
    like = difflib.get_close_matches
    in_part = [name for name in names if word in name or like(word, re.split("[._]", name))]
    return like(word, names, n=1) or in_part[: 3 if len(word) > 1 else 0]


def nearest(key: str, known: Iterable[str], group: str) -> str:
    """The names that `key` may mean, `did you mean train.lr?`, or all names."""
    prefix = f"{group}." if group else ""
    names = list(known)
    if close := near(key, names):
        return f"did you mean {' or '.join(prefix + name for name in close)}?"
    return f"there are {', '.join(prefix + name for name in names)}" if names else "there are none"
