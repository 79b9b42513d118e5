"""The figures: learning curves, lengths, sweeps and verdicts, as wide as a page (7.5 inches).

Thin lines and dots are seeds; bold lines and bars are their mean, with Student's t 95% interval from three seeds on. A
scheme has the same colour in all of them, and files are the same to the byte for the same records.
"""

import io
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from rope_lab.results import series
from rope_lab.results.groups import Group
from rope_lab.results.metrics import LENGTH, LENGTH_LOSS
from rope_lab.results.runs import one_line
from rope_lab.results.sweeps import Sweep, is_number
from rope_lab.results.verdicts import OPEN, Verdict
from rope_lab.text import show

STYLE = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "svg.hashsalt": "rope_lab",
    "text.parse_math": False,  # records may hold dollars
    "text.usetex": False,
    "savefig.bbox": "tight",
    "savefig.pad_inches": 0.03,
}
WIDTH = 7.5  # inches
PUBLISHED = {"marker": "D", "ms": 5, "mfc": "white", "mec": "black", "ls": ""}
RING = {"marker": "o", "ms": 10, "mfc": "none", "mew": 1.2, "ls": ""}
LOOKS = {True: {"marker": "s", "ms": 6, "color": "#D55E00"}, False: {"marker": "o", "ms": 6, "color": "#777777"}}
LABEL = 70  # characters of a label
TINY = 1e-6  # of a loss above the Bayes-optimal one: less is noise, and stands on no logarithmic axis
FOREST = "verdicts.svg"


def draw(shown: list[Group | Sweep]) -> dict[Group | Sweep, tuple[str, bytes]]:
    """The figure of each sweep, and of each group under its usual recipe: the name of its file, and SVG."""
    drawn: dict[Group | Sweep, tuple[str, bytes]] = {}
    taken: set[str] = set()
    for each in shown:
        if isinstance(each, Sweep):
            group, short, kind, plot = each.group, f"{each.setting.replace('.', '_')}-", "sweep", _sweep
        elif each.finished.empty or each.variant:
            continue
        else:
            group, short, kind, plot = each, "", *(("lengths", _lengths) if each.lengths else ("curves", _curves))
        name = f"{group.scale}-{group.task}-{short}{kind}.svg"
        if name in taken:
            name = f"{group.scale}-{group.task}-{each.recipe_id}-{kind}.svg"
        taken.add(name)
        with styled():
            drawn[each] = name, rendered(plot(each))
    return drawn


@contextmanager
def styled() -> Iterator[None]:
    """Our style over matplotlib's defaults, whatever a matplotlibrc says; no warning of missing letters."""
    with mpl.rc_context(mpl.rcParamsDefault | {"backend": "agg"} | STYLE), warnings.catch_warnings():
        for harmless in ("Glyph .* missing from font", "constrained_layout not applied", "Attempting to set identical"):
            warnings.filterwarnings("ignore", harmless)
        yield


def rendered(figure: Figure) -> bytes:
    """A figure as SVG, the same bytes for the same figure.

    The last digits of the layout depend on where its solver's variables lie in memory, so they are rounded off.
    """
    for _ in range(2):  # the second time with the ticks of the first
        figure.get_layout_engine().execute(figure)
    figure.set_layout_engine("none")
    for ax in figure.axes:
        ax.set_position(np.round(ax.get_position().bounds, 6))
    for text in figure.texts:
        text.set_position(np.round(text.get_position(), 6))
    content = io.BytesIO()
    figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white")
    return content.getvalue()


def _curves(group: Group) -> Figure:
    """The metric against steps; of many schemes, of the best."""
    figure, (ax,) = _panels(1)
    schemes = [scheme for scheme in series.best(group) if len(group.curves(scheme))]
    tables = {scheme: group.curves(scheme) - group.optimum for scheme in schemes}
    _plot(ax, group, tables, marker="")
    for scheme in schemes:
        if (number := series.published(group, scheme)) is not None:
            label = f"{_label(group, scheme)}, published"
            ax.axhline(number, color=_color(group, scheme), lw=1, ls="--", label=label)
    ax.set(xlabel="optimizer steps", ylabel=series.score_label(group))
    _score_axis(ax, group, group.optimum)
    if not group.metric.share and not group.optimum:  # without the untrained model, beside which all look alike
        values = [value for line in ax.lines for value in line.get_ydata()[1:] if math.isfinite(value)]
        if len(set(values)) > 1:
            room = 0.05 * (max(values) - min(values))
            ax.set_ylim(min(values) - room, max(values) + room)
    return _finished(figure, group, schemes)


def _lengths(group: Group) -> Figure:
    """Problems right, and losses, by length; lengths of training are shaded."""
    kinds = [kind for kind in (LENGTH, LENGTH_LOSS) if len(group.slices(kind))]
    figure, axes = _panels(len(kinds))
    schemes = series.best(group, kinds[-1])
    for ax, kind in zip(axes, kinds, strict=True):
        tables = series.by_value(group, kind)
        _plot(ax, group, {scheme: tables[scheme] for scheme in schemes if scheme in tables}, marker="o")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set(xlabel=group.report.length["title"], ylabel=group.metric.unit)
        if kind == LENGTH:
            ax.set(ylim=(-0.04, 1.04), ylabel="share of problems right")
        elif series.above_floor(group, kind):
            _log(ax)
            ax.set_ylabel("nats above the Bayes-optimal loss")
        if group.trained_lengths:
            shortest, longest = group.trained_lengths
            ax.axvspan(shortest - 0.5, longest + 0.5, color="black", alpha=0.08, lw=0, label="lengths of training")
        ax.set_xlim(0, None)
    return _finished(figure, group, schemes)


def _sweep(sweep: Sweep) -> Figure:
    """Final scores against the setting: seeds thin, means bold, a ring around the best value of a scheme."""
    figure, (ax,) = _panels(1)
    group, values = sweep.group, sweep.values
    places = np.array(values if all(map(is_number, values)) else range(len(values)), dtype=float)
    tables = {scheme: (sweep.scores[scheme] - sweep.optimum).T.set_axis(places) for scheme in sweep.schemes}
    _plot(ax, group, tables, marker="o")
    for scheme, table in tables.items():
        if (best := sweep.best(scheme)) is not None:
            ax.plot(places[best], table.iloc[best].mean(), **RING, mec=_color(group, scheme))
    ax.plot([], [], label="best value", **RING, mec="grey")
    if sweep.recipe is not None:
        ax.axvline(places[sweep.recipe], color="black", lw=0.8, ls=":", label="the recipe")
    if all(map(is_number, values)) and 0 < 3 * values[0] <= values[-1]:
        ax.set_xscale("log")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(places, [one_line(show(value), 16) for value in values])
    ax.set(xlabel=one_line(sweep.setting, LABEL), ylabel=f"{group.metric.unit}\n{group.metric.better} is better")
    _score_axis(ax, group, sweep.optimum)
    return _finished(figure, group, group.schemes, f"{sweep.title}, {group.scale}, by {sweep.setting}")


def forest(verdicts: list[Verdict], contender: str) -> bytes:
    """Published and measured gains of the contender: an axis for each title and unit."""
    panels: dict[tuple[str, str], list[Verdict]] = {}
    for v in verdicts:
        if v.word != OPEN:
            panels.setdefault((v.report.title, v.report.metric.unit), []).append(v)
    published = {key: max((v.published for v in found), key=len) for key, found in panels.items()}
    heights = [len(found) + bool(published[key]) + 1.2 for key, found in panels.items()]
    with styled():
        figure = Figure(figsize=(WIDTH, 0.27 * sum(heights) + 0.3), layout="constrained")
        axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
        looks = {"published": PUBLISHED} if any(published.values()) else {}
        looks |= {"exploratory": LOOKS[False] | {"ls": ""}, "planned": LOOKS[True] | {"ls": ""}}
        handles = [axes[0].plot([], [], label=name, **look)[0] for name, look in looks.items()]
        figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))
        for ax, (key, found) in zip(axes, panels.items(), strict=True):
            labels = ["published"] * bool(published[key]) + [one_line(v.label, LABEL) for v in found]
            ax.axvline(0, color="black", lw=0.8)
            for gain in published[key]:
                ax.plot(gain, 0, **PUBLISHED)
            for row, v in enumerate(found, start=bool(published[key])):
                look = LOOKS[v.planned]
                ax.plot([v.gain.low, v.gain.high], [row, row], lw=2, color=look["color"], solid_capstyle="butt")
                ax.plot(v.gain.mean, row, **look)
                ax.annotate(v.word, (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=9)
            ax.set(yticks=range(len(labels)), yticklabels=labels, ylim=(len(labels) - 0.4, -0.6))
            title = f"{one_line(key[0], LABEL)}: gain of {contender} in {one_line(key[1], LABEL)}"
            ax.set_title(title, loc="left", fontweight="bold")
            ax.tick_params(axis="y", length=0)
            ax.margins(x=0.08)
        return rendered(figure)


def _plot(ax: Axes, group: Group, tables: dict[str, pd.DataFrame], marker: str) -> None:
    """By scheme, a column a seed, thin; bold the mean of each row, with its interval from three seeds on."""
    for scheme, table in reversed(tables.items()):  # the first in the table ends on top
        color = _color(group, scheme)
        ax.plot(table.index, table, color=color, lw=0.5, alpha=0.35)
        means = table.mean(axis=1).dropna()
        ax.plot(means.index, means, color=color, lw=1.8, label=_label(group, scheme), marker=marker, ms=3)
        if len(tables) <= series.FEW and len(table.columns) >= series.FEWEST:
            ends = series.band(table)
            ax.fill_between(table.index, ends.low, ends.high, color=color, alpha=0.15, lw=0)


def _score_axis(ax: Axes, group: Group, optimum: float) -> None:
    """From none to all for shares; logarithmic for losses above the Bayes-optimal one."""
    if optimum:
        _log(ax)
    elif group.metric.share:
        ax.set_ylim(-0.04 * group.metric.times, 1.04 * group.metric.times)


def _log(ax: Axes) -> None:
    """A logarithmic axis as wide as seeds and means, with plain numbers."""
    values = [value for line in ax.lines for value in line.get_ydata() if TINY < value < math.inf] or [TINY, 1]
    ax.set_ylim(min(values) / 1.15, max(values) * 1.15)  # before the scale: data may be negative
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def _color(group: Group, scheme: str) -> str:
    return group.published.color(scheme, group.schemes)


def _label(group: Group, scheme: str) -> str:
    return one_line(group.published.title(scheme), LABEL)


def _panels(n: int) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    return figure, list(figure.subplots(1, n, squeeze=False)[0])


def _finished(figure: Figure, group: Group, schemes: list[str], title: str = "") -> Figure:
    """With a title, which says how many of all schemes are shown, and a legend below the panels."""
    handles, labels = figure.axes[-1].get_legend_handles_labels()
    columns = min(len(labels), max(1, int(WIDTH / (0.45 + 0.06 * max(map(len, labels), default=0)))))
    if labels:
        figure.set_figheight(figure.get_figheight() + 0.2 * math.ceil(len(labels) / columns))
        figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=columns)
    chosen = f": {len(schemes)} of {len(group.schemes)} schemes" if len(schemes) < len(group.schemes) else ""
    figure.suptitle(one_line(title or f"{group.title}, {group.scale}{chosen}", 2 * LABEL), fontsize=9)
    return figure
