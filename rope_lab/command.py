"""What every command begins with: a screen that can stop nothing, and Ctrl-C that ends it without a traceback."""

import io
import os
import signal
import sys
from contextlib import suppress


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


def begin() -> None:
    """Makes stdout and stderr safe, whatever they are, and Ctrl-C an end with exit status 130.

    Descriptors 0 to 2 that are closed are opened on nothing, lest the next file that is opened becomes the screen.
    What an encoding lacks is shown as `?`.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdout, sys.stderr = _safe(1, sys.stdout), _safe(2, sys.stderr)
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + number))


def _safe(descriptor: int, before: io.TextIOWrapper | None) -> io.TextIOWrapper:
    """A stream like `before` (None: there was none) that writes to a Screen; unbuffered ones by the line."""
    return io.TextIOWrapper(
        io.BufferedWriter(Screen(descriptor, "w", closefd=False)),
        encoding=before.encoding if before else "utf-8",
        errors="backslashreplace" if descriptor == 2 else "replace",
        line_buffering=before.line_buffering or before.write_through if before else False,
    )
