"""Runs on this machine: one after the other in this process, or side by side in child processes."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Sequence
from multiprocessing import connection, forkserver, resource_tracker
from pathlib import Path
from statistics import fmean
from typing import Any

from rope_lab import command
from rope_lab.launch.job import Job, run
from rope_lab.places import HERE
from rope_lab.train.console import Place, duration
from rope_lab.train.signals import SIGNALS, Stop, time_is_up

LOOK = 0.2  # seconds between two looks at signals


def in_turn(jobs: Sequence[Job], stopping: Stop) -> dict[int, Any]:
    """Runs jobs in this process, until a signal comes."""
    took: list[float] = []
    for i, job in enumerate(jobs):
        if not (stopping.caught or time_is_up(job.cfg.stop_at)):
            began = time.monotonic()
            left = duration((len(jobs) - i) * fmean(took)) if took else ""
            run(job.settings(), stopping, job.place(i, len(jobs), left, parallel=False))
            took.append(time.monotonic() - began)
    return {}


def in_children(jobs: Sequence[Job], stopping: Stop, at_once: int, logs: Path | None = None) -> dict[int, Any]:
    """Runs jobs in child processes, `at_once` side by side. A signal is passed on to them; they save their runs.

    Children are forked from a server that has imported torch. It and they begin with SIGNALS blocked, lest one ends
    them before they listen.

    logs: a folder for the output of each
    """
    forkserver.set_forkserver_preload([__name__])
    before, environment = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS), dict(os.environ)
    os.environ["PYTHONSAFEPATH"] = "1"  # or the server would import a `tasks` of the working directory
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    resource_tracker.ensure_running()  # a SIGHUP would end it; Python 3.11 unblocks signals when it starts it
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    forkserver.ensure_running()
    for name in ("PYTHONSAFEPATH", "PYTHONPATH"):
        del os.environ[name]
    os.environ.update(environment)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    waiting, running, took, passed_on = list(enumerate(jobs)), {}, [], False
    while running or waiting:
        waiting = [(i, job) for i, job in waiting if not (stopping.caught or time_is_up(job.cfg.stop_at))]
        while waiting and len(running) < at_once:
            rounds = -(-len(waiting) // at_once)
            i, job = waiting.pop(0)
            place = job.place(i, len(jobs), duration(rounds * fmean(took)) if took else "", at_once > 1)
            child = multiprocessing.get_context("forkserver").Process(
                target=_child, args=(job, place, logs and logs / f"{i}.out")
            )
            child.start()
            running[child.sentinel] = child, time.monotonic()
        for sentinel in connection.wait(list(running), LOOK):
            child, began = running.pop(sentinel)
            child.join()
            took.append(time.monotonic() - began)
        if stopping.caught and not passed_on:
            passed_on = True
            for child, _ in running.values():
                os.kill(child.pid, stopping.caught)
    return {}


def _child(job: Job, place: Place, log: Path | None) -> None:
    if log:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
    command.begin()
    with Stop() as stopping:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        threading.Thread(target=_follow_parent, args=(stopping,), daemon=True).start()
        run(job.settings(), stopping, place)


def _follow_parent(stopping: Stop) -> None:
    """Has a run save itself when the process that launched it is gone."""
    multiprocessing.parent_process().join()
    stopping.note(signal.SIGHUP)
