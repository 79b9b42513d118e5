"""The figures: learning curves, final scores and slices, as wide as a page (7.5 inches, 720 px).

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
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from rope_lab.results import series
from rope_lab.results.groups import Group
from rope_lab.results.metrics import LENGTH, LENGTH_LOSS, LOSS_ATTRIBUTES
from rope_lab.results.runs import one_line
from rope_lab.results.stats import t_interval

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
    "savefig.bbox": "tight",
    "savefig.pad_inches": 0.03,
}
WIDTH = 7.5  # inches
KINDS = ("curves", "scores", "slices", "lengths")
PUBLISHED = {"marker": "D", "ms": 5, "mfc": "white", "mec": "black", "ls": ""}
LABEL = 70  # characters of a label
TINY = 1e-6  # of a loss above the Bayes-optimal one: less is noise, and stands on no logarithmic axis


def plot_all(groups: list[Group]) -> dict[str, dict[str, bytes]]:
    """Every figure there is to plot, for each recipe: name of the file → its content."""
    files: dict[str, dict[str, bytes]] = {}
    stems = set()
    with styled():
        for group in groups:
            stem = f"{group.scale}-{group.task}"
            if group.variant or stem in stems:
                stem += f"-{group.recipe_id}"
            plotted = {f"{stem}-{kind}.svg": rendered(figure) for kind, figure in _figures(group)}
            if plotted:
                stems.add(stem)
                files[group.recipe_id] = files.get(group.recipe_id, {}) | plotted
    return files


@contextmanager
def styled() -> Iterator[None]:
    """With our style; what an odd name in a record costs, letters or space, is no warning."""
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        for nothing_lost in ("Glyph .* missing from font", "constrained_layout not applied"):
            warnings.filterwarnings("ignore", nothing_lost)
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


def _figures(group: Group) -> Iterator[tuple[str, Figure]]:
    if group.finished.empty or (group.variant and group.finished.scheme.is_unique):  # one seed of another recipe
        return
    yield "curves", _curves(group)
    yield "scores", _scores(group)
    if attributes := series.sliced(group):
        yield "slices", _slices(group, attributes)
    if group.lengths:
        yield "lengths", _lengths(group)


def _curves(group: Group) -> Figure:
    """What counts against steps; with many schemes a panel each, the baseline's mean in it."""
    schemes = [scheme for scheme in group.schemes if len(group.curves(scheme))]
    many, baseline = len(schemes) > series.PANELS, group.published.baseline
    figure, axes = _panels(len(schemes), 4, height=1.5, shared=True) if many else _panels(1, 1, height=3.4)
    for ax, drawn in zip(axes, [[s] for s in schemes] if many else [schemes[::-1]], strict=True):
        if many and baseline in schemes:
            mean = group.curves(baseline).mean(axis=1) - group.optimum
            ax.plot(mean.index, mean, color="black", lw=1, ls=":", label=_look(group, baseline)[1])
        for scheme in drawn:  # the first in the table ends on top
            _lines(ax, group.curves(scheme) - group.optimum, *_look(group, scheme), len(drawn) <= series.FEW)
        if many:
            ax.set_title(_look(group, drawn[0])[1])
        for scheme in drawn:
            if (number := series.published(group, scheme)) is not None:
                color, label = _look(group, scheme)
                ax.axhline(number, color=color, lw=1, ls="--", label=f"{label}, published")
        ax.set(xlabel="" if many else "optimizer steps", ylabel="" if many else series.score_label(group))
    score_axis(axes, group, "y", bool(group.optimum))
    if not group.metric.share and not group.optimum:
        _from_second(axes)
    if many:
        figure.supxlabel("optimizer steps", fontsize=9)
        figure.supylabel(series.score_label(group), fontsize=9)
        return _finished(figure, group, legend=False, dotted=baseline in schemes)
    per_step = group.settings["train.batch_size"] * group.settings["train.seq_len"] / 1e6
    tokens = axes[0].secondary_xaxis("top", functions=(lambda x: x * per_step, lambda x: x / per_step))
    tokens.set_xlabel("million tokens")
    tokens.spines["top"].set_visible(True)
    return _finished(figure, group)


def _scores(group: Group) -> Figure:
    """After the last step: a dot for every seed, a bar for their mean and its interval; the best scheme first."""
    figure, (ax,) = _panels(1, 1, height=0.27 * len(group.schemes) + 0.75)
    means = group.finished.groupby("scheme", sort=False).value.mean().reindex(group.schemes)
    better = "higher" if group.metric.higher_is_better else "lower"
    schemes = list(means.sort_values(ascending=better == "lower", kind="stable").index)  # those without one come last
    if group.published.baseline in schemes:
        ax.axvline(means[group.published.baseline] - group.optimum, color="black", lw=0.8, ls=":")
    for row, scheme in enumerate(schemes):
        values, (color, _) = group.of(scheme).value - group.optimum, _look(group, scheme)
        if len(values):
            interval = t_interval(values)
            if interval.n >= series.FEWEST:
                low = max(interval.low, TINY) if group.optimum else interval.low
                ax.plot([low, interval.high], [row, row], color=color, lw=5, alpha=0.3, solid_capstyle="butt")
            ax.plot([interval.mean] * 2, [row - 0.32, row + 0.32], color=color, lw=2)
            ax.plot(values, np.full(len(values), row), "o", ms=3.5, mew=0, alpha=0.8, color=color)
        ax.annotate(f"n={len(values)}", (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=8)
        if (number := series.published(group, scheme)) is not None:
            ax.plot(number, row, **PUBLISHED)
    ax.set(yticks=range(len(schemes)), yticklabels=[_look(group, scheme)[1] for scheme in schemes])
    ax.set(xlabel=f"{series.score_label(group)}; {better} is better", ylim=(len(schemes) - 0.5, -0.5))
    score_axis([ax], group, "x", bool(group.optimum))
    return _finished(figure, group, legend=False, dotted=group.published.baseline in schemes)


def _slices(group: Group, attributes: list[str]) -> Figure:
    """Accuracy by each of `attributes`; by answer position the loss above the floor."""
    figure, axes = _panels(len(attributes), 2, height=2.5)
    schemes = series.best(group)
    for ax, attribute in zip(axes, attributes, strict=True):
        _by_value(ax, group, attribute, schemes)
        ax.set(xlabel=one_line(group.label(attribute), LABEL))
    return _finished(figure, group, chosen=_chosen(group, schemes))


def _lengths(group: Group) -> Figure:
    """Problems right, and loss above the floor where there is one, by length; those of training are shaded."""
    kinds = [kind for kind in (LENGTH, LENGTH_LOSS) if len(group.slices(kind))]
    figure, axes = _panels(len(kinds), 2, height=2.8)
    schemes = series.best(group, kinds[-1])
    for ax, kind in zip(axes, kinds, strict=True):
        _by_value(ax, group, kind, schemes)
        if group.trained_lengths:
            shortest, longest = group.trained_lengths
            ax.axvspan(shortest - 0.5, longest + 0.5, color="black", alpha=0.08, lw=0, label="lengths of training")
        ax.set(xlabel=group.report.length["title"], xlim=(0, None))
    where = " at the greatest length" + ", by loss" * (len(kinds) > 1)
    return _finished(figure, group, chosen=_chosen(group, schemes, where))


def _chosen(group: Group, schemes: list[str], where: str = "") -> str:
    return f": {len(schemes)} schemes, the best of {len(group.schemes)}{where}" * (len(schemes) < len(group.schemes))


def _by_value(ax: Axes, group: Group, attribute: str, schemes: list[str]) -> None:
    """Each of `schemes` against the values of an attribute or bins of them."""
    tables = series.by_value(group, attribute)
    for scheme in reversed([scheme for scheme in schemes if scheme in tables]):
        _lines(ax, tables[scheme], *_look(group, scheme), len(schemes) <= series.FEW, marker="o")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if attribute not in LOSS_ATTRIBUTES:
        ax.set_ylim(-0.04, 1.04)
        ax.set_ylabel("share of problems right")
    elif series.above_floor(group, attribute):
        _log([ax], "y")
        ax.set_ylabel("nats above the Bayes-optimal loss")
    else:
        ax.set_ylabel(group.metric.unit)


def _lines(ax: Axes, table: pd.DataFrame, color: str, label: str, bands: bool, marker: str = "") -> None:
    """A column a seed, thin; bold the mean of each row, where `bands` with its 95% interval from three seeds on."""
    ax.plot(table.index, table, color=color, lw=0.5, alpha=0.35)
    ax.plot(table.index, table.mean(axis=1), color=color, lw=1.8, label=label, marker=marker, ms=3)
    if bands and len(table.columns) >= series.FEWEST:
        ends = series.band(table)
        ax.fill_between(table.index, ends.low, ends.high, color=color, alpha=0.15, lw=0)


def score_axis(axes: list[Axes], group: Group, axis: str, above_optimum: bool) -> None:
    """From none to all, of shares; logarithmic, of losses above the Bayes-optimal one."""
    if above_optimum:
        _log(axes, axis)
    elif group.metric.share:
        top = group.metric.times
        for ax in axes:
            ax.set(**{f"{axis}lim": (-0.04 * top, 1.04 * top)})


def _from_second(axes: list[Axes]) -> None:
    """The same y axis for each, without the loss of an untrained model, beside which all others would look alike."""
    values = [value for ax in axes for line in ax.lines for value in line.get_ydata()[1:] if math.isfinite(value)]
    room = 0.05 * (max(values) - min(values)) if len(set(values)) > 1 else 0
    if room:
        for ax in axes:
            ax.set_ylim(min(values) - room, max(values) + room)


def _log(axes: list[Axes], axis: str) -> None:
    """The same logarithmic axis for each, as wide as seeds and means, with plain numbers."""
    values = [value for ax in axes for line in ax.lines for value in getattr(line, f"get_{axis}data")()]
    values = [value for value in values if TINY < value < math.inf] or [TINY, 1]
    for ax in axes:
        ax.set(**{f"{axis}lim": (min(values) / 1.15, max(values) * 1.15)})  # before the scale: data may be negative
        ax.set(**{f"{axis}scale": "log"})
        ticks = getattr(ax, f"{axis}axis")
        ticks.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ticks.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ticks.set_minor_formatter(NullFormatter())


def _look(group: Group, scheme: str) -> tuple[str, str]:
    """A scheme's colour and label."""
    return group.published.color(scheme, group.schemes), one_line(group.published.title(scheme), LABEL)


def _panels(n: int, columns: int, height: float, shared: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure with `n` panels in so many columns, each so many inches high; `shared`: all have the same axes."""
    columns = min(n, columns)
    rows = math.ceil(n / columns)
    figure = Figure(figsize=(WIDTH, height * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False, sharey=shared, sharex=shared).flat)
    for ax in axes[n:]:
        ax.set_axis_off()
    return figure, axes[:n]


def _finished(figure: Figure, group: Group, legend: bool = True, chosen: str = "", dotted: bool = False) -> Figure:
    """With a title, and a legend below the panels, which keep their height.

    chosen: which schemes are shown, where not all are; dotted: whether the baseline is a dotted line
    """
    named = {label: handle for ax in figure.axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    if legend and named:
        columns = min(len(named), max(1, int(WIDTH / (0.45 + 0.06 * max(map(len, named))))))
        figure.set_figheight(figure.get_figheight() + 0.2 * math.ceil(len(named) / columns))
        figure.legend(list(named.values())[::-1], list(named)[::-1], loc="outside lower center", ncols=columns)
    line = f"; dotted: {group.published.title(group.published.baseline)}" if dotted else ""
    figure.suptitle(f"{group.title}, {group.scale}{chosen}{line}", fontsize=9)
    return figure
