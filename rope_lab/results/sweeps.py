"""Sweeps: recipes of one task and scale that differ in one setting, and the scores at each of its values."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import pandas as pd

from rope_lab.results import sections
from rope_lab.results.groups import Group
from rope_lab.results.published import LONGEST, TaskReport
from rope_lab.results.runs import one_line
from rope_lab.results.stats import expected_best, paired_difference
from rope_lab.results.tables import NONE, Section, Strong, Table, mean_of, signed, strong_if
from rope_lab.text import show

FEWEST_WORDS = 3  # values of a setting that is not a number: two are a comparison of two recipes
BUDGETS = 6  # columns of the expected best
GAIN = "− at the recipe's"
TUNED = (
    "What tuning gains. Best of n: the expected best of n values drawn at random, with replacement, from those above, "
    "on one seed (Dodge et al., 2019); mean over the seeds that a scheme has at every value. A best value is chosen by "
    "the scores that it is shown with, which flatters each."
)


@dataclass(frozen=True, eq=False)
class Sweep:
    """Recipes that differ in one setting, and their runs.

    groups:  each value of the setting, in order → the runs that have it
    variant: the settings that all of them share and that the usual recipe does not have
    """

    setting: str
    groups: dict[Any, Group]
    variant: str = ""

    @property
    def title(self) -> str:
        return ", ".join(filter(None, [self.group.report.title, self.variant]))

    @property
    def group(self) -> Group:
        """One of them, for what they share: the task, its report, the metric."""
        return next(iter(self.groups.values()))

    @property
    def report(self) -> TaskReport:
        return self.group.report

    @property
    def recipe_id(self) -> str:
        return f"{self.setting}-{self.group.recipe_id}".replace(".", "_")

    @property
    def others(self) -> dict[Any, Group]:
        """Those that are not of the usual recipe, which has a section of its own."""
        return {value: group for value, group in self.groups.items() if group.variant}

    @property
    def values(self) -> list[Any]:
        return list(self.groups)

    @property
    def recipe(self) -> int | None:
        """The index of the usual recipe's value; None if no group is of it."""
        return next((i for i, group in enumerate(self.groups.values()) if not group.variant), None)

    @property
    def optimum(self) -> float:
        """The Bayes-optimal value if it is the same for all, otherwise 0."""
        found = {group.optimum for group in self.groups.values()}
        return found.pop() if len(found) == 1 else 0.0

    @cached_property
    def runs(self) -> pd.DataFrame:
        """A row a run that ended: `scheme at seed value diverged pair_as`; `at` is the index of the setting's value.

        A run that diverged counts with the worst value of all that finished. Runs of equal `pair_as` may be paired: it
        is the numerics of their code, and of a run of mixed origin its own id.
        """
        parts = []
        for at, group in enumerate(self.groups.values()):
            ended = group.runs[(group.runs.status == "diverged") | group.runs.run_id.isin(group.finished.run_id)]
            parts.append(ended.assign(value=group.finished.value, at=at))
        runs = pd.concat(parts, ignore_index=True)
        diverged = runs.status == "diverged"
        worst = runs.value.min() if self.group.metric.higher_is_better else runs.value.max()
        pair_as = runs.numbers.mask(runs.mixed.astype(bool), runs.run_id)
        runs = runs.assign(value=runs.value.mask(diverged, worst), diverged=diverged, pair_as=pair_as)
        return runs.dropna(subset="value")[["scheme", "at", "seed", "value", "diverged", "pair_as"]]

    @cached_property
    def schemes(self) -> list[str]:
        """Those that have runs at two values or more, in the order of published.yaml; if none has, all with a run."""
        counts = self.runs.groupby("scheme")["at"].nunique()
        varied = counts[counts > 1] if (counts > 1).any() else counts
        return sorted(varied.index, key=lambda scheme: (self.group.published.rank(scheme), scheme))

    @cached_property
    def scores(self) -> dict[str, pd.DataFrame]:
        """The final scores of each scheme: a row a seed and `pair_as`, a column a value's index; nan without a run."""
        table = self.runs.pivot(index=["scheme", "seed", "pair_as"], columns="at", values="value")
        table = table.reindex(columns=range(len(self.groups)))
        return {scheme: each.droplevel("scheme") for scheme, each in table.groupby("scheme")}

    def best(self, scheme: str) -> int | None:
        """The index of the value with the best mean; None if all are alike or the scheme lacks one."""
        means = self.scores[scheme].mean()
        if means.isna().any() or means.nunique() == 1:
            return None
        return int(means.idxmax() if self.group.metric.higher_is_better else means.idxmin())

    @cached_property
    def tuned(self) -> dict[str, pd.DataFrame]:
        """The expected best against budget: a row a seed that a scheme has at every value, a column a budget."""
        sign, budgets = self.group.metric.sign, range(1, len(self.groups) + 1)
        tables = {}
        for scheme, scores in self.scores.items():
            complete = scores.dropna()
            rows = [[sign * expected_best(sign * row, n) for n in budgets] for row in complete.to_numpy()]
            tables[scheme] = pd.DataFrame(rows, index=complete.index, columns=budgets, dtype=float)
        return tables

    def lines(self, compared: bool) -> list[tuple[str, str]]:
        """The rows of its tables: each scheme alone, then, if `compared`, each with the baseline."""
        baseline = self.group.published.baseline
        compared = compared and baseline in self.schemes
        others = [scheme for scheme in self.schemes if compared and scheme != baseline]
        return [(scheme, "") for scheme in self.schemes] + [(scheme, baseline) for scheme in others]


def find(groups: list[Group]) -> list[Sweep]:
    """The sweeps among these groups, the longest first; each unusual recipe is in at most one of them."""
    found: list[Sweep] = []
    for alike in (list(same) for _, same in groupby(groups, key=lambda group: (group.task, group.scale))):
        left = {group for group in alike if group.variant}
        for sweep in sorted(_candidates(alike), key=lambda sweep: -len(sweep.groups)):
            here = left & {*sweep.groups.values()}
            if here and len(sweep.runs):
                usual = next((group.settings for group in alike if not group.variant), sweep.group.settings)
                shared = {k: v for k, v in sweep.group.settings.items() if k != sweep.setting and usual.get(k) != v}
                variant = ", ".join(f"{key}={shared[key]}" for key in sorted(shared))
                found.append(replace(sweep, variant=one_line(variant, LONGEST)))
                left -= here
    return found


def _candidates(groups: list[Group]) -> list[Sweep]:
    """Every sweep of one setting that these groups of one task and scale hold."""
    settings = pd.DataFrame([{k: json.dumps(v, sort_keys=True) for k, v in g.settings.items()} for g in groups])
    varied = [key for key in settings if settings[key].nunique(dropna=False) > 1]
    found = []
    for setting in sorted(varied, reverse=True):
        rest = [str([g.settings.get(key) for key in varied if key != setting]) for g in groups]
        for same in settings.groupby(rest, sort=False).groups.values():
            values = {_hashable(groups[i].settings.get(setting)): groups[i] for i in same}
            if len(values) >= (2 if all(map(is_number, values)) else FEWEST_WORDS):
                found.append(Sweep(setting, {value: values[value] for value in ordered(values)}))
    return found


def section(sweep: Sweep, compared: bool = True) -> Section:
    """A sweep's tables and sentences; `compared`: with paired differences to the baseline."""
    metric = sweep.group.metric
    sentences = [
        f"{metric.unit}, mean over seeds; {metric.better} is better. Emphasized: the best value of a scheme that has "
        "them all."
    ]
    if sweep.runs.diverged.any():
        sentences.append("A run that diverged counts with the worst value of those that finished.")
    warnings = _said_once(sweep, {value: group.warnings(diverged_count=True) for value, group in sweep.others.items()})
    details = {value: sections.details(group, compared) for value, group in sweep.others.items()}
    return Section(
        f"{sweep.title}, by {sweep.setting}, scale {sweep.group.scale}",
        [scores(sweep, compared)],
        [*sentences, *map(Strong, warnings)],
        [tuned(sweep, compared)],
        [every_seed(sweep, compared)],
        _said_once(sweep, details),
    )


def scores(sweep: Sweep, compared: bool = True) -> Table:
    """A row a scheme and a column a value: mean and interval; then, if `compared`, the differences to the baseline."""
    rows = []
    for scheme, other in sweep.lines(compared):
        row = {f"{sweep.setting} =": _label(sweep, scheme, other)}
        for at, value in enumerate(sweep.values):
            ours, theirs = (sweep.scores[each][at] if each else None for each in (scheme, other))
            cell, runs = _cell(sweep, ours, theirs), sweep.runs
            diverged = runs[(runs.scheme == scheme) & (runs["at"] == at)].diverged.sum()
            if diverged and not other:
                cell += f", {diverged} diverged"
            is_best = not other and at == sweep.best(scheme)
            row[show(value) + (" (recipe)" if at == sweep.recipe else "")] = strong_if(is_best, cell)
        rows.append(row)
    return Table(rows, "Scores")


def tuned(sweep: Sweep, compared: bool = True) -> Table:
    """What tuning gains each scheme that has a seed at every value: its best value, and the expected best by budget."""
    rows, recipe = [], sweep.recipe
    budgets = list(range(1, len(sweep.groups) + 1))
    if len(budgets) > BUDGETS:
        budgets = [2**i for i in range(len(budgets).bit_length()) if 2**i < len(budgets)] + [len(budgets)]
    for scheme, other in sweep.lines(compared):
        if not all(len(sweep.tuned[each]) for each in (scheme, other) if each):
            continue
        best, scores, table = sweep.best(scheme), sweep.scores[scheme], sweep.tuned[scheme]
        row = {"scheme": _label(sweep, scheme, other), f"best {sweep.setting}": "each at its own"}
        if not other:
            row[f"best {sweep.setting}"] = "all alike" if best is None else show(sweep.values[best])
        theirs = sweep.scores[other][sweep.best(other) or 0] if other else None  # the first if all values are alike
        row["there"] = _cell(sweep, scores[best or 0], theirs)
        if recipe is not None and compared:
            gained = "0" if best in (None, recipe) else _cell(sweep, scores[best], scores[recipe])
            row[GAIN] = NONE if other else gained
        for n in budgets:
            cell = _cell(sweep, table[n], sweep.tuned[other][n] if other else None)
            row[f"best of {n}"] = cell.split(" n=")[0].removesuffix(" (one seed)")  # which has a column of its own
        count = table.index.intersection(sweep.tuned[other].index) if other else table
        rows.append(row | {"seeds": str(len(count))})
    return Table(rows, "Tuning", TUNED)


def _cell(sweep: Sweep, ours: pd.Series, theirs: pd.Series | None) -> str:
    """A mean, or a difference over the seeds that both have."""
    digits = sweep.group.metric.digits
    if theirs is None:
        return mean_of(ours.dropna(), digits, sweep.group.metric.most)
    pairs = pd.concat([ours, theirs], axis=1, keys=["ours", "theirs"]).dropna()
    return signed(paired_difference(pairs.ours, pairs.theirs).difference, digits) if len(pairs) else NONE


def _label(sweep: Sweep, scheme: str, other: str) -> str:
    return " − ".join(map(sweep.group.published.title, filter(None, (scheme, other))))


def every_seed(sweep: Sweep, compared: bool = True) -> Table:
    """Every seed of every recipe but the usual one."""
    rows = [
        {sweep.setting: show(value)} | row
        for value, group in sweep.others.items()
        for row in sections.every_seed(group, compared).rows
    ]
    return Table(rows, "Every seed")


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def ordered(values: Iterable[Any]) -> list[Any]:
    """Distinct values: numbers by size, before words."""
    return sorted(set(values), key=lambda value: (0, value, "") if is_number(value) else (1, 0, str(value)))


def _said_once(sweep: Sweep, lines: dict[Any, list[str]]) -> list[str]:
    """Lines of each value's recipe, each once behind the values that it is of; alone if it is of all."""
    values: dict[str, list[str]] = {}
    for value, each in lines.items():
        for line in each:
            values.setdefault(line, []).append(f"{sweep.setting}={show(value)}")
    return [line if len(of) == len(lines) else f"{'; '.join(of)}: {line}" for line, of in values.items()]


def _hashable(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else json.dumps(value, sort_keys=True)
