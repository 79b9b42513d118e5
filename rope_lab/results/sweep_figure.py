"""The figure of a sweep: the final score at each value and, where seeds have every value, the expected best."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation

from rope_lab.results import series
from rope_lab.results.figures import LABEL, TINY, WIDTH, rendered, score_axis, styled
from rope_lab.results.groups import is_number
from rope_lab.results.runs import one_line
from rope_lab.results.stats import t_interval
from rope_lab.results.sweeps import Line, Sweep
from rope_lab.text import show

APART = 3.5, 10  # points between lines at the same value, and at most between the first and the last
STYLES = ("-", "--", ":", "-.")  # of the values of the second setting
RING = {"marker": "o", "ms": 10, "mfc": "none", "mew": 1.2, "ls": ""}
ROOM = 0.08  # at the ends of the axes, as a share of them


def plot_all(sweeps: list[Sweep]) -> dict[str, dict[str, bytes]]:
    """The figure of each sweep: its id → the name of a file → its content."""
    plotted: dict[str, dict[str, bytes]] = {}
    taken: set[str] = set()
    with styled():
        for sweep in sweeps:
            settings = "-".join(sweep.settings).replace(".", "_")
            name = f"{sweep.group.scale}-{sweep.group.task}-{settings}-sweep.svg"
            name = f"{sweep.group.scale}-{sweep.group.task}-{sweep.recipe_id}-sweep.svg" if name in taken else name
            taken.add(name)
            plotted[sweep.recipe_id] = {name: rendered(figure(sweep))}
    return plotted


def figure(sweep: Sweep) -> Figure:
    """Scores against the setting; beside them, the expected best against the number of values tried."""
    tuned = [line for line in sweep.lines if len(sweep.tuned[line])]
    drawn = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    left, *right = drawn.subplots(1, 2 if tuned else 1, squeeze=False, width_ratios=[5, 3] if tuned else None)[0]
    _axis(left, sweep)
    for i, line in enumerate(sweep.lines):
        _line(left, sweep, line, _apart(i, len(sweep.lines)))
    better = "higher" if sweep.group.metric.higher_is_better else "lower"
    left.set(xlabel=one_line(sweep.settings[0], LABEL), ylabel=_score(sweep))
    for ax in right:
        for i, line in enumerate(tuned):
            _tuned(ax, sweep, line, _apart(i, len(tuned)))
        ax.set(xlabel="values tried, drawn at random", ylabel="expected best", xticks=range(1, len(sweep.values) + 1))
        ax.set(xlim=(1 - ROOM * len(sweep.values), len(sweep.values) * (1 + ROOM)))
    score_axis([left, *right], sweep.group, "y", bool(sweep.optimum))
    if sweep.recipe:
        left.axvline(_x(sweep)[sweep.values.index(sweep.recipe[0])], color="black", lw=0.8, ls=":", label="the recipe")
    if any(sweep.best(line) is not None for line in sweep.lines):
        left.plot([], [], label="its best value", **RING, mec="grey")
    handles, labels = left.get_legend_handles_labels()
    columns = min(len(labels), max(1, int(WIDTH / (0.6 + 0.06 * max(map(len, labels))))))
    drawn.set_figheight(3.2 + 0.2 * math.ceil(len(labels) / columns))
    drawn.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=3)
    by = one_line(" and ".join(sweep.settings), LABEL)
    drawn.suptitle(f"{one_line(sweep.title, LABEL)}, {sweep.group.scale}, by {by}; {better} is better", fontsize=9)
    return drawn


def _line(ax: Axes, sweep: Sweep, line: Line, apart: float) -> None:
    """A line: seeds thin, means bold with Student's t 95% intervals from three seeds on, a ring around the best."""
    table, look, x = sweep.scores[line] - sweep.optimum, _look(sweep, line), _x(sweep)
    shift = {"transform": _shifted(ax, apart)}
    few = len(sweep.lines) <= series.FEW
    for _, seed in table.iterrows() if few else []:
        there = seed.dropna()
        ax.plot(x[there.index], there, color=look["color"], lw=0.5, alpha=0.35, marker=".", ms=3, mew=0, **shift)
    means = table.mean().dropna()
    ax.plot(x[means.index], means, lw=1.8, marker="o", ms=4, label=_label(sweep, line), **look, **shift)
    for at in table if few else []:
        _bar(ax, x[at], table[at].dropna(), sweep, look["color"], shift)
    if (best := sweep.best(line)) is not None:
        ax.plot(x[best], means[best], **RING, mec=look["color"], **shift)


def _tuned(ax: Axes, sweep: Sweep, line: Line, apart: float) -> None:
    """The expected best of a line against budget, with its interval over seeds."""
    table, look = sweep.tuned[line] - sweep.optimum, _look(sweep, line)
    shift = {"transform": _shifted(ax, apart)}
    ax.plot(table.columns, table.mean(), lw=1.8, marker="o", ms=4, **look, **shift)
    for n in table if len(sweep.lines) <= series.FEW else []:
        _bar(ax, n, table[n], sweep, look["color"], shift)


def _bar(ax: Axes, x: float, values, sweep: Sweep, color: str, shift: dict) -> None:
    """The 95% interval of a mean, from three seeds on."""
    if len(values) >= series.FEWEST:
        interval = t_interval(values)
        low = max(interval.low, TINY) if sweep.optimum else interval.low
        ax.vlines(x, low, interval.high, color=color, lw=4, alpha=0.3, **shift)


def _axis(ax: Axes, sweep: Sweep) -> None:
    """The axis of the values: logarithmic of rates and their like, of words a place each; a tick at each value."""
    x, first, last = _x(sweep), *_x(sweep)[[0, -1]]
    if sweep.on_log_axis:
        ax.set_xscale("log")
        ax.set_xlim(first / (last / first) ** ROOM, last * (last / first) ** ROOM)
    else:
        ax.set_xlim(first - ROOM * (last - first), last + ROOM * (last - first))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xticks(x, [one_line(show(value), 16) for value in sweep.values])


def _x(sweep: Sweep) -> np.ndarray:
    """Where the values stand."""
    return np.array(sweep.values if all(map(is_number, sweep.values)) else range(len(sweep.values)), dtype=float)


def _apart(i: int, lines: int) -> float:
    """How many points line i of so many stands beside its value."""
    return (i - (lines - 1) / 2) * min(APART[0], APART[1] / max(1, lines - 1))


def _shifted(ax: Axes, points: float):
    return ax.transData + ScaledTranslation(points / 72, 0, ax.figure.dpi_scale_trans)


def _look(sweep: Sweep, line: Line) -> dict[str, str]:
    seconds = list(dict.fromkeys(second for _, second in sweep.lines))
    style = STYLES[seconds.index(line[1]) % len(STYLES)]
    return {"color": sweep.group.published.color(line[0], sweep.group.schemes), "ls": style}


def _label(sweep: Sweep, line: Line) -> str:
    title = sweep.group.published.title(line[0])
    second = f", {sweep.settings[1]}={show(line[1])}" if len(sweep.settings) > 1 else ""
    return one_line(title + second, LABEL)


def _score(sweep: Sweep) -> str:
    """What counts, as the axis names it."""
    above = f"\nabove the Bayes-optimal {sweep.optimum:.3g}" if sweep.optimum else ""
    return sweep.group.metric.unit + above
