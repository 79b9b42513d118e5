"""Sweeps: recipes of one task and scale that differ in one setting or two, and what comes of each of its values."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, groupby, permutations
from typing import Any

import numpy as np
import pandas as pd

from rope_lab.results.groups import Group, is_number, ordered
from rope_lab.results.published import LONGEST, TaskReport
from rope_lab.results.runs import one_line
from rope_lab.results.stats import PairedDifference, expected_best, paired_difference

Line = tuple[str, Any]  # a scheme, and the value of the second setting; None where one setting alone varies
FEWEST_WORDS = 3  # values of a setting that is no number: two are a comparison of two recipes


@dataclass(frozen=True, eq=False)
class Sweep:
    """Recipes that differ in one setting or two, and the runs of all of them.

    settings: the setting that is the axis; where two vary, then the one that tells lines apart
    groups:   the values of these settings → the runs that have them, in the order of the values
    variant:  the settings that all of them share and the usual recipe of that task and scale has not
    """

    settings: tuple[str, ...]
    groups: dict[tuple[Any, ...], Group]
    variant: str = ""

    @property
    def title(self) -> str:
        """The task, and what the recipes share that is unusual."""
        return ", ".join(filter(None, [self.group.report.title, self.variant]))

    @property
    def group(self) -> Group:
        """One of them, for what they share: the task, its report, the metric."""
        return next(iter(self.groups.values()))

    @property
    def report(self) -> TaskReport:
        """What published.yaml says of the task."""
        return self.group.report

    @property
    def recipe_id(self) -> str:
        """Its own, as each recipe has one: of its settings and one of the recipes."""
        return "-".join([*self.settings, self.group.recipe_id]).replace(".", "_")

    @property
    def others(self) -> dict[tuple[Any, ...], Group]:
        """Those that are not the recipe's own and have no section of their own."""
        return {values: group for values, group in self.groups.items() if group.variant}

    @cached_property
    def values(self) -> list[Any]:
        """Those of the axis, in order."""
        return ordered(values[0] for values in self.groups)

    @property
    def recipe(self) -> tuple[Any, ...] | None:
        """The values that the recipe has; None where none of the groups is of it."""
        return next((values for values, group in self.groups.items() if not group.variant), None)

    @property
    def on_log_axis(self) -> bool:
        """Whether the values are numbers of different magnitude, as learning rates are."""
        return all(map(is_number, self.values)) and 3 * max(self.values[0], 0) <= self.values[-1] and self.values[0] > 0

    @property
    def optimum(self) -> float:
        """The Bayes-optimal value, where it is the same for all; else 0."""
        found = {group.optimum for group in self.groups.values()}
        return found.pop() if len(found) == 1 else 0.0

    @cached_property
    def runs(self) -> pd.DataFrame:
        """A row a run that ended: `line at seed value diverged pair_as`; `at` counts the values of the axis.

        A run that diverged counts with the worst value of all that finished. Runs are paired where `pair_as` is the
        same: the numbers of their code; of a run of mixed origin, its own.
        """
        parts = []
        for values, group in self.groups.items():
            ended = group.runs[(group.runs.status == "diverged") | group.runs.run_id.isin(group.finished.run_id)]
            lines = [(scheme, values[1] if len(values) > 1 else None) for scheme in ended.scheme]
            ended = ended.assign(value=group.finished.value, at=self.values.index(values[0]))
            parts.append(ended.assign(line=pd.Series(lines, index=ended.index, dtype=object)))
        runs = pd.concat(parts, ignore_index=True)
        diverged = runs.status == "diverged"
        worst = runs.value.min() if self.group.metric.higher_is_better else runs.value.max()
        pair_as = runs.numbers_of.mask(runs.mixed.astype(bool), runs.run_id)
        runs = runs.assign(value=runs.value.mask(diverged, worst), diverged=diverged, pair_as=pair_as)
        return runs.dropna(subset="value")[["line", "at", "seed", "value", "diverged", "pair_as"]]

    @cached_property
    def lines(self) -> list[Line]:
        """Those that have runs at two values or more, in the order of published.yaml; if none has, all with a run."""
        rank = self.group.published.rank
        seconds = ordered({second for _, second in self._by_line})
        varied = [line for line, runs in self._by_line.items() if runs["at"].nunique() > 1] or self._by_line
        return sorted(varied, key=lambda line: (rank(line[0]), line[0], seconds.index(line[1])))

    @cached_property
    def _by_line(self) -> dict[Line, pd.DataFrame]:
        return dict(list(self.runs.groupby("line", sort=False)))

    @cached_property
    def scores(self) -> dict[Line, pd.DataFrame]:
        """What the runs of a line ended with: a row a seed, a column a value of the axis; nan where there is no run."""
        return {line: self._pivoted(runs, "seed") for line, runs in self._by_line.items()}

    def _pivoted(self, runs: pd.DataFrame, index: str | list[str]) -> pd.DataFrame:
        return runs.pivot(index=index, columns="at", values="value").reindex(columns=range(len(self.values)))

    def diverged(self, line: Line, at: int) -> int:
        """How many of its runs diverged there."""
        runs = self._by_line[line]
        return int(runs.diverged[runs["at"] == at].sum())

    def best(self, line: Line) -> int | None:
        """Which value is best in the mean over its seeds; None where all are alike, or the line has not every value."""
        means = self.scores[line].mean()
        if means.isna().any() or means.nunique() == 1:
            return None
        return int(means.idxmax() if self.group.metric.higher_is_better else means.idxmin())

    @cached_property
    def tuned(self) -> dict[Line, pd.DataFrame]:
        """The expected best against budget: a row a seed that a line has at every value, a column a trial."""
        return {line: self._expected(table.dropna()) for line, table in self.scores.items()}

    def paired(self, line: Line, at: int, other: Line, other_at: int) -> PairedDifference | None:
        """A line at one value against a line at a value, seed by seed; None where they share no seed."""
        return _paired(*(self._pairable[each].get(i) for each, i in ((line, at), (other, other_at))))

    def tuned_difference(self, line: Line, other: Line, budget: int) -> PairedDifference | None:
        """The expected best of `line` against that of `other`, after so many trials each, seed by seed."""
        return _paired(*(self._tuned_pairable[each][budget] for each in (line, other)))

    @cached_property
    def _pairable(self) -> dict[Line, pd.DataFrame]:
        return {line: self._pivoted(runs, ["seed", "pair_as"]) for line, runs in self._by_line.items()}

    @cached_property
    def _tuned_pairable(self) -> dict[Line, pd.DataFrame]:
        return {line: self._expected(table.dropna()) for line, table in self._pairable.items()}

    def _expected(self, table: pd.DataFrame) -> pd.DataFrame:
        sign = 1 if self.group.metric.higher_is_better else -1
        budgets = range(1, len(self.values) + 1)
        rows = [[sign * expected_best(sign * row, n) for n in budgets] for row in table.to_numpy()]
        return pd.DataFrame(np.reshape(rows, (-1, len(budgets))), index=table.index, columns=budgets)


def find(groups: list[Group]) -> list[Sweep]:
    """The sweeps among these groups, so that each recipe which is not the usual one is in at most one of them.

    Those of most recipes come first; of as many, those in which one setting varies, and not two.
    """
    found: list[Sweep] = []
    for alike in (list(same) for _, same in groupby(groups, key=lambda group: (group.task, group.scale))):
        left = {group for group in alike if group.variant}
        candidates = sorted(_candidates(alike), key=lambda sweep: (-len(sweep.groups), len(sweep.settings)))
        for sweep in candidates:
            here = left & {*sweep.groups.values()}
            if here and len(sweep.runs):
                found.append(replace(sweep, variant=_unlike(sweep, alike)))
                left -= here
    return found


def _unlike(sweep: Sweep, alike: list[Group]) -> str:
    """What all recipes of a sweep share that the usual one of these groups has not."""
    usual = next((group.settings for group in alike if not group.variant), sweep.group.settings)
    unlike = [k for k, v in sweep.group.settings.items() if k not in sweep.settings and usual.get(k) != v]
    return one_line(", ".join(f"{key}={sweep.group.settings[key]}" for key in sorted(unlike)), LONGEST)


def _candidates(groups: list[Group]) -> Iterator[Sweep]:
    """Every sweep of one setting or two that these groups of one task and scale hold."""
    for axes in _axes(groups):
        same: dict[str, dict[tuple[Any, ...], Group]] = {}
        for group in groups:
            rest = {key: value for key, value in group.settings.items() if key not in axes}
            alike = same.setdefault(_word(rest), {})
            alike[tuple(_plain(group.settings.get(key)) for key in axes)] = group
        for found in same.values():
            on_axis, *other = [ordered({values[i] for values in found}) for i in range(len(axes))]
            if not _varies(on_axis) or (other and not _is_grid(list(found), on_axis, other[0])):
                continue
            yield Sweep(axes, {values: found[values] for values in ordered(found)})


def _axes(groups: list[Group]) -> list[tuple[str, ...]]:
    """The one or two settings in which some two of the groups differ, and no more."""
    found = set()
    for first, second in combinations([{k: _word(v) for k, v in group.settings.items()} for group in groups], 2):
        differ = [key for key in {**first, **second} if first.get(key) != second.get(key)]
        found |= set(permutations(differ)) if len(differ) <= 2 else set()
    return sorted(found, reverse=True)


def _varies(values: list[Any]) -> bool:
    return len(values) >= (2 if all(map(is_number, values)) else FEWEST_WORDS)


def _is_grid(cells: list[tuple[Any, Any]], on_axis: list[Any], others: list[Any]) -> bool:
    """Whether two lines or more have two values or more, on the longer axis; of equal ones, on the one of numbers."""
    long = sum(sum(second == other for _, second in cells) > 1 for other in others) > 1
    return long and (len(on_axis), all(map(is_number, on_axis))) >= (len(others), all(map(is_number, others)))


def _paired(first: pd.Series, second: pd.Series) -> PairedDifference | None:
    first, second = first.dropna(), second.dropna()
    shared = first.index.intersection(second.index)
    return None if shared.empty else paired_difference(first[shared].to_numpy(), second[shared].to_numpy())


def _plain(value: Any) -> Any:
    """A value that can be a key."""
    return value if value is None or isinstance(value, bool | int | float | str) else _word(value)


def _word(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
