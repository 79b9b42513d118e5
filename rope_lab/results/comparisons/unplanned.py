"""The families of comparisons that are made of setups, without a plan."""

from dataclasses import replace

import numpy as np

from rope_lab.results.comparisons.answers import Comparison, Family, Result, answer
from rope_lab.results.comparisons.stats import FEWEST_PAIRS, Interval, t_interval
from rope_lab.results.records.frame import curve
from rope_lab.results.records.measures import Measure
from rope_lab.results.records.setups import Arm, Setup

FEWEST_RATES = 3  # of a search


def between(
    setup: Setup,
    scheme: str,
    other: str,
    measure: Measure | None = None,
    test: str = "paired_t",
) -> Comparison:
    """Scheme − other.

    measure: default: by which the task's schemes are compared
    """
    return Comparison(
        name=f"{scheme} − {other}",
        task=setup.task,
        scale=setup.scale,
        report=setup.report,
        measure=measure or setup.measure,
        ours=setup.arm(scheme),
        theirs=setup.arm(other),
        test=test,
        published=tuple(setup.report.published_gains(scheme, other)) if setup.versions else (),
        fewest=max(setup.catalogue.estimates.get(setup.scale, 0) + 1, FEWEST_PAIRS),
    )


def of_contender(setups: list[Setup], every: list[Setup]) -> list[Result]:
    """Contender − baseline in each of these setups of one scale that has pairs.

    every: all setups, of which some may have other learning rates
    """
    here = []
    for setup in setups:
        rates = [_rates(setup, scheme, every) for scheme in setup.catalogue.pair]
        asked = between(setup, *setup.catalogue.pair)
        if len(asked.pairs()):
            here.append(replace(asked, searched=min(rates) >= FEWEST_RATES))
    return answer(Family(comparisons=here, several="tasks at this scale", one="this task alone"))


def _rates(setup: Setup, scheme: str, every: list[Setup]) -> int:
    """At how many learning rates a scheme has finished runs under settings that are the same
    otherwise.
    """
    alike = [each for each in every if setup.is_alike(each) and len(each.of(scheme))]
    return len({each.settings.get("train.lr") for each in alike})


def of_schemes(setup: Setup, headline: Result | None) -> dict[str, Result]:
    """Each scheme − the baseline; the contender's result is the headline's, if there is one."""
    contender, baseline = setup.catalogue.pair
    others = [scheme for scheme in setup.others if not (headline and scheme == contender)]
    compared = [between(setup, scheme, baseline) for scheme in others]
    family = Family(comparisons=compared, several="schemes here", one="this comparison")
    found = dict(zip(others, answer(family), strict=True))
    return found | {contender: headline} if headline else found


def difference_since(setup: Setup, threshold: Measure) -> Interval:
    """Contender − baseline after as many steps beyond the threshold as both runs of a pair still
    have.

    Interpolated between evaluations; over the pairs of which both runs reached the threshold.
    """
    asked = between(setup, *setup.catalogue.pair, measure=threshold)
    steps = asked.pairs()
    reached = steps[np.isfinite(steps).all(axis="columns")]
    differences = []
    for seed, pair in reached.iterrows():
        left = setup.settings["train.steps"] - pair.max()
        ours = _value_at(asked.ours, seed, left + pair.ours, setup.measure)
        theirs = _value_at(asked.theirs, seed, left + pair.theirs, setup.measure)
        differences.append(setup.measure.times * (ours - theirs))
    return t_interval([each for each in differences if not np.isnan(each)])


def _value_at(arm: Arm, seed: int, step: float, measure: Measure) -> float:
    """The value of a measure's curve at a step, in a run; nan without a curve."""
    (run,) = (run for run in arm.runs if run.seed == seed)
    values = curve(run, measure.metric)
    return np.interp(step, values.index, values) if len(values) else np.nan
