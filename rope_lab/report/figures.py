"""The charts of the page: Vega-Lite with its data; page.js fills in runs."""

from typing import Any

import altair as alt

from rope_lab.results.comparisons.grids import Sweep
from rope_lab.results.records.measures import declared
from rope_lab.results.records.setups import Setup
from rope_lab.results.views import attention, charts, render, series
from rope_lab.results.views.figures import sweep_panel
from rope_lab.results.views.panels import Panel, Row, points_frame, titled
from rope_lab.results.views.probes import AttentionWeights

BESIDE = ("eval/loss", "eval/accuracy", "train/loss", "train/grad_norm")  # besides the task's own
SMOOTHED = "train/loss"  # evaluations are shown as they are
TWO = {"A": "#0072b2", "B": "#d55e00"}  # two runs beside each other
Chart = dict[str, Any]


def curves(group: Setup) -> list[Chart]:
    """A chart over training for each metric.

    rates: by scheme the tokens and seconds of a step
    """
    recorded = {name for run in group.runs.run for name in run.curves}
    metrics = [group.measure]
    for name in BESIDE:
        if name in recorded and name != group.measure.metric:
            metrics.append(declared(name))
    rates = _rates(group)
    made = []
    for metric in metrics:
        panel = series.over_training(group, metric)
        if len(panel.points):
            every = series.over_training(group, metric, group.schemes)
            runs = titled(every, group.published).run_rows(charts.THINNED)
            shown = chart(titled(panel, group.published), panel.y, metric.metric, runs)
            made.append(shown | {"rates": rates, "smoothed": metric.metric == SMOOTHED})
    return made


def others(shown: Setup | Sweep) -> list[Chart]:
    """Scores by length and kind of problem; of a sweep, by the setting."""
    if isinstance(shown, Sweep):
        panel = sweep_panel(shown)
        return [chart(panel, panel.y, f"by {panel.x}", dots=True)]
    made = []
    for attribute in series.attributes(shown):
        panel = titled(series.by_value(shown, attribute), shown.published)
        made.append(chart(panel, f"By {panel.x}", panel.y, dots=True))
    return made


def two_runs() -> dict[str, Chart]:
    """The empty charts of two runs, A and B, on a linear and on a logarithmic axis."""
    made = {}
    for name, log in (("linear", False), ("log", True)):
        panel = Panel(points_frame([]), "optimizer steps", "", log, colors=TWO)
        made[name] = chart(panel, "", "")
    return made


def of_attention(weights: AttentionWeights) -> list[Chart]:
    """Two charts for each layer: weights by distance, and the maps of one text."""
    by_distance = "mean share that a head gives to the token so many tokens back"
    maps = "shares that queries (down) give to keys (across) of one text"
    made = []
    for at, heads in enumerate(weights.by_distance, start=1):
        title = f"Attention by distance, layer {at}"
        made.append(_chart(attention.by_distance(heads), title, by_distance))
    for at, heads in enumerate(weights.maps, start=1):
        drawn = attention.maps(heads, weights.every)
        made.append(_chart(drawn, f"Attention maps, layer {at}", maps))
    return made


def chart(
    panel: Panel, title: str, note: str, runs: list[Row] | None = None, dots: bool = False
) -> Chart:
    """A chart of curves: its data named `drawn` are its runs, filled in by page.js.

    runs: of all schemes, for the CSV and to compare two; those in `schemes` are drawn
    """
    made = _chart(charts.lines(panel, on_page=True, dots=dots), title, note)
    spec = made["spec"]
    (layer,) = [each for each in spec["layer"] if "detail" in each.get("encoding", {})]
    drawn = layer.get("data", spec.get("data"))["name"]  # of one layer, it is the chart's
    del spec["datasets"][drawn]
    spec["params"].append({"name": "across", "value": panel.x})  # steps, tokens or seconds
    spec["encoding"]["x"]["title"] = {"signal": "across"}  # Vega-Lite takes it, its schema not
    if runs is None:
        runs = panel.run_rows(charts.THINNED)
    about = {"drawn": drawn, "runs": runs[::-1], "schemes": list(panel.colors), "log": panel.log}
    return made | about


def _chart(drawn: alt.TopLevelMixin, title: str, note: str) -> Chart:
    """A chart without its settings and schema, which are the page's."""
    spec = render.specification(drawn)
    del spec["config"], spec["$schema"]
    return {"title": title, "note": note, "spec": spec}


def _rates(group: Setup) -> dict[str, dict[str, float]]:
    """By scheme the tokens and seconds of a step."""
    steps = group.runs.steps.clip(1)  # a run without a step has no tokens
    a_step = group.runs[["tokens", "seconds"]].div(steps, axis=0)
    by_scheme = a_step.groupby(group.runs.scheme).agg({"tokens": "max", "seconds": "mean"})
    return {group.published.title(scheme): {**rate} for scheme, rate in by_scheme.iterrows()}
