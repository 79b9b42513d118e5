"""The forest plot: gains of one scheme over another, a row each, with intervals."""

import math
from dataclasses import dataclass
from textwrap import wrap

import altair as alt
import pandas as pd

WIDTH, BESIDE = 205, 262  # pixels of the axis, and of the words right of it
WORD = 70  # of the latter, for the word of the verdict
ROW = 34
GOOD, BAD, GREY = "#126B3A", "#9B1C1C", "#666C76"
LEGEND = "◊ published · ■ planned · ● exploratory · lines: 95% intervals over seeds"
KINDS = {"published": "diamond", "planned": "square", "exploratory": "circle"}


@dataclass(frozen=True)
class Gain:
    """A row: a measured gain and its verdict.

    panel: gains of one title and unit share an axis
    unit:  of the gain
    label: of the runs
    kind:  planned or exploratory
    low, high: the 95% interval; nan of one pair
    text:  the gain in words
    word, color: of the verdict
    published: gains to show in a row above
    """

    panel: str
    unit: str
    label: str
    kind: str
    low: float
    mean: float
    high: float
    text: str
    word: str
    color: str
    published: tuple[float, ...] = ()


def forest(gains: list[Gain], contender: str) -> alt.VConcatChart:
    """An axis for each panel and unit; positive gains are the contender's."""
    panels: dict[tuple[str, str], list[Gain]] = {}
    for gain in gains:
        panels.setdefault((gain.panel, gain.unit), []).append(gain)
    drawn = [_panel(found, contender) for found in panels.values()]
    title = alt.TitleParams(LEGEND, fontSize=12, fontWeight="normal", offset=12)
    return alt.vconcat(*drawn, spacing=16).properties(title=title)


def rows(gains: list[Gain]) -> pd.DataFrame:
    """The rows of a panel: published gains, if there are any, then each gain."""
    published = max((gain.published for gain in gains), key=len)
    made = []
    for at, mean in enumerate(published):
        label = "" if at else "published"  # once
        about = {"label": label, "kind": "published", "mean": mean, "color": "#1b1d21"}
        made.append({"row": 0, "low": math.nan, "high": math.nan, "word": "", "text": ""} | about)
    for at, gain in enumerate(gains, start=bool(published)):
        shown = ("label", "kind", "low", "mean", "high", "text", "word", "color")
        made.append({"row": at} | {name: getattr(gain, name) for name in shown})
    return pd.DataFrame(made)


def _panel(gains: list[Gain], contender: str) -> alt.LayerChart:
    """One axis with a row each: a label above an interval, and the verdict beside it."""
    data = rows(gains)
    count = int(data.row.max()) + 1
    scale = alt.Scale(domain=[-0.5, count - 0.5], reverse=True, nice=False)
    y = alt.Y("row:Q", axis=None, scale=scale)
    ends = [0.0, *data["mean"], *data.low.dropna(), *data.high.dropna()]
    room = 0.04 * (max(ends) - min(ends)) or 0.1
    across = alt.Scale(domain=[min(ends) - room, max(ends) + room], nice=False)
    title = wrap(f"gain of {contender}, {gains[0].unit}", 36)
    axis = alt.Axis(tickCount=4, labelFlush=False)
    x = alt.X("mean:Q", title=title, scale=across, axis=axis)
    color = alt.Color("color:N", scale=None)
    base = alt.Chart(data).encode(y=y)
    zero = alt.Chart(pd.DataFrame([{"zero": 0}])).mark_rule(strokeWidth=1.2).encode(x="zero:Q")
    interval = base.mark_rule(strokeWidth=2.4, yOffset=7).transform_filter("isValid(datum.low)")
    kinds = alt.Scale(domain=list(KINDS), range=list(KINDS.values()))
    shape = alt.Shape("kind:N", scale=kinds, legend=None)
    fill = alt.condition("datum.kind == 'published'", alt.value("white"), color)
    point = base.mark_point(size=70, filled=True, opacity=1, strokeWidth=1.4, yOffset=7)
    text = {"align": "left", "fontSize": 12, "limit": WIDTH + BESIDE}
    label = base.mark_text(dx=2, dy=-8, **text).encode(x=alt.value(0), text="label:N")
    halo = base.mark_text(dx=2, dy=-8, stroke="white", strokeWidth=4, strokeJoin="round", **text)
    word = base.mark_text(dy=8, fontWeight="bold", **text)
    gain = base.mark_text(dy=8, dx=WORD, **text).encode(x=alt.value(WIDTH + 8), text="text:N")
    layers = [
        zero,
        interval.encode(x=alt.X("low:Q", title=title, axis=axis), x2="high:Q", color=color),
        point.encode(x=x, stroke=color, fill=fill, shape=shape),
        halo.encode(x=alt.value(0), text="label:N"),
        label,
        word.encode(x=alt.value(WIDTH + 8), text="word:N", color=color),
        gain,
    ]
    return alt.layer(*layers).properties(width=WIDTH, height=ROW * count, title=gains[0].panel)
