"""Curves over axes as Altair charts, and the marks that stand beside them; `render` makes files.

Thin lines and dots are seeds; bold lines are their means, with Student's t 95% interval. A page
draws the same charts: there they fill their column, and can be filtered.
"""

import math
from textwrap import wrap

import altair as alt
import numpy as np
import pandas as pd

from rope_lab.results.records.run import Record
from rope_lab.results.views.palettes import INK
from rope_lab.results.views.panels import FEW, Colors, Panel

WIDTH, HEIGHT = 640, 250  # pixels of the plotting area
ON_PAGE = 230  # its height on a page
GAP = 28  # pixels between plots
LETTER = 6.4  # mean width of a letter in pixels
LINE = 40  # letters of a line beside a vertical axis
THINNED = 60  # points of a curve on a page
RUNS = alt.NamedData("runs")  # those of a page, which fills them in
ONE = pd.DataFrame({"zero": [0]})  # the data of one mark


def lines(panel: Panel, *, dots: bool = False, on_page: bool = False) -> alt.LayerChart:
    """Every run thin; bold the mean of each scheme with its interval.

    dots: mark the points of the means; hollow are those of fewer seeds than others
    on_page: for the report: as wide as its column, with tooltips and a legend to click; its data
             RUNS are filled in there
    """
    runs = panel.run_curves()
    means = panel.mean_curves(THINNED if on_page else None)
    title = None if on_page else wrap(panel.y, LINE, break_on_hyphens=False)  # there, it is above
    # In reverse: what is drawn last is on top.
    run = alt.Chart(RUNS if on_page else runs[::-1]).transform_flatten(["x", "y"])
    mean = alt.Chart(means[::-1]).transform_flatten(["x", "y", "n", "low", "high"])
    thin = {"strokeWidth": 0.8, "strokeOpacity": 0.4} if len(means) else {"strokeWidth": 2}
    seeds = run.mark_line(clip=True, **thin)
    layers = [seeds.encode(detail="seed:N", tooltip=["scheme:N", "seed:N"])]
    if len(means):
        if len(panel.colors) <= FEW:
            band = mean.mark_area(clip=True, fillOpacity=0.15)
            layers.insert(0, band.encode(y=alt.Y("low:Q", title=title), y2="high:Q"))
        points = {"size": 28} if dots else False
        layers.append(mean.mark_line(strokeWidth=2.2, clip=True, point=points))
        if dots and len(panel.fewer()):
            hollow = alt.Chart(panel.fewer()).mark_point(size=28, fill="white", opacity=1)
            layers.append(hollow)
        if on_page:
            layers.append(_numbers(mean))
    chart = alt.layer(*layers).encode(
        x=_x(panel, dots), y=_y(panel, title), color=_color(panel, on_page)
    )
    if not on_page:
        return chart.properties(width=WIDTH, height=HEIGHT)
    pick = alt.selection_point(name="pick", fields=["scheme"], bind="legend")
    shown = alt.when(pick).then(alt.value(1)).otherwise(alt.value(0.08))
    return (
        chart.encode(opacity=shown).add_params(pick).properties(width="container", height=ON_PAGE)
    )


def with_title(chart: alt.TopLevelMixin, title: str, subtitle: str = "") -> alt.TopLevelMixin:
    """A chart with a title of several lines if it is long."""
    more = {"subtitle": subtitle} if subtitle else {}
    return chart.properties(title=alt.TitleParams(wrap(title, 90), **more))


def colors(titles: Colors, legend: alt.Legend | None = None) -> alt.Color:
    """The given colour of each scheme."""
    scale = alt.Scale(domain=list(titles), range=list(titles.values()))
    return alt.Color("scheme:N", scale=scale, legend=legend)


def level(value: float, label: str, color: str, below: bool = False) -> alt.LayerChart:
    """A dashed line across the axes at a named value, such as a published result; its label is at
    its left end, above or below it.
    """
    rule = alt.Chart(ONE).mark_rule(style="dashed", color=color)
    dy = 9 if below else -7
    text = alt.Chart(ONE).mark_text(text=label, color=color, dy=dy, style="level")
    y = alt.Y(datum=value)
    return alt.layer(rule.encode(y=y), text.encode(y=y, x=alt.value(0)))


def upright(x: float, label: str) -> alt.LayerChart:
    """A dotted vertical line with its label above it."""
    rule = alt.Chart(ONE).mark_rule(style="dotted")
    text = alt.Chart(ONE).mark_text(text=label, style="upright")
    at = alt.X(datum=x)
    return alt.layer(rule.encode(x=at), text.encode(x=at, y=alt.value(0)))


def shade(start: float, end: float) -> alt.Chart:
    """A grey band over a part of the horizontal axis."""
    band = alt.Chart(ONE).mark_rect(color=INK, opacity=0.07, clip=True)
    return band.encode(x=alt.X(datum=start), x2=alt.X2(datum=end))


def _x(panel: Panel, dots: bool) -> alt.X:
    """The horizontal axis."""
    scale = {"nice": False, "padding": 14 if dots else 3} | (panel.scale or {"zero": False})
    axis = alt.Axis(style="curves", tickCount=8, **panel.axis)
    return alt.X("x:Q", title=panel.x, scale=alt.Scale(**scale), axis=axis)


def _y(panel: Panel, title: list[str] | None) -> alt.Y:
    """The vertical axis."""
    scale: Record = {"nice": False}
    axis: Record = {"tickCount": 5}
    domain = panel.domain()
    if domain:
        scale["domain"] = domain
    if panel.log:
        scale["type"] = "log"
        axis["format"] = "~g"
    else:
        scale["zero"] = False
    if domain and panel.log:
        axis["values"] = log_ticks(*domain)
    return alt.Y("y:Q", title=title, scale=alt.Scale(**scale), axis=alt.Axis(**axis))


def _color(panel: Panel, on_page: bool) -> alt.Color:
    """The colours of schemes, and their legend in as many columns as its width takes."""
    column = 34 + LETTER * max(map(len, panel.colors), default=1)
    columns = max(1, int(WIDTH // column))
    if on_page:
        columns = alt.ExprRef(f"max(1, floor(width / {column:.0f}))")
    symbols = {"symbolType": "stroke", "symbolStrokeWidth": 2.5, "symbolSize": 220}
    legend = alt.Legend(columns=columns, **symbols)
    return colors(panel.colors, legend)


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers from low to high on a logarithmic axis: 1, 2, 5; of a wide one 1 alone."""
    decades = 10.0 ** np.arange(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ([1], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 6, 8]):
        ticks = np.outer(decades, digits).ravel()
        inside = ticks[(low <= ticks) & (ticks <= high)]
        if len(inside) > 2:
            break
    return list(inside)


def _numbers(mean: alt.Chart) -> alt.Chart:
    """Invisible dots on the means, with their numbers as tooltips."""
    ends = [alt.Tooltip("low:Q", title="95% from"), alt.Tooltip("high:Q", title="to")]
    shown = ["scheme:N", alt.Tooltip("n:Q", title="seeds"), "x:Q", "y:Q", *ends]
    return mean.mark_circle(style="hidden", clip=True).encode(tooltip=shown)
