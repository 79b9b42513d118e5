"""Scores of schemes on tasks: a column for each task, under the recipe of most schemes."""

import json
import math
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from rope_lab.identity import identify
from rope_lab.results.comparisons.answers import samples
from rope_lab.results.comparisons.stats import t_interval
from rope_lab.results.records.catalogue import rank
from rope_lab.results.records.measures import LENGTH, OF_LENGTHS, Measure
from rope_lab.results.records.run import Run, Settings
from rope_lab.results.records.setups import Setup
from rope_lab.shipped import recipe

FEWEST_SEEDS = 3  # seeds
RATES = (0.5, 1, 2)  # learning rates, of the recipe's
DIGITS = 2  # of scores that are ranked
Scores = dict[str, pd.Series]  # of each scheme, by seed
OF_A_MACHINE = ("train.precision", "device")  # settings that `auto` leaves to the machine


@dataclass(frozen=True)
class Column:
    """A task under one recipe: the score of each seed of each scheme, and the schemes whose rate
    was searched.

    usual:   the scores at the recipe's rate
    length:  of the problems, longer than in training; None: as long as in training
    at_edge: of schemes whose best rate is the lowest or the highest of RATES, which it is
    """

    setup: Setup
    usual: Scores
    scores: Scores
    searched: set[str]
    length: int | None = None
    at_edge: dict[str, str] = field(default_factory=dict)

    def is_of(self, measure: Measure) -> bool:
        """Whether a measure is of problems of this length."""
        attribute, _, value = measure.metric.partition("/")
        if attribute in OF_LENGTHS:
            return value == str(self.length)
        return self.length is None

    @property
    def title(self) -> str:
        title = f"{self.setup.report.title}, {self.setup.scale}"
        if self.length:
            return f"{title}, {self.length} {self.setup.report.length['title']}"
        return f"{title}, trained lengths" if longest(self.setup) else title


def widest(setups: list[Setup]) -> list[Setup]:
    """Of each task that is scored, the group in which most schemes have FEWEST_SEEDS; then one at
    the recipe's rate. Runs that began from trained ones are in none.
    """
    found: dict[str, Setup] = {}
    preference = {setup: _preference(setup) for setup in setups}
    for setup in sorted(setups, key=lambda each: preference[each], reverse=True):
        schemes, _ = preference[setup]
        begins_anew = not setup.settings.get("parent.recipe_id")
        if schemes > 1 and setup.report.scored and begins_anew:
            found.setdefault(setup.report.title, setup)
    return sorted(
        found.values(), key=lambda each: (rank(each.catalogue.tasks, each.task), each.scale)
    )


def _preference(setup: Setup) -> tuple[int, bool]:
    """The number of schemes, and whether at the recipe's rate."""
    usual = recipe(setup.task, setup.scale)["train.lr"]
    return len(scores(setup)), setup.settings.get("train.lr") == usual


def longest(setup: Setup) -> int | None:
    """The longest problems that were graded, if none of training is as long."""
    trained = setup.trained_lengths
    if LENGTH not in setup.length_kinds or trained is None or max(setup.lengths) <= trained[1]:
        return None
    return max(setup.lengths)


def all_columns(setups: list[Setup]) -> list[Column]:
    """The scores of every task: of problems as in training, and of the longest ones."""
    found = []
    for setup in widest(setups):
        found.append(column(setup, setups))
        if length := longest(setup):
            found.append(column(setup, setups, length))
    return found


def column(setup: Setup, setups: list[Setup], length: int | None = None) -> Column:
    """The scores under a recipe; of schemes that were run at RATES too, at the best."""
    found = scores(setup, length)
    at_rate = {}
    for each in setups:
        rate = each.settings["train.lr"]
        if setup.is_alike(each) and rate / setup.settings["train.lr"] in RATES:
            at_rate[rate] = scores(each, length)
    searched, at_edge = {}, {}
    for scheme in found:
        rates = {rate: each[scheme] for rate, each in at_rate.items() if scheme in each}
        table = pd.DataFrame(rates).sort_index(axis="columns").dropna()  # a row a seed
        if len(rates) == len(RATES) and len(table) >= FEWEST_SEEDS:
            searched[scheme] = _at_best_rate(table)
            edges = {table.columns[0]: "lowest", table.columns[-1]: "highest"}
            means = table.mean()
            best = means.index[means == means.max()]
            if len(best) == 1 and best[0] in edges:
                at_edge[scheme] = edges[best[0]]
    return Column(setup, found, found | searched, {*searched}, length, at_edge)


def as_if_kept(runs: list[Run], kept: list[Run]) -> list[Run]:
    """Runs whose settings differ from kept ones at most in OF_A_MACHINE and the rate, with those of
    the kept ones, so that they stand in one column; the others are left out.
    """
    machine: dict[str, Settings] = {}
    count = Counter(run.recipe_id for run in kept)
    for run in sorted(kept, key=lambda run: count[run.recipe_id]):  # the most frequent is last
        settings = run.settings
        machine[_protocol(run)] = {key: settings[key] for key in OF_A_MACHINE if key in settings}
    moved = []
    for run in runs:
        if _protocol(run) in machine:
            settings = run.settings | machine[_protocol(run)]
            recipe_id = identify(run.task, run.position, run.seed, settings).recipe_id
            moved.append(replace(run, recipe_id=recipe_id, settings=settings))
    return moved


def _protocol(run: Run) -> str:
    """The task and recipe of a run, but for OF_A_MACHINE and the rate."""
    others = ("train.lr", *OF_A_MACHINE)
    recipe = {key: value for key, value in run.recipe.items() if key not in others}
    return json.dumps([run.task, run.scale, recipe], sort_keys=True)


def mean_ranks(tasks: list[Column]) -> pd.DataFrame:
    """The rank of each scheme whose rate was searched on all tasks, 1 for the best, as its mean
    over tasks: `mean low high first`, by scheme, the best first. Schemes whose scores are equal to
    DIGITS share a rank.

    low, high: 95% interval by Student's t over tasks, within the possible ranks
    first:     whether it cannot be told from the first: the interval of the difference includes 0
    """
    names = sorted(set.intersection(*[column.searched for column in tasks])) if tasks else []
    ranks = {}  # by task
    for column in tasks:
        scores = [round(column.scores[name].mean(), DIGITS) for name in names]
        ranks[column.title] = rankdata(-np.array(scores))
    table = pd.DataFrame(ranks, index=names).T
    rows = {}
    for name in table.mean().sort_values(kind="stable").index:
        best = next(iter(rows), name)
        found = t_interval(table[name])
        behind = t_interval(table[name] - table[best])
        low = max(1.0, found.low)
        high = min(float(len(names)), found.high)
        rows[name] = (found.mean, low, high, not behind.low > 0)
    return pd.DataFrame.from_dict(rows, "index", columns=["mean", "low", "high", "first"])


def _at_best_rate(table: pd.DataFrame) -> pd.Series:
    """The score of each seed at the rate that is best on the other seeds."""
    return pd.Series(
        {seed: table.loc[seed, table.drop(seed).mean().idxmax()] for seed in table.index}
    )


def scores(setup: Setup, length: int | None = None) -> Scores:
    """The score of each seed, of each scheme with at least FEWEST_SEEDS; length: of the problems,
    if not those of training. A diverged run has the score 0.
    """
    worst = 0.0 if setup.measure.share else math.inf
    measure = replace(setup.measure, times=1, diverged=worst)
    if length:
        measure = replace(measure, metric=f"{LENGTH}/{length}")
    found = {}
    for scheme in setup.schemes:
        values = samples(setup.arm(scheme), measure).value
        if len(values) >= FEWEST_SEEDS:
            found[scheme] = values if measure.share else np.exp(-values)
    return found
