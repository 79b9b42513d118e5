"""The kept scores and planned tests of schemes."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rope_lab.places import OWN, RESULTS, RUNS
from rope_lab.results.comparisons.answers import Result
from rope_lab.results.comparisons.score_columns import Column, all_columns, as_if_kept
from rope_lab.results.comparisons.words import plan_word
from rope_lab.results.plans import outcomes
from rope_lab.results.plans.names import scheme_of
from rope_lab.results.plans.study import NAME
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.folders import (
    ByFolder,
    is_kept,
    one_each,
    read_each_or_warn,
    read_or_warn,
    with_those_below,
)
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import setups_of
from rope_lab.results.views import plan_page
from rope_lab.results.views.pages import INDEX
from rope_lab.results.views.score_cells import score
from rope_lab.results.views.tables import Strong, Table

DIFFERENCE = (
    "Difference: the scheme minus the other. Negative is better for a loss and for steps, positive "
    "for correct problems. *confirmed*: significant in favour of the scheme; *reversed*: against "
    "it; *undecided*: neither."
)


@dataclass(frozen=True)
class Measured:
    """Scores by task, the results of planned primary tests that may be shown, and by each page of
    results its title and the schemes whose runs it shows.
    """

    catalogue: Catalogue = field(default_factory=Catalogue)
    columns: list[Column] = field(default_factory=list)
    tests: list[Result] = field(default_factory=list)
    pages: dict[Path, tuple[str, set[str]]] = field(default_factory=dict)


def read(folder: Path = RESULTS, own: str = "") -> Measured:
    """What the kept runs of a folder and those below it show; nothing if there are none.

    own: the name of the user's scheme, whose runs count too, kept or not; if it has none, nothing
         is read
    """
    catalogue = Catalogue()
    mine = _own_runs(folder, own) if own else []
    if own and not mine:
        return Measured(catalogue)
    by_folder = read_each_or_warn(filter(is_kept, with_those_below(folder)))
    kept, _ = one_each(*by_folder.values())
    setups = setups_of([*kept, *as_if_kept(mine, kept)], catalogue)
    every = []
    for plan in (folder / NAME, *sorted(folder.glob(f"compare/*/{NAME}"))):
        studied, _ = outcomes.read(plan, catalogue)
        every += [result for results in studied for result in results]
    tests = [each for each in every if each.family.is_primary and not each.family.untested]
    return Measured(catalogue, all_columns(setups), tests, _pages(folder, by_folder))


def _pages(folder: Path, by_folder: ByFolder) -> dict[Path, tuple[str, set[str]]]:
    """The pages of the folders in a folder; see Measured."""
    pages = {}
    for place, runs in by_folder.items():
        page = place / INDEX
        if place != folder and page.exists():
            title = page.read_text("utf-8").partition("\n")[0].removeprefix("# ")
            pages[page.relative_to(folder)] = title, {run.position for run in runs}
    return pages


def _own_runs(folder: Path, own: str) -> list[Run]:
    """The runs of the user's scheme."""
    mine = []
    for place in (folder / OWN, folder / "score" / own / RUNS, folder / RUNS):
        if place.is_dir():
            mine += [run for run in read_or_warn([place]) if run.position == own]
    return mine


def scores(name: str, measured: Measured) -> Table:
    """A row for each task on which the scheme has a score, with the baseline's beside it."""
    catalogue, rows = measured.catalogue, []
    for column in measured.columns:
        if name in column.scores:
            row = {"task": column.title, catalogue.title(name): score(column, name)}
            if name != catalogue.baseline:
                row[catalogue.title(catalogue.baseline)] = score(column, catalogue.baseline)
            rows.append(row)
    return Table(rows)


def tests_of(name: str, tests: Iterable[Result]) -> tuple[list[Result], int]:
    """The tests in which the scheme is the first one, and the number of those in which it is the
    second.
    """
    first = [result for result in tests if scheme_of(result.comparison.ours.scheme) == name]
    second = [result for result in tests if scheme_of(result.comparison.theirs.scheme) == name]
    return first, len(second)


def verdicts(tests: list[Result], catalogue: Catalogue, both: bool = False) -> Table:
    """A row for each planned test; both: name the first scheme too, and where it was run."""
    rows = []
    for result in tests:
        asked = result.comparison
        ours, theirs = (catalogue.title(scheme_of(arm.scheme)) for arm in asked.arms)
        row = {"scheme": ours} if both else {}
        rows.append(
            row
            | {
                "against": theirs,
                "task": result.title,
                "compared": asked.short_name,
                "difference [95% interval]": plan_page.result_text(result),
                "study": result.family.study.name,
                "outcome": Strong(plan_word(result)),
            }
        )
    return Table(rows)
