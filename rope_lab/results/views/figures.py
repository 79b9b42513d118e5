"""The figures: learning curves, lengths, sweeps and verdicts, as wide as a page (7.5 inches).

Thin lines and dots are seeds; bold lines and bars are their mean, with Student's t 95% interval
from three seeds on. A scheme has the same colour in all of them, and files are the same to the byte
for the same records.
"""

import io
import math
import warnings
from bisect import bisect
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from textwrap import fill

import matplotlib.style as mpl_style
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

from rope_lab.results.comparisons.grids import Sweep, is_number
from rope_lab.results.comparisons.results import Result
from rope_lab.results.comparisons.words import AHEAD, BEHIND, CONFIRMED, REFUTED, REVERSED, word
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.measures import AT
from rope_lab.results.records.run import one_line
from rope_lab.results.records.setups import Setup
from rope_lab.results.views import series, sweeps
from rope_lab.results.views.series import Panel
from rope_lab.results.views.verdicts import kind, label, published_gains
from rope_lab.text import show

STYLE = Path(__file__).with_name("figures.mplstyle")
WIDTH = 7.5  # inches
PUBLISHED = {"marker": "D", "ms": 5, "mfc": "white", "mec": "black", "ls": ""}
RING = {"marker": "o", "ms": 10, "mfc": "none", "mew": 1.2, "ls": ""}
MARKERS = {"planned": "s", "exploratory": "o"}
COLORS = {
    CONFIRMED: "#126B3A",
    AHEAD: "#126B3A",
    REVERSED: "#9B1C1C",
    REFUTED: "#9B1C1C",
    BEHIND: "#9B1C1C",
}  # of verdicts; others are grey
MAPS = 4  # heat maps in a row
LABEL = 70  # characters of a label
LINE = 40  # characters beside a vertical axis
TINY = 1e-6  # of a loss above the Bayes-optimal one: less is noise, and is left out of logarithmic axes
FOREST = "verdicts.svg"


def draw(shown: Collection[Setup | Sweep]) -> tuple[dict[Setup | Sweep, str], dict[str, bytes]]:
    """The figures of sweeps and groups: the names of their files, and by name SVG.

    Not drawn are sweeps of two values or one seed, and a group of one scheme if it is in a sweep or
    of another recipe.
    """
    names: dict[Setup | Sweep, str] = {}
    files: dict[str, bytes] = {}
    drawable = [
        s
        for s in shown
        if isinstance(s, Sweep) and len(s.values) > 2 and max(map(len, s.scores.values())) > 1
    ]
    swept = [
        group for sweep in drawable for group in sweep.groups.values() if len(group.schemes) == 1
    ]
    for each in shown:
        if isinstance(each, Sweep):
            ending, plot, is_drawn = "sweep", _sweep, each in drawable
        else:
            ending, plot = ("lengths", _lengths) if each.lengths else ("curves", _curves)
            is_drawn = not (
                each.finished.empty or each in swept or (each.variant and len(each.schemes) == 1)
            )
        if not is_drawn:
            continue
        name = f"{each.file}-{ending}.svg"
        if name in files:
            name = f"{each.file}-{each.recipe_id}-{ending}.svg"
        with styled():
            names[each], files[name] = name, rendered(plot(each))
    return names, files


@contextmanager
def styled() -> Iterator[None]:
    """A context with our style over matplotlib's defaults, not a matplotlibrc's; mutes harmless
    warnings.
    """
    with mpl_style.context(STYLE, after_reset=True), warnings.catch_warnings():
        for harmless in (
            "Glyph .* missing from font",
            "constrained_layout not applied",
            "Attempting to set identical",
        ):
            warnings.filterwarnings("ignore", harmless)
        yield


def rendered(figure: Figure) -> bytes:
    """A figure as SVG on white, the same bytes for the same figure.

    The last digits of the layout depend on where its solver's variables lie in memory, so they are
    rounded off.
    """
    for _ in range(2):  # the second time with the ticks of the first
        figure.get_layout_engine().execute(figure)
    figure.set_layout_engine("none")
    for ax in figure.axes:
        ax.set_position(np.round(ax.get_position().bounds, 6))
    for text in figure.texts:
        text.set_position(np.round(text.get_position(), 6))
    content = io.BytesIO()
    figure.savefig(
        content, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white"
    )
    return content.getvalue()


def _curves(group: Setup) -> Figure:
    """The metric against steps; of many schemes, of the best."""
    panel = series.over_training(group, group.measure)
    panel = replace(panel, points=panel.points[panel.points.ended])
    figure, (ax,) = _panels(1)
    _plot(ax, group.published, panel, marker="")
    published = (
        {} if group.deviations() or group.variant else group.report.published
    )  # of the same set-up
    for scheme in panel.schemes:
        if scheme in published:
            value, color = (
                float(published[scheme][0].split()[0]),
                group.published.color(scheme, panel.schemes),
            )
            label = f"{_label(group.published, scheme)}, published"
            ax.axhline(value - group.optimum, color=color, lw=1, ls="--", label=label)
    if not panel.log and math.isinf(
        panel.most
    ):  # without the untrained model, whose value would flatten all curves
        values = panel.points.y[panel.points.x > panel.points.x.min()]
        if values.nunique() > 1:
            room = 0.05 * (values.max() - values.min())
            ax.set_ylim(values.min() - room, values.max() + room)
    return _finished(figure, panel, group)


def _lengths(group: Setup) -> Figure:
    """Problems right, and losses, by length; training lengths are shaded. Below: heat maps of a
    crossed attribute.
    """
    kinds = group.length_kinds
    figure, axes = _heat_maps(group) if group.crossed and len(kinds) == 1 else _panels(len(kinds))
    for ax, slices in zip(axes, kinds, strict=True):
        panel = series.by_value(group, slices)
        _plot(ax, group.published, panel, marker="o")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        if group.trained_lengths:
            shortest, longest = group.trained_lengths
            ax.axvspan(
                shortest - 0.5,
                longest + 0.5,
                color="black",
                alpha=0.08,
                lw=0,
                label="lengths of training",
            )
        ax.set_xlim(0, None)
    return _finished(figure, panel, group)


def _heat_maps(group: Setup) -> tuple[Figure, list[Axes]]:
    """Shares of problems right by length and the crossed attribute, a map a scheme; the axes above
    them are empty.

    A line stands after the longest problems of training.
    """
    lengths, every = (
        sorted(group.crossed),
        pd.concat(map(group.slices, group.crossed.values()), keys=group.crossed),
    )
    means = (
        every.rename_axis(["length", None])
        .groupby(["scheme", "value", "length"])["mean"]
        .mean()
        .unstack("length")
    )
    schemes = [scheme for scheme in group.schemes if scheme in means.index.levels[0]]
    columns = min(len(schemes), MAPS)
    rows = math.ceil(len(schemes) / columns)
    figure = Figure(figsize=(WIDTH, 3.2 + 1.5 * rows), layout="constrained")
    grid = figure.add_gridspec(1 + rows, columns, height_ratios=[2.2, *[1] * rows])
    above = figure.add_subplot(grid[0, :])
    for number, scheme in enumerate(schemes):
        ax, here = (
            figure.add_subplot(grid[1 + number // columns, number % columns]),
            means.loc[scheme, lengths],
        )
        shown = ax.imshow(here, cmap="YlGn", vmin=0, vmax=1, aspect="auto")
        if group.trained_lengths:
            ax.axvline(
                bisect(lengths, group.trained_lengths[1]) - 0.5, color="black", lw=0.8, ls=":"
            )
        ax.set_title(_label(group.published, scheme), fontsize=7)
        ax.set_xticks(range(len(lengths)), lengths, rotation=90, fontsize=6)
        ax.set_yticks(range(len(here))[::3], here.index[::3], fontsize=6)
        if number % columns == 0:
            attribute = group.crossed[lengths[0]].partition(AT)[0]
            ax.set_ylabel(fill(series.title(group, attribute), 20), fontsize=7)
    figure.colorbar(shown, ax=figure.axes[1:], label="share of problems right", pad=0.01)
    return figure, [above]


def _sweep(sweep: Sweep) -> Figure:
    """Final scores against the setting: seeds thin, means bold, a ring around the best value of a
    scheme.
    """
    figure, (ax,) = _panels(1)
    panel, places, values = sweeps.panel(sweep), sweeps.places(sweep), sweep.values
    means = _plot(ax, sweep.published, panel, marker="o").set_index(["scheme", "x"]).y
    for scheme in panel.schemes:
        if (best := sweep.best(scheme)) is not None:
            color = sweep.published.color(scheme, panel.schemes)
            ax.plot(places[best], means[scheme, places[best]], **RING, mec=color)
    ax.plot([], [], label="best value", **RING, mec="grey")
    if sweep.recipe is not None:
        ax.axvline(places[sweep.recipe], color="black", lw=0.8, ls=":", label="the recipe")
    if all(map(is_number, values)) and 0 < 3 * values[0] <= values[-1]:
        ax.set_xscale("log")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(places, [one_line(show(value), 16) for value in values])
    return _finished(figure, panel, sweep.group, sweep.title)


def forest(verdicts: list[Result], published: Published) -> bytes:
    """Published and measured gains of the contender, coloured by verdict: an axis for each title
    and unit.
    """
    panels: dict[tuple[str, str], list[Result]] = {}
    for v in verdicts:
        panels.setdefault((v.title, v.measure.unit), []).append(v)
    gains = {
        key: max((published_gains(v, published) for v in found), key=len)
        for key, found in panels.items()
    }
    heights = [len(found) + bool(gains[key]) + 1.8 for key, found in panels.items()]
    with styled():
        figure = Figure(figsize=(WIDTH, 0.27 * sum(heights) + 0.3), layout="constrained")
        axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
        looks = {"published": PUBLISHED} if any(gains.values()) else {}
        looks |= {name: {"marker": MARKERS[name], "color": "black"} for name in MARKERS}
        handles = [
            axes[0].plot([], [], label=name, **{"ls": ""} | look)[0] for name, look in looks.items()
        ]
        figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))
        for ax, (key, found) in zip(axes, panels.items(), strict=True):
            labels = ["published"] * bool(gains[key]) + [
                fill(one_line(label(v), 2 * LABEL), LABEL) for v in found
            ]
            ax.axvline(0, color="black", lw=0.8)
            for gain in gains[key]:
                ax.plot(gain, 0, **PUBLISHED)
            for row, v in enumerate(found, start=bool(gains[key])):
                color = COLORS.get(word(v), "#777777")
                ax.plot(
                    [v.gain.low, v.gain.high], [row, row], lw=2, color=color, solid_capstyle="butt"
                )
                ax.plot(v.gain.mean, row, marker=MARKERS[kind(v)], ms=6, color=color)
                place = {"xycoords": ("axes fraction", "data"), "va": "center", "color": color}
                ax.annotate(word(v), (1.01, row), **place)
            ax.set(yticks=range(len(labels)), yticklabels=labels, ylim=(len(labels) - 0.4, -0.6))
            ax.set_title(one_line(key[0], LABEL), loc="left", fontweight="bold")
            ax.set_xlabel(f"gain of {published.titles[0]}, {one_line(key[1], LABEL)}")
            ax.xaxis.set_major_locator(MaxNLocator(6))
            ax.tick_params(axis="y", length=0)
            ax.margins(x=0.08)
        return rendered(figure)


def _plot(ax: Axes, published: Published, panel: Panel, marker: str) -> pd.DataFrame:
    """Every seed thin; bold the mean with its interval, and n where points have fewer seeds.
    Returns the means.
    """
    means, schemes = panel.means(), panel.schemes
    for scheme in reversed(schemes):  # the first in the table ends on top
        color = published.color(scheme, schemes)
        for _, seed in panel.points[panel.points.scheme == scheme].groupby("seed"):
            ax.plot(seed.x, seed.y, color=color, lw=0.5, alpha=0.35)
        mean = means[means.scheme == scheme]
        ax.plot(
            mean.x,
            mean.y,
            color=color,
            lw=1.8,
            label=_label(published, scheme),
            marker=marker,
            ms=3,
        )
        if len(schemes) <= series.FEW and mean.low.notna().any():
            ax.fill_between(mean.x, mean.low, mean.high, color=color, alpha=0.15, lw=0)
        for point in mean[mean.n < mean.n.max()].itertuples():
            ax.annotate(
                f"n={point.n}",
                (point.x, point.y),
                (0, 4),
                textcoords="offset points",
                color=color,
                fontsize=6,
            )
    ax.set(xlabel=one_line(panel.x, LABEL), ylabel=fill(panel.y, LINE, break_on_hyphens=False))
    if panel.log:
        _log(ax)
    elif math.isfinite(panel.most):
        ax.set_ylim(-0.04 * panel.most, 1.04 * panel.most)
    return means


def _log(ax: Axes) -> None:
    """A logarithmic axis as wide as seeds and means, with plain numbers."""
    values = [
        value for line in ax.lines for value in line.get_ydata() if TINY < value < math.inf
    ] or [TINY, 1]
    ax.set_ylim(min(values) / 1.15, max(values) * 1.15)  # before the scale: data may be negative
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())


def _label(published: Published, scheme: str) -> str:
    return one_line(published.title(scheme), LABEL)


def _panels(n: int) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    return figure, list(figure.subplots(1, n, squeeze=False)[0])


def _finished(figure: Figure, panel: Panel, group: Setup, title: str = "") -> Figure:
    """With a title, which says how many of all schemes are shown, and a legend below the panels."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    columns = min(
        len(labels), max(1, int(WIDTH / (0.45 + 0.06 * max(map(len, labels), default=0))))
    )
    if labels:
        figure.set_figheight(figure.get_figheight() + 0.2 * math.ceil(len(labels) / columns))
        figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=columns)
    shown, there = len(panel.schemes), len(group.schemes)
    chosen = f": {shown} of {there} schemes" if shown < there else ""
    figure.suptitle(
        one_line(title or f"{group.title}, {group.scale}{chosen}", 2 * LABEL), fontsize=9
    )
    return figure
