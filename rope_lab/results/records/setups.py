"""Setups: runs that may be compared, of one task and recipe or of one planned study."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

import pandas as pd

from rope_lab.results.records.catalogue import LONGEST, Catalogue, rank
from rope_lab.results.records.frame import runs_frame
from rope_lab.results.records.measures import AT, LENGTH, LENGTH_LOSS
from rope_lab.results.records.run import Run, Settings, one_line
from rope_lab.shipped import recipe
from rope_lab.text import show

TASK_CODE = "code of the task"  # of the user's own, beside the settings of its runs


@dataclass(frozen=True, eq=False)
class Arm:
    """One side of a comparison: a scheme, as tables call it, and its runs."""

    scheme: str
    runs: tuple[Run, ...]


class Setup:
    """The runs of one task and recipe, or of one planned study.

    runs:     one row per run (see `runs_frame`), by scheme in the order of published.yaml, then by
              seed
    variant:  its settings that differ from the usual recipe of its task and scale; empty for that
              recipe
    study:    the name of the study; empty for a recipe
    outdated: runs of the user's own schemes by former code, which do not count
    report:   of its task; its title names the text `data`
    """

    def __init__(
        self,
        runs: pd.DataFrame,
        catalogue: Catalogue,
        variant: str = "",
        study: str = "",
    ):
        runs = runs.assign(order=runs.scheme.map(catalogue.order))
        self.runs = runs.sort_values(["order", "seed"], kind="stable")
        self.catalogue, self.variant, self.study = catalogue, variant, study
        self.outdated: list[Run] = []
        first = self.runs.run.iloc[0]
        self.task, self.scale = first.task, first.scale
        self.recipe_id = first.recipe_id
        self.settings = _settings(first)
        recorded = {metric for run in runs.run for metric in run.metrics}
        self.report = catalogue.report(self.task, recorded, first.settings, first.data)
        self.measure = self.report.measure
        self.title = ", ".join(filter(None, [self.report.title, study, variant]))
        self.file = study or f"{self.scale}-{self.task}"  # the beginning of its figure's name
        self.schemes = list(self.runs.scheme.unique())

    @cached_property
    def finished(self) -> pd.DataFrame:
        """The finished runs with their final `value`, in the unit of tables."""
        return self.runs.assign(value=self.runs.run.map(self.measure.of)).dropna(subset="value")

    @property
    def others(self) -> list[str]:
        """The schemes that are compared with the baseline; none without it, or if the runs belong
        to a plan.
        """
        baseline = self.catalogue.baseline
        if not self.catalogue.compares or baseline not in self.schemes:
            return []
        return [scheme for scheme in self.schemes if scheme != baseline]

    @property
    def is_published(self) -> bool:
        """Whether the write-up has results of its schemes, in any set-up."""
        return any(scheme in self.report.published for scheme in self.schemes)

    @property
    def versions(self) -> dict[str, list[str]]:
        """The write-up's results of this very set-up; else empty."""
        own = self.is_published and not self.deviations()
        return self.report.published if own else {}

    @cached_property
    def floor(self) -> float:
        """The Bayes-optimal loss on the held-out text, in nats per counted token; 0 without a
        record of it.
        """
        return max(run.floor.get("loss", 0.0) for run in self.runs.run)

    @property
    def generated(self) -> bool:
        """Whether the task writes its text, so that LENGTH_LOSS is above the Bayes-optimal loss."""
        return self.measure.share or self.floor > 0

    @property
    def optimum(self) -> float:
        """The Bayes-optimal value of the measure, in the unit of tables; 0 without one."""
        is_loss = self.measure.metric == "eval/loss"
        return self.measure.times * self.floor if is_loss else 0.0

    @cached_property
    def length_kinds(self) -> list[str]:
        """LENGTH if problems of given lengths were graded, LENGTH_LOSS if losses between
        given lengths were taken.
        """
        return [kind for kind in (LENGTH, LENGTH_LOSS) if len(self.slices(kind))]

    @cached_property
    def lengths(self) -> list[int]:
        """Further lengths at which finished runs were evaluated; of two kinds, those of LENGTH."""
        kinds = self.length_kinds
        return sorted({*self.slices(kinds[0]).value}) if kinds else []

    @cached_property
    def crossed(self) -> dict[int, str]:
        """By each length, the slice of another attribute at that length; empty if the task crosses
        none.
        """
        names = {name for run in self.finished.run for name in run.slices}
        parts = [(name.rpartition(AT)[2], name) for name in names if AT in name]
        by_length = {int(length): name for length, name in parts if length.isdigit()}
        return dict(sorted(by_length.items()))

    def of(self, scheme: str) -> pd.DataFrame:
        """The finished runs of a scheme, by seed."""
        return self.finished[self.finished.scheme == scheme].set_index("seed")

    def slices(self, attribute: str) -> pd.DataFrame:
        """The finished runs by each value of an attribute of the problems: `scheme seed value count
        mean`.
        """
        rows = [
            (row.scheme, row.seed, int(value), *pair)
            for row in self.finished.itertuples()
            for value, pair in row.run.slices.get(attribute, {}).items()
        ]
        return pd.DataFrame(rows, columns=["scheme", "seed", "value", "count", "mean"])

    @property
    def trained_lengths(self) -> tuple[int, int] | None:
        """See `TaskReport.trained_lengths`."""
        return self.report.trained_lengths(self.settings)

    def is_alike(self, other: "Setup") -> bool:
        """Whether they differ at most in their learning rate."""
        rate = {"train.lr": self.settings.get("train.lr")}
        there = other.task, other.scale, other.settings | rate
        return there == (self.task, self.scale, self.settings)

    def arm(self, scheme: str) -> Arm:
        """The runs of a scheme, to be compared."""
        return Arm(scheme, tuple(self.runs.run[self.runs.scheme == scheme]))

    def deviations(self) -> list[str]:
        """Each setting that differs from the write-up's."""
        ours = self.settings.get
        return [
            f"{key} {ours(key)} (write-up: {theirs})"
            for key, theirs in self.report.setup.items()
            if ours(key) != theirs
        ]


def setups_of(runs: list[Run], catalogue: Catalogue) -> list[Setup]:
    """The runs by task and recipe, in the order of published.yaml; runs of different recipes, or
    codes of the user's own task, never meet.

    Of several runs of one scheme and seed the last counts, of those that have ended if there are
    any.
    """
    counted, outdated = of_newest_code(sorted(runs, key=attrgetter("ended")))
    codes = [run.plugin.get("task", "") for run in counted]
    table = runs_frame(counted).assign(task_code=codes)
    of_recipe = ["recipe_id", "task_code"]
    of_run = ["task", "scale", *of_recipe, "scheme", "seed"]
    table = table.drop_duplicates(of_run, keep="last")
    setups = []
    for _, alike in table.groupby(["task", "scale"], sort=False):
        tables = [rows for _, rows in alike.groupby(of_recipe, sort=False)]
        usual = _usual(tables)
        for own in tables:
            setup = Setup(own, catalogue, unlike(_settings(own.run.iloc[0]), usual))
            setup.outdated = [run for run in outdated if run.recipe_id == setup.recipe_id]
            setups.append(setup)
    return sorted(setups, key=_order)


def of_newest_code(runs: list[Run]) -> tuple[list[Run], list[Run]]:
    """The runs by the newest code of each of the user's own schemes, and those by former code.

    Newest: of the run that was begun last; kept rows do not say when, so that all of them count.
    """
    newest = {}
    for run in sorted(runs, key=attrgetter("start")):
        if run.start and "position" in run.plugin:
            newest[run.position] = run.plugin["position"]
    counted, outdated = [], []
    for run in runs:
        code = run.plugin.get("position")
        is_former = run.start and newest.get(run.position, code) != code
        if is_former:
            outdated.append(run)
        else:
            counted.append(run)
    return counted, outdated


def _settings(run: Run) -> Settings:
    """The settings that the runs of a recipe share, with the code of the user's own task."""
    code = run.plugin.get("task", "")
    return run.recipe | ({TASK_CODE: code} if code else {})


def _usualness(rows: pd.DataFrame) -> tuple[bool, int, int]:
    """How usual the recipe of some runs is, the larger the more: runs without a parent before
    others, then those that are most like conf/, then the one of most runs.
    """
    first = rows.run.iloc[0]
    settings = _settings(first)
    usual = recipe(first.task, first.scale)
    alike = [usual.get(key, value) in (value, "auto") for key, value in settings.items()]
    return "parent.recipe_id" not in settings, -alike.count(False), len(rows)


def _usual(recipes: list[pd.DataFrame]) -> list[Settings]:
    """The settings of the most usual recipe of a task and scale; of several, if they are equally
    usual.
    """
    most = max(map(_usualness, recipes))
    return [_settings(rows.run.iloc[0]) for rows in recipes if _usualness(rows) == most]


def _order(setup: Setup) -> tuple:
    """As in published.yaml, then by name."""
    catalogue = setup.catalogue
    ranks = rank(catalogue.scales, setup.scale), rank(catalogue.tasks, setup.task)
    return *ranks, setup.scale, setup.task, setup.variant, setup.recipe_id


def unlike(own: Settings, usual: list[Settings]) -> str:
    """The settings that differ from those of a usual recipe."""
    keys = {key for other in usual for key in own if other.get(key) != own[key]}
    return one_line(", ".join(f"{key}={show(own[key])}" for key in sorted(keys)), LONGEST)


def numbers(values: Iterable[int]) -> str:
    """Whole numbers in short: 0–4, 7."""
    spans = []
    for value in sorted(set(values)):
        if spans and spans[-1][-1] == value - 1:
            spans[-1].append(value)
        else:
            spans.append([value])
    return ", ".join(f"{span[0]}–{span[-1]}" if span[1:] else f"{span[0]}" for span in spans)


def seeds_text(values: Collection[int]) -> str:
    """`seed 3`, `seeds 0–4`."""
    name = "seeds" if len(values) > 1 else "seed"
    return f"{name} {numbers(values)}"
