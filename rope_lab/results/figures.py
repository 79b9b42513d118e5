"""The figures: learning curves, final scores and slices, small enough for a paper's column.

A scheme has the same colour in all of them, every seed is plotted, shares of problems stand between none and all, and
files are the same to the byte for the same records.
"""

import io
import math
import warnings
from collections.abc import Iterator

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rope_lab.results.groups import Group
from rope_lab.results.metrics import LENGTH, LENGTH_LOSS, LOSS_ATTRIBUTES, POSITION
from rope_lab.results.runs import one_line

STYLE = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "svg.hashsalt": "rope_lab",
    "text.parse_math": False,  # records may hold dollars
    "savefig.bbox": "tight",
    "savefig.pad_inches": 0.03,
}
COLUMN = 3.4  # inches, the width of a column of text
KINDS = ("curves", "charts", "scores", "slices", "lengths")
MANY, BINS = 24, 8  # an attribute with more than so many values is plotted in so many bins
LABEL = 60  # characters of a label


def plot_all(groups: list[Group]) -> dict[str, dict[str, bytes]]:
    """Every figure there is to plot, for each recipe: name of the file → its content."""
    files: dict[str, dict[str, bytes]] = {}
    stems = set()
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        for nothing_lost in ("Glyph .* missing from font", "constrained_layout not applied"):  # by an odd label
            warnings.filterwarnings("ignore", nothing_lost)
        for group in groups:
            stem = f"{group.scale}-{group.task}"
            if group.variant or stem in stems:
                stem += f"-{group.recipe_id}"
            plotted = {f"{stem}-{kind}.svg": rendered(figure) for kind, figure in _figures(group)}
            if plotted:
                stems.add(stem)
                files[group.recipe_id] = files.get(group.recipe_id, {}) | plotted
    return files


def rendered(figure: Figure) -> bytes:
    """A figure as SVG, the same bytes for the same figure."""
    content = io.BytesIO()
    figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
    return content.getvalue()


def _figures(group: Group) -> Iterator[tuple[str, Figure]]:
    if group.finished.empty:
        return
    yield "curves", _curves(group)
    if not group.metric.share:
        yield "charts", _charts(group)
    yield "scores", _scores(group)
    if attributes := _sliced(group):
        yield "slices", _slices(group, attributes)
    if group.lengths:
        yield "lengths", _lengths(group)


def _curves(group: Group) -> Figure:
    """Every seed thin, the median over seeds bold, against steps and, above, against tokens."""
    figure, (ax,) = _panels(1, height=2.6)
    for scheme in reversed(group.schemes):  # the first in the table ends on top
        curves = group.curves(scheme)
        if len(curves):
            color, label = _look(group, scheme)
            ax.plot(curves.index, curves, color=color, lw=0.5, alpha=0.45)
            ax.plot(curves.index, curves.median(axis=1), color=color, lw=1.6, label=label)
    _baseline(ax, group)
    ax.set(xlabel="optimizer steps", ylabel=group.metric.unit, **_limits(group, "ylim"))
    per_step = _million_tokens(group)
    tokens = ax.secondary_xaxis("top", functions=(lambda x: x * per_step, lambda x: x / per_step))
    tokens.set_xlabel("million tokens")
    tokens.spines["top"].set_visible(True)
    return _finished(figure, group)


def _charts(group: Group) -> Figure:
    """The write-up's two charts, every run and means over seeds, against tokens: in full, and the second half.

    Of the second half, as much is shown as the write-up's own two schemes take up.
    """
    pair, per_step = (group.published.baseline, group.published.contender), _million_tokens(group)
    figure = Figure(figsize=(2 * COLUMN, 4.4), layout="constrained")
    for (row, column), ax in np.ndenumerate(figure.subplots(2, 2, sharex="col")):
        span = [group.floor] if group.floor else []
        for scheme in reversed(group.schemes):
            curves = group.curves(scheme)
            if curves.empty:
                continue
            color, label = _look(group, scheme)
            curves.index = per_step * curves.index.to_numpy()
            curves = curves[curves.index >= column * curves.index[-1] / 2]
            if scheme in pair:
                span += [curves.min(axis=None), curves.max(axis=None)]
            ax.plot(curves.index, curves.mean(axis=1) if row else curves, color=color, lw=1.4 if row else 0.7)
            ax.plot([], [], color=color, lw=1.4, label=label)
        _baseline(ax, group)
        if column and span and min(span) < max(span):
            margin = 0.05 * (max(span) - min(span))
            ax.set_ylim(min(span) - margin, max(span) + margin)
        title = ("every run", "means")[row] + (", second half" if column else "")
        ax.set(ylabel=group.metric.unit, title=title, xlabel="million tokens" if row else "")
    return _finished(figure, group)


def _scores(group: Group) -> Figure:
    """A dot for every seed, the bar their mean; the best scheme first."""
    figure, (ax,) = _panels(1, height=0.25 * len(group.schemes) + 0.7)
    better = "higher" if group.metric.higher_is_better else "lower"
    means = group.finished.groupby("scheme", sort=False).value.mean().reindex(group.schemes)
    schemes = list(means.sort_values(ascending=better == "lower", kind="stable").index)  # those without one come last
    for row, scheme in enumerate(schemes):
        values, (color, _) = group.of(scheme).value, _look(group, scheme)
        spread = np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else np.zeros(len(values))
        ax.plot(values, row + spread, "o", ms=3, mew=0, alpha=0.8, color=color)
        if len(values):
            ax.plot([means[scheme]] * 2, [row - 0.32, row + 0.32], color=color, lw=1.6)
    ax.set(yticks=range(len(schemes)), yticklabels=[_look(group, scheme)[1] for scheme in schemes])
    ax.set(
        xlabel=f"{group.metric.unit} ({better} is better)", ylim=(len(schemes) - 0.5, -0.5), **_limits(group, "xlim")
    )
    published = {} if group.deviations() or group.variant else group.report.published
    for scheme in [scheme for scheme in published if scheme in schemes]:
        number = float(published[scheme][0].split()[0])
        ax.plot(number, schemes.index(scheme), "|", ms=12, mew=0.8, color="black")
        ax.annotate("published", (number, schemes.index(scheme) - 0.36), ha="center", va="bottom", fontsize=5)
    return _finished(figure, group)


def _sliced(group: Group) -> list[str]:
    """The attributes of the problems that there is something of to plot, and answer position where there is a floor."""
    attributes = next((list(run.slices) for run in group.finished.run if run.slices), [])
    return [a for a in attributes if a not in (LENGTH, LENGTH_LOSS) and (a != POSITION or group.floor > 0)]


def _slices(group: Group, attributes: list[str]) -> Figure:
    """Accuracy by each of `attributes`; loss by answer position."""
    some = next(run for run in group.finished.run if run.slices)
    figure, axes = _panels(len(attributes))
    for ax, attribute in zip(axes, attributes, strict=True):
        counts = {int(value): count for value, (count, _) in some.slices[attribute].items()}
        _by_value(ax, group, attribute, ms=2, edges=_edges(pd.Series(counts)))
        ax.set(xlabel=one_line(group.published.attributes.get(attribute, attribute), LABEL))
        if attribute == POSITION:
            floor = {int(position): nats for position, (_, nats) in some.floor.get(POSITION, {}).items()}
            ax.plot(list(floor), list(floor.values()), color="black", lw=0.8, ls="--", label=group.metric.baseline)
    return _finished(figure, group)


def _lengths(group: Group) -> Figure:
    """Problems right, and loss above the floor where there is one, by length; those of training are shaded."""
    kinds = [kind for kind in (LENGTH, LENGTH_LOSS) if len(group.slices(kind))]
    figure, axes = _panels(len(kinds))
    for ax, kind in zip(axes, kinds, strict=True):
        _by_value(ax, group, kind, ms=2.5)
        if group.trained_lengths:
            shortest, longest = group.trained_lengths
            ax.axvspan(shortest - 0.5, longest + 0.5, color="black", alpha=0.06, lw=0)
        ax.set(xlabel=group.report.length["title"], xlim=(0, None))
    return _finished(figure, group)


def _by_value(ax: Axes, group: Group, attribute: str, ms: float, edges: np.ndarray | None = None) -> None:
    """Each run thin and the median of each scheme's bold, against the values of an attribute or bins of them."""
    slices = group.slices(attribute)
    for scheme in reversed(group.schemes):
        runs = [run for _, run in slices[slices.scheme == scheme].groupby("seed", sort=False)]
        lines = [run.set_index("value")["mean"] if edges is None else _binned(run, edges) for run in runs]
        if lines:
            color, label = _look(group, scheme)
            for line in lines:
                ax.plot(line.index, line, color=color, lw=0.5, alpha=0.35)
            middle = pd.concat(lines).groupby(level=0).median()
            ax.plot(middle.index, middle, "o-", ms=ms, color=color, lw=1.4, label=label)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_ylabel(LOSS_ATTRIBUTES.get(attribute, "share of problems right"))
    if attribute not in LOSS_ATTRIBUTES:
        ax.set_ylim(_none_to_all(1))


def _edges(counts: pd.Series) -> np.ndarray:
    """The lower ends of an attribute's bins: its values, or, if they are many, ranges of about as many problems."""
    counts = counts.sort_index()
    values, below = counts.index.to_numpy(), counts.cumsum().to_numpy()  # below: problems up to each value
    if len(values) <= MANY:
        return values
    return np.unique(values[np.searchsorted(below, np.ceil((below[-1] - 1) * np.arange(BINS) / BINS), side="right")])


def _binned(run: pd.DataFrame, edges: np.ndarray) -> pd.Series:
    """The mean over what falls into each bin, by the bin's centre; `run`, with `value count mean`."""
    ends = np.append(edges[1:] - 1, max(run.value.max(), edges[-1]))
    centres = ((edges + ends) / 2)[np.searchsorted(edges, run.value, side="right") - 1]
    sums = run.assign(total=run["count"] * run["mean"]).groupby(centres)[["total", "count"]].sum()
    return sums.total / sums["count"]


def _look(group: Group, scheme: str) -> tuple[str, str]:
    """A scheme's colour and label."""
    return group.published.color(scheme), one_line(group.published.title(scheme), LABEL)


def _million_tokens(group: Group) -> float:
    """In one optimizer step."""
    return group.settings["train.batch_size"] * group.settings["train.seq_len"] / 1e6


def _none_to_all(top: float) -> tuple[float, float]:
    """The limits of an axis of problems right, with room for dots at both ends."""
    return -0.04 * top, 1.04 * top


def _limits(group: Group, axis: str) -> dict[str, tuple[float, float]]:
    return {axis: _none_to_all(group.metric.times)} if group.metric.share else {}


def _baseline(ax: Axes, group: Group) -> None:
    if group.floor:
        ax.axhline(group.floor, color="black", lw=0.8, ls="--", label=group.metric.baseline)


def _panels(n: int, height: float = 2.3) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(COLUMN * n if n < 3 else 0.75 * COLUMN * n, height), layout="constrained")
    return figure, list(figure.subplots(1, n, squeeze=False)[0])


def _finished(figure: Figure, group: Group) -> Figure:
    """With a title, and a legend below the panels, which keep their height: in columns no wider than the figure."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if labels:
        column = 0.35 + 0.05 * max(map(len, labels))  # inches
        columns = min(len(labels), max(1, int(figure.get_figwidth() / column)))
        figure.set_figheight(figure.get_figheight() + 0.16 * math.ceil(len(labels) / columns))
        figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=columns)
    figure.suptitle(f"{group.title} ({group.scale})", fontsize=8)
    return figure
