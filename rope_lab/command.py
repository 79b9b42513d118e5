"""The start of every command: output survives a closed pipe; Ctrl-C or a missing package gives no
traceback.

Only a process that runs a command calls `begin`: it belongs to us, others do not.
"""

import io
import os
import signal
import sys
from pathlib import Path
from types import TracebackType

from rope_lab.places import HERE, SETUP

_ours = False


def process_is_ours() -> bool:
    """Whether this process runs one of our commands: then its settings are ours to change."""
    return _ours


def take_process() -> None:
    """Note that this process is ours."""
    global _ours
    _ours = True


class Screen(io.FileIO):
    """A file descriptor; after the first failed write all output is dropped."""

    def write(self, data: bytes | memoryview) -> int:
        try:
            return super().write(data) or 0
        except OSError:  # a closed pipe, a full disk
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return len(data)


def begin() -> None:
    """Make stdout and stderr survive a closed pipe, and Ctrl-C end with exit status 130."""
    if process_is_ours():
        return
    take_process()
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:  # it was closed
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
        raw = io.BufferedWriter(Screen(descriptor, "w", closefd=False))
        encoding = getattr(stream, "encoding", "utf-8")
        setattr(sys, name, io.TextIOWrapper(raw, encoding, errors="replace", line_buffering=True))
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + number))
    sys.excepthook = _show


def _show(kind: type, error: BaseException, trace: TracebackType | None) -> None:
    """Show a missing package in two lines, other errors as Python does."""
    package = str(getattr(error, "name", None)).partition(".")[0]
    if kind is ModuleNotFoundError and package != "rope_lab":
        print(f"{package} is not installed for {sys.executable}\n{SETUP}", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


def says_yes(question: str) -> bool:
    """Whether the person at the terminal says yes; Ctrl-C and Ctrl-D do not."""
    handler = signal.getsignal(signal.SIGINT)
    if process_is_ours():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return input(question).strip().lower() in ("y", "yes")
    except (EOFError, KeyboardInterrupt):
        print()
        return False
    finally:
        if process_is_ours():
            signal.signal(signal.SIGINT, handler)


def check_directory() -> None:
    """Exit if the working directory was deleted; warn if its checkout is not the code that runs."""
    try:
        working = Path.cwd()
    except FileNotFoundError:
        sys.exit("the working directory was deleted: change to another one")
    for folder in (working, *working.parents):
        package = folder / "rope_lab"
        if (package / "__main__.py").is_file() and package.resolve() != HERE:
            message = f"the code of {package} is not used: rope-lab runs that of {HERE}"
            print(f"{message}; `make setup` in {folder} changes that", file=sys.stderr)
            return


# `python -m rope_lab.train` begins with its first import of ours, before those that take a second.
_main = getattr(sys.modules["__main__"], "__spec__", None)
if _main and _main.name.startswith("rope_lab."):
    begin()
