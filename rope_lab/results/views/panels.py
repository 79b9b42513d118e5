"""Panels: the points of a pair of axes, and their means with intervals. Plain data."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from rope_lab.results.comparisons.stats import t_intervals
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.run import Record

FEW = 6  # schemes: of more, a panel shows no intervals
FEWEST_PLOTTED = 3  # seeds of which an interval is plotted
TINY = 1e-6  # of a loss above the Bayes-optimal one: less is noise, and not on logarithmic axes
Colors = dict[str, str]  # by the name of a scheme in the legend
DIGITS = 5  # significant digits of a plotted value


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    points: one row per point, `scheme seed x y ended`; runs that have not ended are shown and count
            in no mean
    x, y:   titles of the axes
    log:    whether y is logarithmic, as of a loss above its floor
    most:   the largest possible value, of shares; otherwise infinite
    least:  the smallest possible value
    untrained: whether the first x is the untrained model, whose value would flatten all curves
    scale, axis: of x, as Altair takes them
    colors: the colour of each scheme, in the order of the legend; empty before `titled`
    """

    points: pd.DataFrame
    x: str
    y: str
    log: bool = False
    most: float = np.inf
    least: float = 0.0
    untrained: bool = False
    scale: Record = field(default_factory=dict)
    axis: Record = field(default_factory=dict)
    colors: Colors = field(default_factory=dict)

    @property
    def schemes(self) -> list[str]:
        return list(self.points.scheme.unique())

    def means(self) -> pd.DataFrame:
        """By `scheme` and `x` the mean over seeds `y`, their number `n` and its 95% interval, `low`
        to `high`.

        The interval is clipped to possible values; its ends are nan with fewer seeds than
        FEWEST_PLOTTED.
        """
        ended = self.points[self.points.ended].dropna(subset="y")
        means = t_intervals(ended, ["scheme", "x"], FEWEST_PLOTTED)
        return means.assign(low=means.low.clip(self.least), high=means.high.clip(upper=self.most))

    def fewer(self) -> pd.DataFrame:
        """The means of fewer seeds than others of their scheme."""
        means = self.on_axis(self.means())
        return means[means.n < means.groupby("scheme").n.transform("max")]

    def on_axis(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows that have a place on the y axis, and the lower ends of their intervals too."""
        if not self.log:
            return table.dropna(subset="y")
        table = table[table.y > TINY]
        if "low" in table:
            least = table.groupby("scheme").y.transform("min") / 10
            table = table.assign(low=table.low.clip(lower=least))
        return table

    def run_curves(self, most: int | None = None) -> pd.DataFrame:
        """A row per run, `scheme seed x y`: x and y are lists of at most so many values."""
        points = self.on_axis(self.points).astype({"seed": str}).drop(columns="ended")
        return _curves(points, ["scheme", "seed"], most)

    def mean_curves(self, most: int | None = None) -> pd.DataFrame:
        """A row per scheme, `scheme x y n low high`, lists likewise."""
        return _curves(self.on_axis(self.means()), ["scheme"], most)

    def domain(self) -> list[float] | None:
        """Both ends of the y axis: as wide as runs and means, not intervals; of shares, all. None
        without points.
        """
        if not self.log and math.isfinite(self.most):
            return [-0.04 * self.most, 1.04 * self.most]
        points = self.on_axis(self.points)
        if self.untrained and not self.log:
            later = points[points.x > points.x.min()]
            points = later if later.y.nunique() > 1 else points
        if points.empty:
            return None
        least, most = points.y.min(), points.y.max()
        if self.log:
            return rounded([least / 1.15, most * 1.15])
        room = 0.05 * (most - least) or 0.1
        return rounded([least - room, most + room])


def _curves(table: pd.DataFrame, names: list[str], most: int | None) -> pd.DataFrame:
    """A row per curve, which `names` name: the other columns as lists, evenly thinned to `most`
    values.
    """
    rows = []
    for _, curve in table.groupby(names, sort=False):
        row = curve.iloc[0][names].to_dict()
        if most and len(curve) > most:
            curve = curve.iloc[np.linspace(0, len(curve) - 1, most).round()]
        rows.append(row | {name: rounded(curve[name]) for name in curve if name not in names})
    return pd.DataFrame(rows, columns=table.columns)


def titled(panel: Panel, catalogue: Catalogue) -> Panel:
    """The same with the titles of schemes in place of their names, and a colour for each."""
    names = sorted(panel.schemes, key=catalogue.order)
    colors = {catalogue.title(name): catalogue.color(name, names) for name in names}
    points = panel.points.assign(scheme=panel.points.scheme.map(catalogue.title))
    return replace(panel, points=points, colors=colors)


def rounded(values: Iterable[float]) -> list[float | None]:
    """DIGITS significant digits; nan as None."""
    return [None if math.isnan(value) else float(f"{value:.{DIGITS}g}") for value in values]


def points_frame(rows: Iterable[tuple]) -> pd.DataFrame:
    """The points of a panel."""
    columns = ["scheme", "seed", "x", "y", "ended"]
    return pd.DataFrame(rows, columns=columns).astype({"x": float, "ended": bool})
