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
from rope_lab.files import check_ours, check_regular, write_whole
from rope_lab.report.contents import Recorded, contents, read_probes
from rope_lab.results.comparisons.answers import Result
from rope_lab.results.plans import outcomes
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.folders import (
    folders_of_runs,
    is_kept,
    one_each,
    read,
    with_those_below,
)
from rope_lab.results.records.setups import setups_of
from rope_lab.results.views import against
from rope_lab.text import Words, argument_parser, errors_as_exit, filled, say, short_path

MADE = "<!doctype html>\n<!-- made by python -m rope_lab.report"  # how each page begins


def _arguments(arguments: Words) -> Namespace:
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
def main(arguments: Words = None) -> None:
    given = _arguments(arguments)
    from rope_lab.report import page  # here: slow to import

    folders = folders_of_runs(given.folders)
    out = given.out or folders[0] / "report.html"
    check_regular(out)
    check_ours(out, MADE)
    recorded = {path: read(path) for folder in folders for path in with_those_below(folder)}
    runs, problems = one_each(*[found for found, _ in recorded.values()])
    catalogue = Catalogue()
    setups = setups_of(runs, catalogue)
    asks = bool(given.contender or given.against)
    if asks or not all(map(is_kept, folders)):
        catalogue = against.question(catalogue, setups, given.contender, given.against)
    shown = contents(folders, recorded, catalogue, asks)
    probed = []
    for folder in recorded:
        found, unread = read_probes(folder)
        probed += found
        problems += unread
    for part in shown:
        problems += part.problems
    if not any(part.setups for part in shown):
        sys.exit("\n".join([*problems, "nothing to report; `rope-lab train` makes a run"]))
    of_plans = _outcomes(folders, recorded, catalogue)
    html = page.render(shown, len(runs), probed, catalogue, of_plans, problems).encode()
    write_whole(out, html)
    size = len(html) / 1e6
    counts = f"{size:.1f} MB, runs: {len(runs)}"
    if problems:
        counts += f", problems: {len(problems)}, at the end of the page"
    line = f"written: {short_path(out)} ({counts}); any browser opens it"
    say(filled(line))
    if catalogue.compares:
        say(filled(against.HINT.format(catalogue.titles[0])))


def _outcomes(folders: list[Path], recorded: Recorded, catalogue: Catalogue) -> list[Result]:
    """The results of plans beside these folders, unless the folder of the plan is shown itself."""
    shown = [folder.resolve() for folder in recorded]
    found = []
    for folder in folders:
        if folder.resolve().parent not in shown:
            found += outcomes.beside(folder, catalogue)
    return found


if __name__ == "__main__":
    command.begin()
    main()
