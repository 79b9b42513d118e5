"""What every command begins with: a screen that can stop nothing, no traceback at Ctrl-C or without our packages."""

import io
import os
import signal
import sys
from contextlib import suppress
from functools import partial
from types import TracebackType


class Screen(io.FileIO):
    """The descriptor of stdout or stderr. What cannot be written there is dropped, and so is everything after it."""

    def write(self, data: bytes | memoryview) -> int:
        try:
            written = super().write(data)
        except OSError as error:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if self.fileno() == 1 and not isinstance(error, BrokenPipeError):  # whoever reads has not read enough
                print(f"nothing more is shown here: {error.strerror}", file=sys.stderr, flush=True)
            written = None
        return len(data) if written is None else written


def begin(setup: str = "") -> None:
    """Makes stdout and stderr safe, whatever they are, and Ctrl-C an end with exit status 130.

    Descriptors 0 to 2 that are closed are opened on nothing, lest the next file that is opened becomes the screen.
    What an encoding lacks is shown as `?`. `setup` is the remedy where a package is not installed.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdout, sys.stderr = _safe(1, sys.stdout), _safe(2, sys.stderr)
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + number))
    sys.excepthook = partial(_show, setup)


def _show(setup: str, kind: type, error: BaseException, trace: TracebackType | None) -> None:
    """Shows an error that ends the command: one line where it is a package that is not installed."""
    package = getattr(error, "name", None) if kind is ModuleNotFoundError else None
    if package and package.partition(".")[0] not in ("rope_lab", "tasks"):
        print(f"{package} is not installed for {sys.executable}\n{setup}", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


def _safe(descriptor: int, before: io.TextIOWrapper | None) -> io.TextIOWrapper:
    """A stream like `before` (None: there was none) that writes to a Screen; unbuffered ones by the line."""
    return io.TextIOWrapper(
        io.BufferedWriter(Screen(descriptor, "w", closefd=False)),
        encoding=before.encoding if before else "utf-8",
        errors="backslashreplace" if descriptor == 2 else "replace",
        line_buffering=before.line_buffering or before.write_through if before else False,
    )
