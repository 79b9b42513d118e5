"""The record of one run, to keep, compare and plot: the only place where records are checked."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints, ValidationError
from pydantic.dataclasses import dataclass

from rope_lab.identity import BACKFILLED, NAME
from rope_lab.shipped import with_class_names
from rope_lab.text import flat, nested, plain

VERSION = 1  # of a kept line's format
MIXED = " → "  # joins different values of a resumed run's parts
# Raised when a record is damaged.
DAMAGE = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
)

Name = Annotated[str, StringConstraints(pattern=f"^{NAME}$")]
Key = Annotated[str, StringConstraints(pattern=r"^-?\d+$")]
Whole = Annotated[int, Field(ge=0)]
Number = int | float


@dataclass(frozen=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class Run:
    """One run: its identity, origin, final metrics and curves. Raises pydantic's ValidationError, a
    ValueError.

    numerics … threads: if parts of a resumed run differ, their values joined by `MIXED`
    plugin:   of a task or scheme of the user's own, `{"position": digest}` of its files
    metrics:  the last value of each
    settings: of the recipe and of the scheme, flat (`train.lr`, `position.base`); `_target_` is the
              name of a class
    curves:   metric → (steps, values)
    slices:   attribute → value → (count, mean), see `rope_lab/train/evaluate.py`
    floor:    the Bayes-optimal loss on the held-out text: `loss`, and by `answer_position`; or
              empty
    parent:   the scheme of the run that it began from, if that is not its own: its name and id
    data:     the name of the file or folder that the text is from; empty if the task writes its own
    files:    of the digests in `plugin`: name and digest of each file, or a package's version
    plan:     the digest of the plan that it was run for; empty without one
    start:    when its last part began; empty in kept rows
    replaced: of kept rows that this one replaced, the numbers that differ and the commit
    """

    task: Name
    scale: Name
    recipe_id: Name
    position: Name
    seed: Whole
    run_id: Name
    status: Literal["running", "finished", "interrupted", "diverged", "failed"]
    steps: Whole
    sequences: Whole
    tokens: Whole
    seconds: Number
    parameters: Whole
    numerics: Whole | str
    plugin: dict[str, str]
    commit: str
    torch: str
    hardware: str
    threads: Whole | str
    metrics: dict[str, Number]
    settings: dict[str, Any]
    curves: dict[str, tuple[list[Whole], list[Number]]]
    slices: dict[str, dict[Key, tuple[int, Number]]]
    floor: dict[str, Any]
    data: str = ""
    parent: str = ""
    files: list[str] = Field(default_factory=list)
    plan: str = ""
    start: str = ""
    replaced: list[str] = Field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.task} {self.scale} {self.position} seed {self.seed}"

    @property
    def ended(self) -> bool:
        """Whether it has an outcome: it finished or diverged."""
        return self.status in ("finished", "diverged")

    @property
    def numbers(self) -> str:
        """Equal for runs that may be paired: the numerics, and the digest of a task of the user's
        own.
        """
        return "+".join(filter(None, [str(self.numerics), self.plugin.get("task")]))

    @property
    def pair_as(self) -> str:
        """Equal for runs of one seed that may be paired; of a run of mixed origin, its own id."""
        return self.run_id if self.mixed else self.numbers

    @property
    def all_settings(self) -> dict[str, Any]:
        """`settings`, and of settings added since, the values that hold for earlier runs."""
        return BACKFILLED | self.settings

    @property
    def recipe(self) -> dict[str, Any]:
        """Every setting besides those of the scheme."""
        return {
            key: value
            for key, value in self.all_settings.items()
            if not key.startswith("position.")
        }

    @property
    def scheme(self) -> dict[str, Any]:
        """Every setting of the scheme, without `position.`; also the digest of a user's own
        files.
        """
        own = {
            key.removeprefix("position."): value
            for key, value in self.all_settings.items()
            if key.startswith("position.")
        }
        return own | (
            {"code of its file": self.plugin["position"]} if "position" in self.plugin else {}
        )

    def final(self, metric: str) -> Number | None:
        """The last value of a metric or, of a slice such as `length/24`, the mean over its
        problems; None without.
        """
        attribute, _, value = metric.partition("/")
        _, mean = self.slices.get(attribute, {}).get(value, (0, self.metrics.get(metric)))
        return mean

    @property
    def mixed(self) -> list[str]:
        """Differences between the parts of a resumed run that change its numbers: `numerics 2 →
        3`.
        """
        values = {
            name: getattr(self, name) for name in ("numerics", "torch", "hardware", "threads")
        }
        values |= {f"code of the {group}": each for group, each in self.plugin.items()}
        return [f"{name} {value}" for name, value in values.items() if MIXED in str(value)]


NAMES = ("task", "scale", "recipe_id", "position", "seed", "run_id", "status")
PROGRESS = ("steps", "sequences", "tokens", "seconds")
ORIGIN = ("numerics", "plugin", "commit", "torch", "hardware", "threads")
OPTIONAL = ("data", "parent", "files", "plan", "replaced")  # not written if empty
COLUMNS = (*NAMES, *PROGRESS, "parameters", *ORIGIN)  # of a frame, besides metric and value


def from_record(record: dict[str, Any]) -> Run:
    """The run of a record, whose `config`, `progress` and `provenance` are nested. Raises one of
    `DAMAGE`.
    """
    named = {name: record[name] for name in (*NAMES, "parameters", "metrics", "slices", "floor")}
    progress = {name: record["progress"][name] for name in PROGRESS}
    origin = {name: record["provenance"][name] for name in ORIGIN}
    parts = {"settings": with_class_names(flat(record["config"])), "curves": record["curve"]}
    parts |= {name: record[name] for name in (*OPTIONAL, "start") if name in record}
    return Run(**named, **progress, **origin, **parts)


def to_record(run: Run) -> dict[str, Any]:
    """The record of a run, which `from_record` reads."""
    record = {
        **{name: getattr(run, name) for name in NAMES},
        "config": nested(run.settings),
        "parameters": run.parameters,
        "progress": {name: getattr(run, name) for name in PROGRESS},
        "metrics": run.metrics,
        "provenance": {name: getattr(run, name) for name in ORIGIN},
        "slices": run.slices,
        "floor": run.floor,
        "curve": run.curves,
    }
    optional = {name: getattr(run, name) for name in OPTIONAL}
    return record | {name: value for name, value in optional.items() if value}


def differing(first: Run, second: Run) -> list[str]:
    """The numbers in which two records of one run differ: `eval/loss 0.51 and 0.52`."""
    ours, theirs = _numbers(first), _numbers(second)
    return [f"{k} {v} and {theirs[k]}" for k, v in ours.items() if theirs.get(k, v) != v]


def _numbers(run: Run) -> dict[str, Number]:
    points = {
        f"{name} at step {step:,}:": value
        for name, curve in run.curves.items()
        for step, value in zip(*curve, strict=True)
    }
    return dict(sorted(run.metrics.items())) | points


def reason(error: Exception, depth: int | None = 2) -> str:
    """An error of `DAMAGE` in words; depth: names of its place, None: all."""
    if not isinstance(error, ValidationError):
        return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"][:depth])
    if first["type"] == "missing":
        return f"{where} is missing"
    said = first["msg"].removeprefix("Value error, ")
    shown = "" if isinstance(first["input"], dict) else f" is {one_line(repr(first['input']), 40)}"
    return f"{where}{shown}: {said}" if where else said


def one_line(text: str, longest: int = 400) -> str:
    """`text` in one line of at most so many characters, without control characters."""
    text = plain(text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
