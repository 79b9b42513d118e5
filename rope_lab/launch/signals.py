"""When to stop: at a signal, and when the launcher that has started this process is no more.

A launcher is the process of a sweep whose runs are in worker processes (hydra/launcher=joblib). It names itself in the
environment of what it starts: the end of any other parent, a shell for example, stops nothing.
"""

import fcntl
import functools
import multiprocessing
import multiprocessing.resource_tracker
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from rope_lab import command
from rope_lab.train import signals
from rope_lab.train.signals import SIGNALS, catch, time_is_up  # noqa: F401

LAUNCHER = "ROPE_LAB_LAUNCHER"  # the environment variable that holds a launcher's process id
AGAIN = 2.0  # seconds after which an exit is asked for again
WAIT = 0.1  # seconds between two looks at another process
TOLD = 1.0  # seconds between two looks at what says from elsewhere that a run is to stop

_asked = 0  # the signal that `leave` has answered
_working = threading.Lock()  # held while a worker has a job


def do_nothing(number: int, frame: Any) -> None:
    """A handler for signals that come after the one that has been answered."""


def leave(number: int) -> NoReturn:
    """Exits as a signal asks for.

    Should a library swallow that, it is said again every AGAIN seconds until `left`, and the next Stop has caught the
    signal.
    """
    global _asked
    _asked = number
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(128 + number))
    signal.setitimer(signal.ITIMER_REAL, AGAIN, AGAIN)
    sys.exit(128 + number)


def asked() -> int:
    """The signal that `leave` has answered, 0 if there was none."""
    return _asked


def left() -> None:
    """The exit that `leave` asked for is under way, or is no more wanted."""
    signal.setitimer(signal.ITIMER_REAL, 0)


def launcher() -> int:
    """The process id of the launcher that has started this process, 0 if none has."""
    named = int(os.environ.get(LAUNCHER, 0))
    return 0 if named == os.getpid() else named


class Stop(signals.Stop):
    """A stop that also ends a worker's run when its launcher is no more, and a job's when it is told from elsewhere."""

    def __init__(self, told: Callable[[], int] | None = None):
        """`told` is asked every TOLD seconds whether to stop as if a signal had come: its number, or 0."""
        self._caught, self._launcher = _asked, launcher()
        self._told, self._next = told, 0.0

    @property
    def caught(self) -> int:
        """The first of SIGNALS that came, 0 if none did; SIGHUP where the launcher is no more."""
        if not self._caught and self._launcher and os.getppid() != self._launcher:
            self._caught = signal.SIGHUP
        if not self._caught and self._told and time.monotonic() >= self._next:
            self._caught, self._next = self._told(), time.monotonic() + TOLD
        return self._caught

    def __enter__(self) -> "Stop":
        left()
        super().__enter__()
        if self._before and callable(signal.getsignal(signal.SIGUSR2)):  # submitit's, by which a job is queued again
            self._before[signal.SIGUSR2] = signal.signal(signal.SIGUSR2, self.note)
        return self


def lock(path: Path, kind: int) -> int:
    """The descriptor of a file, which is made if need be, and locked while that is open. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(descriptor, kind)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def lead() -> None:
    """Makes this process the launcher of the processes that it starts from here on.

    They begin with SIGNALS held back, so that none is lost, and none ends them, before `of_worker`.
    """
    os.environ[LAUNCHER] = str(os.getpid())
    hold_back()


def hold_back() -> None:
    """Has the processes that this one starts from here on begin with SIGNALS held back.

    For that this thread holds them back too, and another one receives them for the process.
    """
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    multiprocessing.resource_tracker.ensure_running()  # loky would, and Python 3.11 then lets signals through again
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def end_workers(number: int, jobs: Path) -> None:
    """Where this process is a launcher, passes a signal on to its workers and waits until none has a run under way.

    `jobs` is the file that workers hold while they have one. From here on none can begin another.
    """
    if os.environ.get(LAUNCHER) != str(os.getpid()):
        return

    def pass_on() -> None:
        for worker in multiprocessing.active_children():
            with suppress(ProcessLookupError):
                os.kill(worker.pid, number)

    await_jobs(jobs, pass_on)


def await_jobs(jobs: Path, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Waits until no process is `under_way` with the file `jobs`, and does `meanwhile` again and again."""
    with suppress(OSError):
        while True:
            try:
                lock(jobs, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until this process ends
                return
            except BlockingIOError:
                meanwhile()
                time.sleep(WAIT)


def is_alive(process: int) -> bool:
    """Whether this machine has a process of that id."""
    with suppress(PermissionError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True


def let_through() -> None:
    """Lets SIGNALS through that the process which started this one has held back."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


@functools.cache
def of_worker() -> Stop:
    """The Stop of this worker process, for all of its jobs. When its launcher is no more, it ends after its job."""
    command.begin()
    stop = Stop().__enter__()
    let_through()
    threading.Thread(target=_outlive_no_launcher, daemon=True).start()
    return stop


def _outlive_no_launcher() -> None:
    while os.getppid() == launcher():
        time.sleep(10 * WAIT)
    with _working:
        os._exit(128 + signal.SIGHUP)


@contextmanager
def under_way(jobs: Path) -> Iterator[None]:
    """Within it this worker has a job, and holds the file `jobs` if its file system has locks."""
    with _working, ExitStack() as held:
        with suppress(OSError):
            held.callback(os.close, lock(jobs, fcntl.LOCK_SH))
        yield


def await_end(number: int) -> NoReturn:
    """Passes the signal that came to this worker on to its launcher, and waits until that ends it, or is no more."""
    if os.getppid() == launcher():
        os.kill(launcher(), number)
    while os.getppid() == launcher():
        time.sleep(WAIT)
    os._exit(128 + number)
