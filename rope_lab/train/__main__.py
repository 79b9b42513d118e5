"""Train one run: `python -m rope_lab.train [overrides]`, or with `-m` a sweep of them."""

import signal
import sys

from rope_lab.launch import job, sweep
from rope_lab.text import ConfigError, say
from rope_lab.train import config, distributed, help
from rope_lab.train.overrides import expand, is_hydra, read_arguments
from rope_lab.train.stop import Stop, ignore


def command_line() -> None:
    """Run the command line; under torchrun one process per machine reports.

    A mistake in it is one line, and the process exits.
    """
    status, muted = 0, distributed.mute_others()
    try:
        options, overrides = read_arguments(sys.argv[1:])
        if "--help" in options:
            say(help.text([] if "-m" in options else overrides))
        elif "-m" not in options:
            status = job.run(config.load(*overrides), Stop())
        elif distributed.launched() > 1:
            raise ConfigError(
                "torchrun trains one run: leave -m out, or train a sweep's runs one to a process"
            )
        else:
            launcher = sweep.launcher_settings([word for word in overrides if is_hydra(word)])
            runs = expand([word for word in overrides if not is_hydra(word)])
            status = sweep.launch(sweep.compose_jobs(runs), launcher)
    except ConfigError as error:
        print(error, file=sys.stderr)
        status = job.EXIT_BAD_CONFIG
    except KeyboardInterrupt:  # the third, of a sweep whose runs do not end
        status = 128 + signal.SIGINT
    if status and not (
        muted and status == job.EXIT_BAD_CONFIG
    ):  # torchrun would end the process that says why
        sys.exit(status)


if __name__ == "__main__":
    try:
        command_line()
    finally:
        ignore()
