"""The charts of the page: Vega-Lite with its data; page.js fills in runs."""

from typing import Any

import altair as alt

from rope_lab.results.comparisons.grids import Sweep
from rope_lab.results.records.measures import MEASURES
from rope_lab.results.records.setups import Setup
from rope_lab.results.views import attention, charts, series
from rope_lab.results.views.figures import sweep_panel
from rope_lab.results.views.palettes import TWO_RUNS
from rope_lab.results.views.panels import Panel, points_frame, titled
from rope_lab.results.views.probes import AttentionWeights

BESIDE = ("eval/loss", "eval/accuracy", "train/loss", "train/grad_norm")  # besides the task's own
SMOOTHED = "train/loss"  # evaluations are shown as they are
BY_DISTANCE = "mean share that a head gives to the token so many tokens back"
MAPS = "shares that queries (down) give to keys (across) of one text"
Chart = dict[str, Any]


def curves(setup: Setup) -> list[Chart]:
    """A chart over training for each metric, with the runs of all schemes."""
    recorded = {name for run in setup.runs.run for name in run.curves}
    metrics = {setup.measure.metric: setup.measure}
    for name in BESIDE:
        if name in recorded:
            metrics.setdefault(name, MEASURES[name])
    made = []
    for name, metric in metrics.items():
        panel = titled(series.over_training(setup, metric), setup.catalogue)
        every = titled(series.over_training(setup, metric, setup.schemes), setup.catalogue)
        if len(panel.points):
            smoothed = {"smoothed": name == SMOOTHED}
            made.append(_of_panel(panel, panel.y, name) | _runs(every) | smoothed)
    return made


def others(shown: Setup | Sweep) -> list[Chart]:
    """Scores by length and kind of problem; of a sweep, by the setting."""
    if isinstance(shown, Sweep):
        panels = [sweep_panel(shown)]
    else:
        attributes = series.attributes(shown)
        panels = [titled(series.by_value(shown, each), shown.catalogue) for each in attributes]
    made = []
    for panel in panels:
        made.append(_of_panel(panel, f"By {panel.x}", panel.y, dots=True) | _runs(panel))
    return made


def two_runs() -> dict[str, Chart]:
    """The empty charts of two runs, A and B, on a linear and on a logarithmic axis."""
    made = {}
    for name in ("linear", "log"):
        panel = Panel(points_frame([]), "optimizer steps", "", name == "log", colors=TWO_RUNS)
        made[name] = _of_panel(panel, "", "")
    return made


def of_attention(weights: AttentionWeights) -> list[Chart]:
    """Two charts for each layer: weights by distance, and the maps of one text."""
    made = []
    for layer, (profiles, maps) in enumerate(zip(weights.by_distance, weights.maps, strict=True)):
        name = f"layer {layer + 1}"
        lines = attention.by_distance(profiles)
        grid = attention.maps(maps, weights.every)
        made.append(_chart(lines, f"Attention by distance, {name}", BY_DISTANCE))
        made.append(_chart(grid, f"Attention maps, {name}", MAPS))
    return made


def _of_panel(panel: Panel, title: str, note: str, dots: bool = False) -> Chart:
    """A chart of curves, of the schemes that are to be drawn."""
    drawn = _chart(charts.lines(panel, on_page=True, dots=dots), title, note)
    return drawn | {"schemes": list(panel.colors), "log": panel.log}


def _runs(panel: Panel) -> Chart:
    """The curves of runs, that page.js draws; in reverse: what is drawn last is on top."""
    return {"runs": panel.run_curves(charts.THINNED)[::-1].to_dict("records")}


def _chart(drawn: alt.TopLevelMixin, title: str, note: str) -> Chart:
    """A chart without its settings, which are the page's."""
    return {"title": title, "note": note, "spec": drawn.to_dict()}
