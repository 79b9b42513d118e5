"""Setups: runs that may be compared, of one task and recipe or of one planned study."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import pandas as pd

from rope_lab.results.records.catalogue import LONGEST, Published, TaskReport, rank
from rope_lab.results.records.frame import runs_frame
from rope_lab.results.records.measures import AT, LENGTH, LENGTH_LOSS, Measure
from rope_lab.results.records.run import Run, one_line
from rope_lab.shipped import recipe
from rope_lab.text import show


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
    finished: the finished runs, with their final `value` in the unit of the tables
    others:   the schemes that are compared with the baseline; none without it
    is_published: whether the write-up has results of its schemes, in any set-up
    versions: those results, of this very set-up; else empty
    floor:    the Bayes-optimal loss on the held-out text, in nats per counted token; 0 without a
              record of it
    generated: whether the task writes its text, so that LENGTH_LOSS is above the Bayes-optimal loss
    optimum:  the Bayes-optimal value of the measure, in the unit of the tables; 0 without one
    length_kinds: LENGTH if problems of given lengths were graded, LENGTH_LOSS if losses up to given
                  lengths were taken
    crossed:  by each length, the slice of another attribute at that length; empty if the task
              crosses none
    lengths:  further lengths at which finished runs were evaluated; of two kinds, those of LENGTH
    """

    def __init__(
        self,
        runs: pd.DataFrame,
        published: Published,
        data: str,
        variant: str = "",
        study: str = "",
    ):
        runs = runs.assign(order=runs.scheme.map(published.order)).sort_values(
            ["order", "seed"], kind="stable"
        )
        recorded, first = {metric for run in runs.run for metric in run.metrics}, runs.run.iloc[0]
        self.task, self.scale = first.task, first.scale
        self.recipe_id, self.settings = first.recipe_id, first.recipe
        self.runs, self.published, self.variant, self.study = runs, published, variant, study
        self.outdated: list[Run] = []
        self.report: TaskReport = published.report(self.task, recorded, first.settings, data)
        self.measure: Measure = self.report.measure
        self.title = ", ".join(filter(None, [self.report.title, study, variant]))
        self.file = study or f"{self.scale}-{self.task}"  # the beginning of its figure's name
        self.schemes = list(runs.scheme.unique())
        compared = published.compares and published.baseline in self.schemes
        others = [scheme for scheme in self.schemes if scheme != published.baseline]
        self.others = others if compared else []
        self.is_published = bool({*self.schemes} & self.report.published.keys())
        own = self.is_published and not self.deviations()
        self.versions = self.report.published if own else {}
        self.finished = runs.assign(value=runs.run.map(self.measure.of)).dropna(subset="value")
        self._by_seed = self.finished.set_index("seed")
        self.floor = next((run.floor["loss"] for run in runs.run if run.floor), 0.0)
        self.generated = self.measure.share or self.floor > 0
        loss = self.measure.metric == "eval/loss"
        self.optimum = self.measure.times * self.floor if loss else 0.0
        self.length_kinds = [kind for kind in (LENGTH, LENGTH_LOSS) if len(self.slices(kind))]
        parts = {name: name.rpartition(AT) for run in self.finished.run for name in run.slices}
        self.crossed = {
            int(length): name for name, (_, at, length) in parts.items() if at and length.isdigit()
        }
        self.lengths = (
            sorted(self.slices(self.length_kinds[0]).value.unique()) if self.length_kinds else []
        )

    def of(self, scheme: str) -> pd.DataFrame:
        """The finished runs of a scheme, by seed."""
        return self._by_seed[self._by_seed.scheme == scheme]

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
        """The shortest and the longest problems of training, counted as `lengths` are; None if
        unknown.
        """
        length = self.report.length
        longest = self.settings.get(length["longest"])
        shortest = self.settings.get(length.get("shortest")) or length.get("least", longest)
        known = isinstance(shortest, int) and isinstance(longest, int)
        return (shortest, longest) if known else None

    def arm(self, scheme: str) -> Arm:
        """The runs of a scheme, to be compared."""
        return Arm(scheme, tuple(self.runs[self.runs.scheme == scheme].run))

    def deviations(self) -> list[str]:
        """Each setting that differs from the write-up's."""
        ours = self.settings.get
        return [
            f"{key} {ours(key)} (write-up: {theirs})"
            for key, theirs in self.report.setup.items()
            if ours(key) != theirs
        ]


def setups_of(runs: list[Run], published: Published) -> list[Setup]:
    """The runs by task and recipe, in the order of published.yaml; runs of different recipes never
    meet.

    Of several runs of one scheme and seed the last counts, of those that have ended if there are
    any.
    """
    runs, outdated = of_newest_code(runs)
    key = ["task", "scale", "recipe_id", "task_code"]
    table = runs_frame(sorted(runs, key=attrgetter("ended")))
    table = table.assign(task_code=[run.plugin.get("task", "") for run in table.run])
    table = table.drop_duplicates([*key, "scheme", "seed"], keep="last")
    texts = {(run.data, run.settings.get("task.corpus")) for run in table.run}
    corpora = Counter(data for data, _ in texts)
    setups = []
    for _, rows in table.groupby(key):
        data = rows.run.iloc[0].data
        variant = ", ".join(filter(None, [_variant(rows, table), _task_code(rows, table)]))
        setup = Setup(rows, published, data if corpora[data] == 1 else "", variant)
        setup.outdated = [run for run in outdated if run.recipe_id == setup.recipe_id]
        setups.append(setup)
    scales, tasks = published.scales, published.tasks
    return sorted(
        setups,
        key=lambda setup: (
            rank(scales, setup.scale),
            rank(tasks, setup.task),
            setup.scale,
            setup.task,
            setup.variant,
            setup.recipe_id,
        ),
    )


def of_newest_code(runs: list[Run]) -> tuple[list[Run], list[Run]]:
    """The runs by the newest code of each of the user's own schemes, and those by former code.

    Newest: of the run that was begun last; kept rows do not say when, so that all of them count.
    """
    newest: dict[str, Run] = {}
    for run in runs:
        last = newest.get(run.position)
        if "position" in run.plugin and (last is None or run.start >= last.start):
            newest[run.position] = run
    counted, outdated = [], []
    for run in runs:
        former = _is_outdated(run, newest.get(run.position))
        (outdated if former else counted).append(run)
    return counted, outdated


def _is_outdated(run: Run, newest: Run | None) -> bool:
    if newest is None or not (run.start and newest.start):
        return False
    return run.plugin.get("position") != newest.plugin["position"]


def _task_code(rows: pd.DataFrame, table: pd.DataFrame) -> str:
    """The code of a task of the user's own, if runs of another one are there too: their problems
    differ. Empty for the code with most runs.
    """
    alike = table[(table.task == rows.task.iloc[0]) & (table.recipe_id == rows.recipe_id.iloc[0])]
    most = alike.task_code.value_counts().index[0]
    own = rows.task_code.iloc[0]
    return "" if own == most else f"code of the task {own[:6]}"


def _variant(rows: pd.DataFrame, table: pd.DataFrame) -> str:
    """The settings of the runs `rows` that differ from the usual recipe of their task and scale.

    The usual recipe has no parent and is most like conf/; of several such, the one with most runs.
    """
    first = rows.run.iloc[0]
    alike = table[(table.task == first.task) & (table.scale == first.scale)]
    by_recipe = {recipe_id: list(runs) for recipe_id, runs in alike.groupby("recipe_id").run}
    usualness = {recipe_id: _usualness(runs) for recipe_id, runs in by_recipe.items()}
    most = max(usualness.values())
    own, unlike = first.recipe, set()
    for recipe_id, (other, *_) in by_recipe.items():
        if usualness[recipe_id] == most and recipe_id != first.recipe_id:
            usual = other.recipe
            unlike |= {key for key in own if usual.get(key) != own[key]}
    return one_line(", ".join(f"{key}={show(own[key])}" for key in sorted(unlike)), LONGEST)


def _usualness(runs: list[Run]) -> tuple[bool, int, int]:
    """Of the runs of a recipe, to be compared with those of others: larger is more usual."""
    settings = runs[0].recipe
    usual = recipe(runs[0].task, runs[0].scale)
    unlike = [
        key for key, value in settings.items() if usual.get(key, value) not in (value, "auto")
    ]
    return "parent.recipe_id" not in settings, -len(unlike), len(runs)


def numbers(values: Iterable[int]) -> str:
    """Whole numbers in short: 0–4, 7."""
    ordered = np.unique(np.array([*values], dtype=object))  # a seed may exceed 64 bits
    spans = np.split(ordered, np.flatnonzero(np.diff(ordered) > 1) + 1)
    return ", ".join(
        f"{span[0]}–{span[-1]}" if len(span) > 1 else f"{span[0]}" for span in spans if len(span)
    )


def seeds(values: Iterable[int]) -> str:
    """`seed 3`, `seeds 0–4`."""
    name = "seeds" if len(list(values)) > 1 else "seed"
    return f"{name} {numbers(values)}"
