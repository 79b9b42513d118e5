"""Files and specifications of charts: SVG and PDF, the same bytes for the same chart.

The fonts are those of the renderer, so that a layout does not depend on the machine.
"""

import functools
import re
from pathlib import Path
from string import Template
from typing import Any

import altair as alt
import vl_convert
import yaml

from rope_lab.results.views.palettes import DARK_GRID, GRID, INK, LIGHT_INK

VERSION = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])  # of Vega-Lite
THEME = Template(Path(__file__).with_name("theme.yaml").read_text("utf-8"))
PLACES = re.compile(r' (?:d|transform|x|y|x1|x2|y1|y2|width|height)="[^"]*"')
DECIMAL = re.compile(r"-?\d+\.\d+(e-?\d+)?")
IDS = re.compile(r"\b(clip|gradient_)\d+\b")
Config = dict[str, Any]


def theme(ink: str, grid: str, background: str | None) -> Config:
    """Vega-Lite's settings of every chart in these colours."""
    settings = yaml.safe_load(THEME.substitute(ink=ink, grid=grid))
    return settings | {"background": background}


PAPER = theme(INK, GRID, "white")
CLEAR = PAPER | {"background": None}
DARK = theme(LIGHT_INK, DARK_GRID, None)


def specification(chart: alt.TopLevelMixin, settings: Config = PAPER) -> Config:
    """A chart as Vega-Lite, with our settings; raises if Vega-Lite does not know a part of it."""
    return chart.to_dict() | {"config": settings}


def svg(chart: alt.TopLevelMixin, settings: Config = PAPER) -> bytes:
    """A chart as SVG, with its text as text.

    Places are rounded, since their last digits depend on the processor. Names of clip paths count
    from 0: the renderer counts on from chart to chart.
    """
    drawn = vl_convert.vegalite_to_svg(specification(chart, settings), vl_version=VERSION)
    drawn = PLACES.sub(lambda place: DECIMAL.sub(_rounded, place[0]), drawn)
    names: dict[str, str] = {}

    def renamed(name: re.Match) -> str:
        return names.setdefault(name[0], f"{name[1]}{len(names)}")

    return (IDS.sub(renamed, drawn) + "\n").encode()


def _rounded(number: re.Match) -> str:
    """A decimal number of pixels with at most two decimals."""
    return f"{round(float(number[0]), 2) + 0.0:g}"


def pdf(chart: alt.TopLevelMixin) -> bytes:
    """A chart as PDF, for papers."""
    return vl_convert.vegalite_to_pdf(specification(chart, PAPER), vl_version=VERSION)


@functools.cache
def javascript() -> str:
    """Vega, Vega-Lite and vegaEmbed as one script."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VERSION)
