"""Sweeps: recipes of one task and scale that differ in one setting, and the scores at each of its
values.
"""

import math
from dataclasses import replace
from itertools import groupby
from typing import Any

import pandas as pd

from rope_lab.results.comparisons.answers import Comparison, Result, answered
from rope_lab.results.records.measures import Measure
from rope_lab.results.records.setups import TASK_CODE, Arm, Setup, unlike
from rope_lab.shipped import recipe, shipped
from rope_lab.text import show

FEWEST_WORDS = 3  # values of a setting that is not a number: two are a comparison of two recipes

ByValue = dict[Any, Setup]  # recipes by their value of a setting


class Sweep:
    """Recipes that differ in one setting, and their runs.

    values: of the setting, in order
    setups: the runs that have each value
    others: `setups` without the usual recipe, which has its own section
    recipe: the index of the usual recipe's value; None if no setup is of it, or conf/recipe has
            another value
    measure: a run that diverged counts with the worst value of all that finished
    scores: of each scheme with runs at two values or more, if any has: one row per seed, one column
            per value's index. Runs may be paired whose row has the same name, seed and `pair_as`
    complete: of `scores`, the seeds that have every value: of others, such as the fresh seeds of a
            plan, some values would have more chances
    best:   of each scheme, the index of the value with the best mean of `complete`; None if all are
            alike or the scheme lacks one
    diverged: scheme → index of the value → the number of runs that diverged
    """

    def __init__(self, setting: str, by_value: ByValue, variant: str = ""):
        self.setting, self.values = setting, list(by_value)
        self.setups = list(by_value.values())
        self.others = [setup for setup in self.setups if setup.variant]
        self.recipe = _usual(setting, by_value)
        first = self.setups[0]  # for all that they share
        self.report, self.catalogue, self.recipe_id = first.report, first.catalogue, first.recipe_id
        title = [self.report.title, variant, f"by {setting}", f"scale {first.scale}"]
        self.title = ", ".join(filter(None, title))
        self.file = f"{first.file}-{setting.replace('.', '_')}"
        self.measure = _counting_diverged(self.setups)
        runs = _scored(self.setups, self.measure)
        self.schemes = sorted(_varied(runs), key=self.catalogue.order)
        table = runs.pivot(index=["scheme", "seed", "pair_as"], columns="at", values="value")
        table = table.reindex(columns=range(len(self.setups)))
        self.scores = {scheme: table.loc[scheme] for scheme in self.schemes}
        self.complete = {scheme: scores.dropna() for scheme, scores in self.scores.items()}
        self.best = {scheme: self._best(scheme) for scheme in self.schemes}
        self.diverged = runs[runs.status == "diverged"].groupby(["scheme", "at"]).size().to_dict()

    def _best(self, scheme: str) -> int | None:
        means = self.measure.sign * self.complete[scheme].mean()
        if means.isna().any() or means.nunique() == 1:
            return None
        return int(means.idxmax())

    def is_at_edge(self, scheme: str) -> bool:
        """Whether a better value of a number may lie beyond those that were tried."""
        return self.has_numbers and self.best[scheme] in (0, len(self.values) - 1)

    @property
    def has_numbers(self) -> bool:
        """Whether all values are numbers, not words."""
        return all(map(is_number, self.values))

    def difference_at(self, at: int, scheme: str, other: str) -> Result:
        """Scheme − other, untested, at the value with an index."""
        return self._between(self.setups[at].arm(scheme), self.setups[at].arm(other))

    def difference_at_best(self, scheme: str, other: str) -> Result | None:
        """Scheme − other, untested, each at its best value over the seeds that have every value.
        None if either has none.
        """
        ours, theirs = self._best_arm(scheme), self._best_arm(other)
        return self._between(ours, theirs) if ours and theirs else None

    def _between(self, ours: Arm, theirs: Arm) -> Result:
        return answered(Comparison(self.report, self.measure, ours, theirs))

    def _best_arm(self, scheme: str) -> Arm | None:
        """The runs of a scheme at its best value that are compared; None if it has none."""
        best = self.best[scheme]
        if best is None:
            return None
        seeds = _seeds(self.complete[scheme])
        runs = [run for run in self.setups[best].arm(scheme).runs if run.seed in seeds]
        return Arm(scheme, tuple(runs))

    def left_out(self) -> set[int]:
        """Seeds that lack a value under a scheme that has a best one."""
        lacking: set[int] = set()
        for scheme, scores in self.scores.items():
            if self.best[scheme] is not None:
                lacking |= _seeds(scores) - _seeds(self.complete[scheme])
        return lacking


def _seeds(scores: pd.DataFrame) -> set[int]:
    return {*scores.index.get_level_values("seed")}


def _counting_diverged(setups: list[Setup]) -> Measure:
    """Their measure, under which a run that diverged has the worst value of all that finished."""
    measure = setups[0].measure
    gains = measure.sign * pd.concat([setup.finished.value for setup in setups])
    return replace(measure, diverged=measure.sign * gains.min() / measure.times)


def _scored(setups: list[Setup], measure: Measure) -> pd.DataFrame:
    """The runs with a score, their `value`; `at`: the index of their setup."""
    parts = []
    for at, setup in enumerate(setups):
        parts.append(setup.runs.assign(at=at, value=setup.runs.run.map(measure.of)))
    return pd.concat(parts, ignore_index=True).dropna(subset="value")


def _varied(runs: pd.DataFrame) -> list[str]:
    """The schemes with runs in two setups or more; all if none has."""
    setups = runs.groupby("scheme")["at"].nunique()
    several = setups[setups > 1]
    return list(setups.index if several.empty else several.index)


def _usual(setting: str, by_value: ByValue) -> int | None:
    """The index of the usual recipe's value."""
    first = next(iter(by_value.values()))
    known = shipped(f"recipe/{first.task}/{first.scale}")
    value = recipe(first.task, first.scale).get(setting) if known else None
    for at, (own, setup) in enumerate(by_value.items()):
        if not setup.variant and value in (None, own):
            return at
    return None


def find(setups: list[Setup]) -> list[Sweep]:
    """The sweeps among these setups, the longest first; each unusual recipe is in at most one of
    them.
    """
    found: list[Sweep] = []
    by_recipe = [setup for setup in setups if not setup.study]
    for _, same in groupby(by_recipe, key=lambda setup: (setup.task, setup.scale)):
        found += _of_one_task(list(same))
    return found


def _of_one_task(setups: list[Setup]) -> list[Sweep]:
    usual = [setup.settings for setup in setups if not setup.variant]
    left = {setup for setup in setups if setup.variant}
    found = []
    for setting, held in sorted(_candidates(setups), key=lambda each: -len(each[1])):
        here = left & {*held.values()}
        first = next(iter(held.values()))
        if here and not all(setup.finished.empty for setup in held.values()):
            others = {key: first.settings[key] for key in first.settings if key != setting}
            found.append(Sweep(setting, held, unlike(others, usual)))
            left -= here
    return found


def _candidates(setups: list[Setup]) -> list[tuple[str, ByValue]]:
    """Every sweep of one setting among these setups of one task and scale."""
    settings = pd.DataFrame([setup.settings for setup in setups]).map(show)
    varied = [key for key in settings if settings[key].nunique() > 1]
    found = []
    for setting in sorted(varied, reverse=True):
        # How often one looks changes no score.
        if setting in ("eval.every", TASK_CODE):
            continue
        others = settings[varied].drop(columns=setting).to_numpy().tolist()
        one_string_each = [str(values) for values in others]
        for same in settings.groupby(one_string_each, sort=False).groups.values():
            values = _by_value(setting, [setups[at] for at in same])
            fewest = 2 if all(map(is_number, values)) else FEWEST_WORDS
            if len(values) >= fewest:
                found.append((setting, values))
    return found


def _by_value(setting: str, setups: list[Setup]) -> ByValue:
    """The setups by their values of a setting, in order; words come last."""
    values = {}
    for setup in setups:
        value = setup.settings.get(setting)
        values[show(value) if isinstance(value, list) else value] = setup
    return dict(sorted(values.items(), key=lambda each: _order(each[0])))


def _order(value: Any) -> tuple:
    return (False, value) if is_number(value) else (True, str(value))


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
