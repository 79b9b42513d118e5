"""One run as tables and figures see it, and what it must be: the one place where records are checked.

Whatever passes `check` can be kept, compared, written and drawn; its numbers and its size are bounded.
"""

import re
import reprlib
from dataclasses import dataclass
from typing import Any

from rope_lab.text import plain

MIXED = " → "  # between the values that a run's parts have, in the order in which they came
NAMES = ("task", "scale", "recipe_id", "position", "run_id")  # they become the names of files
ORIGIN = ("code", "commit", "torch", "hardware", "threads")
SIZES = ("train.steps", "train.batch_size", "train.seq_len", "eval.problems")  # settings that every run has
STATUSES = ("running", "finished", "interrupted", "diverged", "failed")
LARGEST = 1e100  # numbers from here on are damage: their squares are not finite
MOST = 10**15  # of whole numbers: steps, counts, sizes
LONGEST = {"name": 60, "text": 200, "setting": 2_000}  # characters; of a name, bytes
MOST_NAMES = {"metrics": 200, "curves": 200, "settings": 400, "position_settings": 400, "slices": 32}
MOST_VALUES = {"curve": 200_000, "slice": 100_000}
NAME = re.compile(r"\w[\w-]*")
COMMIT = re.compile(r"(unknown|[0-9a-f]{1,12})[+?]?")
WHOLE = re.compile(r"0|-?[1-9][0-9]{0,14}")


class Damaged(ValueError):
    """A record that is not what this program writes: the message names the part."""


@dataclass(frozen=True)
class Source:
    """The columns of rows.csv that say which run a value is of, and where that comes from.

    The last five hold every value that a part of the run had, joined by `MIXED`.
    """

    task: str
    scale: str
    recipe_id: str
    position: str
    seed: int
    run_id: str
    status: str
    steps: int
    sequences: int
    tokens: int
    seconds: float
    parameters: int
    code: str
    commit: str
    torch: str
    hardware: str
    threads: int | str


@dataclass(frozen=True)
class RunRow:
    """One run: where it comes from, what it ended with, and how it got there.

    metrics:  the last value of each
    settings: of the recipe, flat (`train.lr`); position_settings: of the scheme
    curves:   for each metric [steps, values]
    slices:   attribute → value → [count, mean], see `rope_lab/evaluate.py`; floor: the ideal predictor's, likewise
    """

    source: Source
    metrics: dict[str, float]
    settings: dict[str, Any]
    position_settings: dict[str, Any]
    curves: dict[str, list[list[float]]]
    slices: dict[str, dict[str, list[float]]]
    floor: dict[str, Any]


def one_line(text: str, longest: int = 400) -> str:
    """`text` in one line of at most so many characters, with nothing that a terminal acts upon."""
    text = plain(text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def describe(source: Source) -> str:
    """A run in a few words."""
    return f"{source.task} {source.scale} {source.position} seed {source.seed}"


def mixed(source: Source) -> list[str]:
    """In what the parts of a run differ that changes its numbers: `code a → b`; nothing where all is of one origin."""
    values = {name: str(getattr(source, name)) for name in ORIGIN if name != "commit"}
    return [f"{name} {value}" for name, value in values.items() if MIXED in value]


def disagreeing(run: RunRow) -> list[str]:
    """The curves that do not end with the last value of their metric. A run under way has not said last values yet."""
    if run.source.status == "running":
        return []
    return [name for name, (_, values) in run.curves.items() if run.metrics.get(name) != values[-1]]


def check(run: RunRow) -> RunRow:
    """`run`. Raises Damaged where a part of it is not what `RunRow` says."""
    _check_source(run.source)
    _check_table("metrics", run.metrics)
    for name, value in run.metrics.items():
        check_metric(name, value)
    _check_table("curves", run.curves)
    for name, curve in run.curves.items():
        _check_curve(name, curve, run.source)
    for what in ("settings", "position_settings"):
        _check_table(what, getattr(run, what))
        for name, value in getattr(run, what).items():
            _check_setting(name, value)
    for name in SIZES:
        check_whole(name, run.settings.get(name), least=1)
    if run.settings.get("eval.problems_at_end") is not None:
        check_whole("eval.problems_at_end", run.settings["eval.problems_at_end"], least=1)
    _check_table("slices", run.slices)
    for name, values in run.slices.items():
        if values == {}:
            raise Damaged(f"the slices by {name} are empty")
        _check_slice(name, values, share=name not in ("place", "length_loss"))
    if run.floor != {}:
        if not isinstance(run.floor, dict) or set(run.floor) != {"loss", "place"}:
            raise Damaged(f"floor is {_shown(run.floor)}: must be loss and place")
        _check_number("floor.loss", run.floor["loss"])
        _check_slice("floor.place", run.floor["place"])
    return run


def check_metric(name: str, value: Any) -> None:
    """Raises Damaged where `value` is none that the metric `name` can have."""
    _check_number(name, value)
    if name.endswith("accuracy") and not 0 <= value <= 1:
        raise Damaged(f"{name} is {value!r}: must be between 0 and 1")


def check_whole(what: str, value: Any, least: int = 0, most: int = MOST) -> None:
    """Raises Damaged where `value` is no whole number within these bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Damaged(f"{what} is {_shown(value)}: must be a whole number from {least} to {most:.0e}")


def _check_source(source: Source) -> None:
    for name in NAMES:
        value = getattr(source, name)
        if not isinstance(value, str) or not NAME.fullmatch(value):
            raise Damaged(f"{name} is {_shown(value)}: must be letters, digits, underscores and hyphens")
        if len(value.encode()) > LONGEST["name"]:
            raise Damaged(f"{name} has {len(value.encode())} bytes: at most {LONGEST['name']}")
    if source.status not in STATUSES:
        raise Damaged(f"status is {_shown(source.status)}: must be one of {', '.join(STATUSES)}")
    for name in ("seed", "steps", "sequences", "tokens", "parameters"):
        check_whole(name, getattr(source, name), most=2**64 if name == "seed" else MOST)
    _check_number("seconds", source.seconds)
    for name in ("code", "commit", "torch", "hardware"):
        _check_text(name, getattr(source, name), 10 * LONGEST["text"])
        for part in getattr(source, name).split(MIXED):
            _check_text(name, part)
            if name == "commit" and not COMMIT.fullmatch(part):
                raise Damaged(f"commit is {_shown(part)}: must be up to 12 hexadecimal digits, or unknown")
    if isinstance(source.threads, str):
        if not all(WHOLE.fullmatch(part) for part in source.threads.split(MIXED)):
            raise Damaged(f"threads is {_shown(source.threads)}")
    else:
        check_whole("threads", source.threads)


def _check_table(what: str, table: Any) -> None:
    """Raises Damaged where `table` is no object, or has too many or unwritable names."""
    if not isinstance(table, dict):
        raise Damaged(f"{what} is {_shown(table)}: must be an object")
    if len(table) > MOST_NAMES[what]:
        raise Damaged(f"{what} has {len(table):,} names: at most {MOST_NAMES[what]}")
    for name in table:
        _check_text(f"a name in {what}", name, 100)
        if not name:
            raise Damaged(f"a name in {what} is empty")


def _check_text(what: str, value: Any, longest: int = LONGEST["text"]) -> None:
    if not isinstance(value, str):
        raise Damaged(f"{what} is {_shown(value)}: must be text")
    if len(value) > longest:
        raise Damaged(f"{what} has {len(value):,} characters: at most {longest:,}")
    if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
        raise Damaged(f"{what} is {_shown(value)}: an unpaired surrogate is no character")


def _check_setting(name: str, value: Any) -> None:
    if isinstance(value, list):
        if len(value) > LONGEST["setting"]:
            raise Damaged(f"{name} has {len(value):,} values: at most {LONGEST['setting']:,}")
        for part in value:
            if isinstance(part, list | dict):
                raise Damaged(f"{name} is {_shown(value)}: must be a list of plain values")
            _check_setting(name, part)
    elif isinstance(value, str):
        _check_text(name, value, LONGEST["setting"])
    elif value is not None and not isinstance(value, bool):
        _check_number(name, value)


def _check_curve(name: str, curve: Any, source: Source) -> None:
    if not (isinstance(curve, list) and len(curve) == 2 and all(isinstance(part, list) for part in curve)):
        raise Damaged(f"the curve of {name} is {_shown(curve)}: must be a list of steps and one of values")
    steps, values = curve
    if not 0 < len(steps) == len(values) <= MOST_VALUES["curve"]:
        raise Damaged(
            f"the curve of {name} has {len(steps):,} steps and {len(values):,} values: must be as many of both, "
            f"1 to {MOST_VALUES['curve']:,}"
        )
    before = -1
    for step in steps:
        check_whole(f"a step of {name}", step)
        if step <= before:
            raise Damaged(f"the curve of {name} has step {step} after {before}")
        before = step
    if source.status == "finished" and before > source.steps:
        raise Damaged(f"the curve of {name} has step {before:,}, and the run ended at {source.steps:,}")
    for value in values:
        check_metric(name, value)


def _check_slice(name: str, values: Any, share: bool = False) -> None:
    """Raises Damaged where `values` is not key → [count, mean]; `share`: means are shares of problems."""
    if not isinstance(values, dict) or len(values) > MOST_VALUES["slice"]:
        raise Damaged(
            f"the slices by {name} are {_shown(values)}: must be at most {MOST_VALUES['slice']:,} in an object"
        )
    for key, pair in values.items():
        if not WHOLE.fullmatch(key) or not isinstance(pair, list) or len(pair) != 2:
            raise Damaged(f"a slice by {name} is {_shown({key: pair})}: must be a whole number, its count and its mean")
        check_whole(f"a count by {name}", pair[0], least=1, most=10**12)
        check_metric("accuracy" if share else f"a mean by {name}", pair[1])


def _check_number(what: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST:
        raise Damaged(f"{what} is {_shown(value)}: must be a number below 1e100")


def _shown(value: Any) -> str:
    """A value in a few characters, whatever it is."""
    return reprlib.repr(value)
