"""Scores of schemes on tasks: `rope-lab scores`, the page results/scores.md and its heat map.

A score is the share of problems correct; on a task that is compared by its loss, e^(−loss), the
geometric mean of the probabilities that a model gives to the right tokens. Each task's column is
the recipe under which most schemes were run, of all kept runs; schemes with fewer than three seeds
are left out. If a scheme was also run at half and at double the recipe's learning rate, each seed
counts at the one of the three that is best on the other seeds. --bill says which runs the map of
twenty schemes on nine tasks lacks.
"""

from collections import Counter
from pathlib import Path

from rope_lab.places import RESULTS
from rope_lab.results.comparisons.score_columns import FEWEST_SEEDS, Column, all_columns, mean_ranks
from rope_lab.results.comparisons.stats import t_interval
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.folders import read_or_warn, with_those_below
from rope_lab.results.records.setups import numbers, setups_of
from rope_lab.results.views.score_cells import mark, score
from rope_lab.results.views.tables import Table, bullets, markdown, write_page
from rope_lab.scoring import missing
from rope_lab.scoring.protocol import PROTOCOL
from rope_lab.text import ConfigError, Words, argument_parser, errors_as_exit, say

FEWEST_RANKED = 3  # schemes of an order
WIDE = 0.1  # half an interval: wider ones are marked
HEAD = """# Scores of schemes on tasks

Means of {} scores of trained models; no significance tests. A score is the share of problems correct, or
e^(−loss) where a task is compared by its loss, which is below 1 even for the best possible model. Each cell is the
mean over seeds ± half of its 95% interval, which may go beyond possible values.

A column is one recipe, that under which most schemes have three seeds; runs under other settings, and schemes with
fewer seeds, are left out. *Trained lengths*: of problems as long as in training; of some tasks the next column has the
longest problems that were graded.

**Compare within a column, and cells with † only with cells with †.** Without † the learning rate is the one below the
table. With † half and twice that rate were tried too: for each seed we use the learning rate that did best on the other
seeds, in ties the lowest. `rope-lab scores --bill` says what the map of twenty schemes on nine tasks lacks, and how
long it takes; `rope-lab table map` makes these runs.

Intervals are not paired; [planned tests](plan.md) pair runs by seed. In the figure colours run from the worst to the
best of each column; * marks intervals wider than ±0.1.

![mean scores of schemes on tasks](figures/scores.svg)
"""  # noqa: E501
ORDER = """## Mean rank (exploratory)

The mean rank (1 is best) over the {} tasks on which all of these schemes have †, at trained
lengths. Schemes whose scores are equal to two decimals share a rank. Intervals: Student's t over
tasks, which are few; the spread over seeds is not in them."""


def write(page: Path, shown: list[Column], head: str, *more: str) -> Table:
    """Write and print a page of scores with its heat map; returns the table.

    more: what stands between the ranks of the schemes and the table
    """
    from rope_lab.results.views import heat, render  # here: slow to import

    catalogue = Catalogue()
    rows, cells = [], []
    tasks = [each for each in shown if each.length is None]
    for scheme in schemes(tasks, catalogue):
        row = {"scheme": catalogue.title(scheme)}
        for each in shown:
            row[each.title] = score(each, scheme)
            if scheme in each.scores:
                found = t_interval(each.scores[scheme])
                wide = "*" if found.high - found.mean > WIDE else ""
                text = f"{found.mean:.3f}{wide}{mark(each, scheme)}"
                cells.append((row["scheme"], each.title, found.mean, text))
        rows.append(row)
    table = Table(rows)
    ranks = order(tasks, catalogue)
    parts = [head, *ranks, *more, markdown(table), bullets(map(origin, tasks))]
    figure = render.svg(heat.scores(cells, [each.title for each in shown]))
    write_page(page, parts, {page.with_suffix(".svg").name: figure})
    return table


def order(tasks: list[Column], catalogue: Catalogue) -> list[str]:
    """The schemes by their mean rank over the tasks on which the baseline's rate was searched, and
    which cannot be told from the first, as parts of a page; none without three such schemes.
    """
    searched = [each for each in tasks if catalogue.baseline in each.searched]
    ranks = mean_ranks(searched)
    if len(ranks) < FEWEST_RANKED:
        return []
    rows = []
    for place, (scheme, found) in enumerate(ranks.iterrows(), start=1):
        rank = f"{found['mean']:.1f} ({found.low:.1f} to {found.high:.1f})"
        rows.append({"": f"{place}", "scheme": catalogue.title(scheme), "mean rank (95%)": rank})
    first, *others = map(catalogue.title, ranks.index[ranks["first"]])
    alike = f"Not distinguishable from {first}, since the difference's interval includes 0: "
    alike += f"{'; '.join(others) or 'no other scheme'}."
    return [ORDER.format(len(searched)), markdown(Table(rows)), alike]


def schemes(tasks: list[Column], catalogue: Catalogue) -> list[str]:
    """Those with a score in two columns, or in the only one, and those of the map; variants without
    a title of their own are left out.
    """
    count = Counter()
    for each in tasks:
        count.update(each.scores.keys())
    titled = [scheme for scheme in count if " " not in scheme or scheme in catalogue.schemes]
    often = {scheme for scheme in titled if count[scheme] >= min(2, len(tasks))}
    named = set(PROTOCOL["map"]).intersection(titled)
    return sorted(often | named, key=catalogue.order)


def origin(column: Column) -> str:
    """The recipe of a column, its learning rate and its seeds."""
    setup = column.setup
    rate = setup.settings["train.lr"]
    seeds = numbers(set(setup.finished.seed))
    return f"{column.title}: recipe {setup.recipe_id}, learning rate {rate:g}, seeds {seeds}"


@errors_as_exit()
def main(arguments: Words = None) -> None:
    parser = argument_parser("scores", __doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=RESULTS, help="default: results")
    parser.add_argument(
        "--bill", action="store_true", help="write nothing; say what the map lacks, and its time"
    )
    given = parser.parse_args(arguments)
    folder = given.folder
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder")
    setups = setups_of(read_or_warn(with_those_below(folder)), Catalogue())
    if given.bill:
        say(missing.bill(setups))
        return
    shown = all_columns(setups)
    if not shown:
        raise ConfigError(f"{folder}: no task has two schemes of {FEWEST_SEEDS} kept runs each")
    tasks = [each for each in shown if each.length is None]
    count = 0
    for scheme in schemes(tasks, Catalogue()):
        count += sum(len(each.scores.get(scheme, ())) for each in tasks)
    write(folder / "scores.md", shown, HEAD.format(f"{count:,}").rstrip(), "## Every score")
