"""Early ends of a run: signals, which `loop.has_to_stop` asks for and `launch.job` turns into an
exit status, and failures reported in one line.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rope_lab.command import process_is_ours
from rope_lab.text import of_system
from rope_lab.train.config import Config

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
AT_ONCE = 0.4  # seconds within which two SIGINTs are one press of Ctrl-C
OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "ALLOC_FAILED",
    "size calculation",
)


def ignore() -> None:
    """In a process of ours, ignore signals: none changes the exit status of one that is ending."""
    if not process_is_ours():
        return
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class Stop:
    """A context in which SIGNALS do not end the process: the first is noted in `caught`. No-op
    outside the main thread.

    The third Ctrl-C raises KeyboardInterrupt, for a step that does not end. It can be nested in
    itself.
    """

    def __init__(self) -> None:
        self.caught = 0  # the number of the first signal
        self._presses: list[float] = []  # the times of Ctrl-C
        # the handlers to restore, for each time that it was entered
        self._before: list[dict[int, Any]] = []

    def note(self, number: int, frame: Any = None) -> None:
        """Handle a signal; may also be called, with its number."""
        self.caught = self.caught or number
        now = time.monotonic()
        # A child of a sweep gets one press from the terminal and once more from its parent.
        is_press = number == signal.SIGINT and frame is not None
        if is_press and (not self._presses or now - self._presses[-1] > AT_ONCE):
            self._presses.append(now)
            if len(self._presses) == 3:
                raise KeyboardInterrupt

    def __enter__(self) -> "Stop":
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # as under nohup
        caught = [number for number in SIGNALS if not (ignored and number == signal.SIGHUP)]
        in_main_thread = threading.current_thread() is threading.main_thread()
        self._before.append(
            {number: signal.signal(number, self.note) for number in caught if in_main_thread}
        )
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.pop().items():
            signal.signal(number, handler)


class RunFailed(Exception):
    """The run cannot continue; the message, one line, says what is wrong and what to do."""


def same_command(fresh: bool) -> str:
    """The command to repeat: without `fresh=true`, which would delete the records."""
    return "the same command without fresh=true" if fresh else "the same command"


@contextmanager
def in_one_line(cfg: Config) -> Iterator[None]:
    """A context that raises RunFailed if memory runs out, or files cannot be written or read."""
    try:
        yield
    except OSError as error:
        remedy = (
            f"its checkpoints stay valid; fix the cause and run {same_command(cfg.fresh)} again"
        )
        raise RunFailed(f"the run stopped: {of_system(error)}; {remedy}") from error
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(
            part in str(error) for part in OUT_OF_MEMORY
        ):
            raise
        model, train = cfg.model, cfg.train
        raise RunFailed(
            f"out of memory on {cfg.device}: lower train.batch_size={train.batch_size}, "
            f"train.seq_len={train.seq_len}, model.d_model={model.d_model}, "
            f"model.n_layers={model.n_layers} or eval.lengths, or raise train.accumulate"
        ) from None
