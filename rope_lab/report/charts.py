"""Charts as Altair specifications. Thin lines and dots are runs; bold ones are means, with their 95% interval."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from rope_lab.results import series
from rope_lab.results.frame import curve
from rope_lab.results.groups import Group
from rope_lab.results.metrics import LENGTH, LENGTH_LOSS, LOSS_ATTRIBUTES, declared
from rope_lab.results.published import Published
from rope_lab.results.runs import one_line

POINTS = 80  # of a curve; longer ones are thinned
LABEL = 60  # characters
MEAN = ("scheme:N", "seeds:N", "x:N", "y:Q", "low:Q", "high:Q")  # fields that the tooltip of a mean shows
PAN = "[pointerdown[event.pointerType === 'mouse'], window:pointerup] > window:pointermove!"  # fingers scroll the page
ZOOM = "wheel![event.altKey || event.ctrlKey || event.metaKey]"  # and so does the wheel alone

Run = tuple[str, Any, pd.Series]  # scheme, seed, values by x


@dataclass(frozen=True)
class Chart:
    title: str
    note: str
    spec: dict[str, Any]


def of(group: Group) -> list[Chart]:
    """Curves over training, and scores by length and kind of problem."""
    beside = [declared(name) for name in ("eval/loss", "eval/accuracy") if name != group.metric.name]
    recorded = [metric for metric in beside if any(metric.name in run.curves for run in group.runs.run)]
    charts = [_curves(replace(group, report=replace(group.report, metric=m))) for m in (group.metric, *recorded[:1])]
    kinds = [kind for kind in (LENGTH, LENGTH_LOSS) if len(group.slices(kind))]
    charts += [_by_value(group, name) for name in (*kinds, *series.sliced(group))]
    return [chart for chart in charts if any(row["x"] for row in chart.spec["datasets"]["runs"])]


def _curves(group: Group) -> Chart:
    """Over training; runs that have not ended have a line and count in no mean."""
    shown, metric, floor = series.best(group), group.metric, group.optimum
    rows = group.runs[group.runs.scheme.isin(shown)].itertuples()
    runs = [(row.scheme, row.seed, metric.times * curve(row.run, metric.name) - floor) for row in rows]
    means = {scheme: group.curves(scheme) - floor for scheme in shown}
    spec = _lines(group, runs, means, "optimizer steps", floor > 0, metric.times if metric.share else None, 260)
    return Chart(series.score_label(group), "by optimizer step", spec)


def _by_value(group: Group, attribute: str) -> Chart:
    """Problems right, or a loss, by an attribute of the problems."""
    shown, is_length = series.best(group), attribute in (LENGTH, LENGTH_LOSS)
    means = {scheme: table for scheme, table in series.by_value(group, attribute).items() if scheme in shown}
    runs = [(scheme, seed, table[seed]) for scheme, table in means.items() for seed in table]
    name = one_line(group.report.length["title"] if is_length else group.label(attribute), LABEL)
    log, share = series.above_floor(group, attribute), attribute not in LOSS_ATTRIBUTES
    unit = "share of problems right" if share else "nats above the Bayes-optimal loss" if log else group.metric.unit
    return Chart(f"By {name}", unit, _lines(group, runs, means, name, log, 1 if share else None))


def _lines(
    group: Group,
    runs: list[Run],
    means: dict[str, pd.DataFrame],
    x: str,
    log: bool,
    top: float | None,
    height: int = 190,
) -> dict[str, Any]:
    """A line for every run, a bold one for each scheme's mean and its band, over `x`; can be zoomed and filtered.

    means: by scheme, the values of its seeds by x, a column a seed
    """
    title = group.published.title
    thin = [{"scheme": title(s), "seed": str(seed)} | _points(values.to_frame("y"), log) for s, seed, values in runs]
    bold = [
        {"scheme": title(s), "seeds": table.shape[1]} | _points(series.band(table).rename(columns={"mean": "y"}), log)
        for s, table in means.items()
    ]
    zoom = alt.selection_interval("zoom", bind="scales", translate=PAN, zoom=ZOOM)
    pick = alt.selection_point("pick", fields=["scheme"], bind="legend")
    opacity, color = alt.condition(pick, alt.value(1), alt.value(0.08)), _color(group.published, means)
    across = alt.X("x:Q", title=x, axis=alt.Axis(grid=False), scale=alt.Scale(nice=False, zero=False))
    up = alt.Y("y:Q", title=None, **_axis(log, top, [y for row in (*thin, *bold) for y in row["y"]]))
    line = alt.Chart(alt.NamedData("runs")).transform_flatten(["x", "y"])
    mean = alt.Chart(alt.NamedData("means")).transform_flatten(["x", "y", "low", "high"])
    layers = [
        mean.mark_area(clip=True, fillOpacity=0.15).encode(
            across, alt.Y("low:Q"), alt.Y2("high:Q"), color, opacity=opacity
        ),
        line.mark_line(clip=True, strokeWidth=1, strokeOpacity=0.4).encode(
            across, up, color, opacity=opacity, detail="seed:N"
        ),
        mean.mark_line(clip=True, strokeWidth=2.5).encode(across, up, color, opacity=opacity),
        mean.mark_circle(clip=True, size=60, fillOpacity=0).encode(across, up, color, tooltip=_tips(*MEAN)),
    ]
    layers[1] = layers[1].encode(tooltip=_tips("scheme:N", "seed:N")).add_params(pick, zoom)
    layers = layers if any(row["x"] for row in bold) else layers[1:2]  # of no finished run there is no mean
    spec = alt.layer(*layers).properties(width="container", height=height).to_dict(validate=False)
    spec = {key: value for key, value in spec.items() if key not in ("config", "$schema")}
    return spec | {"datasets": _rounded({"runs": thin, "means": bold})}


def _points(table: pd.DataFrame, log: bool) -> dict[str, list]:
    """The columns of a table by x, as lists; thinned, and without points that have no place on the axis."""
    table = table[table.y > 0] if log else table[table.y.notna()]
    if log and "low" in table:
        table = table.assign(low=table.low.clip(lower=table.y.min() / 10))
    if len(table) > POINTS:
        table = table.iloc[np.linspace(0, len(table) - 1, POINTS).round().astype(int)]
    return {name: list(table[name]) for name in table} | {"x": list(table.index)}


def _axis(log: bool, top: float | None, values: list[float]) -> dict[str, Any]:
    """As wide as the values, which bands may leave; of shares, from 0 to `top`, with room for dots."""
    least, most = min(values, default=0.1), max(values, default=1.0)
    if log and least > 0:
        scale = alt.Scale(type="log", domain=[least / 1.15, most * 1.15], nice=False)
        return {"scale": scale, "axis": alt.Axis(format="~g", tickCount=6)}
    room = 0.05 * (most - least) or 0.1
    ends = [-0.04 * top, 1.04 * top] if top else [least - room, most + room]
    return {"scale": alt.Scale(domain=ends, nice=False), "axis": alt.Axis(tickCount=5)}


def _color(published: Published, schemes: Iterable[str]) -> alt.Color:
    ordered = sorted(schemes, key=lambda scheme: (published.rank(scheme), scheme))
    domain, colors = map(published.title, ordered), (published.color(scheme, ordered) for scheme in ordered)
    legend = alt.Legend(title=None, orient="bottom", columns=3, labelLimit=95, symbolOpacity=1)
    return alt.Color("scheme:N", scale=alt.Scale(domain=list(domain), range=list(colors)), legend=legend)


def _tips(*names: str) -> list[alt.Tooltip]:
    """Fields that a tooltip shows."""
    titles = {"y:Q": "mean", "low:Q": "95% from", "high:Q": "to"}
    return [alt.Tooltip(name, title=titles.get(name, name[:-2])) for name in names]


def _rounded(value: Any) -> Any:
    """Numbers with four significant digits, nan as null, throughout."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    if isinstance(value, str) or math.isnan(value):
        return value if isinstance(value, str) else None
    return int(value) if value == int(value) else float(f"{value:.4g}")
