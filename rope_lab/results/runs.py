"""One run as tables and figures see it. Its types are its checks: what is a `Run` can be kept, compared and plotted."""

import re
import reprlib
from dataclasses import fields
from operator import lt
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

from rope_lab import compat
from rope_lab.identity import identify
from rope_lab.results.metrics import LOSS_ATTRIBUTES, is_share
from rope_lab.text import plain

MIXED = " → "  # between the values that a run's parts have, in the order in which they came
MOST, LARGEST = 10**15, 1e100  # of whole numbers; of others, whose squares are finite below it
ORIGIN = ("code", "commit", "torch", "hardware", "threads")
SIZES = ("train.steps", "train.batch_size", "train.seq_len", "eval.problems")  # settings that every run has
SLICED = ("slices", "floor")  # parts whose keys may have other names in older records
PART = re.compile(r".{0,200}", re.DOTALL)
COMMIT = re.compile(r"(unknown|[0-9a-f]{1,12})[+?]?")
THREADS = re.compile(r"0|[1-9][0-9]{0,14}")


class Damaged(ValueError):
    """A record that is not what this program writes: the message names the part."""


def _fits_a_file_name(name: str) -> str:
    if len(name.encode()) > 60:
        raise ValueError(f"has {len(name.encode())} bytes, at most 60")
    return name


def _parts(pattern: re.Pattern) -> AfterValidator:
    def check(text: str) -> str:
        if not all(pattern.fullmatch(part) for part in text.split(MIXED)):
            raise ValueError(f"each part must match {pattern.pattern}")
        return text

    return AfterValidator(check)


def check_metrics(metrics: dict[str, float]) -> dict[str, float]:
    """`metrics`. Raises ValueError where one that is a share is not between 0 and 1."""
    for name, value in metrics.items():
        if is_share(name) and not 0 <= value <= 1:
            raise ValueError(f"{name} is {value!r}: must be between 0 and 1")
    return metrics


def check_curves(curves: dict[str, Any]) -> dict[str, Any]:
    """`curves`. Raises ValueError, or OverflowError, where the steps or the values of one cannot be."""
    for name, (steps, values) in curves.items():
        if not 0 < len(steps) == len(values) <= 200_000:
            raise ValueError(
                f"{name} has {len(steps):,} steps and {len(values):,} values: must be as many, 1 to 200,000"
            )
        if set(map(type, steps)) != {int} or not set(map(type, values)) <= {int, float}:
            raise ValueError(f"{name} must have whole steps, and numbers")
        if steps[0] < 0 or not all(map(lt, steps, steps[1:])) or steps[-1] > MOST:
            raise ValueError(f"{name} has steps that do not increase from 0 to at most {MOST:.0e}")
        if not (np.abs(np.asarray(values, dtype=float)) < LARGEST).all():
            raise ValueError(f"{name} has values that are no numbers below {LARGEST:g}")
        if is_share(name):
            check_metrics({name: min(values)})
            check_metrics({name: max(values)})
    return curves


def _slices_in_bounds(slices: dict[str, Any]) -> dict[str, Any]:
    for name, values in slices.items():
        if not values:
            raise ValueError(f"the slices by {name} are empty")
        if name not in LOSS_ATTRIBUTES and not all(0 <= mean <= 1 for _, mean in values.values()):
            raise ValueError(f"the slices by {name} hold an accuracy that is not between 0 and 1")
    return slices


Whole = Annotated[int, Field(ge=0, le=MOST)]
Real = Annotated[float, Field(gt=-LARGEST, lt=LARGEST, allow_inf_nan=False)]
Number = Annotated[int, Field(gt=-int(LARGEST), lt=int(LARGEST))] | Real
Name = Annotated[str, StringConstraints(pattern=r"^\w[\w-]*$"), AfterValidator(_fits_a_file_name)]
Key = Annotated[str, StringConstraints(min_length=1, max_length=100)]  # of characters: no unpaired surrogate is one
Text = Annotated[str, StringConstraints(max_length=2000)]
Plain = None | bool | Number | Text
Settings = Annotated[dict[Key, Plain | Annotated[list[Plain], Field(max_length=2000)]], Field(max_length=400)]
Curve = Annotated[tuple[list, list], Field(strict=False)]
Value = Annotated[str, StringConstraints(pattern=r"^(0|-?[1-9][0-9]{0,14})$")]
CountAndMean = Annotated[tuple[Annotated[int, Field(ge=1, le=10**12)], Number], Field(strict=False)]
Slice = Annotated[dict[Value, CountAndMean], Field(max_length=100_000)]
Metrics = Annotated[dict[Key, Number], Field(max_length=200), AfterValidator(check_metrics)]
Curves = Annotated[dict[Key, Curve], Field(max_length=200), AfterValidator(check_curves)]
Slices = Annotated[dict[Key, Slice], Field(max_length=32), AfterValidator(_slices_in_bounds)]


class Floor(TypedDict):
    """The Bayes-optimal loss on the held-out text, in nats per counted token: in all, and by answer position."""

    loss: Number
    answer_position: Slice


@dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid"))
class Run:
    """One run: what it is and where it comes from (the columns of rows.csv), what it ended with, how it got there.

    code … threads: of every part of a resumed run, the values that differ joined by `MIXED`
    metrics:  the last value of each
    settings: of the recipe, flat (`train.lr`); position_settings: of the scheme
    curves:   for each metric (steps, values)
    slices:   attribute → value → (count, mean), see `rope_lab/train/evaluate.py`; floor: empty, or see `Floor`

    Raises pydantic's ValidationError, a ValueError, where a part is not of its type; `reason` says which in words.
    """

    task: Name
    scale: Name
    recipe_id: Name
    position: Name
    seed: Annotated[int, Field(ge=0, le=2**64)]
    run_id: Name
    status: Literal["running", "finished", "interrupted", "diverged", "failed"]
    steps: Whole
    sequences: Whole
    tokens: Whole
    seconds: Number
    parameters: Whole
    code: Annotated[Text, _parts(PART)]
    commit: Annotated[Text, _parts(COMMIT)]
    torch: Annotated[Text, _parts(PART)]
    hardware: Annotated[Text, _parts(PART)]
    threads: Whole | Annotated[Text, _parts(THREADS)]
    metrics: Metrics
    settings: Settings
    position_settings: Settings
    curves: Curves
    slices: Slices
    floor: Floor | Annotated[dict[str, Any], Field(max_length=0)]

    def __post_init__(self):
        at_end = self.settings.get("eval.problems_at_end")
        sizes = {name: self.settings.get(name) for name in SIZES} | ({} if at_end is None else {"at_end": at_end})
        for name, size in sizes.items():
            if isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= MOST:
                raise ValueError(f"{name} is {reprlib.repr(size)}: must be a whole number above 0")
        for name, (steps, _) in self.curves.items():
            if self.status == "finished" and steps[-1] > self.steps:
                raise ValueError(f"the curve of {name} has step {steps[-1]:,}, and the run ended at {self.steps:,}")

    def __str__(self) -> str:
        return f"{self.task} {self.scale} {self.position} seed {self.seed}"

    @property
    def precision(self) -> str:
        return str(self.settings.get("train.precision"))

    @property
    def mixed(self) -> list[str]:
        """In what the parts of a run differ that changes its numbers: `code a → b`; nothing where it has one origin."""
        values = {name: str(getattr(self, name)) for name in ORIGIN if name != "commit"}
        return [f"{name} {value}" for name, value in values.items() if MIXED in value]

    @property
    def disagreeing(self) -> list[str]:
        """The curves that do not end with the last value of their metric; a running run has no last values yet."""
        curves = {} if self.status == "running" else self.curves
        return [name for name, (_, values) in curves.items() if self.metrics.get(name) != values[-1]]


COLUMNS = tuple(field.name for field in fields(Run))[:17]  # of rows.csv, besides metric and value


def normalise(record: dict[str, Any]) -> dict[str, Any]:
    """The fields of a `Run` as today's code names them: every record that is read passes here, whenever it was made.

    Its ids are worked out from its settings, whatever it says. What is not of the types of a `Run` stays as it is.
    """
    parts = [record[name] for name in ("settings", "position_settings", *SLICED)]
    if not all(isinstance(part, dict) and all(isinstance(key, str) for key in part) for part in parts):
        return record
    settings, scheme, *_ = parts
    leaves = compat.renamed(settings | {f"position.{key}": value for key, value in scheme.items()})
    identity = identify(record["task"], record["position"], record["seed"], leaves)
    return record | {
        "run_id": identity.run_id,
        "recipe_id": identity.recipe_id,
        "settings": {key: value for key, value in leaves.items() if not key.startswith("position.")},
        "position_settings": {
            key.removeprefix("position."): value for key, value in leaves.items() if key.startswith("position.")
        },
        **{part: {compat.SLICES.get(name, name): value for name, value in record[part].items()} for part in SLICED},
    }


def from_record(record: dict[str, Any]) -> Run:
    """The run that a record is of. Raises one of `DAMAGE`."""
    return Run(**normalise(record))


# What reading one raises.
DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


def reason(error: Exception, depth: int | None = 2) -> str:
    """What is wrong with a record, from one of `DAMAGE`; so many names say where."""
    if isinstance(error, Damaged):
        return str(error)
    if not isinstance(error, ValidationError):
        return f"cannot be read ({type(error).__name__}: {error})"
    errors = error.errors(include_url=False, include_context=False)
    where, found = errors[0]["loc"][:depth], errors[0]["input"]
    if errors[0]["type"] == "missing":
        return f"{'.'.join(str(part)[:60] for part in where)} is missing"
    said = dict.fromkeys(e["msg"].removeprefix("Value error, ") for e in errors if e["loc"][:depth] == where)
    here = f"{'.'.join(str(part)[:60] for part in where)} is {reprlib.repr(found)}: " if where else ""
    return here + ", or ".join(said)


def one_line(text: str, longest: int = 400) -> str:
    """`text` in one line of at most so many characters, with nothing that a terminal acts upon."""
    text = plain(text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
