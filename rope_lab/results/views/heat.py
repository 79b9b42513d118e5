"""Heat maps: scores of schemes on tasks, and shares of problems right by two attributes."""

import json
import math
from collections.abc import Iterable, Sequence
from textwrap import wrap

import altair as alt
import pandas as pd

from rope_lab.results.views.charts import GAP
from rope_lab.results.views.palettes import GREENS

CELL, TALL = 50, 19  # pixels of a cell with a number
MAP = 118, 108  # pixels of a map among others
MAPS = 3  # in a row
LABEL, TITLE = 30, 26  # characters of a line of a column's label, and of a map's title


def scores(cells: Iterable[tuple], columns: list[str]) -> alt.LayerChart:
    """A table of numbers, each column coloured from its worst to its best.

    cells: `row column value text`, rows in the order of their first appearance
    columns: in their order
    """
    table = pd.DataFrame(cells, columns=["row", "column", "value", "text"])
    by_column = table.groupby("column").value
    least, most = by_column.transform("min"), by_column.transform("max")
    spread = (most - least).where(most > least, 1)
    table = table.assign(shade=(table.value - least) / spread)
    across = alt.Axis(
        title=None,
        labelOverlap=False,
        orient="top",
        labelAngle=-90,
        labelLineHeight=13,
        labelLimit=0,
        labelExpr=_wrapped(columns, LABEL),
    )
    base = alt.Chart(table).encode(
        x=alt.X("column:N", sort=columns, axis=across),
        y=alt.Y("row:N", sort=None, axis=alt.Axis(title=None, labelOverlap=False)),
    )
    shade = base.mark_rect().encode(color=_greens("shade:Q", 1.4))
    number = base.mark_text(fontSize=11).encode(text="text:N")
    width = CELL * len(columns)
    height = TALL * table.row.nunique()
    return alt.layer(shade, number).properties(width=width, height=height)


def maps(cells: pd.DataFrame, x: str, y: str, trained: int) -> alt.FacetChart:
    """Shares of problems right by two attributes, a map for each scheme.

    cells: `scheme column row share`
    x, y:  titles of the axes
    trained: the last column before a dotted line; 0 without one
    """
    rows = sorted(cells.row.unique())
    down = alt.Axis(style="small", values=rows[:: math.ceil(len(rows) / 4)])
    legend = alt.Legend(title="share of problems correct", gradientLength=160)
    base = alt.Chart(cells)
    shade = base.mark_rect().encode(
        x=alt.X("column:O", title=x, axis=alt.Axis(style="small", labelAngle=-90)),
        y=alt.Y("row:O", title=wrap(y, 20), axis=down),
        color=_greens("share:Q", 1, legend),
    )
    last = base.transform_filter(f"datum.column == {trained} && datum.row == {rows[0]}")  # one cell
    rule = last.mark_rule(strokeDash=[2, 2]).encode(x=alt.X("column:O", bandPosition=1))
    chart = alt.layer(shade, rule).properties(width=MAP[0], height=MAP[1])
    names = list(cells.scheme.unique())
    header = alt.Header(labelExpr=_wrapped(names, TITLE))
    schemes = alt.Facet("scheme:N", sort=names, header=header)
    return chart.facet(schemes, columns=MAPS, spacing=GAP)


def _wrapped(labels: Sequence[str], width: int) -> str:
    """A Vega expression: the label, wrapped at `width` characters."""
    return f"{json.dumps({label: wrap(label, width) for label in labels})}[datum.label]"


def _greens(field: str, most: float, legend: alt.Legend | None = None) -> alt.Color:
    scale = alt.Scale(range=GREENS, domain=[0, most], interpolate="rgb")
    return alt.Color(field, scale=scale, legend=legend)
