"""Plotted quantities of a group: losses above their floor, slices by value or in bins, bands of means."""

import numpy as np
import pandas as pd
from scipy import stats

from rope_lab.results.groups import Group
from rope_lab.results.metrics import LENGTH, LENGTH_LOSS, LOSS_ATTRIBUTES, POSITION
from rope_lab.results.stats import LEVEL

MANY, BINS = 24, 8  # an attribute with more than so many values is plotted in so many bins
PANEL = 8  # schemes that one panel takes; of more, FEW are shown
FEW = 6  # schemes: more than these are drawn without intervals
FEWEST = 3  # seeds of which an interval is plotted


def score_label(group: Group) -> str:
    """The axis label of the metric."""
    return group.metric.unit + (f" above the Bayes-optimal {group.optimum:.3g}" if group.optimum else "")


def published(group: Group, scheme: str) -> float | None:
    """The published value of a scheme as it is plotted; None without one, or of another set-up."""
    versions = [] if group.deviations() or group.variant else group.report.published.get(scheme, [])
    return float(versions[0].split()[0]) - group.optimum if versions else None


def best(group: Group, length: str = "") -> list[str]:
    """All schemes, or, if they are too many for one panel, baseline, contender and those that ended best.

    length: LENGTH or LENGTH_LOSS: those that are best at the greatest length instead
    """
    if len(group.schemes) <= PANEL:
        return group.schemes
    means, higher = group.finished.groupby("scheme").value.mean(), group.metric.higher_is_better
    if length:
        means, higher = group.slices(length).groupby(["value", "scheme"])["mean"].mean(), length == LENGTH
        means = means.xs(means.index.get_level_values("value").max())
    pair = [s for s in (group.published.baseline, group.published.contender) if s in group.schemes]
    others = [s for s in means.sort_values(ascending=not higher).index if s not in pair]
    chosen = {*pair, *others[: FEW - len(pair)]}
    return [scheme for scheme in group.schemes if scheme in chosen]


def sliced(group: Group) -> list[str]:
    """The attributes of the problems to plot; answer position only of losses or above a floor."""
    attributes = next((list(run.slices) for run in group.finished.run if run.slices), [])
    omitted = {LENGTH, LENGTH_LOSS, *group.report.mirrors}
    return [a for a in attributes if a not in omitted and (a != POSITION or group.floor > 0 or not group.metric.share)]


def by_value(group: Group, attribute: str) -> dict[str, pd.DataFrame]:
    """By scheme, the means by value of an attribute or by bins of it: a row each, a column a seed.

    Shares of problems; losses, above the floor if that is known.
    """
    slices, some = group.slices(attribute), next(run for run in group.finished.run if attribute in run.slices)
    counts = pd.Series({int(value): count for value, (count, _) in some.slices[attribute].items()})
    below = pd.Series({int(v): nats for v, (_, nats) in some.floor.get(attribute, {}).items()}, dtype=float)
    lower = None if attribute in (LENGTH, LENGTH_LOSS) else edges(counts)
    tables = {}
    for scheme, runs in slices.groupby("scheme", sort=False):
        seeds = runs.groupby("seed", sort=False)
        lines = {s: run.set_index("value")["mean"] if lower is None else binned(run, lower) for s, run in seeds}
        table = pd.DataFrame(lines).sort_index()
        tables[scheme] = table.sub(below.reindex(table.index, fill_value=0), axis=0)
    return tables


def above_floor(group: Group, attribute: str) -> bool:
    """Whether `by_value` gives a loss above its floor."""
    if attribute == LENGTH_LOSS:
        return group.metric.share or group.floor > 0
    some = next(run for run in group.finished.run if attribute in run.slices)
    return attribute in LOSS_ATTRIBUTES and any(mean for _, mean in some.floor.get(attribute, {}).values())


def band(table: pd.DataFrame) -> pd.DataFrame:
    """The mean over the seeds of each row and its 95% interval: `mean low high`, ends nan of fewer than FEWEST."""
    n, mean = table.count(axis=1), table.mean(axis=1)
    half = table.sem(axis=1) * stats.t.ppf((1 + LEVEL) / 2, (n - 1).where(n >= FEWEST))
    return pd.DataFrame({"mean": mean, "low": mean - half, "high": mean + half})


def edges(counts: pd.Series) -> np.ndarray:
    """The lower ends of an attribute's bins: its values, or, if they are many, ranges of about as many problems."""
    counts = counts.sort_index()
    values, below = counts.index.to_numpy(), counts.cumsum().to_numpy()  # below: problems up to each value
    if len(values) <= MANY:
        return values
    return np.unique(values[np.searchsorted(below, np.ceil((below[-1] - 1) * np.arange(BINS) / BINS), side="right")])


def binned(run: pd.DataFrame, edges: np.ndarray) -> pd.Series:
    """The mean of the problems in each bin, by the bin's centre; `run`, with `value count mean`."""
    ends = np.append(edges[1:] - 1, max(run.value.max(), edges[-1]))
    bins = np.maximum(np.searchsorted(edges, run.value, side="right") - 1, 0)  # below the first edge: in its bin
    sums = pd.DataFrame({"count": run["count"], "sum": run["count"] * run["mean"]}).groupby(bins).sum()
    centres = (edges + ends)[sums.index] / 2
    return pd.Series((sums["sum"] / sums["count"]).to_numpy(), index=centres)
