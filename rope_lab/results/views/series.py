"""The points of charts, from setups of runs."""

import math
from collections.abc import Iterable

import pandas as pd

from rope_lab.results.records.frame import curve
from rope_lab.results.records.measures import (
    AT,
    LENGTH,
    LENGTH_LOSS,
    LOSS_ATTRIBUTES,
    POSITION,
    Measure,
)
from rope_lab.results.records.setups import Setup
from rope_lab.results.views.panels import FEW, Panel, points_frame

MANY, BINS = 24, 8  # an attribute with more than so many values is plotted in so many bins
PANEL = 8  # schemes that one panel takes; of more, FEW are shown


def over_training(setup: Setup, metric: Measure, schemes: Iterable[str] = ()) -> Panel:
    """A metric against optimizer steps, of `schemes` or the best; a loss with a floor as its
    excess.
    """
    floor = setup.optimum if metric.metric == setup.measure.metric else 0.0
    ended = set(setup.finished.run_id)
    rows = []
    for run in setup.runs[setup.runs.scheme.isin(schemes or best(setup))].itertuples():
        values = metric.times * curve(run.run, metric.metric) - floor
        rows += [(run.scheme, run.seed, step, y, run.run_id in ended) for step, y in values.items()]
    unit = metric.unit + (f" above the Bayes-optimal {floor:.3g}" if floor else "")
    points = points_frame(rows)
    return Panel(points, "optimizer steps", unit, floor > 0, metric.most, untrained=True)


def by_value(setup: Setup, attribute: str) -> Panel:
    """Shares of correct problems, or losses (above the floor if known), by an attribute or bins of
    it.
    """
    slices = setup.slices(attribute)
    if attribute in (LENGTH, LENGTH_LOSS):
        shown = best(setup, attribute)
        x = setup.report.length["title"]
        scale = {"zero": True}
    else:
        shown = best(setup)
        x = title(setup, attribute)
        scale = {}
    if attribute not in LOSS_ATTRIBUTES:
        unit, log, most = "share of problems correct", False, 1.0
    else:
        floors = _floors(setup, attribute)
        slices = slices.assign(mean=slices["mean"] - slices.value.map(floors).fillna(0))
        log = setup.generated if attribute == LENGTH_LOSS else any(floors.values())
        unit = "nats above the Bayes-optimal loss" if log else setup.measure.unit
        most = math.inf
    if not scale and slices.value.nunique() > MANY:
        slices = binned(slices)
    points = slices[slices.scheme.isin(shown)].rename(columns={"value": "x", "mean": "y"})
    axis = {"tickMinStep": 1}
    return Panel(points.assign(ended=True), x, unit, log, most, scale=scale, axis=axis)


def _floors(setup: Setup, attribute: str) -> dict[int, float]:
    """The Bayes-optimal loss by the values of an attribute."""
    run = next(run for run in setup.finished.run if attribute in run.slices)
    return {int(value): nats for value, (_, nats) in run.floor.get(attribute, {}).items()}


def title(setup: Setup, attribute: str) -> str:
    """The attribute on an axis: `percent of instructions that are ignored`; of a crossed one with
    the length.
    """
    name, _, length = attribute.partition(AT)
    title = setup.report.attributes.get(name) or setup.catalogue.attributes.get(name, name)
    return f"{title}; {setup.report.length['title']}: {length}" if length else title


def best(setup: Setup, length: str = "") -> list[str]:
    """All schemes, or, if they are too many for one panel, baseline, contender and the best at the
    end.

    length: LENGTH or LENGTH_LOSS: the best at the greatest length instead; of equal ones at the
            next
    """
    if len(setup.schemes) <= PANEL:
        return setup.schemes
    means = setup.finished.groupby("scheme")[["value"]].mean()
    higher = setup.measure.higher_is_better
    if length:
        means = setup.slices(length).pivot_table("mean", "scheme", "value")
        means = means.sort_index(axis="columns", ascending=False)
        higher = length == LENGTH
    ordered = list(means.sort_values(list(means), ascending=not higher).index)
    ordered.sort(key=lambda scheme: scheme not in setup.catalogue.pair)
    return [scheme for scheme in setup.schemes if scheme in ordered[:FEW]]


def attributes(setup: Setup) -> list[str]:
    """The attributes of the problems to plot, lengths first; answer position only of losses or
    above a floor.
    """
    recorded = next((list(run.slices) for run in setup.finished.run if run.slices), [])
    omitted = {LENGTH, LENGTH_LOSS, *setup.report.mirrors, *setup.crossed.values()}
    if setup.measure.share and not setup.floor:
        omitted.add(POSITION)
    longest = [setup.crossed[max(setup.crossed)]] if setup.crossed else []
    rest = [attribute for attribute in recorded if attribute not in omitted]
    return setup.length_kinds + longest + rest


def binned(slices: pd.DataFrame) -> pd.DataFrame:
    """`Setup.slices` with the problems of each of BINS equal ranges in one row, at its middle."""
    first = slices.value.min()
    width = math.ceil((slices.value.max() - first + 1) / BINS)
    middle = (slices.value - first) // width * width + first + (width - 1) / 2
    sums = slices.assign(value=middle, mean=slices["count"] * slices["mean"])
    sums = sums.groupby(["scheme", "seed", "value"], sort=False).sum().reset_index()
    return sums.assign(mean=sums["mean"] / sums["count"])
