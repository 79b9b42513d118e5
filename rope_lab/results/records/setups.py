"""Runs that may be compared: one task and recipe, or one planned study, its schemes, and the seeds
of each scheme.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from operator import attrgetter

import numpy as np
import pandas as pd

from rope_lab.results.comparisons.stats import NOTHING, Interval, paired_difference
from rope_lab.results.plans.study import Runs, Study, called
from rope_lab.results.records.catalogue import LONGEST, Published, TaskReport, Threshold, rank
from rope_lab.results.records.frame import curve, runs_frame
from rope_lab.results.records.measures import AT, LENGTH, LENGTH_LOSS, Metric
from rope_lab.results.records.run import Run, one_line
from rope_lab.shipped import recipe
from rope_lab.text import LEAKS, show


class Group:
    """The runs of one task and recipe, or of one planned study.

    runs:     one row per run (see `runs_frame`), by scheme in the order of published.yaml, then by
              seed
    variant:  its settings that differ from the usual recipe of its task and scale; empty for that
              recipe
    study:    the name of the study; empty for a recipe
    report:   of its task; its title names the text `data`
    finished: the finished runs, with their final `value` in the unit of the tables
    others:   the schemes that are compared with the baseline; none without it
    versions: published results of its schemes; empty without any
    floor:    the Bayes-optimal loss on the held-out text, in nats per counted token; 0 without a
              record of it
    generated: whether the task writes its text, so that LENGTH_LOSS is above the Bayes-optimal loss
    optimum:  the Bayes-optimal value of the metric, in the unit of the tables; 0 without one
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
        self.task, self.scale, self.recipe_id, self.settings = (
            first.task,
            first.scale,
            first.recipe_id,
            first.recipe,
        )
        self.runs, self.published, self.variant, self.study = runs, published, variant, study
        self.report: TaskReport = published.report(self.task, recorded, first.settings, data)
        self.metric: Metric = self.report.metric  # by which schemes are compared
        self.title = ", ".join(filter(None, [self.report.title, study, variant]))
        self.file = study or f"{self.scale}-{self.task}"  # the beginning of its figure's name
        self.schemes = list(runs.scheme.unique())
        compared = published.compares and published.baseline in self.schemes
        self.others = [
            scheme for scheme in self.schemes if compared and scheme != published.baseline
        ]
        self.versions = (
            self.report.published if {*self.schemes} & self.report.published.keys() else {}
        )
        values = np.array(
            [run.metrics.get(self.metric.name, np.nan) for run in runs.run], dtype=float
        )
        self.finished = runs.assign(value=self.metric.times * values)[
            (runs.status == "finished") & ~np.isnan(values)
        ]
        self._by_seed = self.finished.set_index("seed")
        self.floor = next((run.floor["loss"] for run in runs.run if run.floor), 0.0)
        self.generated = self.metric.share or self.floor > 0
        self.optimum = self.metric.times * self.floor if self.metric.name == "eval/loss" else 0.0
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
        return (
            (shortest, longest) if isinstance(shortest, int) and isinstance(longest, int) else None
        )

    def pairs(self, scheme: str, other: str, there: "Group | None" = None) -> pd.DataFrame:
        """The finished runs of two schemes that may be compared, by seed: of one numerics, from
        first step to last.

        there: the group of the other scheme, if not this one. Columns: `value run`, and of the
               other `value_other …`.
        """
        columns = ["pair_as", "value", "run"]
        ours, theirs = self.of(scheme)[columns], (there or self).of(other)[columns]
        return ours.merge(theirs, on=["seed", "pair_as"], suffixes=("", "_other")).sort_index()

    def difference(self, pairs: pd.DataFrame) -> Interval:
        """The difference of `pairs`, seed by seed."""
        tested = self.published.tests(self.scale, len(pairs))
        return paired_difference(pairs.value.to_numpy(), pairs.value_other.to_numpy(), tested)

    def first_steps(self, scheme: str, threshold: Threshold) -> pd.Series:
        """By seed, the first step at which a run reached the threshold, infinite if never; of runs
        with a curve.
        """
        return self.of(scheme).run.map(threshold.first_step).astype(float).dropna()

    def difference_since(self, threshold: Threshold) -> Interval:
        """Contender − baseline after as many steps beyond the threshold as both runs of a pair
        still have.

        Interpolated between evaluations; over the pairs of which both runs reached the threshold.
        """
        values = []
        for runs in self.pairs(*self.published.pair)[["run", "run_other"]].itertuples(index=False):
            curves = [curve(run, self.metric.name) for run in runs]
            reached = [threshold.first_step(run) for run in runs]
            if all(map(math.isfinite, reached)) and not any(each.empty for each in curves):
                left = self.settings["train.steps"] - max(reached)
                ends = [
                    np.interp(left + step, c.index, c)
                    for step, c in zip(reached, curves, strict=True)
                ]
                values.append(self.metric.times * np.array(ends))
        return paired_difference(*np.transpose(values)) if values else NOTHING

    def deviations(self) -> list[str]:
        """Each setting that differs from the write-up's."""
        ours = self.settings.get
        return [
            f"{k} {ours(k)} (write-up: {v})" for k, v in self.report.setup.items() if ours(k) != v
        ]

    def warnings(self) -> Iterator[str]:
        """Missing, uncounted and incomparable runs, and their effect on the result: a line each."""
        lacks: dict[str, list[str]] = {}  # missing seeds → the schemes without them
        baseline, title, finished = (
            self.published.baseline,
            self.published.title,
            set(self.finished.run_id),
        )
        for run in self.runs.run:
            if run.run_id not in finished:
                yield f"{run} is {run.status} at step {run.steps:,}: it has no final value"
            if run.mixed:
                how = "; ".join(run.mixed)
                yield f"{run} is of mixed origin ({how}): counted in means, and not paired"
        for scheme in self.others:
            ours, theirs, pairs = (
                self.of(scheme),
                self.of(baseline),
                len(self.pairs(scheme, baseline)),
            )
            over = (
                f"compared over the {pairs} that both have"
                if pairs
                else "there is no pair to compare"
            )
            for name, other in ((scheme, baseline), (baseline, scheme)):
                if missing := set(self.of(other).index) - set(self.of(name).index):
                    lacks.setdefault(
                        f"{seeds(missing)} that {title(other)} has: {over}", []
                    ).append(title(name))
            both = ours.index.intersection(theirs.index)
            if unlike := [
                seed for seed in both if ours.run[seed].numbers != theirs.run[seed].numbers
            ]:
                different = (
                    f"were run by different numerics or task code at {seeds(unlike)}: not compared"
                )
                yield f"{title(scheme)} and {title(baseline)} {different}; run one of the two again"
        for what, names in lacks.items():
            yield f"{'; '.join(names)} {'lacks' if len(names) == 1 else 'lack'} {what}"
        for scheme in self.finished.scheme[self.finished.value < LEAKS * self.optimum].unique():
            hint = "so it must see later tokens: rope-lab check says whether it sees them"
            yield f"{title(scheme)} is below the Bayes-optimal loss, {hint}"
        named = [
            f"{run.hardware}, {run.threads} thread{'' if run.threads == 1 else 's'}"
            for run in self.runs.run
        ]
        on = self.runs.assign(hardware=named)
        for name in ("numerics", "hardware", "torch"):
            counts = Counter(on[name]).most_common()
            if len(counts) > 1:
                each = "; ".join(f"{value} ({n} run{'s' if n > 1 else ''})" for value, n in counts)
                yield f"the runs differ in {name}: {each}"


def group(
    runs: list[Run], published: Published, planned: Iterable[tuple[Study, Runs]] = ()
) -> list[Group]:
    """The `planned` runs by study, in the given order; then all others by recipe."""
    groups = []
    for study, found in planned:
        if found:  # its schemes have their settings in their names
            table = runs_frame(list(found.values())).assign(
                scheme=[called(scheme) for scheme, _ in found]
            )
            groups.append(
                Group(table, published, table.run.iloc[0].data, study.unusual, study.name)
            )
    ids = {run_id for each in groups for run_id in each.runs.run_id}
    return groups + _by_recipe([run for run in runs if run.run_id not in ids], published)


def _by_recipe(runs: list[Run], published: Published) -> list[Group]:
    """The runs by task and recipe, in the order of published.yaml; runs of different recipes never
    meet.

    Of several runs of one scheme and seed the last counts, of those that have ended if there are
    any.
    """
    key = ["task", "scale", "recipe_id"]
    table = runs_frame(sorted(runs, key=attrgetter("ended"))).drop_duplicates(
        [*key, "scheme", "seed"], keep="last"
    )
    corpora = Counter(
        data for data, _ in {(run.data, run.settings.get("task.corpus")) for run in table.run}
    )
    groups = []
    for _, rows in table.groupby(key):
        data = rows.run.iloc[0].data
        groups.append(
            Group(rows, published, data if corpora[data] == 1 else "", _variant(rows, table))
        )
    scales, tasks = published.scales, published.tasks
    return sorted(
        groups,
        key=lambda g: (
            rank(scales, g.scale),
            rank(tasks, g.task),
            g.scale,
            g.task,
            g.variant,
            g.recipe_id,
        ),
    )


def _variant(rows: pd.DataFrame, table: pd.DataFrame) -> str:
    """The settings of the runs `rows` that differ from the usual recipe of their task and scale.

    The usual recipe has no parent and is most like conf/; of several such, the one with most runs.
    """
    first = rows.run.iloc[0]
    alike = table[(table.task == first.task) & (table.scale == first.scale)]
    usual, found = recipe(first.task, first.scale), []
    for recipe_id, each in alike.groupby("recipe_id"):
        settings = each.run.iloc[0].recipe
        unlike = sum(
            usual.get(key, value) not in (value, "auto") for key, value in settings.items()
        )
        found.append(
            (("parent.recipe_id" not in settings, -unlike, len(each)), recipe_id, settings)
        )
    most, own = max(usualness for usualness, *_ in found), first.recipe
    others = [
        each
        for usualness, recipe_id, each in found
        if usualness == most and recipe_id != first.recipe_id
    ]
    unlike = {key for other in others for key, value in own.items() if other.get(key) != value}
    return one_line(", ".join(f"{key}={show(own[key])}" for key in sorted(unlike)), LONGEST)


def numbers(values: Iterable[int]) -> str:
    """Whole numbers in short: 0–4, 7."""
    ordered = np.unique(np.array([*values], dtype=object))  # a seed may exceed 64 bits
    spans = np.split(ordered, np.flatnonzero(np.diff(ordered) > 1) + 1)
    return ", ".join(
        f"{span[0]}–{span[-1]}" if len(span) > 1 else f"{span[0]}" for span in spans if len(span)
    )


def seeds(values: Iterable[int]) -> str:
    """`seed 3`, `seeds 0–4`."""
    return f"seed{'s' if len(list(values)) > 1 else ''} {numbers(values)}"
