"""The figures of a folder's pages: which are drawn, under which name, and their SVG.

All that charts need of setups, sweeps and verdicts is taken from them here.
"""

from bisect import bisect
from collections.abc import Collection
from dataclasses import replace

import pandas as pd

from rope_lab.results.comparisons.grids import Sweep, is_number
from rope_lab.results.comparisons.results import Result
from rope_lab.results.comparisons.words import AHEAD, BEHIND, CONFIRMED, REFUTED, REVERSED, word
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.measures import AT
from rope_lab.results.records.run import one_line
from rope_lab.results.records.setups import Setup
from rope_lab.results.views import charts, forest, heat, render, series, sweeps
from rope_lab.results.views.panels import Panel, titled
from rope_lab.results.views.verdicts import gain_text, kind, label, published_gains
from rope_lab.text import show

FOREST = "verdicts.svg"
COLORS = {
    CONFIRMED: forest.GOOD,
    AHEAD: forest.GOOD,
    REVERSED: forest.BAD,
    REFUTED: forest.BAD,
    BEHIND: forest.BAD,
}
ROW = 80  # letters of a row of the forest plot
LABEL = 140  # letters of a title
WORD = 16  # letters of a value on an axis


def draw(shown: Collection[Setup | Sweep]) -> tuple[dict[Setup | Sweep, str], dict[str, bytes]]:
    """The figures of sweeps and groups: the names of their files, and by name SVG."""
    names: dict[Setup | Sweep, str] = {}
    files: dict[str, bytes] = {}
    for each in drawable(shown):
        kind = "sweep" if isinstance(each, Sweep) else "lengths" if each.lengths else "curves"
        name = f"{each.file}-{kind}.svg"
        if name in files:
            name = f"{each.file}-{each.recipe_id}-{kind}.svg"
        names[each], files[name] = name, render.svg(CHARTS[kind](each))
    return names, files


def drawable(shown: Collection[Setup | Sweep]) -> list[Setup | Sweep]:
    """Those with a figure.

    Not drawn are sweeps of two values or one seed, and a group of one scheme if it is in a sweep or
    of another recipe.
    """
    swept: set[Setup] = set()
    for each in shown:
        if isinstance(each, Sweep) and _has_figure(each):
            swept |= {group for group in each.groups.values() if len(group.schemes) == 1}
    return [each for each in shown if each not in swept and _has_figure(each)]


def _has_figure(each: Setup | Sweep) -> bool:
    if isinstance(each, Sweep):
        seeds = max(len(scores) for scores in each.scores.values())
        return len(each.values) > 2 and seeds > 1
    alone = each.variant and len(each.schemes) == 1
    return not each.finished.empty and not alone


def curves(group: Setup) -> charts.alt.TopLevelMixin:
    """The metric against steps, with the published values if the set-up is the same."""
    panel = series.over_training(group, group.measure)
    panel = replace(panel, points=panel.points[panel.points.ended])
    drawn = titled(panel, group.published)
    same = not group.deviations() and not group.variant
    levels = []
    for scheme in panel.schemes:
        if same and scheme in group.report.published:
            title = group.published.title(scheme)
            value = float(group.report.published[scheme][0].split()[0]) - group.optimum
            levels.append(charts.Level(f"{title}, published", value, drawn.colors[title]))
    return charts.training(drawn, _title(group, panel), levels)


def lengths(group: Setup) -> charts.alt.TopLevelMixin:
    """Problems right, and losses, by length; below them heat maps of a crossed attribute."""
    kinds = group.length_kinds
    panels = [series.by_value(group, kind) for kind in kinds]
    drawn = [replace(titled(panel, group.published), zero=True) for panel in panels]
    title = _title(group, panels[-1])
    chart = charts.lengths(drawn, title, group.trained_lengths)
    if not group.crossed or len(kinds) > 1:
        return chart
    attribute = group.crossed[min(group.crossed)].partition(AT)[0]
    x, y = group.report.length["title"], series.title(group, attribute)
    return heat.below(chart, heat_maps(group), x, y)


def heat_maps(group: Setup) -> list[heat.HeatMap]:
    """Shares of problems right by length and the crossed attribute, a map for each scheme.

    A line stands after the longest problems of training.
    """
    lengths = sorted(group.crossed)
    parts = [group.slices(group.crossed[length]).assign(column=length) for length in lengths]
    rule = group.trained_lengths and bisect(lengths, group.trained_lengths[1])
    cells = pd.concat(parts).groupby(["scheme", "column", "value"])["mean"].mean().reset_index()
    cells = cells.rename(columns={"value": "row", "mean": "share"})
    maps = []
    for scheme in group.schemes:
        own = cells[cells.scheme == scheme].drop(columns="scheme")
        if len(own):
            maps.append(heat.HeatMap(group.published.title(scheme), own, rule))
    return maps


def sweep(each: Sweep) -> charts.alt.TopLevelMixin:
    """Final scores against the setting."""
    panel, rings = sweep_panel(each), []
    places = panel.ticks
    means = panel.means().set_index(["scheme", "x"]).y
    for scheme in each.schemes:
        best = each.best(scheme)
        if best is not None:
            title = each.published.title(scheme)
            rings.append({"scheme": title, "x": places[best], "y": means[title, places[best]]})
    recipe = None if each.recipe is None else places[each.recipe]
    return charts.sweep(panel, one_line(each.title, LABEL), rings, recipe)


def sweep_panel(each: Sweep) -> Panel:
    """The panel of a sweep, with the setting's values as ticks."""
    values = each.values
    numbers = all(map(is_number, values))
    words = [] if numbers else [one_line(show(value), WORD) for value in values]
    log = numbers and 0 < 3 * values[0] <= values[-1]
    drawn = titled(sweeps.panel(each), each.published)
    return replace(drawn, ticks=sweeps.places(each), words=words, log_x=log)


def verdicts(
    found: list[Result], published: Published, settings: render.Config | None = None
) -> bytes:
    """The forest plot of measured and published gains as SVG; settings: `render.config`."""
    gains = [gain(result, published) for result in found]
    return render.svg(forest.forest(gains, published.titles[0]), settings)


def gain(result: Result, published: Published) -> forest.Gain:
    """A row of the forest plot."""
    return forest.Gain(
        panel=one_line(result.title, ROW),
        unit=one_line(result.measure.unit, ROW),
        label=one_line(label(result), LABEL),
        kind=kind(result),
        low=result.gain.low,
        mean=result.gain.mean,
        high=result.gain.high,
        text=gain_text(result),
        word=word(result),
        color=COLORS.get(word(result), forest.GREY),
        published=tuple(published_gains(result, published)),
    )


def _title(group: Setup, panel: Panel) -> str:
    """The title of a group, and how many of its schemes are shown."""
    shown, there = len(panel.schemes), len(group.schemes)
    chosen = f": {shown} of {there} schemes" if shown < there else ""
    return one_line(f"{group.title}, {group.scale}{chosen}", LABEL)


CHARTS = {"curves": curves, "lengths": lengths, "sweep": sweep}
