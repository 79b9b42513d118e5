"""Scores of schemes on tasks: a column for each task, under the recipe of most schemes."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from rope_lab.results.records.catalogue import rank
from rope_lab.results.records.setups import Setup
from rope_lab.shipped import recipe

FEWEST = 3  # seeds
RATES = (0.5, 1, 2)  # learning rates, of the recipe's


@dataclass(frozen=True)
class Column:
    """A task under one recipe: the score of each seed of each scheme, and the schemes whose rate
    was searched.
    """

    setup: Setup
    scores: dict[str, pd.Series]
    searched: set[str]

    @property
    def title(self) -> str:
        return f"{self.setup.report.title}, {self.setup.scale}"


def widest(setups: list[Setup]) -> list[Setup]:
    """Of each task, the group in which most schemes have FEWEST seeds; then one at the recipe's
    rate.
    """
    found: dict[str, list[Setup]] = {}
    for setup in setups:
        if len(scores(setup)) > 1:
            found.setdefault(setup.report.title, []).append(setup)

    def preference(setup: Setup) -> tuple[int, bool]:
        return len(scores(setup)), setup.settings["train.lr"] == recipe(setup.task, setup.scale)[
            "train.lr"
        ]

    chosen = [max(each, key=preference) for each in found.values()]
    return sorted(chosen, key=lambda setup: (rank(setup.published.tasks, setup.task), setup.scale))


def column(setup: Setup, setups: list[Setup]) -> Column:
    """The scores under a recipe; of schemes that were run at RATES too, at the best."""
    own, found = setup.settings["train.lr"], scores(setup)
    at_rate = {}
    for each in setups:
        rate = each.settings["train.lr"]
        same = each.settings | {"train.lr": own} == setup.settings
        if same and (each.task, each.scale) == (setup.task, setup.scale) and rate / own in RATES:
            at_rate[rate] = scores(each)
    searched = {}
    for scheme in found:
        rates = [at_rate[rate][scheme] for rate in sorted(at_rate) if scheme in at_rate[rate]]
        # one row per seed that has every rate, one column per rate
        table = pd.concat(rates, axis=1).dropna()
        if len(rates) == len(RATES) and len(table) >= FEWEST:
            searched[scheme] = _at_best_rate(table)
    return Column(setup, found | searched, {*searched})


def _at_best_rate(table: pd.DataFrame) -> pd.Series:
    """The score of each seed at the rate that is best on the other seeds."""
    best = {seed: table.drop(seed).mean().argmax() for seed in table.index}
    return pd.Series({seed: table.loc[seed].iloc[at] for seed, at in best.items()})


def scores(setup: Setup) -> dict[str, pd.Series]:
    """The score of each seed, of each scheme with at least FEWEST."""
    found = {}
    for scheme in setup.schemes:
        values = setup.of(scheme).value / setup.measure.times
        if len(values) >= FEWEST:
            found[scheme] = values if setup.measure.share else np.exp(-values)
    return found
