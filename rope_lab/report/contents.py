"""What is on the page: the runs of each folder as setups, with problems; and probes."""

from dataclasses import dataclass
from pathlib import Path

from rope_lab.results.plans import families, find
from rope_lab.results.plans import study as studies
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.folders import is_kept
from rope_lab.results.records.run import DAMAGE, Run, one_line
from rope_lab.results.records.setups import setups_of
from rope_lab.results.views import probes
from rope_lab.results.views.pages import Content

PROBES = ("probes.json", "*/probes.json", "probes/*.json")  # within a folder
Recorded = dict[Path, tuple[list[Run], list[str]]]  # the runs of each folder, and problems


@dataclass(frozen=True)
class Folder:
    """A folder on the page; `below` another one, whose verdicts lead the page."""

    title: str
    content: Content
    below: bool = False


def contents(
    given: list[Path], recorded: Recorded, published: Published, asks: bool
) -> list[Folder]:
    """The folders with something to show, the user's own first, and of kept ones those of a plan.

    given: the folders that the user named; `recorded` has those below them too
    asks:  whether the user named the schemes to compare
    """
    own = [folder for folder in given if not is_kept(folder)]
    shown = []
    if own:
        title = ", ".join(folder.resolve().name for folder in own)
        shown.append(Folder(title, _of_own(own, recorded, published)))
    for folder, (runs, problems) in recorded.items():
        if folder not in own:
            content = _of_kept(folder, runs, problems, published)
            unasked = folder not in given and not asks and content.published.compares
            shown.append(Folder(folder.resolve().name, content, below=bool(own) or unasked))
    return sorted(shown, key=lambda folder: (folder.below, folder.content.published.compares))


def _of_kept(folder: Path, runs: list[Run], problems: list[str], published: Published) -> Content:
    """The kept runs of a folder; those of a plan are not compared."""
    of_plan = studies.of_rows(folder)
    studied, wrong = families.read(folder / studies.NAME, published)
    planned, twice = find.with_runs(of_plan, runs)
    here = published.but(compares=not of_plan)
    groups = find.setups_with_studies(runs, here, planned)
    return Content(groups, here, problems + wrong + twice, studied)


def _of_own(own: list[Path], recorded: Recorded, published: Published) -> Content:
    """The runs of the user's own folders, with kept ones of the same recipes to pair them with.

    Of two runs of one scheme and seed the user's own counts.
    """
    kept, mine, problems = [], [], []
    for folder, (runs, wrong) in recorded.items():
        if folder in own:
            mine += runs
            problems += wrong
        elif not studies.of_rows(folder):
            kept += runs
    ids = {run.run_id for run in mine}
    setups = setups_of(kept + mine, published)
    groups = [setup for setup in setups if ids & {*setup.runs.run_id}]
    return Content(groups, published, problems, [])


def read_probes(folder: Path) -> tuple[list[probes.Probed], list[str]]:
    """The probes of the runs in a folder, and which of them cannot be read."""
    found, problems = [], []
    for path in sorted(path for pattern in PROBES for path in folder.glob(pattern)):
        try:
            found.append(probes.read(path))
        except DAMAGE as error:
            name = path.relative_to(folder)
            problems.append(one_line(f"{name}: holds no probes ({type(error).__name__})"))
    return found, problems
