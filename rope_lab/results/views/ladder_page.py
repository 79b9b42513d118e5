"""The page of `rope-lab ladder`: the lead of schemes over a baseline at each size, its slope, and
how it grew in training.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from rope_lab.results.comparisons.ladder import (
    FARTHEST,
    LOSS,
    Law,
    Rung,
    fitted,
    is_clear,
    may_change_sign,
    projected,
    slope,
    speedup,
)
from rope_lab.results.comparisons.stats import t_interval
from rope_lab.results.records.catalogue import Published, TaskReport
from rope_lab.results.records.setups import seeds as seeds_text
from rope_lab.results.views import tables
from rope_lab.results.views.tables import Strong, Table, bullets, escaped, markdown

PAGE, FIGURE = "ladder.md", "ladder.svg"
DIGITS = LOSS.digits
Leads = list[pd.Series]  # of each size, by seed
Rates = Mapping[str, Sequence[float]]


def write(
    page: Path,
    rungs: Sequence[Rung],
    rates: Rates,
    names: Mapping[str, str],
    at_end: Sequence[tuple[str, str]] = (),
    to: float | None = None,
) -> None:
    """Write the page and its figure, and print it.

    rates: of each scheme, at each size
    names: of the schemes, the baseline's first
    at_end: scheme and size of each search whose best rate is the lowest or the highest tried
    to:    parameters at which leads are projected
    """
    from rope_lab.results.views import ladder_figure, render  # with Altair, half a second

    first = next(iter(rungs[0].runs.values()))[0]
    published = Published()
    report = published.report_of(first)
    titles = {scheme: published.title(name) for scheme, name in names.items()}
    baseline, *others = names
    law = law_of(rungs, baseline)
    heading = f"{', '.join(titles[each] for each in others)} against {titles[baseline]}"
    parts = [f"# {escaped(heading)} on {escaped(report.title)}, {first.scale}: over sizes"]
    lines, sections = [], []
    for scheme, size in at_end:
        beyond = "is the lowest or the highest tried: it may do better beyond."
        lines.append(Strong(f"The best rate of {titles[scheme]} at {size} {beyond}"))
    for scheme in others:
        leads = leads_of(rungs, scheme, baseline, report)
        lines += sentences(rungs, leads, titles[scheme], titles[baseline], to)
        sections.append(f"## {escaped(titles[scheme])}")
        sections.append(markdown(table(rungs, scheme, baseline, titles, rates, leads, law)))
    figure = f"![The lead of each size over training](figures/{FIGURE})"
    parts += [bullets(lines), figure, *sections]
    parts += ["## How to read it", bullets(notes(rungs, titles[baseline], law))]
    chart = ladder_figure.chart(rungs, others, baseline, titles)
    page.parent.mkdir(parents=True, exist_ok=True)
    tables.write_page(page, parts, {FIGURE: render.svg(chart)})


def leads_of(rungs: Sequence[Rung], scheme: str, baseline: str, report: TaskReport) -> Leads:
    return [rung.leads(scheme, baseline, report) for rung in rungs]


def law_of(rungs: Sequence[Rung], baseline: str) -> Law | None:
    """The law of the baseline's loss over these sizes."""
    return fitted([rung.compute for rung in rungs], [rung.loss(baseline) for rung in rungs])


def sentences(
    rungs: Sequence[Rung], leads: Leads, title: str, baseline: str, to: float | None
) -> list[str]:
    """The lead at the largest size, its slope, and whether its sign may change."""
    largest, found = t_interval(leads[-1]), slope(rungs, leads)
    at = f"{rungs[-1].parameters:,} parameters"
    lines = [
        f"At {at} the lead of {title} over {baseline} is {tables.signed(largest, DIGITS)} nats."
    ]
    grows = f"Per doubling of parameters this lead changes by {tables.signed(found, DIGITS)}"
    if may_change_sign(largest, found):
        lines.append(f"{grows}: at larger sizes it may change sign.")
    else:
        lines.append(f"{grows}: the interval excludes that it changes sign with size.")
    if to is not None:
        there = tables.signed(projected(rungs, leads, to), DIGITS)
        lines.append(f"Projected to {to:,.0f} parameters by a line for each seed: {there}.")
    return lines


def table(
    rungs: Sequence[Rung],
    scheme: str,
    baseline: str,
    titles: Mapping[str, str],
    rates: Rates,
    leads: Leads,
    law: Law | None,
) -> Table:
    """A row a size."""
    rows = []
    for number, rung in enumerate(rungs):
        row = {"size": rung.name, "parameters": f"{rung.parameters:,}"}
        row["tokens"] = f"{rung.tokens:,}"
        for each in (baseline, scheme):
            row[f"rate, {titles[each]}"] = f"{rates[each][number]:g}"
        for each in (baseline, scheme):
            values = [LOSS.of(run) for run in rung.runs[each]]
            row[f"loss, {titles[each]}"] = tables.mean_of(_known(values), DIGITS)
        found = t_interval(leads[number])
        row["lead"] = tables.strong_if(is_clear(found), tables.signed(found, DIGITS))
        for title, timed in (("speedup at equal speed", False), ("as timed here", True)):
            value = speedup(law, rung, scheme, baseline, timed) if law else math.nan
            row[title] = tables.number(value, 3)
        rows.append(row)
    return Table(rows)


def _known(values: Sequence[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def _tokens_per_parameter(rungs: Sequence[Rung]) -> str:
    """The tokens per parameter of all sizes, or from the fewest to the most."""
    every = [rung.tokens / rung.parameters for rung in rungs]
    fewest, most = f"{min(every):.2f}", f"{max(every):.2f}"
    return fewest if fewest == most else f"{fewest} to {most}"


def notes(rungs: Sequence[Rung], baseline: str, law: Law | None) -> list[str]:
    """What the numbers are, and what they do not show."""
    seeds = seeds_text([each.seed for each in next(iter(rungs[0].runs.values()))])
    lines = [
        f"Lead: the held-out loss of {baseline} less that of the scheme, in pairs ({seeds}). "
        "[…]: its 95% interval; (…): both differences of two pairs, which give no interval. "
        "Parameters: those in the matrices of the layers.",
        f"The sizes read {_tokens_per_parameter(rungs)} tokens per parameter, in whole steps; "
        "warm-up is the same share of steps, rounded.",
        "Learning rates: searched alike for all schemes at the two smallest sizes, on other seeds. "
        "Beyond, r (N/M)^p: r is the best rate at the second size M, p connects the two best "
        "rates and is kept within -1/2 and 0.",
        f"The slope is that of a line over log2 of the parameters, a line for each seed. Nothing "
        f"is projected beyond {FARTHEST} times the largest size.",
        "A lead may still change its sign with more tokens per parameter: the figure shows it over "
        "training.",
    ]
    if law is None:
        lines.append(f"No speedup: the loss of {baseline} does not fall with compute as a law.")
        return lines
    constants = f"{law.floor:.4g} + {law.scale:.4g} · C^-{law.exponent:.4g}"
    lines.append(
        f"Effective speedup (Marin): the time in which {baseline} would reach the loss of the "
        f"scheme, over the scheme's. Its loss is {constants}, C = 6 x parameters x tokens, fitted "
        f"on these {len(rungs)} sizes; the factor of C is taken anew at each size."
    )
    return lines
