"""The points of charts, from groups of runs."""

from collections.abc import Iterable

import numpy as np
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


def over_training(group: Setup, metric: Measure, schemes: Iterable[str] = ()) -> Panel:
    """A metric against optimizer steps, of `schemes` or the best; a loss with a floor as its
    excess.
    """
    floor = group.optimum if metric.metric == group.measure.metric else 0.0
    ended = set(group.finished.run_id)
    rows = []
    for run in group.runs[group.runs.scheme.isin(schemes or best(group))].itertuples():
        values = metric.times * curve(run.run, metric.metric) - floor
        rows += [(run.scheme, run.seed, step, y, run.run_id in ended) for step, y in values.items()]
    unit = metric.unit + (f" above the Bayes-optimal {floor:.3g}" if floor else "")
    points = points_frame(rows)
    return Panel(points, "optimizer steps", unit, floor > 0, metric.most, untrained=True)


def by_value(group: Setup, attribute: str) -> Panel:
    """Shares of correct problems, or losses (above the floor if known), by an attribute or bins of
    it.
    """
    slices, some = (
        group.slices(attribute),
        next(run for run in group.finished.run if attribute in run.slices),
    )
    is_length, share = attribute in (LENGTH, LENGTH_LOSS), attribute not in LOSS_ATTRIBUTES
    below = {int(value): nats for value, (_, nats) in some.floor.get(attribute, {}).items()}
    slices = slices.assign(mean=slices["mean"] - slices.value.map(below).fillna(0))
    if not is_length:
        slices = binned(
            slices,
            edges({int(value): count for value, (count, _) in some.slices[attribute].items()}),
        )
    points = slices[slices.scheme.isin(best(group, attribute if is_length else ""))].assign(
        ended=True
    )
    log = group.generated if attribute == LENGTH_LOSS else not share and any(below.values())
    unit = (
        "share of problems correct"
        if share
        else "nats above the Bayes-optimal loss"
        if log
        else group.measure.unit
    )
    x = group.report.length["title"] if is_length else title(group, attribute)
    return Panel(
        points.rename(columns={"value": "x", "mean": "y"}), x, unit, log, 1 if share else np.inf
    )


def title(group: Setup, attribute: str) -> str:
    """The attribute on an axis: `percent of instructions that are ignored`; of a crossed one with
    the length.
    """
    name, _, length = attribute.partition(AT)
    title = group.report.attributes.get(name) or group.published.attributes.get(name, name)
    return f"{title}; {group.report.length['title']}: {length}" if length else title


def best(group: Setup, length: str = "") -> list[str]:
    """All schemes, or, if they are too many for one panel, baseline, contender and the best at the
    end.

    length: LENGTH or LENGTH_LOSS: the best at the greatest length instead; of equal ones at the
            next
    """
    if len(group.schemes) <= PANEL:
        return group.schemes
    means, higher = (
        group.finished.groupby("scheme")[["value"]].mean(),
        group.measure.higher_is_better,
    )
    if length:
        means, higher = (
            group.slices(length).groupby(["scheme", "value"])["mean"].mean(),
            length == LENGTH,
        )
        means = means.unstack("value").sort_index(axis="columns", ascending=False)
    pair = [s for s in group.published.pair if s in group.schemes]
    others = [
        scheme
        for scheme in means.sort_values([*means.columns], ascending=not higher).index
        if scheme not in pair
    ]
    chosen = {*pair, *others[: FEW - len(pair)]}
    return [scheme for scheme in group.schemes if scheme in chosen]


def attributes(group: Setup) -> list[str]:
    """The attributes of the problems to plot, lengths first; answer position only of losses or
    above a floor.
    """
    recorded = next((list(run.slices) for run in group.finished.run if run.slices), [])
    omitted = {LENGTH, LENGTH_LOSS, *group.report.mirrors, *group.crossed.values()}
    if group.measure.share and not group.floor:
        omitted.add(POSITION)
    longest = [group.crossed[max(group.crossed)]] if group.crossed else []
    return (
        group.length_kinds
        + longest
        + [attribute for attribute in recorded if attribute not in omitted]
    )


def edges(counts: dict[int, int]) -> np.ndarray:
    """The lower ends of an attribute's bins: its values, or, if they are many, ranges of about as
    many problems.
    """
    values = np.array(sorted(counts))
    below = np.cumsum([counts[value] for value in values])  # problems up to each value
    if len(values) <= MANY:
        return values
    return np.unique(
        values[
            np.searchsorted(below, np.ceil((below[-1] - 1) * np.arange(BINS) / BINS), side="right")
        ]
    )


def binned(slices: pd.DataFrame, edges: np.ndarray) -> pd.DataFrame:
    """`Setup.slices` with the problems of each bin in one row, at the bin's centre."""
    ends = np.append(edges[1:] - 1, max(slices.value.max(), edges[-1]))
    # Below the first edge: in its bin.
    bins = np.maximum(np.searchsorted(edges, slices.value, side="right") - 1, 0)
    sums = slices.assign(value=(edges + ends)[bins] / 2, mean=slices["count"] * slices["mean"])
    sums = sums.groupby(["scheme", "seed", "value"], sort=False).sum().reset_index()
    return sums.assign(mean=sums["mean"] / sums["count"])
