"""Charts as data, from the panels of figures; page.html draws them. Thin lines are runs; bold ones
means with bands.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from rope_lab.results.comparisons.grids import Sweep, is_number
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.measures import declared
from rope_lab.results.records.run import one_line
from rope_lab.results.records.setups import Setup
from rope_lab.results.views import series, sweeps
from rope_lab.results.views.series import Panel

POINTS = 60  # of a curve; longer ones are thinned
LABEL = 60  # characters
BESIDE = (
    "eval/loss",
    "eval/accuracy",
    "train/loss",
    "train/grad_norm",
)  # curves besides the task's own metric
Chart = dict[str, Any]


def curves(group: Setup) -> list[Chart]:
    """A chart over training for each metric.

    `runs` are of all schemes, `means` and `colors` of those to show. `rates`: by scheme the tokens
    and seconds of a step.
    """
    recorded = {name for run in group.runs.run for name in run.curves}
    metrics = [
        group.measure,
        *(declared(name) for name in BESIDE if name != group.measure.metric and name in recorded),
    ]
    a_step = (
        group.runs[["tokens", "seconds"]]
        .div(group.runs.steps.clip(1), axis=0)
        .groupby(group.runs.scheme)
    )
    a_step = a_step.agg({"tokens": "max", "seconds": "mean"})  # a run without a step has no tokens
    rates = {group.published.title(scheme): {**rate} for scheme, rate in a_step.iterrows()}
    charts = []
    for metric in metrics:
        panel = series.over_training(group, metric)
        if len(panel.points):
            every = series.over_training(group, metric, group.schemes).points
            charts.append(
                chart(panel, group.published, panel.y, metric.metric, every) | {"rates": rates}
            )
    return charts


def others(shown: Setup | Sweep) -> list[Chart]:
    """Scores by length and kind of problem; of a sweep, by the setting."""
    if not isinstance(shown, Sweep):
        panels = [series.by_value(shown, attribute) for attribute in series.attributes(shown)]
        return [chart(panel, shown.published, f"By {panel.x}", panel.y) for panel in panels]
    panel, values = sweeps.panel(shown), shown.values
    log = all(map(is_number, values)) and 0 < 3 * values[0] <= values[-1]
    return [chart(panel, shown.published, panel.y, f"by {panel.x}") | {"log": log}]


def chart(
    panel: Panel, published: Published, title: str, note: str, every: pd.DataFrame | None = None
) -> Chart:
    """A line for every run, and for each scheme its mean and band.

    every: the points of all runs, if the panel shows only some schemes
    """
    points = panel.points if every is None else every
    runs = [
        {"scheme": published.title(scheme), "seed": str(seed)} | _points(values, panel.log)
        for (scheme, seed), values in points.groupby(["scheme", "seed"], sort=False)
    ]
    means = [
        {"scheme": published.title(scheme), "seeds": int(values.n.max())}
        | _points(values, panel.log)
        for scheme, values in panel.means().groupby("scheme")
    ]
    ordered = sorted(panel.schemes, key=published.order)
    colors = {published.title(scheme): published.color(scheme, ordered) for scheme in ordered}
    shown = [y for row in (*runs, *means) if row["scheme"] in colors for y in row["y"]]
    whole = bool((panel.points.x % 1 == 0).all())
    found = {"title": title, "note": note, "x": one_line(panel.x, LABEL), "whole": whole}
    return found | {"y": _axis(panel, shown), "colors": colors, "runs": runs, "means": means}


def _points(table: pd.DataFrame, log: bool) -> dict[str, list]:
    """x, y and the ends of its interval as lists; thinned, and without points that have no place on
    the axis.
    """
    table = table[table.y > 0] if log else table[table.y.notna()]
    if log and "low" in table:
        table = table.assign(low=table.low.clip(lower=table.y.min() / 10))
    if len(table) > POINTS:
        table = table.iloc[np.linspace(0, len(table) - 1, POINTS).round().astype(int)]
    return {name: rounded(table[name]) for name in ("x", "y", "low", "high") if name in table}


def _axis(panel: Panel, values: list[float]) -> dict[str, Any]:
    """An axis as wide as values, not bands; of shares, from none to all, with room for dots."""
    least, most = min(values, default=0.1), max(values, default=1.0)
    if panel.log and least > 0:
        scale = {"type": "log", "domain": rounded([least / 1.15, most * 1.15]), "nice": False}
        return {"scale": scale, "axis": {"format": "~g", "tickCount": 6}}
    room, top = 0.05 * (most - least) or 0.1, panel.most
    ends = [-0.04 * top, 1.04 * top] if math.isfinite(top) else [least - room, most + room]
    return {"scale": {"domain": rounded(ends), "nice": False}, "axis": {"tickCount": 5}}


def rounded(values: Iterable[float]) -> list[float | None]:
    """Four significant digits, nan as null."""
    short = [None if math.isnan(value) else float(f"{value:.4g}") for value in values]
    return [int(value) if value is not None and value == int(value) else value for value in short]
