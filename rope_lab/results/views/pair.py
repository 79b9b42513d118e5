"""Two schemes beside each other: their curves, and each pair of seeds at its end."""

import altair as alt

from rope_lab.results.views import charts
from rope_lab.results.views.panels import Panel

WIDTH, SLOPES, HEIGHT = 350, 120, 190  # pixels of the curves and of the slopes


def pair(panel: Panel, title: str, floor: float, gap: str) -> alt.HConcatChart:
    """Curves of two schemes with the best possible value; right, the last value of each seed.

    floor: the least possible value
    gap: the difference of the means in words
    """
    least = charts.Level("best possible", floor, charts.GREY)
    curves = charts.training(panel, title, [least]).properties(width=WIDTH, height=HEIGHT)
    return alt.hconcat(curves, slopes(panel, gap), spacing=36)


def slopes(panel: Panel, gap: str) -> alt.LayerChart:
    """The last value of each run; a line joins the runs of a seed."""
    last = panel.points.sort_values("x").groupby(["scheme", "seed"]).tail(1)
    axis = alt.Axis(labelAngle=0, labelFontWeight="bold", labelOverlap=False)
    x = alt.X("scheme:N", sort=list(panel.colors), title=gap, axis=axis)
    scale = alt.Scale(zero=False, nice=True)
    y = alt.Y("y:Q", title=None, scale=scale, axis=alt.Axis(tickCount=5))
    domain = alt.Scale(domain=list(panel.colors), range=list(panel.colors.values()))
    base = alt.Chart(last[["scheme", "seed", "y"]]).encode(x=x, y=y)
    joined = base.mark_line(color=charts.GREY, strokeWidth=1.2).encode(detail="seed:N")
    color = alt.Color("scheme:N", scale=domain, legend=None)
    dots = base.mark_circle(size=70, opacity=1).encode(color=color)
    title = alt.TitleParams("Where each seed ends")
    return alt.layer(joined, dots).properties(width=SLOPES, height=HEIGHT, title=title)
