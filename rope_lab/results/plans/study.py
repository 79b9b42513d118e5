"""Planned studies: plan.yaml, checked."""

import dataclasses
import functools
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BeforeValidator, ConfigDict, Field, StrictInt, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from rope_lab.files import digest
from rope_lab.identity import GROUPS
from rope_lab.places import ROOT
from rope_lab.results.comparisons.paired_tests import TESTS
from rope_lab.results.plans.names import own_settings, position_of
from rope_lab.results.records.catalogue import TaskReport
from rope_lab.results.records.measures import MEASURES, At, Measure, like
from rope_lab.results.records.run import Name, reason
from rope_lab.shipped import recipe
from rope_lab.text import ConfigError, Record, Settings, first_line, flat, nearest, short_path, show

NAME = "plan.yaml"
PLAN = ROOT / "results" / NAME
ODD = re.compile(r"0\d+|\d+(:\d+)+")  # yaml reads 010 as 8, and 1:30 as 90
SEEDS = re.compile(r"(?P<first>\d+)(-(?P<last>\d+))?")
STRICT = ConfigDict(extra="forbid")
RECORDED = {*GROUPS, "threads"} - {"parent"}


def seeds(given: Any) -> Any:
    """The seeds of `8-31`, of one seed, or of a list. Raises ValueError."""
    if isinstance(given, list):
        return given
    found = SEEDS.fullmatch(str(given))
    if not found:
        raise ValueError("must be seeds, 8-31 for example")
    first, last = int(found["first"]), int(found["last"] or found["first"])
    if last < first:
        raise ValueError(f"{last} is below {first}")
    return list(range(first, last + 1))


Seeds = Annotated[list[StrictInt], BeforeValidator(seeds)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]  # `true` is not 1
Positive = Annotated[Number, Field(gt=0)]


@dataclass(frozen=True, config=STRICT)
class PlannedTest:
    """One planned comparison of two schemes over the same seeds, schemes[0] − schemes[1].

    test:    a name of TESTS
    metric:  of the run records, or of problems of one kind after the last step, such as `length/24`
             of eval.lengths; values are multiplied by `times` and then in `unit`
    value:   of t and sign_flip: `last`, after the last step; `mean`, over all evaluations after
             step 0; `log_steps`, the logarithm of the first evaluated step at `reaches`, lower is
             better; a run that never gets there counts with train.steps + eval.every
    margin:  of secondary comparisons of values, in `unit`: schemes[0] matches schemes[1] if the
             interval excludes that it is worse by so much
    reaches: of mcnemar, the value that solves the task after the last step; of sign, the value to
             reach in training
    published: the published difference in the same unit, if there is one
    """

    name: str
    schemes: tuple[str, str]
    test: str
    metric: str
    value: Literal["last", "mean", "log_steps"] = "last"
    times: Positive = 1.0
    unit: str = ""
    margin: Positive | None = None
    reaches: Number | None = None
    published: Number | None = None

    def __post_init__(self):
        if self.test not in TESTS:
            raise ValueError(f"test={self.test}: must be one of {', '.join(TESTS)}")
        if self.at not in ("last", "mean") and self.reaches is None:
            needs = "needs reaches, the value that counts as reached"
            raise ValueError(f"test={self.test}, value={self.value}: {needs}")
        if self.higher_is_better is None:
            hint = nearest(self.metric, MEASURES, "")
            raise ValueError(f"metric={self.metric}: no run records it; {hint}")
        if self.at not in ("last", "reached") and self.metric not in MEASURES:
            raise ValueError(f"metric={self.metric}: has no curve; compare its last value")

    @property
    def at(self) -> At:
        """Which number of a run is compared, see Measure."""
        if taken := TESTS[self.test].at:
            return taken
        return "log steps" if self.value == "log_steps" else self.value

    @property
    def higher_is_better(self) -> bool | None:
        """Of its metric; None if no run records that."""
        measure = like(self.metric)
        return measure and measure.higher_is_better


@dataclass(frozen=True, config=STRICT)
class Study:
    """One question: its runs, and the comparisons that answer it.

    hypothesis, reason: of the plan
    rows:     the folder, beside the plan, of its kept runs
    settings: of all runs, besides task and scale, as overrides; those that a run records
    seeds:    scheme → its seeds; settings may follow the scheme: `rope position.base=100`
    higher_is_better: of every metric that it compares
    diverged: the value of a diverged run, in the metric's own unit
    code:     name and digest of each file of one's own schemes or task that its runs must use
    difference: the least one of interest, which decided the number of seeds
    primary:  one family, corrected by Holm; these decide
    secondary: described and not corrected; these decide nothing
    """

    name: Name
    hypothesis: str
    rows: str
    task: str
    scale: str
    settings: Annotated[Settings, BeforeValidator(flat)]
    seeds: dict[str, Seeds]
    higher_is_better: bool
    diverged: Number
    reason: str = ""
    code: dict[str, str] = Field(default_factory=dict)
    difference: Positive | None = None
    primary: list[PlannedTest] = Field(default_factory=list)
    secondary: list[PlannedTest] = Field(default_factory=list)

    @property
    def pair(self) -> tuple[str, str]:
        """The names of the schemes of its first test, ours and theirs."""
        ours, theirs = map(position_of, self.comparisons[0].schemes)
        return ours, theirs

    def __post_init__(self):
        for key in self.settings:
            if key.partition(".")[0] not in RECORDED or key == "task.path":
                remedy = "is not one that plans fix; give it on the command line"
                raise ValueError(f"settings: {key} {remedy}")
        if not self.comparisons:
            raise ValueError("has neither primary nor secondary comparisons")
        for test in self.comparisons:
            self._check(test)

    def _check(self, test: PlannedTest) -> None:
        """Raises ValueError if its schemes or its metric are not the study's."""
        ours, theirs = (set(self.seeds.get(scheme, [])) for scheme in test.schemes)
        if len({*test.schemes}) < 2 or not ours & theirs:
            schemes = f"two of {', '.join(self.seeds)} with a seed in common"
            raise ValueError(f"{test.name}: schemes: must be {schemes}")
        if test.higher_is_better != self.higher_is_better:
            given = f"higher_is_better is {self.higher_is_better}"
            raise ValueError(f"{test.name}: of {test.metric} the opposite is better, but {given}")

    def planned(self, scheme: str) -> Settings:
        """Its settings for one of its schemes, those of the scheme's name among them."""
        return self.settings | own_settings(scheme)

    @property
    def comparisons(self) -> list[PlannedTest]:
        return self.primary + self.secondary

    @property
    def digest(self) -> str:
        """Of all that it fixes; a run made for it records this digest."""
        fixed = TypeAdapter(Study).dump_json(self, exclude_defaults=True)
        return digest(fixed)

    @property
    def cells(self) -> list[tuple[str, int]]:
        """Scheme and seed of every run, seed by seed."""
        every = [(scheme, seed) for scheme, seeds in self.seeds.items() for seed in seeds]
        return sorted(every, key=lambda cell: cell[1])

    @property
    def unusual(self) -> str:
        """Its settings of training and model that are not the recipe's: `train.lr=0.0002,
        train.optimizer=muon`.
        """
        usual = recipe(self.task, self.scale)
        unlike = [
            f"{key}={show(value)}"
            for key, value in sorted(self.settings.items())
            if key.startswith(("train.", "model.")) and usual.get(key) not in (value, "auto")
        ]
        return ", ".join(unlike)

    def measure(self, test: PlannedTest, report: TaskReport) -> Measure:
        """The number of a run that a test compares, shown as in the report of its task if it is
        that one.
        """
        fixed = {
            "metric": test.metric,
            "times": test.times,
            "at": test.at,
            "reaches": test.reaches,
            "diverged": self.diverged,
            "higher_is_better": self.higher_is_better,
        }
        if test.at == "log steps":
            return Measure(unit=test.unit or "logarithm of steps", digits=2, **fixed)
        if (test.metric, test.times) == (report.measure.metric, report.measure.times):
            return replace(report.measure, **fixed)
        shown = report.measure_of(test.metric)
        more = round(math.log10(shown.times / test.times))  # digits of a share, not of a percentage
        fixed |= {"unit": test.unit or test.metric, "digits": shown.digits + more}
        return replace(shown, **fixed)


def _named(studies: dict[str, Record]) -> dict[str, Record]:
    return {name: {"name": name} | study for name, study in studies.items()}


@dataclass(frozen=True)
class Plan:
    """A plan: studies by their names, and notes on the wording of some, whose own text must not
    change.
    """

    studies: Annotated[dict[str, Study], BeforeValidator(_named)]
    corrections: dict[str, str] = Field(default_factory=dict)


def load(path: Path = PLAN) -> Plan:
    """Raises ConfigError, and OSError if the file cannot be read."""
    text = path.read_text("utf-8", "replace")
    name = short_path(path)
    plan = from_yaml(Plan, text, name)
    known = [each.name for each in dataclasses.fields(Plan)]
    for key in yaml.safe_load(text):  # an earlier commit may have others
        if key not in known:
            raise ConfigError(f"{name}: {key}: is no key of a plan; {nearest(str(key), known, '')}")
    return plan


@functools.cache
def from_yaml(cls: Any, text: str, name: str) -> Any:
    """The object of a pydantic dataclass that a yaml file describes. Raises ConfigError."""
    if reference := re.search(r"\$\{[^}]*\}?", text):
        remedy = "write the value itself, which cannot change after a commit"
        raise ConfigError(f"{name}: {reference[0]}: {remedy}")
    try:
        for token in yaml.scan(text):
            if isinstance(token, yaml.ScalarToken) and token.plain and ODD.fullmatch(token.value):
                place = f"{name}:{token.start_mark.line + 1}"
                raise ConfigError(f"{place}: {token.value}: write a number without leading 0 or :")
        return cls(**OmegaConf.to_container(OmegaConf.create(text)))
    except ValidationError as error:
        raise ConfigError(f"{name}: {reason(error)}") from None
    except (OmegaConfBaseException, yaml.YAMLError, TypeError, AttributeError) as error:
        said = f"{type(error).__name__}: {first_line(error)}"
        raise ConfigError(f"{name}: cannot be read ({said})") from None


def of_rows(folder: Path) -> list[Study]:
    """The studies of the plan beside a folder of kept records that name it as their rows. Raises
    ConfigError.
    """
    path = folder.resolve().parent / NAME
    studies = load(path).studies.values() if path.exists() else []
    return [study for study in studies if (path.parent / study.rows).resolve() == folder.resolve()]
