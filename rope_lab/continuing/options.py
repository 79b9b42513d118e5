"""What the commands on trained runs share: options, and the call."""

from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from rope_lab.experiments import asking
from rope_lab.text import ConfigError, Words, say, short_path
from rope_lab.train.load import add_allow
from rope_lab.train.overrides import split_hydra

DEVICE = "device="  # of all runs, if not that of RUN


def parser(command: str, about: str) -> ArgumentParser:
    """A parser with the runs, and the options of both commands."""
    made = asking.parser(command, about, "--at-most")
    add = made.add_argument
    about_runs = "folders of runs; also device=cpu and hydra/launcher=…"
    add("runs", nargs="+", metavar="RUN", help=about_runs)
    add("--lr", type=float, help="of further training (default: that of the runs)")
    add_allow(made)
    return made


def exit_after_page(made: ArgumentParser, words: Words, write: Callable[..., Path]) -> NoReturn:
    """Write the page that a command line asks for, print its path, and exit.

    write: takes the folders of runs, Hydra's overrides and the options, and returns the page
    """
    options = vars(made.parse_intermixed_args(words))
    hydra, words = split_hydra(options.pop("runs"))
    folders = [word for word in words if not word.startswith(DEVICE)]
    devices = [word.removeprefix(DEVICE) for word in words if word.startswith(DEVICE)]

    def run() -> None:
        if not folders:
            remedy = "give at least one run folder; `rope-lab list` shows them"
            raise ConfigError(f"{made.prog}: {remedy}")
        say(short_path(write(folders, hydra=hydra, device="".join(devices[-1:]), **options)))

    asking.exit_after(run)
