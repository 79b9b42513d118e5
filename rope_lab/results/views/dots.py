"""Costs of probes: a dot for each run, a bar for each scheme's mean."""

import altair as alt
import pandas as pd

from rope_lab.results.views import charts

ROW = 20  # pixels
LINEAR = 0.01  # nats: below that the axis of costs is linear
TICKS = [0, 0.01, 0.1, 1, 10]


def costs(points: pd.DataFrame, colors: dict[str, str], title: str) -> alt.LayerChart:
    """Costs of probes on a symmetric logarithmic axis.

    points: `probe scheme cost`, a row a run; probes and schemes in order
    colors: of each scheme
    """
    probes = list(points.probe.unique())
    y = alt.Y("probe:N", sort=probes, title=None, axis=alt.Axis(labelOverlap=False, grid=False))
    x = alt.X(
        "cost:Q",
        title="increase of the held-out loss, nats per answer token",
        scale=alt.Scale(type="symlog", constant=LINEAR, nice=False, padding=8),
        axis=alt.Axis(values=[tick for tick in TICKS if tick <= points.cost.max()], format="~g"),
    )
    base = alt.Chart(points).encode(
        x=x,
        y=y,
        yOffset=alt.YOffset("scheme:N", sort=list(colors)),
        color=charts.colors(colors, alt.Legend(orient="top")),
    )
    dots = base.mark_circle(style="cost")
    means = base.mark_tick(style="mean cost").encode(x=x.aggregate("mean"))
    stripes = alt.Chart(pd.DataFrame({"probe": probes[::2]})).mark_rect(opacity=0.05)
    stripes = stripes.encode(y=alt.Y("probe:N", sort=probes), color=alt.value("black"))
    zero = alt.Chart(charts.ONE).mark_rule().encode(x="zero:Q")
    chart = alt.layer(stripes, zero, dots, means)
    return chart.properties(width=charts.WIDTH - 170, height=ROW * len(probes), title=title)
