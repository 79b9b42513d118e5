"""One run in any process: its exit status, and one line for an error."""

import signal
import socket
import sys
import traceback

from rope_lab.command import take_process
from rope_lab.text import ConfigError
from rope_lab.train import distributed, run_folder
from rope_lab.train.config import Config
from rope_lab.train.loop import train
from rope_lab.train.plugin import error_line
from rope_lab.train.stop import RunFailed, Stop

EXIT_FAILED, EXIT_BAD_CONFIG, EXIT_DIVERGED = 1, 2, 3


def run(cfg: Config, stopping: Stop, prefix: str = "", launch: str = "") -> int:
    """Train or resume a run; returns 0, an EXIT_ status, or 128 + the number of the caught signal.

    Errors are shown. The arguments are those of `train`.
    """
    try:
        with distributed.joined(cfg.device):
            content = train(cfg, stopping, prefix, launch)
    except (ConfigError, RunFailed) as error:
        print(f"{prefix}{error}", file=sys.stderr)
        return EXIT_BAD_CONFIG if isinstance(error, ConfigError) else EXIT_FAILED
    except KeyboardInterrupt:
        print(f"{prefix}stopped within a step: the last checkpoint stays valid", file=sys.stderr)
        return 128 + signal.SIGINT
    except (Exception, SystemExit) as error:
        own = [word for word in cfg.overrides if ".py" in word]
        if own:
            said = error_line(error, next(iter(cfg.allowed_packages), None))
            print(f"{prefix}{said}; rope-lab check {' '.join(own)} says more", file=sys.stderr)
        else:
            traceback.print_exception(error.with_traceback(error.__traceback__.tb_next))
        return EXIT_FAILED
    if stopping.caught:
        return 128 + stopping.caught
    return EXIT_DIVERGED if content["status"] == "diverged" else 0


def run_elsewhere(cfg: Config, prefix: str, launch: str) -> None:
    """A run on a machine of a cluster, which may begin it several times."""
    if not run_folder.out_folder(cfg).is_dir():
        print(
            f"out={cfg.out}: {socket.gethostname()} does not see it; set out=FOLDER to a shared one"
        )
        return
    take_process()
    stopping = Stop()
    requeue = signal.getsignal(signal.SIGUSR2)
    if callable(requeue):  # submitit's: the run is saved first
        signal.signal(signal.SIGUSR2, stopping.note)
    run(cfg, stopping, prefix, launch)
    signal.signal(signal.SIGUSR2, requeue)
    if stopping.caught == signal.SIGUSR2:
        signal.raise_signal(signal.SIGUSR2)
