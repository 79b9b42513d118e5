"""The families of comparisons that are made of setups, without a plan."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pandas as pd

from rope_lab.identity import identify
from rope_lab.results.comparisons.results import Comparison, Family, Result, answer
from rope_lab.results.comparisons.stats import Interval, t_interval
from rope_lab.results.records.frame import curve
from rope_lab.results.records.measures import Measure
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import Arm, Setup

FEWEST = 3  # pairs of a test and a verdict, and learning rates of a search


def between(
    setup: Setup,
    scheme: str,
    other: str,
    there: Setup | None = None,
    measure: Measure | None = None,
    test: str = "t",
) -> Comparison:
    """Scheme − other.

    there:   the setup of the other scheme, if not this one
    measure: default: by which the task's schemes are compared
    """
    problems = setup.settings.get("eval.problems_at_end") or setup.settings.get("eval.problems")
    return Comparison(
        name=f"{scheme} − {other}",
        task=setup.task,
        scale=setup.scale,
        report=setup.report,
        measure=measure or setup.measure,
        ours=setup.arm(scheme),
        theirs=(there or setup).arm(other),
        test=test,
        published=tuple(setup.report.published_gains(scheme, other)) if setup.versions else (),
        untested=max(setup.published.untested.get(setup.scale, 0), FEWEST - 1),
        guess=None if measure else setup.report.guess,
        problems=problems or 1,
    )


def headlines(setups: list[Setup], every: list[Setup]) -> list[Result]:
    """Contender − baseline in each of these setups of one scale that has pairs.

    every: all setups, of which some may have other learning rates
    """
    compared = []
    for setup in setups:
        rates = [len(_rates(setup, scheme, every)) for scheme in setup.published.pair]
        asked = between(setup, *setup.published.pair)
        compared.append(replace(asked, searched=min(rates) >= FEWEST))
    here = [comparison for comparison in compared if len(comparison.pairs())]
    return answer(Family(comparisons=here, several="tasks at this scale", one="this task alone"))


def _rates(setup: Setup, scheme: str, every: list[Setup]) -> set[float | None]:
    """The learning rates at which a scheme has finished runs under settings that are the same
    otherwise.
    """
    own = setup.settings | {"train.lr": None}
    alike = [
        each
        for each in every
        if (each.task, each.scale) == (setup.task, setup.scale)
        and each.settings | {"train.lr": None} == own
    ]
    return {each.settings.get("train.lr") for each in alike if len(each.of(scheme))}


def of_schemes(setup: Setup, headline: Result | None) -> dict[str, Result]:
    """Each scheme − the baseline; the contender's result is the headline's, if there is one."""
    published = setup.published
    others = [scheme for scheme in setup.others if not (headline and scheme == published.contender)]
    compared = [between(setup, scheme, published.baseline) for scheme in others]
    family = Family(comparisons=compared, several="schemes here", one="this comparison")
    found = dict(zip(others, answer(family), strict=True))
    return found | ({published.contender: headline} if headline else {})


def of_parents(setups: Iterable[Setup]) -> tuple[list[Result], list[tuple[Setup, Run, Run]]]:
    """Runs that began from others − those others, scheme by scheme; of each result the setup and a
    run of either side.
    """
    every = [(setup, scheme) for setup in setups for scheme in setup.schemes]
    first = {each: each[0].arm(each[1]).runs[0] for each in every}
    by_id = {(setup.recipe_id, _lineage(run)[0]): (setup, s) for (setup, s), run in first.items()}
    compared, about = [], []
    for (setup, scheme), run in first.items():
        parent_id = run.settings.get("parent.recipe_id"), _lineage(run)[1]
        if parent_id in by_id:
            there, other = by_id[parent_id]
            compared.append(between(setup, scheme, other, there))
            about.append((setup, run, first[there, other]))
    family = Family(comparisons=compared, several="comparisons here", one="this comparison")
    return answer(family), about


def _lineage(run: Run) -> tuple[str, str]:
    """A run's scheme and its parent's, each by name and id, as in `Run.parent`; a child's id counts
    its parent's.
    """
    name, settings = run.position, run.all_settings
    scheme = f"{name}-{identify(run.task, name, 0, settings).scheme_id}"
    if "parent.recipe_id" not in settings:
        return scheme, ""
    parent = run.parent or scheme
    settings = settings | {"parent.scheme_id": parent.rpartition("-")[2]}
    return f"{name}-{identify(run.task, name, 0, settings).scheme_id}", parent


def difference_since(setup: Setup, threshold: Measure) -> Interval:
    """Contender − baseline after as many steps beyond the threshold as both runs of a pair still
    have.

    Interpolated between evaluations; over the pairs of which both runs reached the threshold.
    """
    asked = between(setup, *setup.published.pair, measure=threshold)
    steps = asked.pairs()
    reached = steps[np.isfinite(steps).all(axis="columns")]
    ours, theirs = _curves(asked.ours, setup.measure), _curves(asked.theirs, setup.measure)
    differences = []
    for seed, steps in reached.iterrows():
        if ours[seed].empty or theirs[seed].empty:
            continue
        left = setup.settings["train.steps"] - steps.max()
        our_end = np.interp(left + steps.ours, ours[seed].index, ours[seed])
        their_end = np.interp(left + steps.theirs, theirs[seed].index, theirs[seed])
        differences.append(setup.measure.times * our_end - setup.measure.times * their_end)
    return t_interval(differences)


def _curves(arm: Arm, measure: Measure) -> dict[int, pd.Series]:
    """By seed the curve of the measure's metric."""
    return {run.seed: curve(run, measure.metric) for run in arm.runs}
