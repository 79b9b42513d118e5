"""Make one HTML page of verdicts, charts and runs: `rope-lab report [FOLDER…] [--out FILE.html]`.

A FOLDER holds run folders, or is one, or holds kept runs; those in folders below it then come with
it. Without one: results/runs, or results/ if it is empty. Your own runs lead the page, paired by
seed with those of all FOLDERs: `rope-lab report results/runs results`. The page opens from disk in
any browser and needs no network.

Its question is whether RoPER beats RoPE, or whether your own scheme does if the runs have just one;
otherwise `--contender SCHEME --against SCHEME`.
"""

import sys
from pathlib import Path

from rope_lab import command
from rope_lab.files import check_regular, write_whole
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
from rope_lab.results.records.run import DAMAGE, one_line
from rope_lab.results.records.setups import setups_of
from rope_lab.results.views import against, probes
from rope_lab.results.views.pages import Content
from rope_lab.text import argument_parser, errors_as_exit, say, short_path

MADE = b"<!doctype html>\n<!-- made by python -m rope_lab.report"  # how each page begins


def read_probes(folder: Path) -> tuple[list[probes.Probed], list[str]]:
    """The probes of the runs in a folder, and which of them cannot be read."""
    found, problems = [], []
    for path in sorted(
        [*folder.glob("probes.json"), *folder.glob("*/probes.json"), *folder.glob("probes/*.json")]
    ):
        try:
            found.append(probes.read(path))
        except DAMAGE as error:
            problems.append(
                one_line(f"{path.relative_to(folder)}: holds no probes ({type(error).__name__})")
            )
    return found, problems


def title(folder: Path) -> str:
    """The heading of the page in a folder, or the folder's name."""
    page = folder / "README.md"
    first = page.read_text("utf-8", "replace").partition("\n")[0] if page.is_file() else ""
    return one_line(first[2:] if first.startswith("# ") else folder.resolve().name, 80)


def _check_out(out: Path) -> None:
    """Exits if the page cannot be written there, or would replace a file of others."""
    check_regular(out)
    if out.exists() and not out.read_bytes().startswith(MADE):
        sys.exit(f"{out}: was not made by this command, and stays as it is; give another --out")
    if not out.parent.is_dir():
        sys.exit(f"{out}: {out.parent} does not exist")


@errors_as_exit()
def main(arguments: list[str] | None = None) -> None:
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
    given = parser.parse_args(arguments)
    from rope_lab.report import page  # here: slow to import

    folders = folders_of_runs(given.folders)
    out = given.out or folders[0] / "report.html"
    _check_out(out)
    recorded = {path: read(path) for folder in folders for path in with_those_below(folder)}
    published, shown, probed = Published(), [], []
    asks = given.contender or given.against
    own = [folder for folder in folders if not is_kept(folder)]
    each_once, unlike = one_each([run for runs, _ in recorded.values() for run in runs])
    every = setups_of(each_once, published)
    if asks or own:
        published = against.question(published, every, given.contender, given.against)
    # Of two runs of one scheme and seed the last counts: the user's own.
    kept = [folder for folder in folders if folder not in own and not studies.of_rows(folder)]
    ordered = [*kept, *reversed(own)]
    pooled = setups_of([run for folder in ordered for run in recorded[folder][0]], published)
    for folder, (runs, problems) in recorded.items():
        studied, wrong = families.read(folder / studies.NAME, published)
        found, unread = read_probes(folder)
        probed += found
        of_plan = studies.of_rows(folder)
        planned, twice = find.with_runs(of_plan, runs)
        here = published.but(compares=not of_plan)
        groups = find.setups_with_studies(runs, here, planned)
        if folder in own:
            ids = {run.run_id for run in runs}
            groups = [each for each in pooled if ids & {*each.runs.run_id}]
            pooled = [each for each in pooled if each not in groups]
        problems = unlike + problems + wrong + twice + unread
        unlike = []  # said once
        content = Content(groups, here, problems, studied)
        below = folder not in own if own else folder not in folders and not asks and here.compares
        tasks = ", ".join(dict.fromkeys(group.report.title for group in groups if studied))
        heading = tasks or title(folder)
        shown.append(page.Folder(folder.resolve().name, heading, content, below))
    # Those of a plan first.
    shown.sort(key=lambda folder: (folder.below, folder.content.published.compares))
    groups = [each for folder in shown for each in folder.content.groups]
    if not groups:
        problems = [problem for folder in shown for problem in folder.content.problems]
        sys.exit("\n".join([*problems, "nothing to report; `rope-lab train` makes a run"]))
    outcomes, pages = [], {path.resolve() for path in recorded}
    for folder in folders:
        if folder.resolve().parent not in pages:  # its plan has no page of its own here
            outcomes += families.beside(folder, published)
    html = page.render(shown, every, probed, published, outcomes).encode()
    write_whole(out, html)
    count = len({run_id for each in groups for run_id in each.runs.run_id})
    size = len(html) / 1e6
    say(f"written: {short_path(out)} ({size:.1f} MB, runs: {count}); any browser opens it")
    if published.compares:
        say(against.HINT.format(published.titles[0]))


if __name__ == "__main__":
    command.begin()
    main()
