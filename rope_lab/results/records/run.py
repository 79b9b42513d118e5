"""The record of one run, to keep, compare and plot: the only place where records are checked."""

from dataclasses import field
from typing import Annotated, Literal

from pydantic import ConfigDict, NonNegativeInt, StringConstraints, ValidationError
from pydantic.dataclasses import dataclass

from rope_lab.identity import BACKFILLED, NAME, NUMERICS
from rope_lab.shipped import with_class_names
from rope_lab.text import Record, Settings, flat, nested, plain

VERSION = 1  # of a kept line's format
MIXED = " → "  # joins different values of a resumed run's parts
# Raised when a record is damaged.
DAMAGE = (OSError, ValueError, LookupError, TypeError, AttributeError)

Name = Annotated[str, StringConstraints(pattern=f"^{NAME}$")]
Number = int | float
Curve = tuple[list[int], list[Number]]  # steps and values


@dataclass(frozen=True, config=ConfigDict(allow_inf_nan=False))
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
    source:   the digest of our code that computed it; empty if that is not recorded
    start:    when its last part began; empty in kept rows
    replaced: of kept rows that this one replaced, the numbers that differ and the commit
    """

    task: Name
    scale: Name
    recipe_id: Name
    position: Name
    seed: NonNegativeInt
    run_id: Name
    status: Literal["running", "finished", "interrupted", "diverged", "failed"]
    steps: NonNegativeInt
    sequences: NonNegativeInt
    tokens: NonNegativeInt
    seconds: Number
    parameters: NonNegativeInt
    numerics: int | str
    plugin: dict[str, str]
    commit: str
    torch: str
    hardware: str
    threads: int | str
    metrics: dict[str, Number]
    settings: Settings
    curves: dict[str, Curve]
    slices: dict[str, dict[str, tuple[int, Number]]]
    floor: Record
    data: str = ""
    parent: str = ""
    files: list[str] = field(default_factory=list)
    plan: str = ""
    source: str = ""
    start: str = ""
    replaced: list[str] = field(default_factory=list)

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
        return f"{self.numerics} {self.plugin.get('task', '')}"

    @property
    def pair_as(self) -> str:
        """Equal for runs of one seed that may be paired; of a run of mixed origin, its own id."""
        return self.run_id if self.mixed else self.numbers

    @property
    def all_settings(self) -> Settings:
        """`settings`, and of settings added since, the values that hold for earlier runs."""
        return BACKFILLED | self.settings

    @property
    def recipe(self) -> Settings:
        """Every setting besides those of the scheme."""
        every = self.all_settings.items()
        return {key: value for key, value in every if not key.startswith("position.")}

    @property
    def scheme(self) -> Settings:
        """Every setting of the scheme, without `position.`; also the digest of a user's own
        files.
        """
        own = {
            key.removeprefix("position."): value
            for key, value in self.all_settings.items()
            if key.startswith("position.")
        }
        if "position" in self.plugin:
            own["code of its file"] = self.plugin["position"]
        return own

    def points(self, metric: str) -> list[tuple[int, Number]]:
        """The steps and values of a metric's curve; none if it has no curve."""
        return list(zip(*self.curves.get(metric, ([], [])), strict=True))

    @property
    def problems(self) -> int:
        """How many problems it was graded on at its end; 1 without any."""
        settings = self.all_settings
        return settings["eval.problems_at_end"] or settings.get("eval.problems") or 1

    def final(self, metric: str) -> Number | None:
        """The last value of a metric or, of a slice such as `length/24`, the mean over its
        problems; None without.
        """
        if metric in self.metrics:
            return self.metrics[metric]
        attribute, _, value = metric.partition("/")
        _, mean = self.slices.get(attribute, {}).get(value, (0, None))
        return mean

    def is_of_code(self, plugin: dict[str, str]) -> bool:
        """Whether code with today's numerics made all of it, and these files of the user's own."""
        return self.numerics == NUMERICS and self.plugin == plugin

    @property
    def mixed(self) -> list[str]:
        """Differences between the parts of a resumed run that change its numbers: `numerics 2 →
        3`.
        """
        values = {f"code of the {group}": code for group, code in self.plugin.items()}
        values |= {name: vars(self)[name] for name in ("numerics", "torch", "hardware", "threads")}
        return [f"{name} {value}" for name, value in values.items() if MIXED in str(value)]


NAMES = ("task", "scale", "recipe_id", "position", "seed", "run_id", "status")
PROGRESS = ("steps", "sequences", "tokens", "seconds")
ORIGIN = ("numerics", "plugin", "commit", "torch", "hardware", "threads")
OPTIONAL = ("data", "parent", "files", "plan", "source", "replaced")  # not written if empty
COLUMNS = (*NAMES, *PROGRESS, "parameters", *ORIGIN)  # of a frame, besides metric and value


def from_record(record: Record) -> Run:
    """The run of a record, whose `config`, `progress` and `provenance` are nested. Raises one of
    `DAMAGE`.
    """
    settings = with_class_names(flat(record["config"]))
    own = {"settings": settings, "curves": record["curve"]}
    return Run(**record | record["progress"] | record["provenance"] | own)


def to_record(run: Run) -> Record:
    """The record of a run, which `from_record` reads."""
    values = vars(run)

    def part(*names: str) -> Record:
        return {name: values[name] for name in names}

    record = {
        **part(*NAMES),
        "config": nested(run.settings),
        "parameters": run.parameters,
        "progress": part(*PROGRESS),
        "metrics": run.metrics,
        "provenance": part(*ORIGIN),
        **part("slices", "floor"),
        "curve": run.curves,
    }
    return record | {name: values[name] for name in OPTIONAL if values[name]}


def differing(first: Run, second: Run) -> str:
    """Up to three values in which two records of one run differ: status, code of the user's own,
    or metrics: `eval/loss 0.51 and 0.52`.
    """
    ours, theirs = _compared(first), _compared(second)
    unlike = [name for name in ours if theirs.get(name, ours[name]) != ours[name]]
    return ", ".join(f"{name} {ours[name]} and {theirs[name]}" for name in unlike[:3])


def _compared(run: Run) -> Record:
    return {"status": run.status, "code": run.plugin} | dict(sorted(run.metrics.items()))


def reason(error: Exception) -> str:
    """An error of `DAMAGE` in words."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        if first["type"] != "missing" and not isinstance(first["input"], dict):
            where += f" is {one_line(repr(first['input']), 40)}"
        said = first["msg"].removeprefix("Value error, ")
        return f"{where}: {said}".removeprefix(": ")
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


def one_line(text: str, longest: int = 400) -> str:
    """`text` in one line of at most so many characters, without control characters."""
    text = plain(text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
