"""Make tables and figures: `rope-lab results [FOLDER…]`.

A FOLDER holds run folders, or is one, or holds kept runs (`results/` in the repository does).
README.md and figures/ are written into the first FOLDER. Without one: results/runs, or results/ if
it is empty.

--against compares with another baseline than RoPE: with a scheme (`--against roper`), or each run
with the one that `init_from` began it from (`--against parent`). --contender names the scheme that
the verdicts are about (`--contender mine`; default: one of your own, otherwise RoPER). Runs are
paired by seed, your own with kept ones too: `rope-lab results results/runs results`.

Keeping is atomic, also if several processes keep at once. README.md and the figures follow; if that
is interrupted, the next call without --keep makes them. `rope-lab report` draws all charts, also
those that no page shows.
"""

import sys
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path

from rope_lab import command
from rope_lab.places import OWN, RESULTS
from rope_lab.results.plans import families, find
from rope_lab.results.plans import study as studies
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.folders import (
    ByFolder,
    folders_of_runs,
    is_kept,
    one_each,
    read_all,
    with_those_below,
)
from rope_lab.results.records.kept import keep
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import Setup
from rope_lab.results.views import against, paper
from rope_lab.results.views.pages import Content, publish, shown, text
from rope_lab.results.views.terminal import say_markdown
from rope_lab.results.views.verdicts import sentences
from rope_lab.text import argument_parser, errors_as_exit, say, short_path


def worth_keeping(run: Run) -> Run:
    """The run with the curves to keep: those of evaluations, and of metrics with thresholds."""
    report = Published().report(run.task, run.metrics, run.settings)
    used = {threshold.metric for threshold in report.thresholds.values()}
    curves = {
        name: curve
        for name, curve in run.curves.items()
        if name.startswith("eval/") or name in used
    }
    return replace(run, curves=curves)


def beside_own(folders: list[Path]) -> tuple[ByFolder, list[str]]:
    """The runs of the folders, and problems. Beside run folders, which hold one's own runs, folders
    of kept runs and those below them give only runs of the same recipes, and none of plans.
    """
    own = [folder for folder in folders if not is_kept(folder)]
    below = [path for folder in folders for path in with_those_below(folder)]
    paths = [path for path in below if path in folders or (own and not studies.of_rows(path))]
    # of two with one seed the last counts
    found, problems = read_all(sorted(paths, key=is_kept, reverse=True))
    recipes = {run.recipe_id for folder in own or folders for run in found[folder]}
    for path, runs in found.items():
        found[path] = [run for run in runs if run.recipe_id in recipes]
    return found, problems


def arguments_parser() -> ArgumentParser:
    parser = argument_parser("results", __doc__)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    one = parser.add_mutually_exclusive_group()
    one.add_argument(
        "--keep",
        action="store_true",
        help="add the runs to your own kept ones in results/mine, and rebuild that",
    )
    one.add_argument("--print", action="store_true", help="write nothing, only print the tables")
    into = "keep them there instead, or write the pages there"
    parser.add_argument("--into", type=Path, metavar="FOLDER", help=into)
    replaces = "with --keep: other numbers replace those that are kept"
    parser.add_argument("--replace", action="store_true", help=replaces)
    for_paper = "also write tables as LaTeX and CSV, figures as PDF, into paper/ beside the pages"
    parser.add_argument("--paper", action="store_true", help=for_paper)
    parser.add_argument("--against", metavar="SCHEME", help="or `parent`; default: rope")
    parser.add_argument(
        "--contender", metavar="SCHEME", help="of verdicts; default: your only scheme, else roper"
    )
    return parser


@errors_as_exit()
def main(arguments: list[str] | None = None) -> None:
    parser = arguments_parser()
    given = parser.parse_args(arguments)
    if given.replace and not given.keep:
        parser.error("--replace: is about kept runs, so that it needs --keep")
    folders = folders_of_runs(given.folders)
    out = given.into or (RESULTS / OWN if given.keep else folders[0])
    asks = bool(given.against or given.contender)
    planned = any(map(studies.of_rows, (out, *folders)))
    if asks and planned:
        sys.exit("planned comparisons are tested as planned and nowhere else")
    published = Published().but(compares=not planned)
    found, problems = beside_own(folders)
    if given.keep:
        runs, unlike = one_each(*found.values())
        out.mkdir(parents=True, exist_ok=True)
        keep(list(map(worth_keeping, runs)), out, given.replace)
        found, wrong = beside_own([out])
        problems += unlike + wrong
    setups, wrong = _setups(found, published)
    if given.against == against.PARENT:
        say_markdown(shown(against.parents(setups)))
        return
    if asks or not (planned or is_kept(out)):
        published = against.question(published, setups, given.contender, given.against)
        setups, _ = _setups(found, published)
    studied, of_plan = families.read(out / studies.NAME, published)
    content = Content(setups, published, of_plan + problems + wrong, studied)
    _print(content)
    if setups and not given.print:
        _write(out, content, stays=asks and is_kept(out), for_paper=given.paper)


def _write(out: Path, content: Content, stays: bool, for_paper: bool) -> None:
    """Write the pages, unless they stay as they are, and the files for a paper."""
    if stays:
        say("nothing is written: the pages beside kept runs stay; --into FOLDER writes others")
    else:
        out.mkdir(parents=True, exist_ok=True)
        pages = ", ".join(map(short_path, publish(out, content)))
        say(f"written: {pages} and the figures beside")
    if for_paper:
        say(f"written: {short_path(paper.write(out, content))}")


def _print(content: Content) -> None:
    say_markdown("\n".join([text(content), *sentences(content.verdicts, content.published)]))
    if content.published.compares:
        say(against.HINT.format(content.published.titles[0]))


def _setups(found: ByFolder, published: Published) -> tuple[list[Setup], list[str]]:
    """The setups of runs, those of a folder's studies by study; and problems."""
    planned = []
    runs, problems = one_each(*found.values())
    for folder, part in found.items():
        of_plan, wrong = find.with_runs(studies.of_rows(folder), part)
        planned += of_plan
        problems += wrong
    return find.setups_with_studies(runs, published, planned), problems


if __name__ == "__main__":
    command.begin()
    main()
