"""The figure of a verdict: every seed of two schemes, paired."""

import altair as alt

from rope_lab.results.comparisons.answers import Result
from rope_lab.results.views import charts
from rope_lab.results.views.palettes import PAIRED

WIDTH, HEIGHT = 220, 260  # pixels; wider if names are long
LETTER = 8  # pixels, of a name


def paired(result: Result, names: tuple[str, str], colors: tuple[str, str]) -> alt.LayerChart:
    """A dot for each run; a line joins the runs of a seed, a bar marks each mean.

    names, colors: of ours and theirs
    """
    measure = result.measure
    values = result.pairs.rename(columns=dict(zip(("ours", "theirs"), names, strict=True)))
    points = values.rename_axis("seed").reset_index().melt("seed", var_name="scheme")
    averages = points.groupby("scheme").value.mean().map(measure.shown).reset_index()
    points = points.astype({"seed": str}).assign(value=points.value.map(measure.shown))
    axis = alt.Axis(labelAngle=0, labelFontWeight="bold", labelOverlap=False)
    x = alt.X("scheme:N", sort=list(names), title=None, axis=axis)
    scale = alt.Scale(zero=False, nice=True, type="log" if measure.is_log else "linear")
    y = alt.Y("value:Q", title=f"{measure.shown_unit} ({measure.better} is better)", scale=scale)
    color = charts.colors(dict(zip(names, colors, strict=True)))
    base = alt.Chart(points).encode(x=x, y=y)
    joined = base.mark_line(color=PAIRED, strokeWidth=1, opacity=0.7).encode(detail="seed:N")
    dots = base.mark_circle(size=55, opacity=0.9).encode(color=color, tooltip=["seed", "value"])
    averaged = base.properties(data=averages) if measure.is_log else base  # geometric means
    means = averaged.mark_tick(thickness=3, size=34).encode(y=y.aggregate("mean"), color=color)
    width = max(WIDTH, 2 * LETTER * max(map(len, names)))
    return alt.layer(joined, dots, means).properties(width=width, height=HEIGHT)
