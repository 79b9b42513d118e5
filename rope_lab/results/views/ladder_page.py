"""The page of `rope-lab ladder`: the lead of schemes over a baseline at each size, its slope, and
how it grew in training.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import altair as alt

from rope_lab.results.comparisons.ladder import (
    FARTHEST,
    LOSS,
    MOST_SPEEDUP,
    Law,
    Lead,
    Rung,
    fitted,
    may_change_sign,
    speedups,
)
from rope_lab.results.comparisons.stats import t_interval
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.frame import curve
from rope_lab.results.records.setups import seeds_text
from rope_lab.results.views import charts, palettes, render, tables
from rope_lab.results.views.panels import Panel, points_frame
from rope_lab.results.views.tables import Strong, Table, bullets, escaped, markdown

PAGE, FIGURE = "ladder.md", "ladder.svg"
DIGITS = LOSS.digits


def write(
    page: Path,
    rungs: Sequence[Rung],
    at_end: Sequence[tuple[str, str]],
    to: float | None,
) -> None:
    """Write the page and its figure, and print it.

    at_end: scheme and size of each search whose best rate is the lowest or the highest tried
    to:    parameters at which leads are projected
    """
    first = next(iter(rungs[0].runs.values()))[0]
    catalogue = Catalogue()
    report = catalogue.report_of(first)
    of_first = rungs[0].runs.items()
    titles = {scheme: catalogue.title(runs[0].position) for scheme, runs in of_first}
    baseline, *others = titles
    leads = [Lead(rungs, scheme, baseline, titles, report) for scheme in others]
    law = fitted([rung.compute for rung in rungs], [rung.loss(baseline) for rung in rungs])
    lines, sections = [], []
    for scheme, size in at_end:
        beyond = "is the lowest or the highest tried: it may do better beyond."
        lines.append(Strong(f"The best rate of {titles[scheme]} at {size} {beyond}"))
    for rung in rungs:
        for scheme, title in titles.items():
            if lost := rung.diverged(scheme):
                runs = f"{lost} of {len(rung.runs[scheme])} runs of {title} diverged"
                lines.append(Strong(f"At {rung.name} {runs}: it is not compared there."))
    for lead in leads:
        lines += sentences(lead, to)
        sections.append(f"## {escaped(titles[lead.scheme])}")
        sections.append(markdown(table(lead, law)))
    heading = f"{', '.join(titles[each] for each in others)} against {titles[baseline]}"
    parts = [
        f"# {escaped(heading)} on {escaped(report.title)}, {first.scale}: over sizes",
        bullets(lines),
        f"![The lead of each size over training](figures/{FIGURE})",
        *sections,
        "## How to read it",
        bullets(notes(rungs, titles[baseline], law)),
    ]
    tables.write_page(page, parts, {FIGURE: render.svg(chart(leads))})


def sentences(lead: Lead, to: float | None) -> list[str]:
    """The lead at the largest size, its slope, and whether its sign may change."""
    largest = t_interval(lead.by_size[-1])
    change = tables.signed(lead.slope, DIGITS)
    at = f"{lead.rungs[-1].parameters:,} parameters"
    pair = f"{lead.titles[lead.scheme]} over {lead.titles[lead.baseline]}"
    sign = "along a line it keeps its sign at larger sizes"
    if may_change_sign(largest, lead.slope):
        sign = "at larger sizes it may change sign"
    lines = [
        f"At {at} the lead of {pair} is {tables.signed(largest, DIGITS)} nats.",
        f"Per doubling of parameters this lead changes by {change}: {sign}.",
    ]
    if to is not None:
        there = tables.signed(lead.projected(to), DIGITS)
        lines.append(f"Projected to {to:,.0f} parameters along that line: {there}.")
    return lines


def table(lead: Lead, law: Law | None) -> Table:
    """A row a size."""
    rows = []
    pair = (lead.baseline, lead.scheme)
    for number, rung in enumerate(lead.rungs):
        row = {"size": rung.name, "parameters": f"{rung.parameters:,}"}
        row["tokens"] = f"{rung.tokens:,}"
        for each in pair:
            row[f"rate, {lead.titles[each]}"] = f"{rung.runs[each][0].settings['train.lr']:g}"
        for each in pair:
            losses = LOSS.values(rung.runs[each])
            row[f"loss, {lead.titles[each]}"] = tables.mean_of(losses, LOSS)
        found = t_interval(lead.by_size[number])
        row["lead"] = tables.strong_if(bool(found.side), tables.signed(found, DIGITS))
        equal = speedups(law, rung.loss(lead.baseline), found)
        row["speedup at equal speed"] = tables.interval(equal, ".2f")
        timed = equal.mean * rung.speed(lead.scheme) / rung.speed(lead.baseline)
        row["as timed here"] = tables.number(timed, 2)
        rows.append(row)
    return Table(rows)


def notes(rungs: Sequence[Rung], baseline: str, law: Law | None) -> list[str]:
    """What the numbers are, and what they do not show."""
    seeds = seeds_text([each.seed for each in next(iter(rungs[0].runs.values()))])
    ratios = [rung.tokens / rung.parameters for rung in rungs]
    every = dict.fromkeys(f"{ratio:.2f}" for ratio in (min(ratios), max(ratios)))
    lines = [
        f"Lead: the held-out loss of {baseline} less that of the scheme, in pairs ({seeds}). "
        "[…]: its 95% interval; (…): both differences of two pairs, which give no interval. "
        "Parameters: those in the matrices of the layers.",
        f"The sizes read {' to '.join(every)} tokens per parameter, in whole steps; "
        "warm-up is the same share of steps, rounded.",
        "Learning rates: searched alike for all schemes at the two smallest sizes, on other seeds. "
        "Beyond, r (N/M)^p: r is the best rate at the second size M, p connects the two best "
        "rates and is kept within -1/2 and 0. These rates are known from few seeds, which no "
        "interval here takes into account.",
        "The slope is that of the line of least squares through the mean leads over log2 of the "
        "parameters; its interval is Welch's (1947), with the spread of each size. Nothing is "
        f"projected beyond {FARTHEST} times the largest size.",
        "A lead may still change its sign with more tokens per parameter: the figure shows it over "
        "training.",
    ]
    if law is None:
        lines.append(
            f"No speedup: the loss of {baseline} does not fall with compute as a law, or one of "
            "its runs diverged."
        )
        return lines
    constants = f"{law.floor:.4g} + {law.scale:.4g} · C^-{law.exponent:.4g}"
    lines.append(
        f"Effective speedup (Marin): the time in which {baseline} would reach the loss of the "
        f"scheme, over the scheme's. Its loss is {constants}, C = 6 x parameters x tokens, fitted "
        f"on these {len(rungs)} sizes; the factor of C is taken anew at each size. In brackets: at "
        f"the ends of the lead's interval; inf: above {MOST_SPEEDUP:,}, or below the floor of that "
        "law. None of a lead whose interval includes 0."
    )
    return lines


def chart(leads: Sequence[Lead]) -> alt.TopLevelMixin:
    """A panel for each scheme."""
    drawn = []
    for lead in leads:
        equal = charts.level(0, "equal", palettes.GREY)
        title = f"Lead of {lead.titles[lead.scheme]} over {lead.titles[lead.baseline]}"
        drawn.append(charts.with_title(alt.layer(equal, charts.lines(panel(lead))), title))
    return drawn[0] if len(drawn) == 1 else alt.vconcat(*drawn, spacing=charts.GAP)


def panel(lead: Lead) -> Panel:
    """The lead of every pair of runs over training, by size, at each evaluation but the first."""
    rows, colors = [], {}
    for number, rung in enumerate(lead.rungs):
        label = f"{rung.name}, {rung.parameters / 1e6:.2g}M"
        colors[label] = palettes.SIZES[number % len(palettes.SIZES)]
        of_seed = {run.seed: run for run in rung.runs[lead.baseline]}
        for run in rung.runs[lead.scheme]:
            other = of_seed[run.seed]
            leads = curve(other, LOSS.metric) - curve(run, LOSS.metric)
            steps = run.settings["train.steps"]
            counts = {run.status, other.status} == {"finished"}
            for step, value in leads[leads.index > 0].items():
                rows.append((label, run.seed, 100 * step / steps, value, counts))
    points = points_frame(rows)
    unit = "lead in nats per token"
    return Panel(points, "percent of training", unit, least=-math.inf, colors=colors)
