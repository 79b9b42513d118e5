"""Launch runs on this machine: one after the other in this process, or in parallel child
processes.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection, forkserver, resource_tracker
from multiprocessing.context import ForkServerContext, SpawnContext

from rope_lab import command
from rope_lab.launch.job import run
from rope_lab.places import HERE
from rope_lab.text import Record
from rope_lab.train.config import Config
from rope_lab.train.stop import SIGNALS, Stop

LOOK = 0.2  # seconds between two looks at signals
Runs = Sequence[tuple[Config, str]]  # the prefix of its lines


def in_turn(runs: Runs, stopping: Stop, settings: Record) -> None:
    """Run in this process, until a signal comes."""
    for cfg, prefix in runs:
        if not stopping.caught:
            run(cfg, stopping, prefix)


def in_children(runs: Runs, stopping: Stop, settings: Record) -> None:
    """Run in child processes, settings["at_once"] in parallel. A signal is passed on to them; they
    save their runs.

    A child blocks SIGNALS until it handles them.
    """
    context = context_of_children()
    waiting, running, passed_on = list(runs), {}, False
    while running or (waiting and not stopping.caught):
        while waiting and len(running) < settings["at_once"] and not stopping.caught:
            child = context.Process(target=_child, args=waiting.pop(0))
            with blocked_signals():
                child.start()
            running[child.sentinel] = child
        for sentinel in connection.wait(list(running), LOOK):
            running.pop(sentinel).join()
        if stopping.caught and not passed_on:
            passed_on = True
            for child in running.values():
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(child.pid, stopping.caught)


def context_of_children() -> ForkServerContext | SpawnContext:
    """How child processes begin. If this process is ours, they are forked from a server that has
    imported torch and blocks SIGNALS. A program that calls us may need that server for itself: it
    gets new interpreters.
    """
    if not command.process_is_ours():
        return multiprocessing.get_context("spawn")
    forkserver.set_forkserver_preload([__name__])
    environment = dict(os.environ)
    # Otherwise the server may import a rope_lab of the working directory. Runs get our sys.path.
    os.environ |= {"PYTHONPATH": str(HERE.parent), "PYTHONSAFEPATH": "1"}
    try:
        with blocked_signals():
            forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(environment)
    return multiprocessing.get_context("forkserver")


@contextmanager
def blocked_signals() -> Iterator[None]:
    """A block in which SIGNALS wait; a process that begins within inherits that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    resource_tracker.ensure_running()  # a SIGHUP would end it
    # Again: Python 3.11 unblocks signals when it starts the tracker.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def begin_child() -> None:
    """In a child that takes steps, end on a signal, and with the parent process."""
    command.begin()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)


def _child(cfg: Config, prefix: str) -> None:
    command.begin()
    with Stop() as stopping:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        threading.Thread(target=_follow_parent, args=(stopping,), daemon=True).start()
        run(cfg, stopping, prefix)


def _follow_parent(stopping: Stop) -> None:
    """Make a run save itself when its parent process is gone."""
    multiprocessing.parent_process().join()
    stopping.note(signal.SIGHUP)
