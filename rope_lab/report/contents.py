"""What is on the page: the runs of each folder as setups, with problems; and probes."""

from dataclasses import replace
from pathlib import Path

from rope_lab.results.plans import outcomes
from rope_lab.results.plans import study as studies
from rope_lab.results.plans.setups import of_own_recipes, setups_of_folders
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.folders import is_kept
from rope_lab.results.records.kept import RunsAndProblems
from rope_lab.results.records.run import DAMAGE, Run, one_line
from rope_lab.results.views import probes
from rope_lab.results.views.pages import Content

PROBES = ("probes.json", "*/probes.json", "probes/*.json")  # within a folder
Recorded = dict[Path, RunsAndProblems]  # the runs of each folder, and problems


def contents(
    given: list[Path], recorded: Recorded, catalogue: Catalogue, asks: bool
) -> list[Content]:
    """The folders with something to show, the user's own first, and of kept ones those of a plan.

    given: the folders that the user named; `recorded` has those below them too
    asks:  whether the user named the schemes to compare
    """
    own = [folder for folder in given if not is_kept(folder)]
    shown = [_of_own(own, recorded, catalogue)] if own else []
    for folder, (runs, problems) in recorded.items():
        if folder not in own:
            kept = _of_kept(folder, runs, problems, catalogue)
            is_beside = not (folder in given or asks) and kept.catalogue.compares
            shown.append(replace(kept, below=is_beside or bool(own)))
    return sorted(shown, key=lambda content: (content.below, content.catalogue.compares))


def _of_kept(folder: Path, runs: list[Run], problems: list[str], catalogue: Catalogue) -> Content:
    """The kept runs of a folder; those of a plan are not compared."""
    studied, wrong = outcomes.read(folder / studies.NAME, catalogue)
    here = replace(catalogue, compares=not studies.of_rows(folder))
    setups, twice = setups_of_folders({folder: runs}, here)
    return Content(setups, here, problems + wrong + twice, studied, folder.resolve().name)


def _of_own(own: list[Path], recorded: Recorded, catalogue: Catalogue) -> Content:
    """The runs of the user's own folders, with kept ones of the same recipes to pair them with."""
    found, problems = {}, []
    for folder, (runs, _) in recorded.items():
        if folder not in own and not studies.of_rows(folder):
            found[folder] = runs
    for folder in own:  # last: of two runs with one seed these count
        found[folder], wrong = recorded[folder]
        problems += wrong
    setups, _ = setups_of_folders(of_own_recipes(found, own), catalogue)
    title = ", ".join(folder.resolve().name for folder in own)
    return Content(setups, catalogue, problems, [], title)


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
