"""What a check finds, and the line that it is about."""

import inspect
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rope_lab.text import ConfigError


class Wrong(AssertionError):
    """Something that a scheme or a task may not do; `at` is the method that does it, if that is known."""

    def __init__(self, told: str, at: Callable | None = None):
        super().__init__(told)
        self.at = at


@dataclass(frozen=True)
class Finding:
    """What one check found: `ok`, `note` (to be known, and allowed) or `WRONG`; `where` is a line, `mine.py:12`."""

    kind: Literal["ok", "note", "WRONG"]
    name: str
    told: str = ""
    where: str = ""


def look(checks: dict[str, Callable[[], str | None]], files: Iterable[str]) -> list[Finding]:
    """The finding of each check: what it returns is a note, what it raises is wrong.

    files: in which a line is looked for where a check raises something else than Wrong

    Raises ConfigError, where the settings are such that training would raise it too.
    """
    found, files = [], set(files)
    for name, check in checks.items():
        try:
            note = check()
            found.append(Finding("note" if note else "ok", name, note or ""))
        except Wrong as error:
            found.append(Finding("WRONG", name, str(error), line_of(error.at) if error.at else ""))
        except ConfigError:
            raise
        except Exception as error:
            told = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            found.append(Finding("WRONG", name, told, last_line(error, files)))
    return found


def last_line(error: BaseException, files: set[str]) -> str:
    """The last line of some files that an error passed through; of all files where it passed through none of them."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename in files] or list(frames)
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""


def line_of(method: Callable) -> str:
    """Where a method begins, `mine.py:12`."""
    code = inspect.unwrap(method).__code__
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}"


def files_of(cls: type) -> list[str]:
    """The files of a class and of those that it inherits from, libraries aside."""
    modules = (inspect.getmodule(base) for base in cls.__mro__)
    ours = (base for base in modules if base.__name__.partition(".")[0] not in ("torch", "builtins", "abc", "typing"))
    return [module.__file__ for module in ours if getattr(module, "__file__", None)]


def demand(right: Any, told: str, at: Callable | None = None) -> None:
    """Raises Wrong unless something is `right`."""
    if not right:
        raise Wrong(told, at)
