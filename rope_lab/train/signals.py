"""When a run stops early: at a signal, or at a time."""

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


def catch(handler: Callable[[int, Any], None] | signal.Handlers) -> dict[int, Any]:
    """Sets the handler of each of SIGNALS, except an ignored SIGHUP, as under nohup; returns the handlers before."""
    kept = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else []
    return {number: signal.signal(number, handler) for number in SIGNALS if number not in kept}


def time_is_up(stop_at: float | None) -> int:
    """SIGALRM from `stop_at` on, in seconds since 1970; 0 before, or without one."""
    return signal.SIGALRM if stop_at is not None and time.time() >= stop_at else 0


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
        in_main_thread = threading.current_thread() is threading.main_thread()
        self._before.append(catch(self.note) if in_main_thread else {})
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.pop().items():
            signal.signal(number, handler)
