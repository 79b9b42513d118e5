"""Gains over the baseline, paired by seed, for each column of scores, and its planned tests."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from rope_lab.places import RESULTS
from rope_lab.results.comparisons import words
from rope_lab.results.comparisons.answers import Result
from rope_lab.results.comparisons.score_columns import FEWEST_SEEDS, Column, all_columns
from rope_lab.results.comparisons.stats import Interval, t_interval
from rope_lab.results.comparisons.words import plan_word
from rope_lab.results.plans.names import scheme_of
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.folders import is_kept, one_each, read_all, with_those_below
from rope_lab.results.records.setups import setups_of
from rope_lab.showing.measured import Measured

DECISIVE = {words.CONFIRMED, words.REVERSED, words.REFUTED, words.UNDECIDED}


@dataclass(frozen=True)
class Ranked:
    """A column of scores, and for each other scheme its scores and the baseline's by seed, `ours
    theirs`.

    searched: the schemes whose pairs have searched rates; those of others have the recipe's
    """

    column: Column
    pairs: dict[str, pd.DataFrame]
    searched: set[str]

    @property
    def name(self) -> str:
        """`task scale`, or `task scale long` for the longest problems."""
        named = f"{self.column.setup.task} {self.column.setup.scale}"
        return f"{named} long" if self.column.length else named

    @cached_property
    def gains(self) -> dict[str, Interval]:
        """Of each scheme over the baseline, the lowest first."""
        found = {name: t_interval(pairs.ours - pairs.theirs) for name, pairs in self.pairs.items()}
        return dict(sorted(found.items(), key=lambda item: item[1].mean))

    def means(self, name: str) -> str:
        """Of the baseline and of a scheme, over their pairs."""
        means = self.pairs[name].mean()
        return f"{means.theirs:.3f} → {means.ours:.3f}"


def columns_by_hardware(catalogue: Catalogue, folder: Path = RESULTS) -> dict[str, list[Column]]:
    """The columns of kept runs, by hardware: of a run that several folders have, with other numbers
    since other hardware made it, the one of this hardware counts.
    """
    found, _ = read_all(each for each in with_those_below(folder) if is_kept(each))
    runs = [run for of_folder in found.values() for run in of_folder]
    columns = {}
    for hardware in {run.hardware for run in runs}:
        its_last = sorted(runs, key=lambda run: run.hardware == hardware)
        columns[hardware] = all_columns(setups_of(one_each(its_last)[0], catalogue))
    return columns


def ranked(column: Column, catalogue: Catalogue, twins: dict[str, list[Column]]) -> Ranked:
    """The pairs of a column: both with searched learning rates, or both at the recipe's, and if
    possible from the same hardware. Variants without a title of their own are left out.
    """
    pairs = {}
    searched = set()
    baseline = catalogue.baseline
    for name in column.scores:
        titled = " " not in name or name in catalogue.schemes
        if name == baseline or not titled:
            continue
        hardware = Counter(run.hardware for run in column.setup.arm(name).runs)
        of_hardware = twins.get(hardware.most_common(1)[0][0], [])
        (beside,) = [each for each in of_hardware if each.title == column.title] or [column]
        is_searched = {name, baseline} <= beside.searched
        values = beside.scores if is_searched else beside.usual
        none = pd.Series(dtype=float)
        both = {"ours": values.get(name, none), "theirs": values.get(baseline, none)}
        found = pd.DataFrame(both).dropna()
        if len(found) >= FEWEST_SEEDS:
            pairs[name] = found
            if is_searched:
                searched.add(name)
    return Ranked(column, pairs, searched)


def tests_of(name: str, column: Column, measured: Measured) -> list[Result]:
    """The planned tests of a score, with an outcome, that compare a scheme with the baseline on a
    column's task: those at its scale, else those at any.
    """
    found = []
    for result in measured.tests:
        asked = result.comparison
        pair = scheme_of(asked.ours.scheme), scheme_of(asked.theirs.scheme)
        is_same = (*pair, asked.task) == (name, measured.catalogue.baseline, column.setup.task)
        is_score = asked.measure.at == "last" and column.is_of(asked.measure)
        if is_same and is_score and plan_word(result) in DECISIVE:
            found.append(result)
    return [each for each in found if is_at_scale(each, column)] or found


def is_at_scale(result: Result, column: Column) -> bool:
    return result.comparison.scale == column.setup.scale


def as_scores(result: Result) -> pd.DataFrame:
    """The pairs of a planned test as scores: shares, or e^(−loss)."""
    return result.pairs / result.measure.times if result.measure.share else np.exp(-result.pairs)
