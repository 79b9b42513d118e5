"""The page of `rope-lab adopt`: schemes in trained runs beside the runs' own, a table and a
figure.
"""

import math
import statistics
from pathlib import Path

import altair as alt

from rope_lab.results.comparisons.continued import (
    AS_IS,
    Continued,
    Key,
    control_of,
    steps_until_as_good,
)
from rope_lab.results.comparisons.stats import FEWEST_PAIRS
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.setups import seeds_text
from rope_lab.results.views import charts, palettes, render, tables
from rope_lab.results.views.longer_page import of_ways
from rope_lab.results.views.panels import Panel, points_frame
from rope_lab.results.views.tables import bullets, escaped, markdown

SIDES = {1: "better", -1: "worse", 0: "no clear difference, neither better nor worse"}
PAGE, FIGURE = "adopt.md", "adopt.svg"


def write(page: Path, continued: Continued, own: str) -> None:
    """Write the page and its figure, and print it; own: the name of the parents' scheme."""
    catalogue = Catalogue()
    first = continued.ways[continued.first][0]
    own = catalogue.title(own)
    title = f"{own} on {continued.report.title}, {first.scale}: adopting another scheme"
    longest = continued.by_steps()[-1]
    parts = [f"# {escaped(title)}", bullets(conclusions(continued, own))]
    parts.append(f"![Each scheme while it is trained further](figures/{FIGURE})")
    measures = {continued.measure.unit: continued.measure}
    others = {"the control": control_of}
    parts.append(markdown(of_ways("scheme", continued, control_name(own), measures, others)))
    parts += ["## How to read it", bullets(notes(continued, own))]
    drawn = render.svg(charts.with_title(chart(longest, catalogue, own), title))
    tables.write_page(page, parts, {FIGURE: drawn})


def conclusions(continued: Continued, own: str) -> list[str]:
    """A sentence for each scheme, after the longest training."""
    lines = []
    for key in continued.by_steps()[-1].ways:
        if key.way != AS_IS:
            recovery = _recovery(continued, key)
            lines.append(f"{key.way}: {_against(continued, key, own)}; {recovery}.")
    return lines


def _against(continued: Continued, key: Key, own: str) -> str:
    """A scheme against the control."""
    measure = continued.measure
    control = control_of(key)
    with_same = f"than {own} with the same {key.steps} further steps"
    runs = len(continued.ways[key])
    for name, each in ((key.way, key), (own, control)):
        if lost := continued.diverged(each):
            return f"not compared: {lost} of {runs} runs of {name} diverged"
    found = continued.difference(key, control)
    if found.n < FEWEST_PAIRS:
        return f"too few runs, {found.n}, to say whether it is better {with_same}"
    shown = f"{tables.signed(found, measure.digits)} {measure.unit}"
    word = SIDES[found.side * measure.sign]
    return f"{word} {with_same}, {shown}"


def _recovery(continued: Continued, key: Key) -> str:
    """After how many steps a scheme is as good as its parents were."""
    steps = steps_until_as_good(continued, key)
    reached = sum(step < math.inf for step in steps)
    median = statistics.median(steps)
    on = "" if reached == len(steps) else f", on {reached} of {len(steps)} runs"
    if not median:
        return f"as good as before without further training{on}"
    if median < math.inf:
        return f"as good as before from step {median:.0f} on{on}"
    return f"as good as before within {key.steps} steps on {reached} of {len(steps)} runs"


def control_name(own: str) -> str:
    """The parents' own scheme in tables and the figure."""
    return f"{own} (control)"


def chart(longest: Continued, catalogue: Catalogue, own: str) -> alt.TopLevelMixin:
    """The curves of the longest training, and the level at which it began: there others than the
    control are far from it.
    """
    measure, rows, colors = longest.measure, [], {}
    positions = [runs[0].position for runs in longest.ways.values()]
    for key, runs in longest.ways.items():
        is_control = key.way == AS_IS
        name = control_name(own) if is_control else key.way
        colors[name] = palettes.GREY if is_control else catalogue.color(runs[0].position, positions)
        for run in runs:
            for step, value in run.points(measure.metric):
                if step or is_control:
                    counts = run.status == "finished"
                    rows.append((name, run.seed, step, value * measure.times, counts))
    points = points_frame(rows)
    panel = Panel(points, "further steps", measure.unit, most=measure.most, colors=colors)
    before = points[(points.x == 0)].y.mean()
    level = charts.level(before, "before", palettes.INK)
    return alt.layer(charts.lines(panel), level)


def notes(continued: Continued, own: str) -> list[str]:
    """What the numbers are, and what they do not show."""
    longest = continued.by_steps()[-1]
    runs = longest.ways[longest.first]
    rate = runs[0].all_settings["train.lr"]
    shown = "with 95% intervals" if len(runs) >= FEWEST_PAIRS else "(…): of both runs"
    if len(runs) == 1:
        shown = "of one run"
    return [
        f"Means over parents ({seeds_text([run.seed for run in runs])}), {shown}; differences are "
        "taken parent by parent. No test was planned: explore with it.",
        f"“minus the control”: against {own} with the same further steps, batches and learning "
        "rates; emphasized if the interval is on the better side of 0.",
        f"“as good as before”: the first of {len(runs[0].points(continued.measure.metric))} "
        "evaluations from which on a run is as good as its parent was, in the longest training: "
        "the median of all runs.",
        f"The highest learning rate of further training is {rate:g}; no scheme has searched it.",
    ]
