"""The figures of a folder's pages: which are drawn, and under which name.

All that charts need of setups and sweeps is taken from them here. A new kind of figure is a
function, and a line in CHARTS.
"""

import json
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

import altair as alt
import pandas as pd

from rope_lab.results.comparisons.grids import Sweep
from rope_lab.results.records.measures import AT
from rope_lab.results.records.run import one_line
from rope_lab.results.records.setups import Setup
from rope_lab.results.views import charts, heat, series
from rope_lab.results.views.panels import Panel, points_frame, titled
from rope_lab.results.views.tables import unused
from rope_lab.text import show

LABEL = 140  # letters of a title
WORD = 16  # letters of a value on an axis


class Figure(NamedTuple):
    """A chart, and the name of its file without the ending."""

    name: str
    chart: alt.TopLevelMixin


def draw(shown: Collection[Setup | Sweep]) -> dict[Setup | Sweep, Figure]:
    """The figures of sweeps and setups that have one."""
    drawn: dict[Setup | Sweep, Figure] = {}
    for each in drawable(shown):
        kind = _kind(each)
        taken = {figure.name.removesuffix(f"-{kind}") for figure in drawn.values()}
        name = unused(taken, each.file, f"{each.file}-{each.recipe_id}")
        drawn[each] = Figure(f"{name}-{kind}", CHARTS[kind](each))
    return drawn


def _kind(each: Setup | Sweep) -> str:
    """The name in CHARTS of its figure."""
    if isinstance(each, Sweep):
        return "sweep"
    return "lengths" if each.lengths else "curves"


def drawable(shown: Collection[Setup | Sweep]) -> list[Setup | Sweep]:
    """Those with a figure.

    Not drawn are sweeps of two values or one seed, a setup of one scheme if it is in a sweep or of
    another recipe, and curves of runs without a step.
    """
    swept: set[Setup] = set()
    for each in shown:
        if isinstance(each, Sweep) and _has_figure(each):
            swept |= {setup for setup in each.setups if len(setup.schemes) == 1}
    return [each for each in shown if each not in swept and _has_figure(each)]


def _has_figure(each: Setup | Sweep) -> bool:
    if isinstance(each, Sweep):
        seeds = max(map(len, each.scores.values()))
        return len(each.values) > 2 and seeds > 1
    alone = each.variant and len(each.schemes) == 1
    is_point = _kind(each) == "curves" and each.settings["train.steps"] == 0
    return not (each.finished.empty or alone or is_point)


def curves(setup: Setup) -> alt.TopLevelMixin:
    """The metric against steps, with the published values if the set-up is the same."""
    panel = series.over_training(setup, setup.measure)
    panel = titled(replace(panel, points=panel.points[panel.points.ended]), setup.catalogue)
    versions = {} if setup.variant else setup.versions
    values = {}
    for scheme in setup.schemes:
        title = setup.catalogue.title(scheme)
        if scheme in versions and title in panel.colors:
            values[title] = float(versions[scheme][0].split()[0]) - setup.optimum
    layers = [charts.lines(panel)]
    for title, value in values.items():
        below = value < max(values.values())
        label = f"{title}, published"
        layers.append(charts.level(value, label, panel.colors[title], below))
    return charts.with_title(alt.layer(*layers), _title(setup, panel))


def lengths(setup: Setup) -> alt.TopLevelMixin:
    """Scores by length, a panel for each kind, the lengths of training shaded; below a single one
    heat maps of a crossed attribute.
    """
    kinds, trained = setup.length_kinds, setup.trained_lengths
    width = (charts.WIDTH - 80 * (len(kinds) - 1)) // len(kinds)
    drawn = []
    for kind in kinds:
        panel = titled(series.by_value(setup, kind), setup.catalogue)
        layers = [charts.lines(panel, dots=True).properties(width=width)]
        if trained:
            layers.insert(0, charts.shade(trained[0] - 0.5, trained[1] + 0.5))
        drawn.append(alt.layer(*layers))
    chart = alt.hconcat(*drawn, spacing=charts.GAP) if len(drawn) > 1 else drawn[0]
    if setup.crossed and len(drawn) == 1:
        chart = alt.vconcat(chart, _heat_maps(setup), spacing=charts.GAP)
        chart = chart.resolve_scale(color="independent")
    subtitle = "Shaded: lengths of training" if trained else ""
    return charts.with_title(chart, _title(setup, panel), subtitle)


def _heat_maps(setup: Setup) -> alt.TopLevelMixin:
    """Shares of problems right by length and the crossed attribute, a map for each scheme."""
    attribute = setup.crossed[min(setup.crossed)].partition(AT)[0]
    x = setup.report.length["title"]
    y = series.title(setup, attribute)
    trained = setup.trained_lengths[1] if setup.trained_lengths else 0
    return heat.maps(crossed(setup), x, y, trained)


def crossed(setup: Setup) -> pd.DataFrame:
    """The share of problems right by length and the crossed attribute: `scheme column row
    share`.
    """
    parts = [setup.slices(name).assign(column=length) for length, name in setup.crossed.items()]
    cells = pd.concat(parts).rename(columns={"value": "row", "mean": "share"})
    cells = cells.assign(scheme=cells.scheme.map(setup.catalogue.title))
    return cells.groupby(["scheme", "column", "row"], sort=False).share.mean().reset_index()


def sweep(each: Sweep) -> alt.TopLevelMixin:
    """Final scores against the setting, with a ring around the best value of each scheme."""
    panel, places = sweep_panel(each), _places(each)
    best = {each.catalogue.title(scheme): each.best[scheme] for scheme in each.schemes}
    places_of = {title: places[at] for title, at in best.items() if at is not None}
    means = panel.means()
    rings = means[means.x == means.scheme.map(places_of)]
    ring = alt.Chart(rings).mark_point(size=190, strokeWidth=1.6, filled=False, opacity=1)
    layers = [charts.lines(panel, dots=True), ring.encode(x="x:Q", y="y:Q", color="scheme:N")]
    if each.recipe is not None:
        layers.insert(0, charts.upright(places[each.recipe], "the recipe"))
    notes = []
    if len(rings):
        notes.append("ring: the best value of a scheme")
    if len(panel.fewer()):
        notes.append("hollow: fewer seeds")
    subtitle = "; ".join(notes).capitalize()
    return charts.with_title(alt.layer(*layers), one_line(each.title, LABEL), subtitle)


def sweep_panel(each: Sweep) -> Panel:
    """The final scores against the setting, above the Bayes-optimal value if it is the same for
    all. The setting's values are ticks.
    """
    measure = each.measure
    values = each.values
    places = _places(each)
    optima = {setup.optimum for setup in each.setups}
    optimum = optima.pop() if len(optima) == 1 else 0.0
    points = []
    for scheme, scores in each.scores.items():
        for (seed, _, at), score in scores.stack().items():
            points.append((scheme, seed, places[at], score - optimum, True))
    above = f" above the Bayes-optimal {optimum:.3g}" if optimum else ""
    unit = f"{measure.unit}{above}, {measure.better} is better"
    axis, scale = {"values": places, "format": "~g"}, {}
    if not each.has_numbers:
        words = [one_line(show(value), WORD) for value in values]
        axis["labelExpr"] = f"{json.dumps(words)}[datum.value]"
    elif 0 < 3 * values[0] <= values[-1]:
        scale = {"type": "log"}
    frame = points_frame(points)
    log = optimum > 0
    panel = Panel(frame, each.setting, unit, log, measure.most, axis=axis, scale=scale)
    return titled(panel, each.catalogue)


def _places(each: Sweep) -> list[float]:
    """The positions of a setting's values on an axis; words stand one after the other."""
    return list(map(float, each.values if each.has_numbers else range(len(each.values))))


def _title(setup: Setup, panel: Panel) -> str:
    """The title of a setup, and how many of its schemes are shown."""
    shown, there = len(panel.schemes), len(setup.schemes)
    chosen = f": {shown} of {there} schemes" if shown < there else ""
    return one_line(f"{setup.title}, {setup.scale}{chosen}", LABEL)


CHARTS = {"curves": curves, "lengths": lengths, "sweep": sweep}
