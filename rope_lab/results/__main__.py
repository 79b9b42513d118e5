"""Make tables and figures: `rope-lab results [FOLDER…]`.

A FOLDER holds run folders, or is one, or holds kept runs (`results/` in the repository does).
README.md and figures/ are written into the first FOLDER. Without one: results/runs, or results/ if
it is empty.

--against names another baseline than RoPE (`--against roper`), --contender the scheme that the
verdicts are about (`--contender mine`; default: the only one of your own, else
the only scheme besides the baseline, else RoPER). Runs are
paired by seed, your own with kept ones too: `rope-lab results results/runs results`.

Keeping is atomic, also if several processes keep at once. README.md and the figures follow; if that
is interrupted, the next call without --keep makes them. `rope-lab report` draws all charts, also
those that no page shows.
"""

import sys
from argparse import ArgumentParser
from pathlib import Path

from rope_lab import command
from rope_lab.places import OWN, RESULTS
from rope_lab.results.plans import outcomes
from rope_lab.results.plans import study as studies
from rope_lab.results.plans.setups import of_own_recipes, setups_of_folders, to_read
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.folders import (
    ByFolder,
    folders_of_runs,
    is_kept,
    one_each,
    read_all,
)
from rope_lab.results.records.kept import keep, worth_keeping
from rope_lab.results.views import against, paper
from rope_lab.results.views.headlines import sentences
from rope_lab.results.views.pages import Content, publish, text
from rope_lab.results.views.terminal import say_markdown
from rope_lab.text import Words, argument_parser, errors_as_exit, filled, say, short_path


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
    parser.add_argument("--against", metavar="SCHEME", help="the baseline; default: rope")
    parser.add_argument(
        "--contender", metavar="SCHEME", help="of verdicts; default: your only scheme"
    )
    return parser


@errors_as_exit()
def main(arguments: Words = None) -> None:
    parser = arguments_parser()
    given = parser.parse_args(arguments)
    if given.replace and not given.keep:
        parser.error("--replace: is about kept runs, so that it needs --keep")
    folders = folders_of_runs(given.folders)
    out = given.into or (RESULTS / OWN if given.keep else folders[0])
    asks = bool(given.against or given.contender)
    planned = any(map(studies.of_rows, (out, *folders)))
    if asks and planned:
        sys.exit("p values of planned comparisons are on the page of the plan only")
    catalogue = Catalogue(compares=not planned)
    found, problems = _read(folders)
    if given.keep:
        runs, unlike = one_each(*found.values())
        out.mkdir(parents=True, exist_ok=True)
        keep(list(map(worth_keeping, runs)), out, given.replace)
        found, wrong = _read([out])
        problems += unlike + wrong
    setups, wrong = setups_of_folders(found, catalogue)
    if asks or not (planned or is_kept(out)):
        catalogue = against.question(catalogue, setups, given.contender, given.against)
        setups, _ = setups_of_folders(found, catalogue)
    studied, of_plan = outcomes.read(out / studies.NAME, catalogue)
    content = Content(setups, catalogue, of_plan + problems + wrong, studied)
    _print(content)
    if setups and not given.print:
        _write(out, content, stays=asks and is_kept(out), for_paper=given.paper)


def _read(folders: list[Path]) -> tuple[ByFolder, list[str]]:
    found, problems = read_all(to_read(folders))
    return of_own_recipes(found, folders), problems


def _write(out: Path, content: Content, stays: bool, for_paper: bool) -> None:
    """Write the pages, unless they stay as they are, and the files for a paper."""
    if stays:
        stays_as_is = "nothing is written: the pages beside kept runs stay"
        say(filled(f"{stays_as_is}; --into FOLDER writes others"))
    else:
        out.mkdir(parents=True, exist_ok=True)
        pages = ", ".join(map(short_path, publish(out, content)))
        say(filled(f"written: {pages} and the figures beside"))
    if for_paper:
        say(f"written: {short_path(paper.write(out, content))}")


def _print(content: Content) -> None:
    say_markdown("\n".join([text(content), *sentences(content.headlines, content.catalogue)]))
    if content.catalogue.compares:
        say(filled(against.HINT.format(content.catalogue.titles[0])))


if __name__ == "__main__":
    command.begin()
    main()
