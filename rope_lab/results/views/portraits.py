"""The picture of a position scheme: curves over distance, side by side."""

import altair as alt
import pandas as pd

from rope_lab.results.views import charts
from rope_lab.results.views.palettes import CURVES

WIDTH, HEIGHT = 300, 170  # pixels of a plotting area
Curves = dict[str, list[float | None]]  # by label: a number for each distance, 0 first


def picture(panels: dict[tuple[str, str], Curves]) -> alt.HConcatChart:
    """The panels side by side.

    panels: curves by the title of their panel and that of its y axis
    """
    drawn = [_panel(curves, *titles) for titles, curves in panels.items()]
    return alt.hconcat(*drawn, spacing=charts.GAP).resolve_scale(color="independent")


def _panel(curves: Curves, title: str, y: str) -> alt.Chart:
    rows = []
    for label, values in curves.items():
        rows += [(label, distance, value) for distance, value in enumerate(values)]
    points = pd.DataFrame(rows, columns=["curve", "distance", "value"]).dropna()
    legend = None if len(curves) == 1 else alt.Legend(columns=2)
    names = list(curves)
    color = alt.Scale(domain=names, range=CURVES[: len(names)])
    chart = (
        alt.Chart(points)
        .mark_line(strokeWidth=1.8)
        .encode(
            x=alt.X("distance:Q", title="tokens back", axis=alt.Axis(tickCount=6)),
            y=alt.Y("value:Q", title=y, axis=alt.Axis(tickCount=5)),
            color=alt.Color("curve:N", scale=color, legend=legend),
        )
    )
    return charts.with_title(chart.properties(width=WIDTH, height=HEIGHT), title)
