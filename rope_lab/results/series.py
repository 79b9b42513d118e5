"""What is plotted of a group: losses above their floor, slices by value or in bins, bands of means."""

import numpy as np
import pandas as pd

from rope_lab.results.groups import Group
from rope_lab.results.metrics import LENGTH, LENGTH_LOSS, LOSS_ATTRIBUTES, POSITION
from rope_lab.results.stats import t_intervals

MANY, BINS = 24, 8  # an attribute with more than so many values is plotted in so many bins
PANELS = 8  # more schemes than these get a panel each
FEW = 6  # schemes: more than these are drawn without intervals; of more than PANELS, so many share a panel
FEWEST = 3  # seeds of which an interval is plotted


def score_label(group: Group) -> str:
    """What counts, as an axis names it."""
    return group.metric.unit + (f" above the Bayes-optimal {group.optimum:.3g}" if group.optimum else "")


def published(group: Group, scheme: str) -> float | None:
    """What was published of a scheme, as it is plotted; None where nothing was, or of another set-up."""
    versions = [] if group.deviations() or group.variant else group.report.published.get(scheme, [])
    return float(versions[0].split()[0]) - group.optimum if versions else None


def best(group: Group, length: str = "") -> list[str]:
    """All schemes, or where they are too many for one panel, baseline and contender and those that ended best.

    length: LENGTH or LENGTH_LOSS: not those that ended best, but those that are best at the greatest length
    """
    if len(group.schemes) <= PANELS:
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
    """The attributes of the problems that there is something of to plot.

    Answer position only where there is a floor, or where a loss is what counts.
    """
    attributes = next((list(run.slices) for run in group.finished.run if run.slices), [])
    left_out = {LENGTH, LENGTH_LOSS, *group.report.mirrors}
    return [a for a in attributes if a not in left_out and (a != POSITION or group.floor > 0 or not group.metric.share)]


def by_value(group: Group, attribute: str) -> dict[str, pd.DataFrame]:
    """For each scheme what its runs say of the values of an attribute, or of bins of them: a row each, a column a seed.

    Shares of problems; losses, above the floor where that is known.
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
    """Whether what `by_value` gives of an attribute is a loss above its floor."""
    if attribute == LENGTH_LOSS:
        return group.metric.share or group.floor > 0
    some = next(run for run in group.finished.run if attribute in run.slices)
    return attribute in LOSS_ATTRIBUTES and any(mean for _, mean in some.floor.get(attribute, {}).values())


def band(table: pd.DataFrame) -> pd.DataFrame:
    """The mean over the seeds of each row of `table`, and the ends of its 95% interval: `mean low high`.

    The ends are nan of fewer than FEWEST seeds.
    """
    few = table.count(axis=1) < FEWEST
    return t_intervals(table).assign(**{end: lambda found, end=end: found[end].mask(few) for end in ("low", "high")})


def edges(counts: pd.Series) -> np.ndarray:
    """The lower ends of an attribute's bins: its values, or, if they are many, ranges of about as many problems."""
    counts = counts.sort_index()
    values, below = counts.index.to_numpy(), counts.cumsum().to_numpy()  # below: problems up to each value
    if len(values) <= MANY:
        return values
    return np.unique(values[np.searchsorted(below, np.ceil((below[-1] - 1) * np.arange(BINS) / BINS), side="right")])


def binned(run: pd.DataFrame, edges: np.ndarray) -> pd.Series:
    """The mean over what falls into each bin, by the bin's centre; `run`, with `value count mean`."""
    ends = np.append(edges[1:] - 1, max(run.value.max(), edges[-1]))
    bins = np.maximum(np.searchsorted(edges, run.value, side="right") - 1, 0)  # below the first edge: in its bin
    counts = run["count"].to_numpy(dtype=float)
    number = np.bincount(bins, counts, len(edges))
    mean = np.bincount(bins, counts * run["mean"], len(edges)) / np.where(number, number, np.nan)
    return pd.Series(mean, index=(edges + ends) / 2).dropna()
