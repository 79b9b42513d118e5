"""The figures: learning curves, final scores and slices, small enough for a paper's column.

A scheme has the same colour in all of them, every seed is drawn, shares of problems stand between none and all, and
files are the same to the byte for the same rows.
"""

import io
import math
import warnings
from collections.abc import Iterator
from statistics import median
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rope_lab.results import groups as named
from rope_lab.results.groups import Group, color
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
MANY, BINS = 24, 8  # an attribute with more than so many values is drawn in so many bins
LABEL = 60  # characters of a label


def draw(groups: list[Group], published: dict[str, Any]) -> dict[str, dict[str, bytes]]:
    """All there is to draw, for each recipe: name of the file → its content."""
    files: dict[str, dict[str, bytes]] = {}
    stems = set()
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        for nothing_lost in ("Glyph .* missing from font", "constrained_layout not applied"):  # by an odd label
            warnings.filterwarnings("ignore", nothing_lost)
        for group in groups:
            stem = f"{group.scale}-{group.task}"
            if group.variant or stem in stems:
                stem += f"-{group.recipe_id}"
            drawn = {f"{stem}-{kind}.svg": rendered(figure) for kind, figure in _figures(group, published)}
            if drawn:
                stems.add(stem)
                files[group.recipe_id] = files.get(group.recipe_id, {}) | drawn
    return files


def rendered(figure: Figure) -> bytes:
    """A figure as SVG, the same bytes for the same figure."""
    content = io.BytesIO()
    figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
    return content.getvalue()


def _figures(group: Group, published: dict[str, Any]) -> Iterator[tuple[str, Figure]]:
    if not group.all_finished():
        return
    yield "curves", _curves(group, published)
    if not group.facts["higher_is_better"]:
        yield "charts", _charts(group, published)
    yield "scores", _scores(group, published)
    if facts := _sliced(group):
        yield "slices", _slices(group, published, facts)
    if group.lengths:
        yield "lengths", _lengths(group, published)


def title(published: dict[str, Any], scheme: str) -> str:
    """How a scheme is called in a label."""
    return one_line(named.title(published, scheme), LABEL)


def _curves(group: Group, published: dict[str, Any]) -> Figure:
    """Every seed thin, the median over seeds bold, against steps and, above, against tokens."""
    figure, axes = _panels(1, height=2.6)
    ax = axes[0]
    for scheme in reversed(group.cells):  # the first in the table ends on top
        steps, values = group.curves(scheme)
        if steps:
            ax.plot(steps, values.T, color=color(published, scheme), lw=0.5, alpha=0.45)
            middle = np.median(values, axis=0)
            ax.plot(steps, middle, color=color(published, scheme), lw=1.6, label=title(published, scheme))
    _floor(ax, group.floor)
    if group.facts["higher_is_better"]:
        ax.set_ylim(_from_none_to_all(group.facts["times"]))
    ax.set(xlabel="optimizer steps", ylabel=f"{group.facts['unit']}")
    per_step = group.settings["train.batch_size"] * group.settings["train.seq_len"] / 1e6
    tokens = ax.secondary_xaxis("top", functions=(lambda x: x * per_step, lambda x: x / per_step))
    tokens.set_xlabel("million tokens")
    tokens.spines["top"].set_visible(True)
    handles, labels = ax.get_legend_handles_labels()
    _legend(figure, handles[::-1], labels[::-1])
    return _titled(figure, group)


def _charts(group: Group, published: dict[str, Any]) -> Figure:
    """The write-up's two charts, every run and means over seeds, against tokens: in full, and the second half.

    Of the second half, as much is shown as the write-up's own two schemes take up.
    """
    pair = (published["baseline"], published["contender"])
    per_step = group.settings["train.batch_size"] * group.settings["train.seq_len"] / 1e6
    figure = Figure(figsize=(2 * COLUMN, 4.4), layout="constrained")
    for row, panels in enumerate(figure.subplots(2, 2, sharex="col")):
        for column, ax in enumerate(panels):
            span = [group.floor] if group.floor else []
            for scheme in reversed(group.cells):
                steps, values = group.curves(scheme)
                if not steps:
                    continue
                tokens = per_step * np.asarray(steps)
                shown = tokens >= column * tokens[-1] / 2
                lines = values.mean(axis=0, keepdims=True) if row else values
                ax.plot(tokens[shown], lines[:, shown].T, color=color(published, scheme), lw=1.4 if row else 0.7)
                ax.plot([], [], color=color(published, scheme), lw=1.4, label=title(published, scheme))
                if scheme in pair:
                    span += [values[:, shown].min(), values[:, shown].max()]
            _floor(ax, group.floor)
            if column and span and min(span) < max(span):
                margin = 0.05 * (max(span) - min(span))
                ax.set_ylim(min(span) - margin, max(span) + margin)
            ax.set(ylabel=group.facts["unit"], title=("every run", "means")[row] + (", second half" if column else ""))
            if row:
                ax.set(xlabel="million tokens")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    _legend(figure, handles[::-1], labels[::-1])
    return _titled(figure, group)


def _scores(group: Group, published: dict[str, Any]) -> Figure:
    """A dot for every seed, the bar their mean; the best scheme first."""
    figure, axes = _panels(1, height=0.25 * len(group.cells) + 0.7)
    ax = axes[0]
    means = {scheme: np.mean(list(values.values())) for scheme in group.cells if (values := group.values(scheme))}
    schemes = sorted(means, key=means.__getitem__, reverse=group.facts["higher_is_better"])
    schemes += [scheme for scheme in group.cells if scheme not in means]
    for row, scheme in enumerate(schemes):
        values = list(group.values(scheme).values())
        spread = np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else [0.0]
        ax.plot(
            values, row + np.asarray(spread[: len(values)]), "o", ms=3, mew=0, alpha=0.8, color=color(published, scheme)
        )
        if values:
            ax.plot([means[scheme]] * 2, [row - 0.32, row + 0.32], color=color(published, scheme), lw=1.6)
    better = "higher" if group.facts["higher_is_better"] else "lower"
    ax.set(yticks=range(len(schemes)), yticklabels=[title(published, s) for s in schemes])
    ax.set_xlabel(f"{group.facts['unit']} ({better} is better)")
    ax.set_ylim(len(schemes) - 0.5, -0.5)
    if group.facts["higher_is_better"]:
        ax.set_xlim(_from_none_to_all(group.facts["times"]))
    for scheme, values in group.facts["published"].items():
        number = float(values[0].split()[0])
        if scheme in schemes and not group.deviations() and not group.variant:
            ax.plot(number, schemes.index(scheme), "|", ms=12, mew=0.8, color="black")
            ax.annotate("published", (number, schemes.index(scheme) - 0.36), ha="center", va="bottom", fontsize=5)
    return _titled(figure, group)


def _sliced(group: Group) -> list[str]:
    """The facts by which there is something to draw: those of the problems, and the place where there is a floor."""
    facts = next((list(run.slices) for run in group.all_finished() if run.slices), [])
    return [fact for fact in facts if fact not in ("length", "length_loss") and (fact != "place" or group.floor > 0)]


def _slices(group: Group, published: dict[str, Any], facts: list[str]) -> Figure:
    """Accuracy by each of `facts`; loss by place in the answer."""
    runs = {scheme: list(group.finished(scheme).values()) for scheme in group.cells}
    some = next(run for run in group.all_finished() if run.slices)
    figure, axes = _panels(len(facts))
    for ax, fact in zip(axes, facts, strict=True):
        edges = _edges(some.slices[fact])
        for scheme in reversed(runs):
            points = [_binned(run.slices[fact], edges) for run in runs[scheme] if fact in run.slices]
            if points:
                where = sorted({x for point in points for x in point})
                for point in points:
                    ax.plot(list(point), list(point.values()), color=color(published, scheme), lw=0.5, alpha=0.35)
                middle = [median(point[x] for point in points if x in point) for x in where]
                ax.plot(
                    where, middle, "o-", ms=2, color=color(published, scheme), lw=1.4, label=title(published, scheme)
                )
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set(xlabel=one_line(published["facts"].get(fact, fact), LABEL), ylabel="share of problems right")
        if fact == "place":
            floor = {int(place): nats for place, (_, nats) in some.floor.get("place", {}).items()}
            ax.plot(list(floor), list(floor.values()), color="black", lw=0.8, ls="--", label="Bayes floor")
            ax.set(ylabel="nats per letter")
        else:
            ax.set_ylim(_from_none_to_all(1))
    handles, labels = axes[0].get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: labels[i] == "Bayes floor")
    _legend(figure, *([list(x)[i] for i in reversed(order)] for x in (handles, labels)))
    return _titled(figure, group)


def _lengths(group: Group, published: dict[str, Any]) -> Figure:
    """Problems right, and loss above the floor where there is one, by length; those of training are shaded."""
    kinds = [kind for kind in ("length", "length_loss") if any(kind in run.slices for run in group.all_finished())]
    figure, axes = _panels(len(kinds))
    for ax, kind in zip(axes, kinds, strict=True):
        for scheme in reversed(group.cells):
            points = [run.slices[kind] for run in group.finished(scheme).values() if kind in run.slices]
            for pairs in points:
                x, y = list(map(int, pairs)), [mean for _, mean in pairs.values()]
                ax.plot(x, y, color=color(published, scheme), lw=0.5, alpha=0.35)
            if points:
                x = sorted({int(n) for pairs in points for n in pairs})
                middle = [median(pairs[str(n)][1] for pairs in points if str(n) in pairs) for n in x]
                label = title(published, scheme)
                ax.plot(x, middle, "o-", ms=2.5, color=color(published, scheme), lw=1.4, label=label)
        if group.trained_lengths:
            shortest, longest = group.trained_lengths
            ax.axvspan(shortest - 0.5, longest + 0.5, color="black", alpha=0.06, lw=0)
        ax.set(xlabel=group.facts["length"]["title"], xlim=(0, None))
        ax.set(ylabel="share of problems right" if kind == "length" else "nats above the Bayes floor")
        if kind == "length":
            ax.set_ylim(_from_none_to_all(1))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    handles, labels = axes[0].get_legend_handles_labels()
    _legend(figure, handles[::-1], labels[::-1])
    return _titled(figure, group)


def _edges(pairs: dict[str, list[float]]) -> np.ndarray:
    """The lower ends of an attribute's bins: its values, or, if they are many, ranges of about as many problems."""
    values = np.array(sorted(int(key) for key in pairs))
    if len(pairs) <= MANY:
        return values
    below = np.cumsum([int(pairs[str(value)][0]) for value in values])  # problems up to each value
    return np.unique(values[np.searchsorted(below, np.ceil((below[-1] - 1) * np.arange(BINS) / BINS), side="right")])


def _binned(pairs: dict[str, list[float]], edges: np.ndarray) -> dict[float, float]:
    """Bin → mean over what falls into it."""
    keys = np.array([int(key) for key in pairs])
    counts, means = np.array(list(pairs.values())).T
    bins = np.searchsorted(edges, keys, side="right") - 1
    upper = np.append(edges[1:] - 1, max(keys.max(), edges[-1]))
    centres = (edges + upper) / 2
    return {
        float(centres[b]): float((counts[bins == b] * means[bins == b]).sum() / counts[bins == b].sum())
        for b in np.unique(bins)
    }


def _from_none_to_all(top: float) -> tuple[float, float]:
    """The limits of an axis of problems right, with room for dots at both ends."""
    return -0.04 * top, 1.04 * top


def _floor(ax: Axes, nats: float) -> None:
    if nats:
        ax.axhline(nats, color="black", lw=0.8, ls="--", label="Bayes floor")


def _panels(n: int, height: float = 2.3) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(COLUMN * n if n < 3 else 0.75 * COLUMN * n, height), layout="constrained")
    return figure, list(figure.subplots(1, n, squeeze=False)[0])


def _legend(figure: Figure, handles: list, labels: list[str]) -> None:
    """Below the panels, which keep their height, in as many columns as are no wider than the figure."""
    column = 0.35 + 0.05 * max(map(len, labels), default=0)  # inches
    columns = min(len(labels), max(1, int(figure.get_figwidth() / column))) or 1
    figure.set_figheight(figure.get_figheight() + 0.16 * math.ceil(len(labels) / columns))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def _titled(figure: Figure, group: Group) -> Figure:
    figure.suptitle(f"{group.title} ({group.scale})", fontsize=8)
    return figure
