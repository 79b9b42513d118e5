"""When a run stops early: at a signal, or at a time."""

import signal
import threading
import time
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


def ignore() -> None:
    """Let no signal change the exit status of a process that is about to end."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def time_is_up(stop_at: float | None) -> bool:
    """Whether it is `stop_at`, in seconds since 1970, or later."""
    return stop_at is not None and time.time() >= stop_at


class Stop:
    """Within it SIGNALS do not end the process: the first one is noted in `caught`. No-op outside the main thread.

    It may be entered again within itself.
    """

    def __init__(self) -> None:
        self._caught = 0
        self._before: list[dict[int, Any]] = []  # the handlers to restore, for each time that it was entered

    @property
    def caught(self) -> int:
        """The number of the first signal, 0 before one."""
        return self._caught

    def note(self, number: int, frame: Any = None) -> None:
        """Handles a signal; may also be called, with its number."""
        self._caught = self._caught or number

    def __enter__(self) -> "Stop":
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # as under nohup
        caught = [number for number in SIGNALS if not (ignored and number == signal.SIGHUP)]
        in_main_thread = threading.current_thread() is threading.main_thread()
        self._before.append({number: signal.signal(number, self.note) for number in caught if in_main_thread})
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.pop().items():
            signal.signal(number, handler)
