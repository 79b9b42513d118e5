"""A sweep as Markdown: the score at each value, what tuning gains, every seed, and where the runs come from."""

from collections.abc import Sequence
from typing import Any

from rope_lab.results import tables
from rope_lab.results.sweeps import Line, Sweep
from rope_lab.results.tables import as_markdown, bullets, escaped, mean_of, signed
from rope_lab.text import show

BUDGETS = 6  # columns of the expected best
GAIN = "− at the recipe's"


def heading(sweep: Sweep) -> str:
    """What varies and, where no group is of the usual recipe, in what the others are unlike it."""
    by = " and ".join(sweep.settings)
    return f"{escaped(sweep.title)}, by {escaped(by)}, scale {sweep.group.scale}"


def scores(sweep: Sweep, compared: bool = True) -> str:
    """A row a line and a column a value of the axis: mean and interval; then, where `compared`, paired differences."""
    axis, recipe = sweep.settings[0], sweep.recipe if len(sweep.settings) == 1 else None
    heads = [escaped(show(value)) + (" (recipe)" if (value,) == recipe else "") for value in sweep.values]
    rows = []
    for line in sweep.lines:
        table, best = sweep.scores[line], sweep.best(line)
        cells = [_cell(sweep, line, at, table[at].dropna(), at == best) for at in table]
        rows.append({f"{escaped(axis)} =": _title(sweep, line)} | dict(zip(heads, cells, strict=True)))
    for line, other in _versus(sweep) if compared else []:
        found = [sweep.paired(line, at, other, at) for at in range(len(sweep.values))]
        cells = [signed(d.difference, sweep.group.metric.digits) if d else "–" for d in found]
        rows.append({f"{escaped(axis)} =": _difference(sweep, line, other)} | dict(zip(heads, cells, strict=True)))
    return as_markdown(rows)


def tuned(sweep: Sweep, compared: bool = True) -> str:
    """What each line gains by tuning alike: at its best value, and the expected best against budget.

    Empty where no line has a seed at every value.
    """
    rows, digits, axis = [], sweep.group.metric.digits, escaped(sweep.settings[0])
    lines = [line for line in sweep.lines if len(sweep.tuned[line])]
    budgets = range(1, len(sweep.values) + 1)
    if len(budgets) > BUDGETS:
        budgets = [2**i for i in range(len(budgets).bit_length()) if 2**i < len(budgets)] + [len(budgets)]
    for line in lines:
        best, recipe = sweep.best(line), _recipe(sweep, line)
        gained = None if None in (best, recipe) or best == recipe else sweep.paired(line, best, line, recipe)
        row = {
            "scheme": _title(sweep, line),
            f"best {axis}": "all alike" if best is None else escaped(show(sweep.values[best])),
            "there": mean_of(sweep.scores[line][best or 0].dropna(), digits),
        }
        if sweep.recipe and compared:
            row[GAIN] = "0" if best in (None, recipe) else signed(gained.difference, digits) if gained else "–"
        expected = {f"best of {n}": _short(mean_of(sweep.tuned[line][n], digits)) for n in budgets}
        rows.append(row | expected | {"seeds": str(len(sweep.tuned[line]))})
    for line, other in _versus(sweep) if compared else []:
        at, other_at = (sweep.best(each) or 0 for each in (line, other))  # where all values are alike, the first
        if line in lines and other in lines and (d := sweep.paired(line, at, other, other_at)):
            found = {n: sweep.tuned_difference(line, other, n) for n in budgets}
            row = {"scheme": _difference(sweep, line, other), f"best {axis}": "each at its own"}
            row |= {"there": signed(d.difference, digits)} | ({GAIN: "–"} if sweep.recipe else {})
            row |= {f"best of {n}": _short(signed(d.difference, digits)) if d else "–" for n, d in found.items()}
            rows.append(row | {"seeds": str(found[1].difference.n) if found[1] else "0"})
    return as_markdown(rows)


def notes(sweep: Sweep) -> list[str]:
    """How to read the two tables, as far as it holds here."""
    metric = sweep.group.metric
    better = "higher" if metric.higher_is_better else "lower"
    lines = [
        f"{escaped(metric.unit)}, mean over seeds; {better} is better. Bold: the best value of a "
        "scheme that has them all."
    ]
    if sweep.runs.diverged.any():
        lines.append("A run that diverged counts with the worst value of those that finished.")
    return lines


TUNED = (
    "What tuning gains. *best of n*: the expected best of n values drawn at random, with replacement, from those "
    "above, on one seed (Dodge et al., 2019); mean over the seeds that a scheme has at every value. A best value is "
    "chosen by the scores that it is shown with, which flatters each."
)


def warnings(sweep: Sweep) -> list[str]:
    """Those of its recipes but the usual one, each with the values that it is of."""
    said: dict[str, list[str]] = {}
    for values, group in sweep.others.items():
        for warning in group.warnings(diverged_count=True):
            said.setdefault(warning, []).append(_named(sweep, values))
    return [f"{'; '.join(names)}: {warning}" for warning, names in said.items()]


def every_seed(sweep: Sweep, compared: bool = True) -> str:
    """Every seed of every recipe but the usual one, which has a section of its own."""
    return as_markdown(
        [
            {" and ".join(map(escaped, sweep.settings)): escaped(", ".join(map(show, values)))} | row
            for values, group in sweep.others.items()
            for row in tables.every_seed(group, compared)
        ]
    )


def origins(sweep: Sweep, compared: bool = True) -> str:
    """Where the runs of these recipes come from; what is the same for all of them is said once."""
    said: dict[str, list[str]] = {}
    for values, group in sweep.others.items():
        for line in tables.details(group, compared):
            said.setdefault(line, []).append(escaped(_named(sweep, values)))
    each = len(sweep.others)
    return bullets(line if len(n) == each else f"{'; '.join(n)}: {line}" for line, n in said.items())


def _cell(sweep: Sweep, line: Line, at: int, values: Sequence[float], is_best: bool) -> str:
    text = mean_of(values, sweep.group.metric.digits)
    diverged = sweep.diverged(line, at)
    text += f", {diverged} diverged" if diverged else ""
    return f"**{text}**" if is_best else text


def _short(cell: str) -> str:
    """A cell without its number of seeds, which has a column of its own."""
    return cell.split(" n=")[0].removesuffix(" (one seed)")


def _title(sweep: Sweep, line: Line) -> str:
    scheme, second = line
    title = escaped(sweep.group.published.title(scheme))
    return title if len(sweep.settings) == 1 else f"{title}, {escaped(f'{sweep.settings[1]}={show(second)}')}"


def _difference(sweep: Sweep, line: Line, other: Line) -> str:
    return f"{_title(sweep, line)} − {escaped(sweep.group.published.title(other[0]))}"


def _versus(sweep: Sweep) -> list[tuple[Line, Line]]:
    """Each line with the baseline's, where that is there with the same second value."""
    pairs = [(line, (sweep.group.published.baseline, line[1])) for line in sweep.lines]
    return [(line, other) for line, other in pairs if other in sweep.lines and line != other]


def _recipe(sweep: Sweep, line: Line) -> int | None:
    """Where on the axis the recipe's own value is."""
    values = sweep.recipe
    return sweep.values.index(values[0]) if values and values[1:] in ((), line[1:]) else None


def _named(sweep: Sweep, values: tuple[Any, ...]) -> str:
    return ", ".join(f"{name}={show(value)}" for name, value in zip(sweep.settings, values, strict=True))
