"""Sweeps: recipes of one task and scale that differ in one setting, and the scores at each of its
values.
"""

import json
import math
from collections.abc import Hashable
from dataclasses import replace
from itertools import groupby
from typing import Any

import pandas as pd

from rope_lab.results.comparisons.families import between
from rope_lab.results.comparisons.results import Comparison, Result, answered
from rope_lab.results.records.catalogue import LONGEST
from rope_lab.results.records.run import one_line
from rope_lab.results.records.setups import Setup
from rope_lab.shipped import shipped
from rope_lab.text import show

FEWEST_WORDS = 3  # values of a setting that is not a number: two are a comparison of two recipes


class Sweep:
    """Recipes that differ in one setting, and their runs.

    groups: each value of the setting, in order → the runs that have it
    others: `groups` without the usual recipe, which has its own section
    recipe: the index of the usual recipe's value; None if no group is of it, or conf/recipe has
            another value
    scores: of each scheme with runs at two values or more, if any has: one row per seed, one column
            per value's index; a run that diverged counts with the worst value of all that finished.
            Runs may be paired whose row has the same name, seed and `pair_as`
    diverged: scheme → index of the value → the number of runs that diverged
    """

    def __init__(self, setting: str, groups: dict[Any, Setup], variant: str = ""):
        self.setting, self.groups, self.values = setting, groups, list(groups)
        self.group = next(iter(groups.values()))  # for all that they share
        self.report, self.measure, self.published = (
            self.group.report,
            self.group.measure,
            self.group.published,
        )
        self.title = ", ".join(
            filter(None, [self.report.title, variant, f"by {setting}", f"scale {self.group.scale}"])
        )
        self.recipe_id, self.file = (
            self.group.recipe_id,
            f"{self.group.file}-{setting.replace('.', '_')}",
        )
        self.others = {value: group for value, group in groups.items() if group.variant}
        recipe = shipped(f"recipe/{self.group.task}/{self.group.scale}")
        ours = (shipped("config") | recipe).get(setting) if recipe else None
        usual = (
            i
            for i, (v, group) in enumerate(groups.items())
            if not group.variant and ours in (None, v)
        )
        self.recipe = next(usual, None)
        by_value = [setup.runs.assign(at=at) for at, setup in enumerate(groups.values())]
        runs = pd.concat(by_value, ignore_index=True)
        finished = runs.run.map(self.group.measure.of)
        worst = finished.idxmin() if self.measure.higher_is_better else finished.idxmax()
        if finished.notna().any():
            diverged = runs.run[worst].final(self.measure.metric)
            self.measure = replace(self.measure, diverged=diverged)
        runs = runs.assign(value=runs.run.map(self.measure.of)).dropna(subset="value")
        varied = runs.groupby("scheme")["at"].nunique()
        varied = varied[varied > 1] if (varied > 1).any() else varied
        self.schemes = sorted(varied.index, key=self.published.order)
        table = runs.pivot(index=["scheme", "seed", "pair_as"], columns="at", values="value")
        table = table.reindex(columns=range(len(groups)))
        self.scores = {scheme: table.loc[scheme] for scheme in self.schemes}
        self.diverged = runs[runs.status == "diverged"].groupby(["scheme", "at"]).size().to_dict()

    def complete(self, scheme: str) -> pd.DataFrame:
        """The scores of the seeds that have every value: of others, such as the fresh seeds of a
        plan, some values would have more chances.
        """
        return self.scores[scheme].dropna()

    def best(self, scheme: str) -> int | None:
        """The index of the value with the best mean, over the seeds that have every value; None if
        all are alike or the scheme lacks one.
        """
        means = self.complete(scheme).mean()
        if means.isna().any() or means.nunique() == 1:
            return None
        return int(means.idxmax() if self.measure.higher_is_better else means.idxmin())

    def is_at_edge(self, scheme: str) -> bool:
        """Whether a better value of a number may lie beyond those that were tried."""
        ends = (0, len(self.values) - 1)
        return all(map(is_number, self.values)) and self.best(scheme) in ends

    def difference(self, scheme: str, other: str, at: int) -> Result:
        """Scheme − other at a value of the setting; untested."""
        return answered(self._between(scheme, other, at, at))

    def best_difference(self, scheme: str, other: str) -> Result | None:
        """Scheme − other, each at its best value, over the seeds that have every value; untested.
        None if either has none.
        """
        best, other_best = self.best(scheme), self.best(other)
        if best is None or other_best is None:
            return None
        asked = self._between(scheme, other, best, other_best)
        ours, theirs = (
            replace(arm, runs=tuple(run for run in arm.runs if run.seed in self._seeds(arm.scheme)))
            for arm in (asked.ours, asked.theirs)
        )
        return answered(replace(asked, ours=ours, theirs=theirs))

    def left_out(self) -> set[int]:
        """Seeds that lack a value under a scheme that has a best one."""
        schemes = [scheme for scheme in self.schemes if self.best(scheme) is not None]
        return {
            seed
            for scheme in schemes
            for seed in self.scores[scheme].index.get_level_values("seed")
            if seed not in self._seeds(scheme)
        }

    def _seeds(self, scheme: str) -> set[int]:
        return {*self.complete(scheme).index.get_level_values("seed")}

    def _between(self, scheme: str, other: str, at: int, other_at: int) -> Comparison:
        here, there = list(self.groups.values())[at], list(self.groups.values())[other_at]
        return between(here, scheme, other, there, measure=self.measure, test="none")


def find(groups: list[Setup]) -> list[Sweep]:
    """The sweeps among these groups, the longest first; each unusual recipe is in at most one of
    them.
    """
    found: list[Sweep] = []
    by_recipe = [group for group in groups if not group.study]
    for alike in (
        list(same) for _, same in groupby(by_recipe, key=lambda group: (group.task, group.scale))
    ):
        left = {group for group in alike if group.variant}
        for setting, held in sorted(_candidates(alike), key=lambda each: -len(each[1])):
            here = left & {*held.values()}
            if here and not all(group.finished.empty for group in held.values()):
                first = next(iter(held.values())).settings
                usual = next((group.settings for group in alike if not group.variant), first)
                shared = [
                    f"{k}={first[k]}"
                    for k in sorted(first)
                    if k != setting and usual.get(k) != first[k]
                ]
                found.append(Sweep(setting, held, one_line(", ".join(shared), LONGEST)))
                left -= here
    return found


def _candidates(groups: list[Setup]) -> list[tuple[str, dict[Any, Setup]]]:
    """Every sweep of one setting among these groups of one task and scale."""
    settings = pd.DataFrame(
        [{k: json.dumps(v, sort_keys=True) for k, v in g.settings.items()} for g in groups]
    )
    varied = [key for key in settings if settings[key].nunique(dropna=False) > 1]
    found = []
    for setting in sorted(
        {*varied} - {"eval.every"}, reverse=True
    ):  # how often one looks changes no score
        rest = [str([g.settings.get(key) for key in varied if key != setting]) for g in groups]
        for same in settings.groupby(rest, sort=False).groups.values():
            held = {i: groups[i].settings.get(setting) for i in same}
            values = {
                value if isinstance(value, Hashable) else show(value): groups[i]
                for i, value in held.items()
            }
            if len(values) >= (2 if all(map(is_number, values)) else FEWEST_WORDS):
                ordered = sorted(
                    values, key=lambda v: (0, v, "") if is_number(v) else (1, 0, str(v))
                )  # words last
                found.append((setting, {value: values[value] for value in ordered}))
    return found


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
