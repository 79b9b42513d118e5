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
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from rope_lab import command
from rope_lab.files import write_whole
from rope_lab.places import OWN, RESULTS
from rope_lab.results.plans import families, find
from rope_lab.results.plans import study as studies
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.folders import (
    folders_of_runs,
    is_kept,
    one_each,
    read,
    with_those_below,
)
from rope_lab.results.records.frame import tidy
from rope_lab.results.records.kept import keep
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import Setup, setups_of
from rope_lab.results.views import against
from rope_lab.results.views.pages import Content, publish, shown, text
from rope_lab.results.views.terminal import say_markdown
from rope_lab.results.views.verdicts import sentences
from rope_lab.text import ConfigError, argument_parser, errors_as_exit, say, short_path

Found = dict[Path, tuple[list[Run], list[str]]]  # the runs of each folder, and problems


def worth_keeping(run: Run, published: Published) -> Run:
    """The run with the curves to keep: those of evaluations, and of metrics with thresholds."""
    thresholds = published.report(run.task, set(run.metrics), run.settings).thresholds
    read = {threshold.metric for threshold in thresholds.values()}
    return replace(
        run, curves={k: v for k, v in run.curves.items() if k.startswith("eval/") or k in read}
    )


def beside_own(folders: list[Path]) -> Found:
    """The runs of the folders. Beside run folders, which hold one's own runs, folders of kept runs
    and those below them give only runs of the same recipes, and none of plans.
    """
    found = {folder: read(folder) for folder in folders}
    own = [folder for folder in folders if not is_kept(folder)]
    recipes = {run.recipe_id for folder in own for run in found[folder][0]}
    for folder in folders if own else []:
        for path in with_those_below(folder):
            if path in own or (path != folder and studies.of_rows(path)):
                continue
            runs, problems = found.get(path) or read(path)
            found[path] = [run for run in runs if run.recipe_id in recipes], problems
    ordered = sorted(found, key=is_kept, reverse=True)  # of two with one seed the last counts
    return {folder: found[folder] for folder in ordered}


def write_csv(path: Path, table: str) -> None:
    """Write a table of runs. Raises ConfigError if another file is there."""
    header = table.partition("\n")[0]
    if path.is_file():
        with path.open(errors="replace") as file:
            if file.readline().rstrip("\n") != header:
                raise ConfigError(f"--csv {path}: is another file already; name a new one")
    write_whole(path, table.encode())


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
    parser.add_argument(
        "--replace",
        action="store_true",
        help="with --keep: other numbers replace those that are kept",
    )
    parser.add_argument(
        "--csv", type=Path, metavar="FILE", help="write the frame there, one row per run and metric"
    )
    parser.add_argument("--against", metavar="SCHEME", help="or `parent`; default: rope")
    parser.add_argument(
        "--contender", metavar="SCHEME", help="of verdicts; default: your only scheme, else roper"
    )
    return parser


@errors_as_exit()
def main(arguments: list[str] | None = None) -> None:
    parser = arguments_parser()
    given = parser.parse_args(arguments)
    folders = folders_of_runs(given.folders)
    out = given.into or (RESULTS / OWN if given.keep else folders[0])
    if given.replace and not given.keep:
        parser.error("--replace: is about kept runs, so that it needs --keep")
    published = Published().but(compares=not any(map(studies.of_rows, (out, *folders))))
    asks = bool(given.against or given.contender)
    if asks:
        _check_question(parser, given, published)
    studied, problems = families.read(out / studies.NAME, published)
    found = beside_own(folders)
    runs, unlike = one_each([run for part, _ in found.values() for run in part])
    problems += _problems(found) + unlike
    if given.keep:
        if unlike and not given.replace:
            sys.exit(f"{unlike[0]}; name one of the folders, or --replace keeps the last found")
        runs, wrong = _keep(runs, out, given.replace)
        found = {out: (runs, wrong)}
        problems += wrong
    if given.csv:
        write_csv(given.csv, tidy(runs).to_csv(index=False))
    setups = _setups(runs, found, published, problems)
    if given.against == against.PARENT:
        say_markdown(shown(against.parents(setups)))
    else:
        asks_or_own = asks or (published.compares and not is_kept(out))
        if asks_or_own:
            published = against.question(published, setups, given.contender, given.against)
            setups = setups_of(runs, published)
        _show(given, out, Content(setups, published, problems, studied), asks)


def _show(given: Namespace, out: Path, content: Content, asks: bool) -> None:
    """Print the tables, and write the pages unless only printing was asked for."""
    _print(content)
    if content.groups and not given.print:
        _write(out, content, of_others=asks and not given.into)


def _check_question(parser: ArgumentParser, given: Namespace, published: Published) -> None:
    """Exits if --against or --contender cannot be asked of these runs."""
    if given.keep:
        about = "kept runs have pages about RoPER against RoPE"
        parser.error(f"{about}; ask --against and --contender without --keep")
    if not published.compares:
        planned = "planned comparisons are among these runs"
        sys.exit(f"{planned}, and are tested as planned and nowhere else")


def _keep(runs: list[Run], out: Path, replaces: bool) -> tuple[list[Run], list[str]]:
    """Keep runs in a folder; returns all that are kept there, and problems."""
    out.mkdir(parents=True, exist_ok=True)
    keep([worth_keeping(run, Published()) for run in runs], out, replaces)
    return read(out)


def _print(content: Content) -> None:
    say_markdown("\n".join([text(content), *sentences(content.verdicts, content.published)]))
    if content.published.compares:
        say(against.HINT.format(content.published.titles[0]))


def _write(out: Path, content: Content, of_others: bool) -> None:
    """Write the pages; not over those of kept runs if they are of other schemes than asked for."""
    if of_others and is_kept(out):
        pages = f"the pages beside kept runs are against {Published().baseline}"
        say(f"nothing is written: {pages}; --into FOLDER writes")
        return
    out.mkdir(parents=True, exist_ok=True)
    written = ", ".join(map(short_path, publish(out, content)))
    say(f"written: {written} and the figures beside")


def _problems(found: Found) -> list[str]:
    return [problem for _, problems in found.values() for problem in problems]


def _setups(
    runs: list[Run],
    found: Found,
    published: Published,
    problems: list[str],
) -> list[Setup]:
    """The setups of runs; those of a folder's studies are by study. Adds to the problems."""
    planned = []
    for folder, (part, _) in found.items():
        of_plan, wrong = find.with_runs(studies.of_rows(folder), part)
        planned += of_plan
        problems += wrong
    return find.setups_with_studies(runs, published, planned)


if __name__ == "__main__":
    command.begin()
    main()
