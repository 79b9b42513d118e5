"""Charts as Altair specifications, from the panels of figures. Thin lines are runs; bold ones are means with bands."""

import copy
import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from rope_lab.results import series, sweeps
from rope_lab.results.groups import Group
from rope_lab.results.metrics import declared
from rope_lab.results.published import Published
from rope_lab.results.runs import one_line
from rope_lab.results.series import Panel
from rope_lab.results.sweeps import Sweep

POINTS = 60  # of a curve; longer ones are thinned
LABEL = 60  # characters
NARROW = 16  # characters of a scheme's title that three columns of a legend take
BESIDE = ("eval/loss", "eval/accuracy", "train/loss", "train/grad_norm")  # curves besides the task's own metric
MEAN = ("scheme:N", "seeds:N", "x:Q", "y:Q", "low:Q", "high:Q")  # fields that the tooltip of a mean shows
PAN = "[pointerdown[event.pointerType === 'mouse'], window:pointerup] > window:pointermove!"  # fingers scroll the page
ZOOM = "wheel![event.altKey || event.ctrlKey || event.metaKey]"  # and so does the wheel alone


@dataclass(frozen=True)
class Chart:
    """rates: of curves over training, the tokens and, by scheme, the seconds of a step."""

    title: str
    note: str
    spec: dict[str, Any]
    rates: dict[str, Any] | None = None


def of(shown: Group | Sweep) -> list[Chart]:
    """Curves over training, and scores by length and kind of problem; of a sweep, scores by the setting."""
    if isinstance(shown, Sweep):
        panel, values = sweeps.panel(shown), shown.values
        log = all(map(sweeps.is_number, values)) and 0 < 3 * values[0] <= values[-1]
        return [Chart(panel.y.replace("\n", ", "), f"by {panel.x}", spec(panel, shown.published, log_x=log))]
    recorded = {name for run in shown.runs.run for name in run.curves}
    metrics = [shown.metric, *(declared(name) for name in BESIDE if name != shown.metric.name and name in recorded)]
    of_step = {"tokens": shown.settings["train.batch_size"] * shown.settings["train.seq_len"]}
    of_step["seconds"] = {
        shown.published.title(scheme): float((runs.seconds / runs.steps.clip(1)).mean())
        for scheme, runs in shown.runs.groupby("scheme")
    }
    charts = []
    for metric in metrics:
        panel = series.over_training(shown, metric)
        if len(panel.points):
            charts.append(Chart(panel.title, metric.name, spec(panel, shown.published, height=260), of_step))
    for attribute in series.attributes(shown):
        panel = series.by_value(shown, attribute)
        charts.append(Chart(panel.title, panel.y, spec(panel, shown.published)))
    return charts


def spec(panel: Panel, published: Published, log_x: bool = False, height: int = 190) -> dict[str, Any]:
    """A line for every run, a bold one for each scheme's mean and its band; can be zoomed and filtered."""
    thin = [
        {"scheme": published.title(scheme), "seed": str(seed)} | _points(values, panel.log)
        for (scheme, seed), values in panel.points.groupby(["scheme", "seed"], sort=False)
    ]
    bold = [
        {"scheme": published.title(scheme), "seeds": int(values.n.max())} | _points(values, panel.log)
        for scheme, values in panel.means().groupby("scheme")
    ]
    made = copy.deepcopy(_layers())
    made["layer"] = made["layer"] if bold else made["layer"][1:2]  # of no finished run there is no mean
    x_scale = {"type": "log", "nice": False} if log_x else {"nice": False, "zero": False}
    y = _axis(panel, [y for row in (*thin, *bold) for y in row["y"]])
    x_axis = {"grid": False} | ({"tickMinStep": 1} if (panel.points.x % 1 == 0).all() else {})
    columns = 3 if max((len(published.title(scheme)) for scheme in panel.schemes), default=0) < NARROW else 2
    for encoding in (layer["encoding"] for layer in made["layer"]):
        encoding["x"] |= {"title": one_line(panel.x, LABEL), "scale": x_scale, "axis": x_axis}
        encoding["y"] |= y if "y2" not in encoding else {}
        encoding["color"]["scale"] = _colors(published, panel.schemes)
        encoding["color"]["legend"]["columns"] = columns
    return made | {"height": height, "datasets": _rounded({"runs": thin, "means": bold})}


@functools.cache
def _layers() -> dict[str, Any]:
    """Bands, runs, means and the means' points, which have tooltips."""
    zoom = alt.selection_interval("zoom", bind="scales", translate=PAN, zoom=ZOOM)
    pick = alt.selection_point("pick", fields=["scheme"], bind="legend")
    legend = alt.Legend(title=None, orient="bottom", labelLimit=150, symbolOpacity=1)
    opacity, color = alt.condition(pick, alt.value(1), alt.value(0.08)), alt.Color("scheme:N", legend=legend)
    across, up = alt.X("x:Q"), alt.Y("y:Q", title=None)
    line = alt.Chart(alt.NamedData("runs")).transform_flatten(["x", "y"])
    mean = alt.Chart(alt.NamedData("means")).transform_flatten(["x", "y", "low", "high"])
    tips = [alt.Tooltip(name, title={"low:Q": "95% from", "high:Q": "to"}.get(name, name[:-2])) for name in MEAN]
    layers = [
        mean.mark_area(clip=True, fillOpacity=0.15).encode(
            across, alt.Y("low:Q"), alt.Y2("high:Q"), color, opacity=opacity
        ),
        line.mark_line(clip=True, strokeWidth=1, strokeOpacity=0.4)
        .encode(across, up, color, opacity=opacity, detail="seed:N", tooltip=["scheme:N", "seed:N"])
        .add_params(pick, zoom),
        mean.mark_line(clip=True, strokeWidth=2.5).encode(across, up, color, opacity=opacity),
        mean.mark_circle(clip=True, size=60, fillOpacity=0).encode(across, up, color, tooltip=tips),
    ]
    made = alt.layer(*layers).properties(width="container").to_dict(validate=False)
    return {key: value for key, value in made.items() if key not in ("config", "$schema")}


def _points(table: pd.DataFrame, log: bool) -> dict[str, list]:
    """x, y and the ends of its interval as lists; thinned, and without points that have no place on the axis."""
    table = table[table.y > 0] if log else table[table.y.notna()]
    if log and "low" in table:
        table = table.assign(low=table.low.clip(lower=table.y.min() / 10))
    if len(table) > POINTS:
        table = table.iloc[np.linspace(0, len(table) - 1, POINTS).round().astype(int)]
    return {name: list(table[name]) for name in ("x", "y", "low", "high") if name in table}


def _axis(panel: Panel, values: list[float]) -> dict[str, Any]:
    """As wide as the values, which bands may leave; of shares, from none to all, with room for dots."""
    least, most = min(values, default=0.1), max(values, default=1.0)
    if panel.log and least > 0:
        scale = {"type": "log", "domain": [least / 1.15, most * 1.15], "nice": False}
        return _rounded({"scale": scale, "axis": {"format": "~g", "tickCount": 6}})
    room, top = 0.05 * (most - least) or 0.1, panel.most
    ends = [-0.04 * top, 1.04 * top] if math.isfinite(top) else [least - room, most + room]
    return _rounded({"scale": {"domain": ends, "nice": False}, "axis": {"tickCount": 5}})


def _colors(published: Published, schemes: Iterable[str]) -> dict[str, list[str]]:
    ordered = sorted(schemes, key=lambda scheme: (published.rank(scheme), scheme))
    colors = [published.color(scheme, ordered) for scheme in ordered]
    return {"domain": list(map(published.title, ordered)), "range": colors}


def _rounded(value: Any) -> Any:
    """Numbers with four significant digits, nan as null, throughout."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    if isinstance(value, str | bool) or math.isnan(value):
        return value if isinstance(value, str | bool) else None
    return int(value) if value == int(value) else float(f"{value:.4g}")
