"""Heat maps: scores of schemes on tasks, and shares of problems right by two attributes."""

import json
import math
from dataclasses import dataclass
from textwrap import wrap

import altair as alt
import pandas as pd

from rope_lab.results.views.charts import GAP

CELL, TALL = 50, 19  # pixels of a cell with a number
MAP = 118, 108  # pixels of a map among others
MAPS = 4  # in a row
LABEL = 30  # letters of a line of a column's label
GREENS = ["#ffffe5", "#f7fcb9", "#d9f0a3", "#addd8e", "#78c679", "#41ab5d", "#238443", "#005a32"]


@dataclass(frozen=True)
class HeatMap:
    """Shares by two attributes.

    cells: a row per cell, `column row share`
    rule: a dotted line stands after so many columns; None: nowhere
    """

    title: str
    cells: pd.DataFrame
    rule: int | None = None


def scores(cells: pd.DataFrame, columns: list[str]) -> alt.LayerChart:
    """A table of numbers, each column coloured from its worst to its best.

    cells: `row column value text`, rows in the order of their first appearance
    columns: in their order
    """
    by_column = cells.groupby("column").value
    least, most = by_column.transform("min"), by_column.transform("max")
    spread = (most - least).where(most > least, 1)
    cells = cells.assign(shade=(cells.value - least) / spread)
    rows = list(cells.row.unique())
    labels = {column: wrap(column, LABEL) for column in columns}
    across = {"orient": "top", "labelAngle": -90, "labelLineHeight": 13, "labelLimit": 0}
    across["labelExpr"] = f"{json.dumps(labels)}[datum.label]"
    plain = {"title": None, "labelOverlap": False}
    base = alt.Chart(cells).encode(
        x=alt.X("column:N", sort=columns, axis=alt.Axis(**plain, **across)),
        y=alt.Y("row:N", sort=rows, axis=alt.Axis(**plain)),
    )
    scale = alt.Scale(range=GREENS, domain=[0, 1.4], interpolate="rgb")
    shade = base.mark_rect().encode(color=alt.Color("shade:Q", scale=scale, legend=None))
    number = base.mark_text(fontSize=11).encode(text="text:N")
    size = {"width": CELL * len(columns), "height": TALL * len(rows)}
    return alt.layer(shade, number).properties(**size)


def below(above: alt.LayerChart, maps: list[HeatMap], x: str, y: str) -> alt.VConcatChart:
    """A chart and below it maps of shares, with axes titled x and y."""
    columns = min(len(maps), MAPS)
    drawn = [_map(each, x, y if at % columns == 0 else "") for at, each in enumerate(maps)]
    grid = alt.concat(*drawn, columns=columns, spacing=GAP)
    title, chart = above.title, above.copy()
    chart.title = alt.Undefined
    both = alt.vconcat(chart, grid, spacing=GAP).resolve_scale(color="independent")
    return both.properties(title=title)


def _map(each: HeatMap, x: str, y: str) -> alt.LayerChart:
    """One map."""
    columns, rows = sorted(each.cells.column.unique()), sorted(each.cells.row.unique())
    every = math.ceil(len(rows) / 4)
    small = {"labelFontSize": 10, "titleFontSize": 11, "labelOverlap": False}
    axes = {
        "x": alt.X("column:O", title=x, axis=alt.Axis(labelAngle=-90, **small)),
        "y": alt.Y("row:O", title=wrap(y, 20), axis=alt.Axis(values=rows[::every], **small)),
    }
    legend = alt.Legend(title="share of problems correct", orient="bottom", gradientLength=160)
    scale = alt.Scale(range=GREENS, domain=[0, 1], interpolate="rgb")
    color = alt.Color("share:Q", scale=scale, legend=legend)
    layers = [alt.Chart(each.cells).mark_rect().encode(**axes, color=color)]
    if each.rule is not None:
        at = alt.value(each.rule * MAP[0] / len(columns))
        rule = alt.Chart(pd.DataFrame([{"one": 1}])).mark_rule(strokeDash=[2, 2])
        layers.append(rule.encode(x=at))
    title = alt.TitleParams(each.title, fontSize=12, fontWeight="normal")
    return alt.layer(*layers).properties(width=MAP[0], height=MAP[1], title=title)
