"""Scores of schemes on tasks: `rope-lab scores`, the page results/scores.md and its heat map.

A score is the share of problems right; on a task that is compared by its loss, e^(−loss), the
geometric mean of the probabilities that a model gives to the right tokens. Each task's column is
the recipe under which most schemes were run, of all kept runs; schemes with fewer than three seeds
are left out. If a scheme was also run at half and at double the recipe's learning rate, each seed
counts at the one of the three that is best on the other seeds.
"""

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from rope_lab.places import RESULTS
from rope_lab.results.folders import read_or_warn
from rope_lab.results.groups import Group, group, numbers
from rope_lab.results.kept import KEPT
from rope_lab.results.published import Published, rank
from rope_lab.results.stats import t_interval
from rope_lab.results.tables import NONE, Table, bullets, markdown, write_page
from rope_lab.shipped import recipe
from rope_lab.text import argument_parser, errors_as_exit

FEWEST = 3  # seeds
RATES = (0.5, 1, 2)  # learning rates, of the recipe's
WIDE = 0.1  # half an interval: wider ones are marked
PAGE, MAP = "scores.md", "scores.svg"
HEAD = """# Scores of schemes on tasks

Which scheme is good at what, by {} trained models; nothing here is tested. A score is the share of problems right, or
e^(−loss) where a task is compared by its loss, which is below 1 even for the best possible model. Each cell is the
mean over seeds ± half of its 95% interval, which may go beyond possible values.

A column is one recipe, that under which most schemes have three seeds; runs under other settings, and schemes with
fewer seeds, are left out.

**Compare within a column, and cells with † only with cells with †.** Without † the learning rate is the one below the
table. With † half and twice that rate were tried too: each seed counts at the rate that is best on the other seeds
(the lowest of equal ones). `rope-lab table scores` makes missing runs.

Intervals are not paired; [planned tests](plan.md) pair runs by seed. In the figure colours run from the worst to the
best of each column; * marks intervals wider than ±0.1.

![mean scores of schemes on tasks](figures/scores.svg)
"""


@dataclass(frozen=True)
class Column:
    """A task under one recipe: the score of each seed of each scheme, and the schemes whose rate
    was searched.
    """

    group: Group
    scores: dict[str, pd.Series]
    searched: set[str]

    @property
    def title(self) -> str:
        return f"{self.group.report.title}, {self.group.scale}"


def widest(groups: list[Group]) -> list[Group]:
    """Of each task, the group in which most schemes have FEWEST seeds; then one at the recipe's
    rate.
    """
    found: dict[str, list[Group]] = {}
    for g in groups:
        if len(scores(g)) > 1:
            found.setdefault(g.report.title, []).append(g)

    def preference(g: Group) -> tuple[int, bool]:
        return len(scores(g)), g.settings["train.lr"] == recipe(g.task, g.scale)["train.lr"]

    chosen = [max(each, key=preference) for each in found.values()]
    return sorted(chosen, key=lambda g: (rank(g.published.tasks, g.task), g.scale))


def column(g: Group, groups: list[Group]) -> Column:
    """The scores under a recipe; of schemes that were run at RATES too, at the best."""
    own, found, at_rate = g.settings["train.lr"], scores(g), {}
    for each in groups:
        rate = each.settings["train.lr"]
        same = (each.task, each.scale, each.settings | {"train.lr": own}) == (
            g.task,
            g.scale,
            g.settings,
        )
        if same and rate / own in RATES:
            at_rate[rate] = scores(each)
    searched = {}
    for scheme in found:
        rates = [at_rate[rate][scheme] for rate in sorted(at_rate) if scheme in at_rate[rate]]
        table = pd.concat(
            rates, axis=1
        ).dropna()  # one row per seed that has every rate, one column per rate
        if len(rates) == len(RATES) and len(table) >= FEWEST:
            best = {
                seed: table.drop(seed).mean().argmax() for seed in table.index
            }  # the rate, on the other seeds
            searched[scheme] = pd.Series(
                {seed: table.loc[seed].iloc[at] for seed, at in best.items()}
            )
    return Column(g, found | searched, {*searched})


def scores(g: Group) -> dict[str, pd.Series]:
    """The score of each seed, of each scheme with at least FEWEST."""
    by_scheme = {scheme: g.of(scheme).value / g.metric.times for scheme in g.schemes}
    kept = {scheme: each for scheme, each in by_scheme.items() if len(each) >= FEWEST}
    return kept if g.metric.share else {scheme: np.exp(-each) for scheme, each in kept.items()}


def table(shown: list[Column], published: Published) -> Table:
    """A row a scheme and a column a task."""
    rows = []
    for scheme in schemes(shown, published):
        row = {"scheme": published.title(scheme)}
        for each in shown:
            interval = t_interval(each.scores[scheme]) if scheme in each.scores else None
            mark = " †" if scheme in each.searched else ""
            row[each.title] = (
                f"{interval.mean:.3f} ± {interval.high - interval.mean:.3f}{mark}"
                if interval
                else NONE
            )
        rows.append(row)
    return Table(rows, "Scores")


def heat_map(shown: list[Column], published: Published) -> bytes:
    """The means as SVG, each column coloured from its worst to its best."""
    from rope_lab.results.views import heat, render  # here: slow to import

    cells = []
    for scheme in schemes(shown, published):
        for each in shown:
            if scheme in each.scores:
                found = t_interval(each.scores[scheme])
                wide = "*" if found.high - found.mean > WIDE else ""
                mark = "†" if scheme in each.searched else ""
                text = f"{found.mean:.3f}{wide}{mark}"
                cells.append((published.title(scheme), each.title, found.mean, text))
    frame = pd.DataFrame(cells, columns=["row", "column", "value", "text"])
    return render.svg(heat.scores(frame, [each.title for each in shown]))


def schemes(shown: list[Column], published: Published) -> list[str]:
    """Those with a score in two columns, or in the only one; variants without a title of their own
    are left out.
    """
    count = Counter(scheme for each in shown for scheme in each.scores)
    enough = [scheme for scheme, columns in count.items() if columns >= min(2, len(shown))]
    return sorted(
        (s for s in enough if " " not in s or s in published.schemes), key=published.order
    )


@errors_as_exit()
def main(arguments: list[str] | None = None) -> None:
    parser = argument_parser("scores", __doc__)
    parser.add_argument(
        "folder", nargs="?", type=Path, default=RESULTS, metavar="FOLDER", help="default: results"
    )
    folder, published = parser.parse_args(arguments).folder, Published()
    if not folder.is_dir():
        sys.exit(f"{folder}: no such folder")
    runs = [run for path in sorted(folder.glob(f"**/{KEPT}")) for run in read_or_warn(path.parent)]
    groups = group(runs, published)
    shown = [column(g, groups) for g in widest(groups)]
    if not shown:
        sys.exit(f"{folder}: no task has two schemes of {FEWEST} kept runs each")
    count = sum(len(scores) for each in shown for scores in each.scores.values())
    origins = [
        f"{c.title}: recipe {c.group.recipe_id}, learning rate {c.group.settings['train.lr']:g},"
        f" seeds {numbers(set(c.group.finished.seed))}"
        for c in shown
    ]
    parts = [
        HEAD.format(f"{count:,}").rstrip(),
        markdown(table(shown, published)),
        bullets(origins),
    ]
    write_page(folder / PAGE, parts, {MAP: heat_map(shown, published)})


if __name__ == "__main__":
    main()
