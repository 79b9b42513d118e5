"""The question before runs begin, its limit, and the exit status of a command that asks."""

import re
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from typing import NoReturn

from rope_lab.command import says_yes
from rope_lab.experiments.launching import Asks, Stopped
from rope_lab.launch.job import EXIT_BAD_CONFIG, EXIT_FAILED
from rope_lab.results.plans.bill import Bill, duration
from rope_lab.text import (
    ConfigError,
    amount,
    argument_parser,
    filled,
    is_terminal,
    of_system,
    say,
)
from rope_lab.train.stop import ignore

LEAST_RATES = 3  # of a search


def parser(command: str, about: str, limit: str = "--budget") -> ArgumentParser:
    """A parser with the options of all commands that ask; limit: that of the time."""
    made = argument_parser(command, about)
    add = made.add_argument
    add("--out", metavar="FOLDER", help=f"default: below results/{command}")
    add("--jobs", type=int, help="parallel runs (default: one per core)")
    add("--yes", action="store_true", help="begin without a question")
    add(limit, default="", metavar="TIME", help="2h or 30min: refuse a larger bill")
    return made


def hours(option: str, text: str) -> float | None:
    """The hours of an option, `2h` or `30min`; None if there is no limit. Raises ConfigError."""
    if not text:
        return None
    for unit, each in (("min", 1 / 60), ("h", 1.0)):
        number = amount(text, unit)
        if number:
            return number * each
    raise ConfigError(f"{option} {text}: must be a time, 2h or 30min")


def rates_and_seeds(text: str, example: str, least_seeds: int) -> tuple[int, int]:
    """Rates and seeds of `5x2`. Raises ConfigError."""
    match = re.fullmatch(r"(\d+)x(\d+)", str(text))
    if match and int(match[1]) >= LEAST_RATES and int(match[2]) >= least_seeds:
        return int(match[1]), int(match[2])
    raise ConfigError(f"--search {text}: must be rates x seeds, {example} at least")


def asks(yes: bool, budget: float | None) -> Asks:
    """The question before runs begin."""
    left = budget  # hours, after the bills that were agreed to

    def ask(bill: Bill) -> None:
        nonlocal left
        say(filled(str(bill)))
        if left is not None:
            if bill.hours is None:
                said = "the time on a cluster is not known: leave the limit out"
                raise Stopped(said, EXIT_BAD_CONFIG)
            if bill.hours > left:
                raise Stopped(f"that is not within the budget: {duration(left)} are left")
            left -= bill.hours
        if yes:
            return
        if not is_terminal(sys.stdin):
            raise Stopped("nobody can be asked here: --yes, in Python yes=True, begins")
        if not says_yes("begin? [y/N] "):
            raise Stopped("not begun; the same command asks again")

    return ask


def status_of(call: Callable[[], int | None]) -> tuple[int, str]:
    """Call: the status that it returns, None for 0, or that of the reason why it stopped, which is
    printed; and this reason.
    """
    try:
        return call() or 0, ""
    except Stopped as stopped:
        status = stopped.status
        reason = str(stopped)
    except ConfigError as error:
        status, reason = EXIT_BAD_CONFIG, str(error)
    except OSError as error:
        status, reason = EXIT_FAILED, of_system(error)
    print(reason, file=sys.stderr)
    return status, reason


def exit_after(call: Callable[[], int | None]) -> NoReturn:
    """Call, and exit with its status."""
    status, _ = status_of(call)
    ignore()
    sys.exit(status)
