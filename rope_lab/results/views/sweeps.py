"""Sweeps as tables, sentences and a panel."""

from collections.abc import Iterable, Iterator
from typing import Any

from rope_lab.results.comparisons.grids import Sweep, is_number
from rope_lab.results.records.setups import seeds
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
SEARCHED = ("train.lr", "train.weight_decay", "train.warmup", "train.beta2", "train.min_lr")


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
    sentences += _of_best(sweep)
    warned = {value: warnings(setup) for value, setup in sweep.others.items()}
    sentences += [sections.RANGE, *map(Strong, _said_once(sweep, warned))]
    about = {value: details(setup) for value, setup in sweep.others.items()}
    lines = _said_once(sweep, about)
    return Section(sweep.title, scores(sweep), sentences, folded=every_seed(sweep), details=lines)


def _of_best(sweep: Sweep) -> Iterator[str]:
    """What the best values do not show."""
    edges: dict[int, list[str]] = {}
    for scheme in sweep.schemes:
        if sweep.setting in SEARCHED and sweep.is_at_edge(scheme):
            edges.setdefault(sweep.best(scheme), []).append(sweep.published.title(scheme))
    for at, titles in sorted(edges.items()):
        value = f"{sweep.setting}={show(sweep.values[at])}"
        yield Strong(f"best at the edge, {value}: {'; '.join(titles)}; extend the values tried")
    if left_out := sweep.left_out():
        yield f"{seeds(left_out)}: not at every value, and not counted for the best ones"


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
    digits = sweep.measure.digits
    titles = f"{sweep.published.title(scheme)} − {sweep.published.title(other)}"
    row = {f"{sweep.setting} =": titles}
    for at in range(len(sweep.values)):
        here = sweep.difference(scheme, other, at)
        row[_column(sweep, at)] = signed(here.difference, digits)
    best = sweep.difference(scheme, other)
    return row | {BEST: signed(best.difference, digits) if best else ""}


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
