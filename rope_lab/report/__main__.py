"""Make one HTML page of verdicts, charts and runs: `rope-lab report [FOLDER…] [--out FILE.html]`.

A FOLDER holds run folders, or is one, or holds kept runs; those in folders below it then come with
it. Without one: results/runs, or results/ if it is empty. Your own runs lead the page, paired by
seed with those of all FOLDERs: `rope-lab report results/runs results`. The page opens from disk in
any browser and needs no network.

Its question is whether RoPER beats RoPE, or whether your own scheme does if the runs have just one;
otherwise `--contender SCHEME --against SCHEME`.
"""

import sys
from argparse import Namespace
from pathlib import Path

from rope_lab import command
from rope_lab.files import check_regular, write_whole
from rope_lab.report.contents import contents, read_probes
from rope_lab.results.plans import families
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.folders import (
    folders_of_runs,
    is_kept,
    one_each,
    read,
    with_those_below,
)
from rope_lab.results.records.setups import setups_of
from rope_lab.results.views import against
from rope_lab.results.views.tables import check_ours
from rope_lab.text import argument_parser, errors_as_exit, say, short_path

MADE = "<!doctype html>\n<!-- made by python -m rope_lab.report"  # how each page begins


def _arguments(arguments: list[str] | None) -> Namespace:
    parser = argument_parser("report", __doc__)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument(
        "--out", type=Path, metavar="FILE.html", help="default: report.html in the first FOLDER"
    )
    parser.add_argument(
        "--contender", metavar="SCHEME", help="of verdicts; default: your only scheme, else roper"
    )
    parser.add_argument(
        "--against", metavar="SCHEME", help="the scheme that it is compared with (default: rope)"
    )
    return parser.parse_args(arguments)


@errors_as_exit()
def main(arguments: list[str] | None = None) -> None:
    given = _arguments(arguments)
    from rope_lab.report import page  # here: slow to import

    folders = folders_of_runs(given.folders)
    out = given.out or folders[0] / "report.html"
    check_regular(out)
    check_ours(out, MADE)
    recorded = {path: read(path) for folder in folders for path in with_those_below(folder)}
    each_once, problems = one_each([run for runs, _ in recorded.values() for run in runs])
    published = Published()
    every = setups_of(each_once, published)
    asks = bool(given.contender or given.against)
    if asks or not all(map(is_kept, folders)):
        published = against.question(published, every, given.contender, given.against)
    shown, probed, groups = contents(folders, recorded, published, asks), [], []
    for folder in recorded:
        found, unread = read_probes(folder)
        probed += found
        problems += unread
    for part in shown:
        problems += part.content.problems
        groups += part.content.groups
    if not groups:
        sys.exit("\n".join([*problems, "nothing to report; `rope-lab train` makes a run"]))
    outcomes = []
    for folder in folders:
        if folder.resolve().parent not in map(Path.resolve, recorded):  # else on its plan's page
            outcomes += families.beside(folder, published)
    html = page.render(shown, every, probed, published, outcomes, problems).encode()
    write_whole(out, html)
    size = len(html) / 1e6
    say(f"written: {short_path(out)} ({size:.1f} MB, runs: {len(each_once)}); any browser opens it")
    if published.compares:
        say(against.HINT.format(published.titles[0]))


if __name__ == "__main__":
    command.begin()
    main()
