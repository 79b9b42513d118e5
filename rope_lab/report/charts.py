"""The charts of the page, as Vega-Lite: what a chart says of its axes. Its rows come to it on the page, by name.

Four data sets: `runs` (s scheme color seed x y open), a row a run and point, `open` where the run has not ended;
`means` (s scheme color n x y low high), of a scheme's seeds with their 95% interval; `near`, both, by which the pointer
finds them; `marks`, what else there is to plot. `lo` and `hi` are the ends of the value axis, `faint`
the opacity of bands. All is named, so that a chart is the same whenever it is made.
"""

import functools
from typing import Any, Literal

import altair as alt

Axis = Literal["linear", "log", "symlog"]
HELD = "hover.s && hover.s[0] === datum.s"  # the scheme under the pointer
LIT = "!hover.s || hover.s[0] === datum.s"  # the scheme under the pointer, or none is
PAN = "[pointerdown[event.pointerType === 'mouse'], window:pointerup] > window:pointermove!"  # fingers scroll the page
ZOOM = "wheel![event.altKey || event.ctrlKey || event.metaKey]"  # and so does the wheel alone
# Pixels that the names of rows may take.
LABELS = alt.expr("containerSize()[0] < 420 ? 110 : containerSize()[0] < 700 ? 190 : 320")
COLOR = alt.Color("color:N", scale=None)
COSTS = [0, 0.01, 0.03, 0.1, 0.3, 1, 3, 10]  # ticks of a symlog axis
ROW = 28  # pixels of a row of dots
DECADES = [10.0**power for power in range(-9, 7)]  # ticks of a log axis, of which Vega would have too many
TICKS = [digit * decade for decade in DECADES for digit in (1, 2, 5)]  # of one that spans few decades
FINE = [digit * decade for decade in DECADES for digit in range(1, 10)]  # of one that spans less than one
CONFIG = {  # of all charts: the page's own colours, in light and dark
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "domainColor": "var(--rule)",
        "tickColor": "var(--rule)",
        "gridColor": "var(--faint)",
        "labelColor": "var(--soft)",
        "titleColor": "var(--soft)",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelOverlap": True,
        "tickCount": 5,
    },
    "axisY": {"domain": False, "ticks": False, "labelPadding": 6},
}


@functools.cache
def lines(x: str, unit: str, form: str, axis: Axis, points: bool = False, shaded: bool = False) -> dict[str, Any]:
    """A thin line for every run, a bold one for each scheme's mean, and its 95% band, over `x`; can be zoomed.

    form: how values are written, as d3-format has it; shaded: marks are ranges of x
    """
    across = alt.X("x:Q", title=None, scale=alt.Scale(nice=False, zero=False), axis=alt.Axis(grid=False))
    up = alt.Y("y:Q", title=None, scale=_scale(axis), axis=_axis(axis, "y"))
    x_too, y_too = alt.X("x:Q", title=None), alt.Y("y:Q", title=None)  # on the same axes, described once
    fields = ["s", "seed", "x"]
    hover = alt.selection_point("hover", fields=fields, nearest=True, on="pointerover", clear="pointerout", empty=False)
    zoom = alt.selection_interval("zoom", bind="scales", translate=PAN, zoom=ZOOM)
    shade = _chart("shade", "marks").mark_rect(clip=True, fill="var(--faint)").encode(alt.X("from:Q"), alt.X2("to:Q"))
    band = _chart("band", "means").mark_area(clip=True).encode(x_too, alt.Y("low:Q"), alt.Y2("high:Q"), COLOR)
    runs = _chart("lines", "runs").mark_line(clip=True, strokeWidth=1, strokeJoin="round").encode(across, up, COLOR)
    mean = _chart("mean", "means").mark_line(clip=True, strokeWidth=2.5, strokeJoin="round", point=points)
    near = _chart("near", "near").mark_point(clip=True, filled=True, size=70).encode(x_too, y_too, COLOR)
    dash = alt.condition("datum.open", alt.value([4, 3]), alt.value([1, 0]))
    tips = _tips(form, scheme="scheme", seed="seed", x=x, y=unit)
    return _spec(
        *([shade] if shaded else []),
        band.encode(detail="s:N", opacity=alt.condition(HELD, alt.value(0.2), alt.value(alt.expr("faint")))),
        runs.encode(detail=["s:N", "seed:N"], strokeDash=dash, opacity=_lit(0.4, 0.06)).add_params(zoom),
        mean.encode(x_too, y_too, COLOR, detail="s:N", opacity=_lit(1, 0.12)),
        near.encode(opacity=alt.condition(hover, alt.value(1), alt.value(0)), tooltip=tips).add_params(hover),
    )


@functools.cache
def dots(unit: str, form: str, axis: Axis, row: str = "scheme", published: bool = False) -> dict[str, Any]:
    """In each row, a scheme or another x, a dot for every run, and a bar for a scheme's mean with its 95% interval.

    published: marks are what was published
    """
    across = alt.X("y:Q", title=None, scale=_scale(axis), axis=_axis(axis, "x"))
    too = alt.X("y:Q", title=None)  # on the same axis, described once
    rows = alt.Y(f"{row}:N", title=None, sort=None, axis=alt.Axis(labelLimit=LABELS, labelColor="var(--ink)"))
    tips = _tips(form, scheme="scheme", n="seeds", y="mean", low="95% from", high="to")
    runs = _chart("dots", "runs").mark_point(clip=True, filled=True, size=36, opacity=0.75).encode(across, rows, COLOR)
    span = _chart("span", "means").mark_rule(clip=True, strokeWidth=8, opacity=0.25).encode(alt.X("low:Q"), rows, COLOR)
    mean = _chart("mean", "means").mark_tick(clip=True, thickness=3, size=20).encode(too, rows, COLOR)
    mark = _chart("marks", "marks").mark_point(shape="diamond", size=70, fill="var(--paper)", stroke="var(--ink)")
    names = {"x": "probe"} if row == "x" else {}
    apart = alt.YOffset("seed:N" if row == "scheme" else "scheme:N", scale=alt.Scale(range=[0.2 * ROW, 0.8 * ROW]))
    return _spec(
        span.encode(x2="high:Q", tooltip=tips),
        mean.encode(tooltip=tips),
        runs.encode(apart, tooltip=_tips(form, **names, scheme="scheme", seed="seed", y=unit)),
        *([mark.encode(too, rows, tooltip=_tips(form, scheme="scheme", y="published"))] if published else []),
    )


def _chart(name: str, rows: str) -> alt.Chart:
    return alt.Chart(alt.NamedData(rows), name=name)


def _scale(axis: Axis) -> alt.Scale:
    more = {"linear": {"zero": False}, "log": {}, "symlog": {"constant": 0.01}}[axis]
    return alt.Scale(type=axis, domainMin=alt.expr("lo"), domainMax=alt.expr("hi"), nice=False, **more)


def _axis(axis: Axis, scale: str) -> alt.Axis:
    if axis == "linear":
        return alt.Axis()
    span = f"domain('{scale}')[1] / domain('{scale}')[0]"
    values = COSTS if axis == "symlog" else alt.expr(f"{span} > 300 ? {DECADES} : {span} > 8 ? {TICKS} : {FINE}")
    return alt.Axis(values=values, tickCount=len(FINE), format="~g")


def _lit(bright: float, dim: float) -> Any:
    return alt.condition(LIT, alt.value(bright), alt.value(dim))


def _tips(form: str, **titles: str) -> list[alt.Tooltip]:
    """What is said of the row under the pointer: its fields by their titles."""
    numbers = {field: {"type": "quantitative", "format": form} for field in ("y", "low", "high")}
    numbers["x"] = {"type": "nominal"} if titles.get("x") == "probe" else {"type": "quantitative", "format": ",~g"}
    return [
        alt.Tooltip(field, title=title, **numbers.get(field, {"type": "nominal"})) for field, title in titles.items()
    ]


def _spec(*layers: alt.Chart) -> dict[str, Any]:
    """The layers as one chart, as wide as its place on the page; the page gives it its height, and CONFIG."""
    given = [alt.param(name=name, value=value) for name, value in (("lo", 0.1), ("hi", 1), ("faint", 0.1))]
    spec = alt.layer(*layers).add_params(*given).properties(width="container").to_dict()
    return {key: value for key, value in spec.items() if key not in ("config", "$schema")}
