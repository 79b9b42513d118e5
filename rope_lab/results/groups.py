"""Runs that may be compared, seen together: one task and recipe, its schemes, and each scheme's seeds."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import pandas as pd

from rope_lab.results.codes import own_part
from rope_lab.results.frame import curve, recipe, runs_frame, shipped
from rope_lab.results.metrics import LENGTH, LENGTH_LOSS, Metric
from rope_lab.results.published import LONGEST, Published, TaskReport, Threshold, rank
from rope_lab.results.runs import Run, one_line
from rope_lab.results.stats import PairedDifference, paired_difference
from rope_lab.text import LEAKS, show

PAIRED = ["value", "run", "numbers_of", "mixed"]  # what is compared of two runs, or says whether that may be


@dataclass(frozen=True, eq=False)
class Group:
    """The runs of one task and recipe.

    runs:    a row a run (see `runs_frame`), finished or not, by scheme in the order of published.yaml, then by seed
    report:  what published.yaml says of the task
    variant: the settings in which it is unlike the recipe of most runs of that task and scale; nothing for that itself
    """

    task: str
    scale: str
    recipe_id: str
    runs: pd.DataFrame
    published: Published
    report: TaskReport
    variant: str = ""

    @property
    def title(self) -> str:
        """The task, and the variant of its recipe."""
        return ", ".join(filter(None, [self.report.title, self.variant]))

    @property
    def metric(self) -> Metric:
        """What its runs are compared by."""
        return self.report.metric

    @property
    def schemes(self) -> list[str]:
        """Those that have a run, in order."""
        return list(self.runs.scheme.unique())

    @property
    def is_published(self) -> bool:
        """Whether the write-up has a result of this task for some of its schemes."""
        return any(scheme in self.report.published for scheme in self.schemes)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Every setting that the runs share."""
        return recipe(self.runs.run.iloc[0])

    @cached_property
    def finished(self) -> pd.DataFrame:
        """The runs that came to their end with the metric that counts; `value`, what they ended with as it is shown."""
        values = [run.metrics.get(self.metric.name, np.nan) for run in self.runs.run]
        runs = self.runs.assign(value=self.metric.times * np.array(values, dtype=float))
        return runs[(runs.status == "finished") & runs.value.notna()]

    def of(self, scheme: str) -> pd.DataFrame:
        """The finished runs of a scheme, by seed."""
        return self._by_scheme.get(scheme, self._by_seed.iloc[:0])

    @cached_property
    def _by_seed(self) -> pd.DataFrame:
        return self.finished.set_index("seed")

    @cached_property
    def _by_scheme(self) -> dict[str, pd.DataFrame]:
        return dict(list(self._by_seed.groupby("scheme")))

    @property
    def floor(self) -> float:
        """The Bayes-optimal loss on the held-out text, in nats per counted token; 0 where none is recorded."""
        return next((run.floor["loss"] for run in self.runs.run if run.floor), 0.0)

    @property
    def optimum(self) -> float:
        """The Bayes-optimal value of what counts, as it is shown; 0 where there is none, or none is recorded."""
        return self.metric.times * self.floor if self.metric.baseline else 0.0

    def slices(self, attribute: str) -> pd.DataFrame:
        """What finished runs say of each value of an attribute: a row with `scheme seed value count mean`."""
        rows = [
            (scheme, seed, int(value), *pair)
            for scheme, seed, run in zip(self.finished.scheme, self.finished.seed, self.finished.run, strict=True)
            for value, pair in run.slices.get(attribute, {}).items()
        ]
        return pd.DataFrame(rows, columns=["scheme", "seed", "value", "count", "mean"])

    def label(self, attribute: str) -> str:
        """What an attribute of the problems is called on an axis."""
        return self.report.attributes.get(attribute) or self.published.attributes.get(attribute, attribute)

    @cached_property
    def lengths(self) -> list[int]:
        """The lengths that finished runs were evaluated at besides their own."""
        return sorted(self.slices(self.length_kind).value.unique())

    @cached_property
    def length_kind(self) -> str:
        """LENGTH where problems of given lengths are graded, else LENGTH_LOSS."""
        return LENGTH if len(self.slices(LENGTH)) else LENGTH_LOSS

    @property
    def trained_lengths(self) -> tuple[int, int] | None:
        """The shortest and the longest problems of training, counted as `lengths` are; None where that is not known."""
        length = self.report.length
        longest = self.settings.get(length["longest"])
        shortest = self.settings.get(length.get("shortest")) or length.get("least", longest)
        return (shortest, longest) if isinstance(shortest, int) and isinstance(longest, int) else None

    def curves(self, scheme: str) -> pd.DataFrame:
        """What counts, by step and seed, as it is shown: at the steps at which all finished runs were evaluated."""
        runs = {seed: run for seed, run in self.of(scheme).run.items() if self.metric.name in run.curves}
        curves = pd.DataFrame({seed: curve(run, self.metric.name) for seed, run in runs.items()})
        return self.metric.times * curves.dropna().sort_index()

    @cached_property
    def both(self) -> Callable[[str, str], pd.DataFrame]:
        """The finished runs of two schemes, by seed: `PAIRED`, and with the suffix `_other` the same of the second."""
        return cache(lambda scheme, other: _both(self.of(scheme), self.of(other)))

    @cached_property
    def pairs(self) -> Callable[[str, str], pd.DataFrame]:
        """Of `both`, the seeds that may be compared: by code that gives the same numbers, from first step to last."""
        return cache(lambda scheme, other: _pure(self.both(scheme, other)))

    def difference(self, scheme: str, other: str) -> PairedDifference | None:
        """`scheme` against `other`, seed by seed; None where they share no seed."""
        pairs = self.pairs(scheme, other)
        if pairs.empty:
            return None
        tested = self.published.tests(self.scale, len(pairs))
        return paired_difference(pairs.value.to_numpy(), pairs.value_other.to_numpy(), tested)

    def first_steps(self, scheme: str, threshold: Threshold) -> pd.Series:
        """By seed, the first step at which a run reached the threshold, infinite where it did not.

        Of the runs whose curve is known.
        """
        return self.of(scheme).run.map(threshold.first_step).astype(float).dropna()

    def difference_since(self, scheme: str, other: str, threshold: Threshold) -> PairedDifference | None:
        """`scheme` against `other`, each as long after the threshold as both runs of a pair still went on.

        Interpolated between two evaluations; over the pairs of which both runs reached the threshold.
        """
        values = []
        for runs in self.pairs(scheme, other)[["run", "run_other"]].itertuples(index=False):
            curves = [curve(run, self.metric.name) for run in runs]
            reached = [threshold.first_step(run) for run in runs]
            if all(map(math.isfinite, reached)) and not any(each.empty for each in curves):
                left = self.settings["train.steps"] - max(reached)
                ends = [np.interp(left + step, c.index, c) for step, c in zip(reached, curves, strict=True)]
                values.append(self.metric.times * np.array(ends))
        return paired_difference(*np.transpose(values)) if values else None

    def deviations(self) -> list[str]:
        """Each setting in which the runs differ from what the write-up says of its own."""
        return [
            f"{key} {self.settings.get(key)} (write-up: {published})"
            for key, published in self.report.setup.items()
            if self.settings.get(key) != published
        ]

    def warnings(self, diverged_count: bool = False) -> list[str]:
        """What is missing, not counted or not alike among the runs, and what that does to the result.

        diverged_count: whether runs that diverged are counted where this is shown
        """
        lines, lacks = [], {}  # lacks: what is lacking → the schemes that lack it
        baseline, title = self.published.baseline, self.published.title
        counted = {scheme: self.of(scheme).index for scheme in self.schemes}
        if diverged_count:
            diverged = self.runs[self.runs.status == "diverged"].groupby("scheme").seed
            counted |= {scheme: counted[scheme].union(seeds) for scheme, seeds in diverged}
        for scheme, rows in self.runs.groupby("scheme", sort=False):
            here = counted[scheme]
            for run in rows.run:
                if run.seed not in here:
                    lines.append(f"{run} is {run.status} at step {run.steps:,}: shown here and counted in no mean")
                if run.mixed:
                    how = "; ".join(run.mixed)
                    lines.append(f"{run} is of mixed origin ({how}): shown here, counted in means, and not paired")
            if baseline not in self.schemes or scheme == baseline:
                continue
            there, pairs = counted[baseline], len(self.pairs(scheme, baseline))
            over = f"compared over the {pairs} that both have" if pairs else "there is no pair to compare"
            for name, other, mine, yours in ((scheme, baseline, here, there), (baseline, scheme, there, here)):
                if len(missing := yours.difference(mine)):
                    lacks.setdefault(f"{seeds(missing)} that {title(other)} has: {over}", []).append(title(name))
            both = self.both(scheme, baseline)
            if len(unlike := both.index[both.numbers_of != both.numbers_of_other]):
                different = f"were run by different code at {seeds(unlike)}: these pairs are not compared"
                check = f"python -m rope_lab.repeat --task {self.task} --scale {self.scale} --record"
                lines.append(
                    f"{title(scheme)} and {title(baseline)} {different}; {check} pairs them where numbers agree"
                )
        lines += [f"{'; '.join(n)} {'lacks' if len(n) == 1 else 'lack'} {what}" for what, n in lacks.items()]
        for scheme in self.finished.scheme[self.finished.value < LEAKS * self.optimum].unique():
            told = f"{title(scheme)} is below the Bayes-optimal loss, as no model can be unless it sees later tokens"
            lines.append(f"{told}: python -m rope_lab.check says whether it does")
        # a plug-in's own part is one with its scheme
        alike = self.runs.groupby("scheme").code.transform("nunique") == 1
        code = self.runs.code.where(~alike, self.runs.code.str.replace(r"\+\w+", "", regex=True))
        hardware = self.runs.hardware + ", " + self.runs.threads.astype(str) + " threads"
        on = self.runs.assign(hardware=hardware, code=code)
        edited = (self.runs.code.map(own_part).groupby(self.runs.scheme).nunique() > 1).any()  # a scheme of the user's
        for what in ("code", "hardware", "torch"):
            counts = on[what].value_counts(sort=False).sort_values(ascending=False, kind="stable")
            if len(counts) > 1:
                same = what == "code" and self.runs.numbers_of.nunique() == 1 and not edited
                known = ", which give the same numbers" if same else ""
                of_each = "; ".join(f"{name} ({n} run{'s' if n > 1 else ''})" for name, n in counts.items())
                lines.append(f"not one {what}{known}: {of_each}")
        return lines


def group(runs: list[Run], published: Published) -> list[Group]:
    """The runs by task and recipe, in the order of published.yaml; runs of different recipes never meet."""
    key = ["task", "scale", "recipe_id"]
    table = runs_frame(runs).drop_duplicates([*key, "scheme", "seed"], keep="last")
    table = table.assign(order=[(published.rank(scheme), scheme) for scheme in table.scheme])
    table = table.sort_values(["order", "seed"], kind="stable")
    groups = []
    for (task, scale, recipe_id), rows in table.groupby(key):
        recorded = {metric for run in rows.run for metric in run.metrics}
        report = published.report(task, recorded, rows.run.iloc[0].settings)
        groups.append(Group(task, scale, recipe_id, rows, published, report))
    groups = [replace(g, variant=variant) for g, variant in zip(groups, _variants(groups), strict=True)]
    scales, tasks = published.scales, published.tasks
    return sorted(groups, key=lambda g: (rank(scales, g.scale), rank(tasks, g.task), g.variant, g.recipe_id))


def matched(runs: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """The finished runs that may be compared, by seed: by code that gives the same numbers, from first step to last.

    runs, others: rows of `Group.of`; see `Group.both`
    """
    return _pure(_both(runs, others))


def _pure(both: pd.DataFrame) -> pd.DataFrame:
    return both[(both.numbers_of == both.numbers_of_other) & ~both.mixed & ~both.mixed_other]


def _both(runs: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    runs, others = runs[PAIRED], others[PAIRED]
    return runs.merge(others, left_index=True, right_index=True, suffixes=("", "_other")).sort_index()


def numbers(values: Iterable[int]) -> str:
    """Whole numbers in a few words: 0–4, 7."""
    spans: list[list[int]] = []
    for value in sorted(values):
        if spans and value == spans[-1][1] + 1:
            spans[-1][1] = value
        else:
            spans.append([value, value])
    return ", ".join(f"{a}–{b}" if a < b else f"{a}" for a, b in spans)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def ordered(values: Iterable[Any]) -> list[Any]:
    """Distinct values, or tuples of them: numbers by size, before words."""
    sizes = lambda value: (0, value, "") if is_number(value) else (1, 0, str(value))  # noqa: E731
    return sorted(set(values), key=lambda value: [*map(sizes, value)] if isinstance(value, tuple) else sizes(value))


def seeds(values: Iterable[int]) -> str:
    """`seed 3`, `seeds 0–4`."""
    return f"seed{'s' if len(list(values)) > 1 else ''} {numbers(values)}"


def _variants(groups: list[Group]) -> list[str]:
    """For each group the settings in which it is unlike the recipe that conf/ has for its task and scale.

    That is config.yaml with recipe/<task>/<scale>.yaml. Where none is as these say, or several are, unlike the one of
    most runs, or of as many.
    """
    usual, variants = list(map(_usualness, groups)), []
    for group in groups:
        alike = [i for i, g in enumerate(groups) if (g.task, g.scale) == (group.task, group.scale)]
        most = max(usual[i] for i in alike)
        others = [groups[i].settings for i in alike if usual[i] == most and groups[i] is not group]
        unlike = {k for other in others for k, value in group.settings.items() if other.get(k) != value}
        variants.append(one_line(", ".join(f"{k}={show(group.settings[k])}" for k in sorted(unlike)), LONGEST))
    return variants


def _usualness(group: Group) -> tuple[bool, int]:
    """Whether a recipe is the one of conf/, and how many runs it has."""
    said = shipped("config") | shipped(f"recipe/{group.task}/{group.scale}")
    return all(said.get(key, value) in (value, "auto") for key, value in group.settings.items()), len(group.runs)
