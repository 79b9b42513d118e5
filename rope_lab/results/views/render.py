"""Files and specifications of charts: SVG, PDF and PNG, the same bytes for the same chart.

The fonts are those of the renderer, so that a layout does not depend on the machine.
"""

import functools
import re
from typing import Any

import altair as alt
import vl_convert

VERSION = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])  # of Vega-Lite
FONT = "Liberation Sans, Arial, sans-serif"
INK = "#1b1d21"
GRID = "#e6e8ec"
DECIMALS = 2  # of a place in an SVG, in pixels
PLACES = re.compile(r'( (?:d|transform|x|y|x1|x2|y1|y2|width|height)=")([^"]*)(?=")')
IDS = re.compile(r"\b(clip|gradient_)(\d+)\b")
Config = dict[str, Any]


def config(ink: str = INK, grid: str = GRID, background: str | None = "white") -> Config:
    """Vega-Lite's settings of every chart: fonts, axes, legends; Vega's `config`."""
    text = {"labelFontSize": 12, "titleFontSize": 12, "labelColor": ink, "titleColor": ink}
    axis = text | {"domain": False, "ticks": False, "gridColor": grid, "titleFontWeight": "normal"}
    axis |= {"labelPadding": 6, "titlePadding": 8, "labelOverlap": True, "labelSeparation": 4}
    axis |= {"domainColor": ink, "labelLimit": 0}
    title = {"fontSize": 13, "color": ink, "subtitleFontSize": 12, "subtitleColor": ink}
    title |= {
        "anchor": "start",
        "frame": "group",
        "subtitlePadding": 6,
        "fontWeight": "bold",
        "offset": 12,
    }
    return {
        "aria": False,  # a page says beside a chart what it shows
        "font": FONT,
        "background": background,
        "padding": 8,
        "view": {"stroke": None},
        "axis": axis,
        "title": title,
        "legend": text | {"labelLimit": 0, "symbolOpacity": 1, "titleFontWeight": "normal"},
        "header": text | {"labelFontWeight": "bold", "title": None},
        "text": {"color": ink},
    }


DARK = config(ink="#e6edf3", grid="#3d444d", background=None)
CLEAR = config(background=None)


def specification(chart: alt.TopLevelMixin, settings: Config | None = None) -> dict[str, Any]:
    """A chart as Vega-Lite, with our settings; raises if Vega-Lite does not know a part of it."""
    return chart.to_dict() | {"config": settings or config()}


def svg(chart: alt.TopLevelMixin, settings: Config | None = None) -> bytes:
    """A chart as SVG, with its text as text.

    Places are rounded, since their last digits depend on the processor. Names of clip paths count
    from 0: the renderer counts on from chart to chart.
    """
    drawn = vl_convert.vegalite_to_svg(specification(chart, settings), vl_version=VERSION)
    names: dict[str, str] = {}

    def renamed(found: re.Match) -> str:
        return names.setdefault(found[0], f"{found[1]}{len(names)}")

    def rounded(found: re.Match) -> str:
        return found[1] + re.sub(r"-?\d+\.\d+(e-?\d+)?", shorter, found[2])

    return (IDS.sub(renamed, PLACES.sub(rounded, drawn)) + "\n").encode()


def shorter(number: re.Match) -> str:
    """A decimal number with at most DECIMALS decimals."""
    return f"{round(float(number[0]), DECIMALS) + 0.0:g}"


def pdf(chart: alt.TopLevelMixin, settings: Config | None = None) -> bytes:
    """A chart as PDF, for papers."""
    return vl_convert.vegalite_to_pdf(specification(chart, settings), vl_version=VERSION)


def png(chart: alt.TopLevelMixin, settings: Config | None = None, scale: float = 2) -> bytes:
    """A chart as PNG, `scale` pixels for each of its own."""
    made = specification(chart, settings)
    return vl_convert.vegalite_to_png(made, vl_version=VERSION, scale=scale)


@functools.cache
def library() -> str:
    """Vega, Vega-Lite and vegaEmbed as one script."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VERSION)
