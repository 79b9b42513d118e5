"""Dots of seeds: costs of probes by row, and our values over published ones."""

import math
from dataclasses import dataclass

import altair as alt
import pandas as pd

from rope_lab.results.views.charts import WIDTH

ROW = 20  # pixels
LINEAR = 0.01  # nats: below that the axis of costs is linear
TICKS = [0, 0.01, 0.1, 1, 10]
BLUE = "#1f77b4"


@dataclass(frozen=True)
class Scatter:
    """Values of several settings over a published value; points: `name theirs ours`, a row a seed.

    better: "higher" or "lower"; the better end of the axis is below
    """

    title: str
    y: str
    points: pd.DataFrame
    better: str = "lower"


def rotations(panels: list[Scatter]) -> alt.HConcatChart:
    """Seeds and means over published losses, a panel each; better is lower."""
    return alt.hconcat(*map(_scatter, panels), spacing=24)


def costs(points: pd.DataFrame, colors: dict[str, str], title: str) -> alt.LayerChart:
    """Costs of probes on a symmetric logarithmic axis: a dot for each run, a bar for each mean.

    points: `probe scheme cost`, a row a run; probes and schemes in order
    colors: of each scheme
    """
    probes = list(points.probe.unique())
    axis = alt.Axis(labelOverlap=False, grid=False)
    y = alt.Y("probe:N", sort=probes, title=None, axis=axis)
    values = [tick for tick in TICKS if tick <= points.cost.max()]
    scale = alt.Scale(type="symlog", constant=LINEAR, nice=False, padding=8)
    x = alt.X("cost:Q", scale=scale, axis=alt.Axis(values=values, format="~g"))
    x = x.title("increase of the held-out loss, nats per answer token")
    beside = alt.YOffset("scheme:N", sort=list(colors))
    domain = alt.Scale(domain=list(colors), range=list(colors.values()))
    color = alt.Color("scheme:N", scale=domain, legend=alt.Legend(orient="top", title=None))
    base = alt.Chart(points).encode(y=y, x=x, yOffset=beside, color=color)
    dots = base.mark_circle(size=26, opacity=0.75)
    bars = base.mark_tick(thickness=2.4, size=9).encode(x=x.aggregate("mean"))
    stripes = alt.Chart(pd.DataFrame({"probe": probes[::2]})).mark_rect(opacity=0.05)
    stripes = stripes.encode(y=alt.Y("probe:N", sort=probes), color=alt.value("black"))
    zero = alt.Chart(pd.DataFrame([{"zero": 0}])).mark_rule().encode(x=alt.X("zero:Q"))
    chart = alt.layer(stripes, zero, dots, bars)
    return chart.properties(width=WIDTH - 170, height=ROW * len(probes), title=title)


def _scatter(each: Scatter) -> alt.LayerChart:
    """One panel: seeds pale, means bold and named, names left and right of their dots in turn."""
    axes = {
        "x": alt.X("theirs:Q", title="published loss").scale(zero=False, padding=22),
        "y": alt.Y("ours:Q", title=each.y).scale(
            zero=False, reverse=each.better == "higher", nice=False, padding=10
        ),
    }
    means = each.points.groupby(["name", "theirs"], sort=False).ours.mean().reset_index()
    means = means.assign(place=places(means, each.better == "higher"))
    seeds = alt.Chart(each.points).mark_circle(size=22, opacity=0.4, color=BLUE).encode(**axes)
    bold = alt.Chart(means).mark_circle(size=70, opacity=1, color=BLUE).encode(**axes)
    layers = [seeds, bold]
    for place, style in PLACES.items():
        own = alt.Chart(means[means.place == place]).mark_text(fontSize=11, **style)
        layers.append(own.encode(**axes, text="name:N"))
    title = alt.TitleParams(each.title, fontSize=12)
    return alt.layer(*layers).properties(width=190, height=210, title=title)


PLACES = {
    "right": {"align": "left", "dx": 7},
    "left": {"align": "right", "dx": -7},
    "above": {"dy": -11},
    "below": {"dy": 13},
}


def places(means: pd.DataFrame, reverse: bool) -> list[str]:
    """The side of each dot that is farthest from other dots, for its name.

    reverse: whether greater values are lower on the screen
    """
    x = (means.theirs - means.theirs.min()) / (means.theirs.max() - means.theirs.min() or 1)
    y = (means.ours - means.ours.min()) / (means.ours.max() - means.ours.min() or 1)
    y = -y if reverse else y
    found = []
    for at in means.index:
        near = {}
        for side, (right, up) in SIDES.items():
            others = [
                math.hypot(x[at] + right - x[other], y[at] + up - y[other])
                for other in means.index
                if other != at
            ]
            near[side] = min(others, default=1)
        found.append(max(near, key=near.get))
    return found


SIDES = {"right": (0.14, 0), "left": (-0.14, 0), "above": (0, 0.08), "below": (0, -0.08)}
