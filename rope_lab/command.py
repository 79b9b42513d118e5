"""The start of every command: output survives a closed pipe; Ctrl-C or a missing package gives no
traceback.
"""

import io
import os
import signal
import sys
from pathlib import Path
from types import TracebackType

from rope_lab.places import HERE


class Screen(io.FileIO):
    """A file descriptor; after the first failed write all output is dropped."""

    def write(self, data: bytes | memoryview) -> int:
        try:
            return super().write(data) or 0
        except OSError:  # a closed pipe, a full disk
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return len(data)


def begin(setup: str = "") -> None:
    """Make stdout and stderr survive a closed pipe, and Ctrl-C end with exit status 130.

    setup: the remedy if a package is not installed
    """
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:  # it was closed
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
        raw = io.BufferedWriter(Screen(descriptor, "w", closefd=False))
        lines, encoding = True, "utf-8"
        if stream:
            lines, encoding = stream.line_buffering or stream.write_through, stream.encoding
        setattr(sys, name, io.TextIOWrapper(raw, encoding, errors="replace", line_buffering=lines))
    os.environ.pop("MPLBACKEND", None)  # of a notebook, say; no command opens a window
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + number))

    def show(kind: type, error: BaseException, trace: TracebackType | None) -> None:
        package = str(getattr(error, "name", None)) if kind is ModuleNotFoundError else "rope_lab"
        if package.partition(".")[0] in ("rope_lab", "tasks"):
            sys.__excepthook__(kind, error, trace)
        else:
            print(f"{package} is not installed for {sys.executable}\n{setup}", file=sys.stderr)

    sys.excepthook = show


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
