"""What a process does that begins runs: how signals end it, and how runs reach the launcher that is configured."""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from hydra import initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig

from rope_lab.launch import signals, sweep
from rope_lab.train.config import CONF

EXIT_FAILED = 1
AFTER_QUEUES = -10  # an exit priority below those at which multiprocessing closes queues (10) and locks (0)


def guarded(act: Callable[[], None], conclude: Callable[[int], None] | None = None) -> None:
    """Does `act`; however that ends, the outcomes of its sweeps are shown, and `conclude` follows with the exit status.

    Outside of a run, which has a way of its own to end, a signal ends the process once all that it launched is saved.
    """
    atexit.register(signals.catch, signal.SIG_IGN)  # after what follows: Python's end takes default handlers back
    Finalize(None, _await_queues, exitpriority=AFTER_QUEUES)
    signals.catch(leave)
    signals.let_through()
    status = EXIT_FAILED
    try:
        _heeding(act)
        status = 0
    except SystemExit as end:
        status = end.code
        raise
    finally:
        signals.left()
        signals.catch(signals.do_nothing)
        sweep.report()
        if conclude:
            conclude(status)
        signals.catch(lambda number, frame: os._exit(status))  # W&B may be slow to end


def _await_queues() -> None:
    """Waits for the threads of loky's queues, which have been told to end.

    They are daemons, which Python's end stops anywhere: between the removal of a semaphore and the word of it to loky's
    tracker, for example, which then complains of a leak.
    """
    for thread in threading.enumerate():
        if thread.name == "QueueFeederThread":
            thread.join(signals.AGAIN)


def _heeding(act: Callable[[], None]) -> None:
    """Does `act`, and exits as a signal has asked for, whatever a library makes of that: Ray swallows or changes it."""
    try:
        act()
    except SystemExit:
        if not signals.asked():
            raise
    if signals.asked():
        sys.exit(128 + signals.asked())


def leave(number: int, frame: Any) -> None:
    """Answers a signal that comes outside of a run."""
    signals.catch(signals.do_nothing)
    sweep.end_workers(number)
    signals.leave(number)


def launch(
    runs: Sequence[Sequence[str]],
    common: Sequence[str],
    work: Callable[[DictConfig], None],
    at_once: int | None = None,
    config_dir: Path | None = None,
) -> list[Any]:
    """Has a launcher do `work` for each of `runs`, which are overrides, and returns when all of them have ended.

    `common` are overrides that configure Hydra and its launcher, and say where runs lie; the launcher gets so many runs
    `at_once` (None: all). This is what Hydra's own sweep does with a grid: a sweeper of ours would have to be installed
    as a plug-in. How a run ended is noted as in any sweep.
    """
    with initialize_config_dir(str(CONF), job_name="rope_lab", version_base="1.3"):
        hydra = GlobalHydra.instance().hydra
        words = ["hydra.mode=MULTIRUN", *common]
        config = hydra.compose_config("config", words, RunMode.MULTIRUN, with_log_configuration=True)
        callbacks = Callbacks(config)
        callbacks.on_multirun_start(config=config, config_name="config")
        sweep.expect(runs)
        context = HydraContext(config_loader=hydra.config_loader, callbacks=callbacks)
        launcher = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=work, config=config)
        done = []
        for first in range(0, len(runs), at_once or len(runs)):
            jobs = [sweep.as_job(words, config_dir) for words in runs[first:][:at_once]]
            done += launcher.launch(jobs, initial_job_idx=first) or []
        callbacks.on_multirun_end(config=config, config_name="config")
    return done
