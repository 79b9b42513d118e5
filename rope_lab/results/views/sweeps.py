"""Sweeps as tables and sentences."""

from collections.abc import Iterator

from rope_lab.results.comparisons.grids import Sweep
from rope_lab.results.records.setups import seeds_text
from rope_lab.results.views.notes import details, warnings
from rope_lab.results.views.sections import RANGE
from rope_lab.results.views.tables import (
    Row,
    Section,
    Strong,
    Table,
    mean_of,
    number,
    paired,
    strong_if,
)
from rope_lab.text import show

BEST = "each scheme at its best value"
SEARCHED = ("train.lr", "train.weight_decay", "train.warmup", "train.beta2", "train.min_lr")
HEAD = (
    "{}, mean over seeds; {} is better. Emphasized: the best value of a scheme that has them all; "
    "it is chosen on the scores shown, which flatters each scheme. A run that diverged counts with "
    "the worst value of those that finished."
)


def section(sweep: Sweep) -> Section:
    """A sweep's tables and sentences."""
    sentences = [HEAD.format(sweep.measure.unit, sweep.measure.better), *_of_best(sweep), RANGE]
    sentences += map(Strong, warnings(sweep.others))
    return Section(
        sweep.title,
        scores(sweep),
        sentences,
        every_seed=every_seed(sweep),
        details=list(details(sweep.others)),
    )


def _of_best(sweep: Sweep) -> Iterator[str]:
    """What the best values do not show."""
    if sweep.setting in SEARCHED:
        titles = [sweep.catalogue.title(s) for s in sweep.schemes if sweep.is_at_edge(s)]
        if titles:
            yield Strong(f"best at the first or last value: {'; '.join(titles)}; try values beyond")
    if left_out := sweep.left_out():
        yield f"{seeds_text(left_out)}: not at every value, and not counted for the best ones"


def scores(sweep: Sweep) -> Table:
    """A row a scheme and a column a value: mean and interval; then, if compared, the differences to
    the baseline.
    """
    baseline = sweep.catalogue.baseline
    rows = [_means(sweep, scheme) for scheme in sweep.schemes]
    if sweep.catalogue.compares and baseline in sweep.schemes and len(rows) > 1:
        rows = [row | {BEST: ""} for row in rows]
        others = [scheme for scheme in sweep.schemes if scheme != baseline]
        rows += [_differences(sweep, scheme, baseline) for scheme in others]
    return Table(rows, "Scores")


def _row(sweep: Sweep, title: str, cells: list[str]) -> Row:
    """A cell a value, under its name."""
    names = list(map(show, sweep.values))
    if sweep.recipe is not None:
        names[sweep.recipe] += " (recipe)"
    return {f"{sweep.setting} =": title} | dict(zip(names, cells, strict=True))


def _means(sweep: Sweep, scheme: str) -> Row:
    cells = []
    for at, values in sweep.scores[scheme].items():
        lost = sweep.diverged.get((scheme, at), 0)
        cell = mean_of(values.dropna(), sweep.measure, lost)
        cells.append(strong_if(at == sweep.best[scheme], cell))
    return _row(sweep, sweep.catalogue.title(scheme), cells)


def _differences(sweep: Sweep, scheme: str, other: str) -> Row:
    title = sweep.catalogue.title
    places = range(len(sweep.values))
    cells = [paired(sweep.difference_at(at, scheme, other)) for at in places]
    best = sweep.difference_at_best(scheme, other)
    row = _row(sweep, f"{title(scheme)} − {title(other)}", cells)
    return row | {BEST: paired(best) if best else ""}


def every_seed(sweep: Sweep) -> Table:
    """A row a scheme and seed, a column a value."""
    rows = []
    digits = sweep.measure.digits
    for scheme, scores in sweep.scores.items():
        texts = scores.map(lambda value: number(value, digits))
        for (seed, _), cells in texts.set_axis(map(show, sweep.values), axis=1).iterrows():
            row = {"scheme": sweep.catalogue.title(scheme), "seed": str(seed)}
            rows.append(row | cells.to_dict())
    return Table(rows, "Every seed")
