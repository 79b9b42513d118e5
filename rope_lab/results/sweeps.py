"""Sweeps: recipes of one task and scale that differ in one setting, and the scores at each of its
values.
"""

import json
import math
from collections.abc import Hashable, Iterable
from itertools import groupby
from typing import Any

import pandas as pd

from rope_lab.results import sections
from rope_lab.results.groups import Group
from rope_lab.results.published import LONGEST
from rope_lab.results.runs import one_line
from rope_lab.results.stats import paired_difference
from rope_lab.results.tables import Section, Strong, Table, mean_of, number, signed, strong_if
from rope_lab.results.views.panels import Panel, points_frame
from rope_lab.shipped import shipped
from rope_lab.text import show

BEST = "each at its best"
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

    def __init__(self, setting: str, groups: dict[Any, Group], variant: str = ""):
        self.setting, self.groups, self.values = setting, groups, list(groups)
        self.group = next(iter(groups.values()))  # for all that they share
        self.report, self.metric, self.published = (
            self.group.report,
            self.group.metric,
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
        parts = [
            group.runs.assign(value=group.finished.value, at=at)
            for at, group in enumerate(groups.values())
        ]
        runs = pd.concat(parts, ignore_index=True)
        worst = runs.value.min() if self.metric.higher_is_better else runs.value.max()
        runs = runs.assign(value=runs.value.mask(runs.status == "diverged", worst)).dropna(
            subset="value"
        )
        varied = runs.groupby("scheme")["at"].nunique()
        varied = varied[varied > 1] if (varied > 1).any() else varied
        self.schemes = sorted(varied.index, key=self.published.order)
        table = runs.pivot(index=["scheme", "seed", "pair_as"], columns="at", values="value")
        table = table.reindex(columns=range(len(groups)))
        self.scores = {scheme: table.loc[scheme] for scheme in self.schemes}
        self.diverged = runs[runs.status == "diverged"].groupby(["scheme", "at"]).size().to_dict()

    def best(self, scheme: str) -> int | None:
        """The index of the value with the best mean; None if all are alike or the scheme lacks
        one.
        """
        means = self.scores[scheme].mean()
        if means.isna().any() or means.nunique() == 1:
            return None
        return int(means.idxmax() if self.metric.higher_is_better else means.idxmin())

    def cell(self, ours: pd.Series, theirs: pd.Series | None) -> str:
        """A mean, or a difference over the seeds that both have."""
        if theirs is None:
            return mean_of(ours.dropna(), self.metric.digits, self.metric.most)
        pairs = pd.concat([ours, theirs], axis=1, keys=["ours", "theirs"]).dropna()
        return signed(paired_difference(pairs.ours, pairs.theirs), self.metric.digits)


def find(groups: list[Group]) -> list[Sweep]:
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


def _candidates(groups: list[Group]) -> list[tuple[str, dict[Any, Group]]]:
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


def section(sweep: Sweep) -> Section:
    """A sweep's tables and sentences."""
    metric = sweep.metric
    best = "the best value of a scheme that has them all; it is chosen on the scores shown, which flatters each scheme"
    sentences = [f"{metric.unit}, mean over seeds; {metric.better} is better. Emphasized: {best}."]
    if sweep.diverged:
        sentences.append("A run that diverged counts with the worst value of those that finished.")
    warnings = _said_once(sweep, {value: group.warnings() for value, group in sweep.others.items()})
    details = _said_once(
        sweep, {value: sections.details(group) for value, group in sweep.others.items()}
    )
    sentences += [sections.RANGE, *map(Strong, warnings)]
    return Section(sweep.title, scores(sweep), sentences, folded=every_seed(sweep), details=details)


def scores(sweep: Sweep) -> Table:
    """A row a scheme and a column a value: mean and interval; then, if compared, the differences to
    the baseline.
    """
    published, rows = sweep.published, []
    compared = published.compares and published.baseline in sweep.schemes
    others = [scheme for scheme in sweep.schemes if compared and scheme != published.baseline]
    lines = [
        *((scheme, "") for scheme in sweep.schemes),
        *((scheme, published.baseline) for scheme in others),
    ]
    for scheme, other in lines:
        row = {
            f"{sweep.setting} =": " − ".join(map(published.title, filter(None, (scheme, other))))
        }
        for at, value in enumerate(sweep.values):
            cell = sweep.cell(sweep.scores[scheme][at], sweep.scores[other][at] if other else None)
            if not other and (scheme, at) in sweep.diverged:
                cell += f", {sweep.diverged[scheme, at]} diverged"
            is_best = not other and at == sweep.best(scheme)
            row[show(value) + (" (recipe)" if at == sweep.recipe else "")] = strong_if(
                is_best, cell
            )
        if others:
            bests = sweep.best(scheme), sweep.best(other) if other else None
            known = None not in bests
            row[BEST] = (
                sweep.cell(sweep.scores[scheme][bests[0]], sweep.scores[other][bests[1]])
                if known
                else ""
            )
        rows.append(row)
    return Table(rows, "Scores")


def every_seed(sweep: Sweep) -> Table:
    """A row a scheme and seed, a column a value."""
    rows = []
    for scheme, scores in sweep.scores.items():
        for (seed, _), values in scores.iterrows():
            cells = {
                show(v): number(values[at], sweep.metric.digits)
                for at, v in enumerate(sweep.values)
            }
            rows.append({"scheme": sweep.published.title(scheme), "seed": str(seed)} | cells)
    return Table(rows, "Every seed")


def places(sweep: Sweep) -> list[float]:
    """The positions of values on a figure's axis; words stand one after the other."""
    return list(
        map(float, sweep.values if all(map(is_number, sweep.values)) else range(len(sweep.values)))
    )


def panel(sweep: Sweep) -> Panel:
    """The final scores against the setting, above the Bayes-optimal value if it is the same for
    all.
    """
    optima, metric, at = (
        {group.optimum for group in sweep.groups.values()},
        sweep.metric,
        places(sweep),
    )
    optimum = optima.pop() if len(optima) == 1 else 0.0
    points = [
        (scheme, seed, at[i], score - optimum, True)
        for scheme, scores in sweep.scores.items()
        for (seed, _, i), score in scores.stack().items()
    ]
    unit = (
        metric.unit
        + (f" above the Bayes-optimal {optimum:.3g}" if optimum else "")
        + f", {metric.better} is better"
    )
    return Panel(points_frame(points), sweep.setting, unit, optimum > 0, metric.most)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _said_once(sweep: Sweep, lines: dict[Any, Iterable[str]]) -> list[str]:
    """Lines of each value's recipe, each once, after the values that it applies to unless it
    applies to all.
    """
    values: dict[str, list[str]] = {}
    for value, each in lines.items():
        for line in each:
            values.setdefault(line, []).append(f"{sweep.setting}={show(value)}")
    return [
        line if len(of) == len(lines) else f"{'; '.join(of)}: {line}" for line, of in values.items()
    ]
