"""Draw the picture at the top of README.md from kept runs: `python scripts/make_pictures.py`."""

from dataclasses import replace
from pathlib import Path

import altair as alt

from rope_lab.files import write_whole
from rope_lab.results.comparisons.answers import answered
from rope_lab.results.comparisons.unplanned import between
from rope_lab.results.plans.setups import setups_of_folders
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.folders import read
from rope_lab.results.views import charts, palettes, render, series
from rope_lab.results.views.panels import Panel, titled

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "results" / "confirm"
STUDY = "prefix_values"
THEMES = {"light": render.CLEAR, "dark": render.DARK}
CURVES, SLOPES, HEIGHT = 350, 120, 190  # pixels


def picture() -> alt.HConcatChart:
    """Loss of RoPE and RoPER on Prefix at paper scale: the planned comparison."""
    catalogue = Catalogue()
    runs, _ = read(FOLDER)
    setups, _ = setups_of_folders({FOLDER: runs}, catalogue)
    here = next(setup for setup in setups if setup.study == STUDY)
    schemes = list(catalogue.pair)[::-1]
    panel = series.over_training(here, here.measure, schemes)
    result = answered(between(here, *catalogue.pair))
    pairs = result.pairs
    points = panel.points[panel.points.seed.isin(pairs.index)]
    points = points.assign(y=points.y + here.optimum)
    panel = replace(panel, points=points, y="loss, nats per letter", log=False, untrained=False)
    panel = titled(panel, catalogue)
    best = charts.level(here.optimum, "best possible", palettes.GREY)
    curves = charts.with_title(alt.layer(charts.lines(panel), best), "Copying text: held-out loss")
    curves = curves.properties(width=CURVES, height=HEIGHT)
    gap = f"{-result.difference.mean:.3f} lower on average"
    return alt.hconcat(curves, slopes(panel, gap), spacing=36)


def slopes(panel: Panel, gap: str) -> alt.LayerChart:
    """The last value of each run; a line joins the runs of a seed.

    gap: the difference of the means in words
    """
    last = panel.points.sort_values("x", kind="stable").groupby(["scheme", "seed"]).tail(1)
    axis = alt.Axis(labelAngle=0, labelFontWeight="bold", labelOverlap=False)
    base = alt.Chart(last).encode(
        x=alt.X("scheme:N", sort=list(panel.colors), title=gap, axis=axis),
        y=alt.Y("y:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5)),
    )
    joined = base.mark_line(color=palettes.GREY, strokeWidth=1.2).encode(detail="seed:N")
    dots = base.mark_circle(size=70, opacity=1).encode(color=charts.colors(panel.colors))
    chart = charts.with_title(alt.layer(joined, dots), "Where each seed ends")
    return chart.properties(width=SLOPES, height=HEIGHT)


if __name__ == "__main__":
    for theme, settings in THEMES.items():
        write_whole(ROOT / "docs" / f"prefix-{theme}.svg", render.svg(picture(), settings))
