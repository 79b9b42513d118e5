"""Sweeps as tables, sentences and a panel."""

from collections.abc import Iterable
from typing import Any

from rope_lab.results.comparisons.grids import Sweep, is_number
from rope_lab.results.views import sections
from rope_lab.results.views.notes import details, warnings
from rope_lab.results.views.series import Panel, points_frame
from rope_lab.results.views.tables import (
    Section,
    Strong,
    Table,
    mean_of,
    number,
    signed,
    strong_if,
)
from rope_lab.text import show

BEST = "each at its best"


def section(sweep: Sweep) -> Section:
    """A sweep's tables and sentences."""
    measure = sweep.measure
    best = (
        "the best value of a scheme that has them all; it is chosen on the scores shown, "
        "which flatters each scheme"
    )
    sentences = [
        f"{measure.unit}, mean over seeds; {measure.better} is better. Emphasized: {best}."
    ]
    if sweep.diverged:
        sentences.append("A run that diverged counts with the worst value of those that finished.")
    warned = {value: warnings(setup) for value, setup in sweep.others.items()}
    sentences += [sections.RANGE, *map(Strong, _said_once(sweep, warned))]
    about = {value: details(setup) for value, setup in sweep.others.items()}
    lines = _said_once(sweep, about)
    return Section(sweep.title, scores(sweep), sentences, folded=every_seed(sweep), details=lines)


def scores(sweep: Sweep) -> Table:
    """A row a scheme and a column a value: mean and interval; then, if compared, the differences to
    the baseline.
    """
    published = sweep.published
    compared = published.compares and published.baseline in sweep.schemes
    others = [scheme for scheme in sweep.schemes if compared and scheme != published.baseline]
    rows = [_means(sweep, scheme) for scheme in sweep.schemes]
    if others:
        rows = [row | {BEST: ""} for row in rows]
        rows += [_differences(sweep, scheme, published.baseline) for scheme in others]
    return Table(rows, "Scores")


def _column(sweep: Sweep, at: int) -> str:
    """The head of the column of a value."""
    value = show(sweep.values[at])
    return f"{value} (recipe)" if at == sweep.recipe else value


def _means(sweep: Sweep, scheme: str) -> dict[str, str]:
    row, measure = {f"{sweep.setting} =": sweep.published.title(scheme)}, sweep.measure
    for at in range(len(sweep.values)):
        cell = mean_of(sweep.scores[scheme][at].dropna(), measure.digits, measure.most)
        if (scheme, at) in sweep.diverged:
            cell += f", {sweep.diverged[scheme, at]} diverged"
        row[_column(sweep, at)] = strong_if(at == sweep.best(scheme), cell)
    return row


def _differences(sweep: Sweep, scheme: str, other: str) -> dict[str, str]:
    def cell(at: int, other_at: int) -> str:
        result = sweep.difference(scheme, other, at, other_at)
        return signed(result.difference, sweep.measure.digits)

    titles = f"{sweep.published.title(scheme)} − {sweep.published.title(other)}"
    row = {f"{sweep.setting} =": titles}
    for at in range(len(sweep.values)):
        row[_column(sweep, at)] = cell(at, at)
    best, other_best = sweep.best(scheme), sweep.best(other)
    known = best is not None and other_best is not None
    return row | {BEST: cell(best, other_best) if known else ""}


def every_seed(sweep: Sweep) -> Table:
    """A row a scheme and seed, a column a value."""
    rows = []
    for scheme, scores in sweep.scores.items():
        for (seed, _), values in scores.iterrows():
            cells = {
                show(value): number(values[at], sweep.measure.digits)
                for at, value in enumerate(sweep.values)
            }
            rows.append({"scheme": sweep.published.title(scheme), "seed": str(seed)} | cells)
    return Table(rows, "Every seed")


def places(sweep: Sweep) -> list[float]:
    """The positions of values on a figure's axis; words stand one after the other."""
    return list(
        map(float, sweep.values if all(map(is_number, sweep.values)) else range(len(sweep.values)))
    )


def panel(sweep: Sweep) -> Panel:
    """The final scores against the setting, above the Bayes-optimal value if it is the same for
    all.
    """
    optima, measure, at = (
        {group.optimum for group in sweep.groups.values()},
        sweep.measure,
        places(sweep),
    )
    optimum = optima.pop() if len(optima) == 1 else 0.0
    points = [
        (scheme, seed, at[value], score - optimum, True)
        for scheme, scores in sweep.scores.items()
        for (seed, _, value), score in scores.stack().items()
    ]
    unit = (
        measure.unit
        + (f" above the Bayes-optimal {optimum:.3g}" if optimum else "")
        + f", {measure.better} is better"
    )
    return Panel(points_frame(points), sweep.setting, unit, optimum > 0, measure.most)


def _said_once(sweep: Sweep, lines: dict[Any, Iterable[str]]) -> list[str]:
    """Lines of each value's recipe, each once, after the values that it applies to unless it
    applies to all.
    """
    values: dict[str, list[str]] = {}
    for value, each in lines.items():
        for line in each:
            values.setdefault(line, []).append(f"{sweep.setting}={show(value)}")
    return [
        line if len(of) == len(lines) else f"{'; '.join(of)}: {line}" for line, of in values.items()
    ]
