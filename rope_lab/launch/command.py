"""Train one run: `rope-lab train [overrides]`, or with `-m` a sweep of them."""

import sys

from rope_lab.launch import job, sweep
from rope_lab.launch.jobs import compose_jobs
from rope_lab.text import ConfigError, say
from rope_lab.train import config, distributed, help
from rope_lab.train.overrides import expand, read_arguments, split_hydra
from rope_lab.train.stop import Stop, ignore


def main(words: list[str]) -> None:
    """Run the command line; under torchrun one process per machine reports.

    A mistake in it is one line, and the process exits.
    """
    status, muted = 0, distributed.mute_others()
    try:
        status = launch(words)
    except ConfigError as error:
        print(error, file=sys.stderr)
        status = job.EXIT_BAD_CONFIG
    finally:
        ignore()
    silent = muted and status == job.EXIT_BAD_CONFIG
    if status and not silent:  # torchrun would end the process that says why
        sys.exit(status)


def launch(words: list[str]) -> int:
    """Show the help, train a run, or a sweep of runs; the exit status. Raises ConfigError."""
    options, overrides = read_arguments(words)
    if "--help" in options:
        say(help.text([] if "-m" in options else overrides))
        return 0
    if "-m" not in options:
        return job.run(config.load(*overrides), Stop())
    if distributed.launched() > 1:
        remedy = "leave -m out, or train a sweep's runs one to a process"
        raise ConfigError(f"torchrun trains one run: {remedy}")
    hydra, others = split_hydra(overrides)
    launcher = sweep.launcher_settings(hydra)
    return sweep.launch(compose_jobs(expand(others)), launcher)
