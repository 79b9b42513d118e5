"""Charts over axes, each a function from plain data to an Altair chart; `render` makes files.

Thin lines and dots are seeds; bold lines are their means, with Student's t 95% interval. A page
draws the same charts: there they fill their column, and can be zoomed and filtered.
"""

import json
import math
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import altair as alt
import pandas as pd

from rope_lab.results.views.panels import FEW, TINY, Panel, Row

WIDTH, HEIGHT = 640, 250  # pixels of the plotting area
ON_PAGE = 230  # its height on a page
GAP = 28  # pixels between plots
LETTER = 6.4  # mean width of a letter in pixels
LINE = 40  # letters of a line beside a vertical axis
THINNED = 60  # points of a curve on a page
CLOSE = 0.06  # of an axis: labels closer than this would overlap
BLACK, GREY = "#1b1d21", "#8b919b"
# On a page, fingers and the wheel alone scroll the page.
DRAG = "[pointerdown[event.pointerType === 'mouse'], window:pointerup] > window:pointermove!"
WHEEL = "wheel![event.altKey || event.ctrlKey || event.metaKey]"


@dataclass(frozen=True)
class Level:
    """A named value of the y axis, such as a published result: a horizontal line."""

    label: str
    value: float
    color: str


def lines(panel: Panel, *, dots: bool = False, on_page: bool = False) -> alt.LayerChart:
    """Every run thin; bold the mean of each scheme with its interval, and n where seeds are fewer.

    dots: mark the points of the means
    on_page: for the report: as wide as its column, with tooltips, zoom and a legend to click
    """
    thinned = THINNED if on_page else None
    runs = rows_frame(panel.run_rows(thinned)[::-1], ["scheme", "seed", "x", "y"])
    columns = ["scheme", "seeds", "x", "y", "low", "high", "n"]
    means = rows_frame(panel.mean_rows(thinned)[::-1], columns)  # the first is drawn last, on top
    alone = not len(means)
    thin = {"strokeWidth": 2} if alone else {"strokeWidth": 0.8, "strokeOpacity": 0.4}
    seeds = alt.Chart(runs).transform_flatten(["x", "y"]).mark_line(clip=True, **thin)
    seeds = seeds.encode(detail="seed:N", tooltip=["scheme:N", "seed:N"])
    pick = alt.selection_point(name="pick", fields=["scheme"], bind="legend")
    zoom = alt.selection_interval(name="zoom", bind="scales", translate=DRAG, zoom=WHEEL)
    layers = [seeds.add_params(pick, zoom) if on_page else seeds]
    if not alone:
        mean = alt.Chart(means).transform_flatten(["x", "y", "low", "high"])
        if len(panel.colors) <= FEW:
            band = mean.mark_area(clip=True, fillOpacity=0.15)
            layers.insert(0, band.encode(y=_y(panel, on_page, "low"), y2="high:Q"))
        bold = mean.mark_line(strokeWidth=2.2, clip=True, point={"size": 28} if dots else False)
        layers.append(bold)
        labels = fewer_seeds(panel, every=dots)
        if labels:
            layers.append(_fewer_seeds(labels, away=14 if dots else 8))
        if on_page:
            layers.append(_tooltips(mean))
    shared = {
        "x": _x(panel, dots),
        "y": _y(panel, on_page),
        "color": _color(panel, on_page),
    }
    if not on_page:
        return alt.layer(*layers).encode(**shared).properties(width=WIDTH, height=HEIGHT)
    picked = alt.condition(pick, alt.value(1), alt.value(0.08))
    chart = alt.layer(*layers).encode(**shared, opacity=picked)
    return chart.properties(width="container", height=ON_PAGE)


def training(panel: Panel, title: str, levels: list[Level]) -> alt.LayerChart:
    """A metric against optimizer steps, with published values as dashed horizontal lines."""
    ordered = sorted(levels, key=lambda level: level.value)
    named = [_level(level, below=level is not ordered[-1]) for level in levels]
    return _titled(alt.layer(lines(panel), *named), title)


def sweep(panel: Panel, title: str, best: list[Row], recipe: float | None) -> alt.LayerChart:
    """Final scores against a setting, with a ring around the best value of each scheme.

    best: `scheme x y` of each ring
    recipe: the value that the recipe has
    """
    layers = [lines(panel, dots=True)]
    if recipe is not None:
        layers.insert(0, _upright(recipe, "the recipe"))
    ring = alt.Chart(rows_frame(best, ["scheme", "x", "y"]))
    ring = ring.mark_point(size=190, strokeWidth=1.6, filled=False, opacity=1)
    layers.append(ring.encode(x="x:Q", y="y:Q", color="scheme:N"))
    return _titled(alt.layer(*layers), title, "Ring: the best value of a scheme" if best else "")


def lengths(panels: list[Panel], title: str, trained: tuple[int, int] | None) -> alt.TopLevelMixin:
    """Scores by length, a panel for each kind; the lengths of training are shaded."""
    width = (WIDTH - 80 * (len(panels) - 1)) // len(panels)
    drawn = []
    for panel in panels:
        layers = [lines(panel, dots=True).properties(width=width)]
        if trained:
            layers.insert(0, _shade(trained[0] - 0.5, trained[1] + 0.5))
        drawn.append(alt.layer(*layers))
    chart = alt.hconcat(*drawn, spacing=GAP) if len(drawn) > 1 else drawn[0]
    return _titled(chart, title, "Shaded: lengths of training" if trained else "")


def rows_frame(rows: list[Row], columns: list[str]) -> pd.DataFrame:
    """Rows of plain values or lists as a frame, as Altair takes them."""
    return pd.DataFrame(rows, columns=columns, dtype=object)


def _titled(chart: alt.TopLevelMixin, title: str, subtitle: str = "") -> alt.TopLevelMixin:
    if not subtitle:
        return chart.properties(title=wrap(title, 90))
    return chart.properties(title=alt.TitleParams(wrap(title, 90), subtitle=subtitle))


def _x(panel: Panel, dots: bool) -> alt.X:
    """The horizontal axis."""
    scale = {"nice": False, "zero": panel.zero, "type": "log" if panel.log_x else "linear"}
    scale["padding"] = 14 if dots else 3
    axis: dict[str, Any] = {"grid": False, "domain": True, "ticks": True, "tickSize": 4}
    axis |= {"tickCount": 8, "labelFlush": False}
    if panel.whole:
        axis["tickMinStep"] = 1
    if panel.ticks:
        axis |= {"values": panel.ticks, "format": "~g"}
    if panel.words:
        axis["labelExpr"] = f"{json.dumps(panel.words)}[datum.value]"
    return alt.X("x:Q", title=panel.x, scale=alt.Scale(**scale), axis=alt.Axis(**axis))


def _y(panel: Panel, on_page: bool, field: str = "y") -> alt.Y:
    """The vertical axis; on a page its title stands above the chart."""
    kind: dict[str, Any] = {"type": "log" if panel.log else "linear", "nice": False}
    axis: dict[str, Any] = {"tickCount": 5}
    if panel.log:
        axis["format"] = "~g"
    else:
        kind["zero"] = False
    if len(panel.points):  # else its data are still to come
        kind["domain"] = panel.domain()
        if panel.log:
            axis["values"] = log_ticks(*panel.domain())
    title = None if on_page else wrap(panel.y, LINE, break_on_hyphens=False)
    return alt.Y(f"{field}:Q", title=title, scale=alt.Scale(**kind), axis=alt.Axis(**axis))


def _color(panel: Panel, on_page: bool) -> alt.Color:
    """The colours of schemes, and their legend in as many columns as its width takes."""
    titles = list(panel.colors)
    column = 34 + LETTER * max(map(len, titles), default=1)
    columns = max(1, int(WIDTH // column))
    if on_page:
        columns = alt.ExprRef(f"max(1, floor(width / {column:.0f}))")
    legend = {"orient": "bottom", "columns": columns, "title": None, "symbolType": "stroke"}
    legend |= {"symbolStrokeWidth": 2.5, "symbolSize": 220}
    scale = alt.Scale(domain=titles, range=list(panel.colors.values()))
    return alt.Color("scheme:N", scale=scale, legend=alt.Legend(**legend))


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers from low to high on a logarithmic axis: 1, 2, 5; of a wide one 1 alone."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
        ticks = [float(f"{digit}e{power}") for power in decades for digit in digits]
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) > 2:
            break
    return inside


def _fewer_seeds(labels: list[Row], away: int) -> alt.Chart:
    """`n=3` beside the means of fewer seeds, so many pixels away."""
    frame = rows_frame(labels, ["scheme", "x", "y", "label", "below"])
    offset = alt.ExprRef(f"datum.below ? {away + 4} : -{away}")
    return alt.Chart(frame).mark_text(dy=offset, fontSize=10).encode(text="label:N")


def fewer_seeds(panel: Panel, every: bool) -> list[Row]:
    """Labels of the means of fewer seeds than most, `scheme x y label below`.

    every: not only where the number changes. A label that would cover another stands below its
    point, or is left out if both say the same.
    """
    low, high = [_place(panel, end) for end in panel.domain()]
    means, labels = panel.means(), []
    if panel.log:
        means = means[means.y > TINY]
    for scheme, mean in means.groupby("scheme", sort=False):
        fewer = mean[mean.n < mean.n.max()]
        changes = mean.n.ne(mean.n.shift()).reindex(fewer.index)
        for point in (fewer if every else fewer[changes]).itertuples():
            label = {"scheme": scheme, "x": point.x, "y": point.y, "label": f"n={point.n}"}
            beside = [
                other
                for other in labels
                if other["x"] == point.x
                and abs(_place(panel, other["y"]) - _place(panel, point.y)) < CLOSE * (high - low)
            ]
            if not any(other["label"] == label["label"] for other in beside):
                labels.append(label | {"below": bool(beside)})
    return labels


def _place(panel: Panel, value: float) -> float:
    """A value as its axis has it."""
    return math.log(value) if panel.log else value


def _tooltips(mean: alt.Chart) -> alt.Chart:
    """Invisible dots on the means, with their numbers."""
    ends = [alt.Tooltip("low:Q", title="95% from"), alt.Tooltip("high:Q", title="to")]
    shown = ["scheme:N", "seeds:Q", "x:Q", "y:Q", *ends]
    return mean.mark_circle(size=60, fillOpacity=0, clip=True).encode(tooltip=shown)


def _level(level: Level, below: bool) -> alt.LayerChart:
    """A dashed line across the axes, with its label at its left end."""
    rule = alt.Chart(_one()).mark_rule(strokeDash=[5, 4], strokeWidth=1.2, color=level.color)
    style = {"align": "left", "dx": 4, "dy": 9 if below else -7, "fontSize": 11}
    text = alt.Chart(_one()).mark_text(text=level.label, color=level.color, **style)
    y = alt.Y(datum=level.value)
    return alt.layer(rule.encode(y=y), text.encode(y=y, x=alt.value(0)))


def _upright(x: float, label: str) -> alt.LayerChart:
    """A dotted vertical line with its label above it."""
    rule = alt.Chart(_one()).mark_rule(strokeDash=[2, 3])
    text = alt.Chart(_one()).mark_text(text=label, dy=-8, fontSize=11)
    at = alt.X(datum=x)
    return alt.layer(rule.encode(x=at), text.encode(x=at, y=alt.value(0)))


def _shade(start: float, end: float) -> alt.Chart:
    """A grey band over a part of the horizontal axis."""
    band = alt.Chart(_one()).mark_rect(color=BLACK, opacity=0.07, clip=True)
    return band.encode(x=alt.X(datum=start), x2=alt.X2(datum=end))


def _one() -> pd.DataFrame:
    """The data of one mark."""
    return pd.DataFrame([{"one": 1}])
