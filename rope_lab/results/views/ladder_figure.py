"""The figure of `rope-lab ladder`: the lead over training, a curve for each size."""

import math
from collections.abc import Sequence

import altair as alt

from rope_lab.results.comparisons.ladder import LOSS, Lead
from rope_lab.results.records.frame import curve
from rope_lab.results.views import charts
from rope_lab.results.views.panels import Panel, points_frame

COLORS = ("#88CCEE", "#44AA99", "#4477AA", "#332288", "#882255", "#1b1d21")  # from the smallest


def chart(leads: Sequence[Lead]) -> alt.TopLevelMixin:
    """A panel for each scheme."""
    drawn = []
    for lead in leads:
        equal = charts.level(0, "equal", charts.GREY)
        title = f"Lead of {lead.titles[lead.scheme]} over {lead.titles[lead.baseline]}"
        drawn.append(charts.with_title(alt.layer(equal, charts.lines(panel(lead))), title))
    return drawn[0] if len(drawn) == 1 else alt.vconcat(*drawn, spacing=charts.GAP)


def panel(lead: Lead) -> Panel:
    """The lead of every pair of runs over training, by size, at each evaluation but the first."""
    rows, colors = [], {}
    for number, rung in enumerate(lead.rungs):
        label = f"{rung.name}, {rung.parameters / 1e6:.2g}M"
        colors[label] = COLORS[number % len(COLORS)]
        theirs = {run.seed: curve(run, LOSS.metric) for run in rung.runs[lead.baseline]}
        for run in rung.runs[lead.scheme]:
            leads = theirs[run.seed] - curve(run, LOSS.metric)
            steps = run.settings["train.steps"]
            for step, value in leads[leads.index > 0].items():
                rows.append((label, run.seed, 100 * step / steps, value, run.ended))
    points = points_frame(rows)
    unit = "lead in nats per token"
    return Panel(points, "percent of training", unit, least=-math.inf, colors=colors)
