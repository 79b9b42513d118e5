"""The figure of `rope-lab extend`: each way at each length, without and with further training."""

import altair as alt

from rope_lab.results.comparisons.continued import AS_IS, Continued, Key, Ways
from rope_lab.results.records.catalogue import TaskReport
from rope_lab.results.records.measures import LENGTH, LENGTH_LOSS
from rope_lab.results.views import charts
from rope_lab.results.views.panels import Colors, Panel, points_frame

# Of the ways, in the order of tables; more than there are.
COLORS = (
    *("#1b1d21", "#4477AA", "#66CCEE", "#228833", "#CCBB44", "#EE6677", "#AA3377"),
    *("#882255", "#EE7733", "#CC3311", "#009988", "#332288", "#999933"),
)


def chart(reading: Continued, title: str) -> alt.TopLevelMixin:
    """A panel without and, if there are such runs, one with further training."""
    names = dict.fromkeys(key.way for key in reading.ways)
    colors = dict(zip(names, COLORS, strict=False))
    drawn = []
    for part in reading.by_steps():
        steps = part.first.steps
        how = f"{steps} further steps" if steps else "without training"
        panel = _panel(part.ways, part.report, colors)
        drawn.append(charts.with_title(charts.lines(panel, dots=True), how))
    whole = alt.vconcat(*drawn, spacing=charts.GAP).resolve_scale(color="independent")
    return charts.with_title(whole, title)


def _panel(ways: Ways, report: TaskReport, colors: Colors) -> Panel:
    """The points of every run by length: loss up to it, or the share of problems correct."""
    kind = LENGTH if report.measure.share else LENGTH_LOSS
    rows = []
    for key, runs in ways.items():
        for run in runs:
            for value, (_, mean) in run.slices.get(kind, {}).items():
                rows.append((_name(key), run.seed, int(value), mean, run.ended))
    points = points_frame(rows)
    unit = report.measure.unit if kind == LENGTH_LOSS else "share of problems correct"
    most = 1.0 if kind == LENGTH else float("inf")
    of_names = {}
    for key in ways:
        control = key.way == AS_IS and key.at == max(other.at for other in ways)
        of_names[_name(key)] = charts.GREY if control and key.steps else colors[key.way]
    ticks = sorted({*points.x})
    axis = {"values": ticks, "format": "d"}
    x = report.length["title"]
    return Panel(points, x, unit, most=most, scale={"type": "log"}, axis=axis, colors=of_names)


def _name(key: Key) -> str:
    """A way in the legend; of the scheme as it is also where it was trained further."""
    if key.way == AS_IS and key.steps:
        return f"{key.way}, trained at {key.at}"
    return key.way
