"""Scores of schemes on tasks: a column for each task, under the recipe of most schemes."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from rope_lab.results.records.catalogue import rank
from rope_lab.results.records.setups import Group
from rope_lab.shipped import recipe

FEWEST = 3  # seeds
RATES = (0.5, 1, 2)  # learning rates, of the recipe's


@dataclass(frozen=True)
class Column:
    """A task under one recipe: the score of each seed of each scheme, and the schemes whose rate
    was searched.
    """

    group: Group
    scores: dict[str, pd.Series]
    searched: set[str]

    @property
    def title(self) -> str:
        return f"{self.group.report.title}, {self.group.scale}"


def widest(groups: list[Group]) -> list[Group]:
    """Of each task, the group in which most schemes have FEWEST seeds; then one at the recipe's
    rate.
    """
    found: dict[str, list[Group]] = {}
    for g in groups:
        if len(scores(g)) > 1:
            found.setdefault(g.report.title, []).append(g)

    def preference(g: Group) -> tuple[int, bool]:
        return len(scores(g)), g.settings["train.lr"] == recipe(g.task, g.scale)["train.lr"]

    chosen = [max(each, key=preference) for each in found.values()]
    return sorted(chosen, key=lambda g: (rank(g.published.tasks, g.task), g.scale))


def column(g: Group, groups: list[Group]) -> Column:
    """The scores under a recipe; of schemes that were run at RATES too, at the best."""
    own, found, at_rate = g.settings["train.lr"], scores(g), {}
    for each in groups:
        rate = each.settings["train.lr"]
        same = (each.task, each.scale, each.settings | {"train.lr": own}) == (
            g.task,
            g.scale,
            g.settings,
        )
        if same and rate / own in RATES:
            at_rate[rate] = scores(each)
    searched = {}
    for scheme in found:
        rates = [at_rate[rate][scheme] for rate in sorted(at_rate) if scheme in at_rate[rate]]
        table = pd.concat(
            rates, axis=1
        ).dropna()  # one row per seed that has every rate, one column per rate
        if len(rates) == len(RATES) and len(table) >= FEWEST:
            best = {
                seed: table.drop(seed).mean().argmax() for seed in table.index
            }  # the rate, on the other seeds
            searched[scheme] = pd.Series(
                {seed: table.loc[seed].iloc[at] for seed, at in best.items()}
            )
    return Column(g, found | searched, {*searched})


def scores(g: Group) -> dict[str, pd.Series]:
    """The score of each seed, of each scheme with at least FEWEST."""
    by_scheme = {scheme: g.of(scheme).value / g.metric.times for scheme in g.schemes}
    kept = {scheme: each for scheme, each in by_scheme.items() if len(each) >= FEWEST}
    return kept if g.metric.share else {scheme: np.exp(-each) for scheme, each in kept.items()}
