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
from rope_lab.results.comparisons.stats import t_interval
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.setups import seeds as seeds_text
from rope_lab.results.views import charts, render, tables
from rope_lab.results.views.panels import Panel, points_frame, titled
from rope_lab.results.views.tables import Strong, Table, bullets, escaped, markdown

PAGE, FIGURE = "adopt.md", "adopt.svg"


def write(page: Path, continued: Continued, own: str) -> None:
    """Write the page and its figure, and print it; own: the name of the parents' scheme."""
    published = Published()
    first = continued.ways[continued.first][0]
    own = published.title(own)
    title = f"{own} on {continued.report.title}, {first.scale}: adopting another scheme"
    longest = continued.by_steps()[-1]
    parts = [f"# {escaped(title)}", bullets(conclusions(longest, own))]
    parts.append(f"![Each scheme while it is trained further](figures/{FIGURE})")
    parts.append(markdown(table(continued, own)))
    parts += ["## How to read it", bullets(notes(continued, own))]
    drawn = render.svg(charts.with_title(chart(longest, published), title))
    tables.write_page(page, parts, {FIGURE: drawn})


def conclusions(longest: Continued, own: str) -> list[str]:
    """A sentence for each scheme, after the longest training."""
    lines = []
    for key in longest.ways:
        if key.way != AS_IS:
            lines.append(f"{key.way}: {_against(longest, key, own)}; {_recovery(longest, key)}.")
    return lines


def _against(continued: Continued, key: Key, own: str) -> str:
    """A scheme against the control."""
    measure, found = continued.measure, continued.difference(key, control_of(key))
    with_same = f"than {own} with the same {key.steps} further steps"
    if found.n < 2:
        return f"from one run it is not known whether it gets better {with_same}"
    shown = f"{tables.signed(found, measure.digits)} {measure.unit}"
    if continued.is_better(found):
        return f"better {with_same}, {shown}"
    if continued.is_better(-found):
        return f"worse {with_same}, {shown}"
    return f"no clear difference, neither better nor worse {with_same}, {shown}"


def _recovery(continued: Continued, key: Key) -> str:
    """After how many steps a scheme is as good as its parents were."""
    steps = steps_until_as_good(continued, key)
    reached = [step for step in steps if step < math.inf]
    median = statistics.median(steps)
    if not reached:
        return f"as good as before on no run within {key.steps} steps"
    if median == math.inf:
        return f"as good as before on {len(reached)} of {len(steps)} runs"
    on = "" if len(reached) == len(steps) else f", on {len(reached)} of {len(steps)} runs"
    return f"as good as before after {median:.0f} steps{on}"


def table(continued: Continued, own: str) -> Table:
    """A row for each scheme and number of steps."""
    measure, rows = continued.measure, []
    for key, runs in continued.ways.items():
        is_control = key.way == AS_IS
        row = {"scheme": Strong(f"{own} (control)") if is_control else key.way}
        row["further steps"] = str(key.steps)
        row[measure.unit] = tables.mean_of(measure.values(runs), measure.digits, measure.most)
        row["less the control"] = tables.NONE
        if not is_control:
            found = continued.difference(key, control_of(key))
            shown = tables.signed(found, measure.digits)
            row["less the control"] = tables.strong_if(continued.is_better(found), shown)
        rows.append(row)
    return Table(rows)


def chart(longest: Continued, published: Published) -> alt.TopLevelMixin:
    """The curves of the longest training, and the level at which it began."""
    measure, rows = longest.measure, []
    for runs in longest.ways.values():
        for run in runs:
            for step, value in run.points(measure.metric):
                rows.append((run.position, run.seed, step, value * measure.times, run.ended))
    panel = Panel(
        points_frame(rows), "further steps", measure.unit, most=measure.most, untrained=True
    )
    control = next(runs for key, runs in longest.ways.items() if key.way == AS_IS)
    before = [dict(run.points(measure.metric))[0] * measure.times for run in control]
    level = charts.level(t_interval(before).mean, "before", charts.GREY)
    return alt.layer(charts.lines(titled(panel, published)), level)


def notes(continued: Continued, own: str) -> list[str]:
    """What the numbers are, and what they do not show."""
    longest = continued.by_steps()[-1]
    runs = longest.ways[longest.first]
    rate = runs[0].all_settings["train.lr"]
    return [
        f"Means over parents ({seeds_text([run.seed for run in runs])}) with 95% intervals; "
        "differences are taken parent by parent. No test was planned: explore with it.",
        f"“less the control”: against {own} with the same further steps, batches and learning "
        "rates; emphasized if the interval is on the better side of 0.",
        f"“as good as before”: the first of {len(runs[0].points(continued.measure.metric)) - 1} "
        "evaluations at which a run is as good as its parent was, in the longest training.",
        f"The highest learning rate of further training is {rate:g}; no scheme has searched it.",
    ]
