"""How long runs will take, from a few steps of some of them on this machine."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from rope_lab.experiments.launching import Stopped
from rope_lab.launch import sweep
from rope_lab.launch.jobs import Job
from rope_lab.launch.pool import begin_child, blocked_signals, context_of_children
from rope_lab.results.plans.bill import Bill
from rope_lab.results.records.run import Run
from rope_lab.text import ConfigError, Record, first_line
from rope_lab.train import torch_state
from rope_lab.train.config import Config
from rope_lab.train.evaluate import Diverged, by_length
from rope_lab.train.stop import Stop
from rope_lab.train.trainer import Trainer, build, evaluate_now, resolve, update

WARM, TIMED = 2, 5  # steps
HERE = ("BasicLauncher", "in_children")  # launchers whose runs are on this machine
LEAST = 2  # runs of which steps are taken: one of each scheme
BROKEN = (
    "a child process ended while steps were timed: the memory is full, or a script calls rope_lab "
    'outside of `if __name__ == "__main__":`, and every child process runs the script again'
)


def run_seconds(jobs: Sequence[Job], launcher: Record) -> float | None:
    """The mean seconds of a run, side by side as the launcher would run them; None on a cluster,
    whose machines are others. Raises ConfigError if a run cannot begin, and Stopped after a signal.
    """
    at_once, threads = sweep.shares(launcher)
    configs = [replace(job.cfg, threads=job.cfg.threads or threads) for job in jobs]
    kind = _kind(launcher)
    if kind == "BasicLauncher":
        with _stopped_by_signals():
            return statistics.mean(map(seconds_of, configs[:LEAST]))
    if kind not in HERE:
        return None
    context = context_of_children()
    with _stopped_by_signals(), ProcessPoolExecutor(at_once, context, begin_child) as children:
        with blocked_signals():  # until `begin_child`
            seconds = children.map(seconds_of, configs[: max(LEAST, at_once)])
        return statistics.mean(seconds)


def seconds_of_ended(runs: Sequence[Run], launcher: Record) -> tuple[float | None, str]:
    """The mean seconds of runs that have ended, None on a cluster, where we do not know how many go
    side by side; and where that number is from.
    """
    seconds = statistics.mean(run.seconds for run in runs)
    return seconds if _kind(launcher) in HERE else None, f"mean of {len(runs)} runs so far"


def _kind(launcher: Record) -> str:
    return launcher["_target_"].rpartition(".")[2]


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """A block after whose end a signal raises Stopped, so that its children have ended, too."""
    with Stop() as stop:
        try:
            yield
        except (BrokenProcessPool, KeyboardInterrupt):
            if not stop.caught:  # else the signal has ended the children, or a step
                raise ConfigError(BROKEN) from None
    if stop.caught:
        raise Stopped("stopped before the bill; the same command asks again", 128 + stop.caught)


def bill_of(stage: str, counts: Mapping[Job, int], launcher: Record) -> Bill:
    """The bill of runs of several kinds, from a few steps of one of each, beside as many like it as
    the launcher would run.

    counts: how many runs are like each of these
    """
    at_once, _ = sweep.shares(launcher)
    each = [run_seconds([job] * min(at_once, n), launcher) for job, n in counts.items()]
    seconds = None if None in each else float(np.average(each, weights=[*counts.values()]))
    source = "from a few steps"
    if len(counts) > 1:
        source += f" of {len(counts)} kinds"
    return Bill(stage, sum(counts.values()), seconds, source, at_once)


def seconds_of(cfg: Config) -> float:
    """The seconds that a run will take, from its first steps and one of each evaluation. Raises
    ConfigError if the memory does not suffice, or the user's own code fails.
    """
    with torch_state.standard(), _as_config_error(cfg):
        preparing, trainer = _timed(build, resolve(cfg))
        training = _training(trainer)
        evaluating, _ = _timed(evaluate_now, trainer)
        ending, _ = _timed(evaluate_now, trainer, True)
        longer, _ = _timed(by_length, trainer.model, trainer.task, trainer.cfg, trainer.longer)
    evaluations = cfg.train.steps // cfg.eval.every
    return preparing + training + evaluations * evaluating + ending + longer


def _training(trainer: Trainer) -> float:
    """The seconds of all steps of a run, from a few."""
    steps = trainer.cfg.train.steps
    if not steps:  # it is only evaluated
        return 0.0
    timed = [_timed(update, trainer, number % steps)[0] for number in range(WARM + TIMED)]
    return steps * statistics.mean(timed[WARM:])


@contextmanager
def _as_config_error(cfg: Config) -> Iterator[None]:
    """Raise torch's errors, of memory and of shapes, and a diverging step as a ConfigError."""
    try:
        yield
    except (RuntimeError, Diverged) as error:
        model = f"model.d_model={cfg.model.d_model} model.n_layers={cfg.model.n_layers}"
        said = f"a run of {cfg.names.position} cannot begin, {first_line(error)}"
        raise ConfigError(f"{model}: {said}; make it smaller, or look at rope-lab check") from None


def _timed(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """The seconds of a call, and its result."""
    begun = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - begun, result
