"""One run, in whatever process: its exit status, and one line for what goes wrong."""

import signal
import socket
import sys
import traceback
from dataclasses import dataclass, replace
from typing import Any

from rope_lab.text import ConfigError
from rope_lab.train import distributed
from rope_lab.train import run as runs
from rope_lab.train.config import Config
from rope_lab.train.console import ALONE, Place
from rope_lab.train.failures import RunFailed
from rope_lab.train.loop import train
from rope_lab.train.signals import Stop

EXIT_FAILED, EXIT_BAD_CONFIG, EXIT_DIVERGED = 1, 2, 3


@dataclass(frozen=True)
class Job:
    """A run of a sweep.

    label:   what tells it from the others, `rope seed=1`
    threads: CPU threads, if it sets none
    """

    cfg: Config
    label: str
    threads: int | None = None

    def place(self, number: int, total: int, left: str = "", parallel: bool = True) -> Place:
        heading = f"run {number + 1} of {total}" + (f", {left} left" if left else "")
        return Place(self.label, f"{heading} · {self.label}" if self.label else heading, parallel)

    def settings(self) -> Config:
        """Its settings on the machine that runs it."""
        return replace(self.cfg, threads=self.cfg.threads or self.threads)


def run(cfg: Config, stopping: Stop, place: Place = ALONE, since: str = "") -> tuple[int, dict[str, Any]]:
    """Trains a run, or what is left of it. Returns its exit status and the content of run.json; errors are shown.

    The arguments are those of `train`. An interrupted run exits with 128 + the signal's number, of SIGALRM at a time.
    """
    try:
        with distributed.joined(cfg.device):
            content = train(cfg, stopping, place, since)
    except SystemExit as end:
        print(f"{place.prefix}code of the run exits Python ({end.code}); raise an error instead", file=sys.stderr)
        return EXIT_FAILED, {}
    except Exception as error:
        if isinstance(error, ConfigError | RunFailed):
            print(f"{place.prefix}{error}", file=sys.stderr)
        else:
            traceback.print_exception(error.with_traceback(error.__traceback__.tb_next))
            if own := [f"{word.partition('=')[0]}=…" for word in cfg.overrides if ".py" in word]:
                print(f"to see what is wrong with your own: rope-lab check {' '.join(own)}", file=sys.stderr)
        error.__traceback__ = error.__context__ = error.__cause__ = None  # their frames hold the model
        return EXIT_BAD_CONFIG if isinstance(error, ConfigError) else EXIT_FAILED, {}
    if stopping.caught or content["status"] == "interrupted":
        return 128 + (stopping.caught or signal.SIGALRM), content
    return EXIT_DIVERGED if content["status"] == "diverged" else 0, content


def run_elsewhere(job: Job, place: Place, since: str) -> dict[str, Any]:
    """A run on a machine of a cluster, which may begin it several times; returns the content of run.json."""
    if not runs.out_folder(job.cfg).is_dir():
        print(f"out={job.cfg.out}: {socket.gethostname()} does not see it; set out=FOLDER to a shared one")
        return {"status": "not run"}
    stopping, requeue = Stop(), signal.getsignal(signal.SIGUSR2)
    if callable(requeue):  # submitit's: the run is saved first
        signal.signal(signal.SIGUSR2, stopping.note)
    _, content = run(job.settings(), stopping, place, since)
    signal.signal(signal.SIGUSR2, requeue)
    if stopping.caught == signal.SIGUSR2:
        signal.raise_signal(signal.SIGUSR2)
    return content
