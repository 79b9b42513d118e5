"""The figure of `rope-lab ladder`: the lead over training, a curve for each size."""

import math
from collections.abc import Mapping, Sequence

import altair as alt

from rope_lab.results.comparisons.ladder import LOSS, Rung
from rope_lab.results.records.frame import curve
from rope_lab.results.records.run import Run
from rope_lab.results.views import charts
from rope_lab.results.views.panels import Panel, points_frame

COLORS = ("#88CCEE", "#44AA99", "#4477AA", "#332288", "#882255", "#1b1d21")  # from the smallest


def chart(
    rungs: Sequence[Rung], others: Sequence[str], baseline: str, titles: Mapping[str, str]
) -> alt.TopLevelMixin:
    """A panel for each scheme."""
    drawn = []
    for scheme in others:
        lines = charts.lines(panel(rungs, scheme, baseline))
        equal = charts.level(0, "equal", charts.GREY)
        title = f"Lead of {titles[scheme]} over {titles[baseline]}"
        drawn.append(charts.with_title(alt.layer(equal, lines), title))
    return drawn[0] if len(drawn) == 1 else alt.vconcat(*drawn, spacing=charts.GAP)


def panel(rungs: Sequence[Rung], scheme: str, baseline: str) -> Panel:
    """The lead of every pair of runs over training, by size."""
    rows, colors = [], {}
    for number, rung in enumerate(rungs):
        label = f"{rung.name}, {rung.parameters / 1e6:.2g}M"
        colors[label] = COLORS[number % len(COLORS)]
        theirs = {run.seed: run for run in rung.runs[baseline]}
        for run in rung.runs[scheme]:
            for share, lead in _leads(run, theirs[run.seed]):
                rows.append((label, run.seed, share, lead, run.ended))
    points = points_frame(rows)
    unit = "lead in nats per token"
    return Panel(points, "percent of training", unit, least=-math.inf, colors=colors)


def _leads(ours: Run, theirs: Run) -> list[tuple[float, float]]:
    """The percent of training and the lead at each evaluation but the first."""
    lead = curve(theirs, LOSS.metric) - curve(ours, LOSS.metric)
    steps = ours.settings["train.steps"]
    return [(100 * step / steps, value) for step, value in lead.items() if step > 0]
