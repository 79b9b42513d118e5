"""The runs of folders as setups: one's own beside kept ones, those of plans by study."""

from collections.abc import Iterable
from pathlib import Path

from rope_lab.results.plans.find import find, setup_of
from rope_lab.results.plans.study import of_rows
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.folders import ByFolder, is_kept, one_each, with_those_below
from rope_lab.results.records.setups import Setup, setups_of
from rope_lab.text import ConfigError


def to_read(folders: Iterable[Path]) -> list[Path]:
    """The folders to read. Beside run folders, which hold one's own runs, folders of kept runs come
    with those below them that hold no plan's runs; kept ones first: of two runs with one seed the
    last counts.
    """
    folders = list(folders)
    has_own = not all(map(is_kept, folders))
    found = []
    for path in [path for folder in folders for path in with_those_below(folder)]:
        if path in folders or (has_own and not of_rows(path)):
            found.append(path)
    return sorted(found, key=is_kept, reverse=True)


def of_own_recipes(found: ByFolder, folders: Iterable[Path]) -> ByFolder:
    """Of the runs read, those of the recipes of one's own runs or, without any, of these
    folders.
    """
    own = [folder for folder in folders if not is_kept(folder)] or folders
    recipes = {run.recipe_id for folder in own for run in found[folder]}
    kept = {}
    for path, runs in found.items():
        kept[path] = [run for run in runs if run.recipe_id in recipes]
    return kept


def setups_of_folders(found: ByFolder, catalogue: Catalogue) -> tuple[list[Setup], list[str]]:
    """The runs of each folder's studies by study, then all others by recipe; and problems."""
    runs, problems = one_each(*found.values())
    setups, taken = [], set()
    for folder, part in found.items():
        try:
            planned = [(study, find(study, part)) for study in of_rows(folder)]
        except ConfigError as error:  # none of the folder then
            problems.append(str(error))
            continue
        for study, own in planned:
            if own:
                setups.append(setup_of(study, own, catalogue))
                taken |= {run.run_id for run in own.values()}
    others = [run for run in runs if run.run_id not in taken]
    return setups + setups_of(others, catalogue), problems
