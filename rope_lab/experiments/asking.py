"""The question before runs begin, its limit, and the exit status of a command that asks."""

import re
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from rope_lab.command import process_is_ours
from rope_lab.experiments.launching import Asks, Stopped
from rope_lab.launch.job import EXIT_BAD_CONFIG, EXIT_FAILED
from rope_lab.results.plans.bill import Bill, duration
from rope_lab.text import ConfigError, filled, of_system, say
from rope_lab.train.stop import ignore

LEAST_RATES = 3  # of a search


def hours(option: str, text: str) -> float | None:
    """The hours of an option, `2h` or `30min`; None if there is no limit. Raises ConfigError."""
    if not text:
        return None
    for unit, each in (("min", 1 / 60), ("h", 1.0)):
        number = text.removesuffix(unit)
        is_number = number != text and number.replace(".", "", 1).isdecimal()
        if is_number and float(number) > 0:
            return float(number) * each
    raise ConfigError(f"{option} {text}: must be a time, 2h or 30min")


def rates_and_seeds(text: str, example: str, least_seeds: int) -> tuple[int, int]:
    """Rates and seeds of `5x2`. Raises ConfigError."""
    match = re.fullmatch(r"(\d+)x(\d+)", text)
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
            if bill.hours is None or bill.hours > left:
                raise Stopped(f"that is not within the budget: {duration(left)} are left")
            left -= bill.hours
        if yes:
            return
        if not sys.stdin.isatty():
            raise Stopped("nobody can be asked here: --yes begins")
        if not _says_yes():
            raise Stopped("not begun; the same command asks again")

    return ask


def _says_yes() -> bool:
    """Whether the person at the terminal begins; Ctrl-C and Ctrl-D do not."""
    handler = signal.getsignal(signal.SIGINT)
    if process_is_ours():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return input("begin? [y/N] ").strip().lower() in ("y", "yes")
    except (EOFError, KeyboardInterrupt):
        say("")
        return False
    finally:
        if process_is_ours():
            signal.signal(signal.SIGINT, handler)


def exit_after(call: Callable[[], int | None]) -> NoReturn:
    """Call, and exit: with the status that it returns, None for 0, or with that of the reason why
    it stopped, which is printed.
    """
    try:
        status = call()
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        status = stopped.status
    except ConfigError as error:
        print(error, file=sys.stderr)
        status = EXIT_BAD_CONFIG
    except OSError as error:
        print(of_system(error), file=sys.stderr)
        status = EXIT_FAILED
    ignore()
    sys.exit(status)
