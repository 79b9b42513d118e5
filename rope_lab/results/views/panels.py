"""Panels: the points of a pair of axes, their means with intervals, and the axes. Plain data."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from rope_lab.results.comparisons.stats import LEVEL
from rope_lab.results.records.catalogue import Published

FEW = 6  # schemes: of more, a panel shows no intervals
FEWEST = 3  # seeds of which an interval is plotted
TINY = 1e-6  # of a loss above the Bayes-optimal one: less is noise, and not on logarithmic axes
DIGITS = 5  # significant digits of a plotted value
Row = dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    points: one row per point, `scheme seed x y ended`; runs that have not ended are shown and count
            in no mean
    x, y:   titles of the axes
    log:    whether y is logarithmic, as of a loss above its floor
    most:   the largest possible value, of shares; otherwise infinite
    untrained: whether the first x is the untrained model, whose value would flatten all curves
    ticks:  values of x with a label; empty for round numbers
    words:  the labels of x = 0, 1, …, if they are not numbers
    log_x, zero: whether x is logarithmic, and whether it begins at 0
    colors: the colour of each scheme, in the order of the legend; empty before `titled`
    """

    points: pd.DataFrame
    x: str
    y: str
    log: bool = False
    most: float = np.inf
    untrained: bool = False
    ticks: list[float] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    log_x: bool = False
    zero: bool = False
    colors: dict[str, str] = field(default_factory=dict)

    @property
    def schemes(self) -> list[str]:
        return list(self.points.scheme.unique())

    @property
    def whole(self) -> bool:
        """Whether all x are whole numbers."""
        return bool((self.points.x % 1 == 0).all())

    def means(self) -> pd.DataFrame:
        """By `scheme` and `x` the mean over seeds `y`, their number `n` and its 95% interval, `low`
        to `high`.

        The interval is clipped to possible values; its ends are nan with fewer seeds than FEWEST.
        """
        ended = self.points[self.points.ended].dropna(subset="y")
        table = (
            ended.groupby(["scheme", "x"], sort=False)
            .y.agg(["mean", "count", "sem"])
            .sort_index(level="x")
        )
        half = table["sem"] * stats.t.ppf(
            (1 + LEVEL) / 2, (table["count"] - 1).where(table["count"] >= FEWEST)
        )
        ends = {
            "low": (table["mean"] - half).clip(0),
            "high": (table["mean"] + half).clip(upper=self.most),
        }
        return (
            table.assign(**ends)
            .rename(columns={"mean": "y", "count": "n"})
            .drop(columns="sem")
            .reset_index()
        )

    def run_rows(self, thinned: int | None = None) -> list[Row]:
        """A row per run: `scheme seed x y`, x and y as lists of at most `thinned` points."""
        rows = []
        for (scheme, seed), run in self.points.groupby(["scheme", "seed"], sort=False):
            rows.append({"scheme": scheme, "seed": str(seed)} | self._lists(run, thinned))
        return rows

    def mean_rows(self, thinned: int | None = None) -> list[Row]:
        """A row per scheme: `scheme seeds x y low high n`; seeds: the most of any point."""
        rows = []
        for scheme, mean in self.means().groupby("scheme", sort=False):
            most = {"scheme": scheme, "seeds": int(mean.n.max())}
            rows.append(most | self._lists(mean, thinned))
        return rows

    def _lists(self, table: pd.DataFrame, thinned: int | None) -> Row:
        """The columns as lists, without points that have no place on the axis."""
        table = table[table.y > TINY] if self.log else table[table.y.notna()]
        if self.log and "low" in table:
            table = table.assign(low=table.low.clip(lower=table.y.min() / 10))
        if thinned and len(table) > thinned:
            kept = np.linspace(0, len(table) - 1, thinned).round().astype(int)
            table = table.iloc[kept]
        names = [name for name in ("x", "y", "low", "high", "n") if name in table]
        return {name: rounded(table[name]) for name in names}

    def domain(self) -> list[float]:
        """Both ends of the y axis: as wide as runs and means, not intervals; of shares, all."""
        if not self.log and math.isfinite(self.most):
            return rounded([-0.04 * self.most, 1.04 * self.most])
        values = self.points
        if self.untrained and not self.log:
            later = values[values.x > values.x.min()]
            values = later if later.y.nunique() > 1 else values
        y = values.y[values.y > TINY] if self.log else values.y.dropna()
        least, most = (float(y.min()), float(y.max())) if len(y) else (0.1, 1.0)
        if self.log:
            return rounded([least / 1.15, most * 1.15])
        room = 0.05 * (most - least) or 0.1
        return rounded([least - room, most + room])


def titled(panel: Panel, published: Published) -> Panel:
    """The same with the titles of schemes in place of their names, and a colour for each."""
    names = sorted(panel.schemes, key=published.order)
    colors = {published.title(name): published.color(name, names) for name in names}
    points = panel.points.assign(scheme=panel.points.scheme.map(published.title))
    return replace(panel, points=points, colors=colors)


def rounded(values: Iterable[float]) -> list[float | None]:
    """DIGITS significant digits; nan as None, whole numbers without a point."""
    found: list[float | None] = []
    for value in values:
        if math.isnan(value):
            found.append(None)
            continue
        short = float(f"{value:.{DIGITS}g}")
        found.append(int(short) if short.is_integer() and abs(short) < 1e15 else short)
    return found


def points_frame(rows: Iterable[tuple]) -> pd.DataFrame:
    """The points of a panel."""
    return pd.DataFrame(rows, columns=["scheme", "seed", "x", "y", "ended"]).astype(
        {"x": float, "ended": bool}
    )
