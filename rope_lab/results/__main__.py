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
from dataclasses import replace
from pathlib import Path

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
from rope_lab.results.records.setups import setups_of
from rope_lab.results.views import against
from rope_lab.results.views.pages import Content, publish, shown, text
from rope_lab.results.views.verdicts import sentences
from rope_lab.text import argument_parser, errors_as_exit, say, short_path


def worth_keeping(run: Run, published: Published) -> Run:
    """The run with the curves to keep: those of evaluations, and of metrics with thresholds."""
    thresholds = published.report(run.task, set(run.metrics), run.settings).thresholds
    read = {threshold.metric for threshold in thresholds.values()}
    return replace(
        run, curves={k: v for k, v in run.curves.items() if k.startswith("eval/") or k in read}
    )


def beside_own(folders: list[Path]) -> tuple[list[Path], list[tuple[list[Run], list[str]]]]:
    """The folders and what is read from each. If some hold run folders, one's own runs, others give
    their kept runs of the same recipes, and so do folders of kept runs below them, but for those of
    plans.
    """
    own = [folder for folder in folders if not is_kept(folder)]
    found = {folder: read(folder) for folder in folders}
    recipes = {run.recipe_id for folder in own for run in found[folder][0]}
    kept = [folder for folder in folders if folder not in own] if own else []
    for folder in kept:
        for path in with_those_below(folder):
            if path != folder and studies.of_rows(path):
                continue
            runs, problems = found.get(path) or read(path)
            found[path] = [run for run in runs if run.recipe_id in recipes], problems
    ordered = sorted(found, key=is_kept, reverse=True)  # of two with one seed the last counts
    return ordered, [found[folder] for folder in ordered]


@errors_as_exit()
def main(arguments: list[str] | None = None) -> None:
    parser = argument_parser("results", __doc__)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    one = parser.add_mutually_exclusive_group()
    one.add_argument(
        "--keep",
        action="store_true",
        help="add the runs to your own kept ones in results/mine, and rebuild that",
    )
    one.add_argument("--print", action="store_true", help="write nothing, only print the tables")
    parser.add_argument(
        "--into",
        type=Path,
        metavar="FOLDER",
        help="keep them there instead, or write the pages there",
    )
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
    given = parser.parse_args(arguments)
    folders = folders_of_runs(given.folders)
    out = given.into or (RESULTS / OWN if given.keep else folders[0])
    if given.replace and not given.keep:
        parser.error("--replace: is about kept runs, so that it needs --keep")
    asks = given.against or given.contender
    if asks and given.keep:
        parser.error(
            "kept runs have pages about RoPER against RoPE; ask --against and --contender without --keep"
        )
    published = Published().but(compares=not any(map(studies.of_rows, (out, *folders))))
    if asks and not published.compares:
        sys.exit(
            "planned comparisons are among these runs, and are tested as planned and nowhere else"
        )
    studied, problems = families.read(out / studies.NAME, published)

    folders, found = beside_own(folders)
    runs, unlike = one_each([run for part, _ in found for run in part])
    problems += [problem for _, part in found for problem in part] + unlike
    if given.keep:
        if unlike and not given.replace:
            sys.exit(f"{unlike[0]}; name one of the folders, or --replace keeps the last found")
        out.mkdir(parents=True, exist_ok=True)
        keep([worth_keeping(run, published) for run in runs], out, given.replace)
        runs, kept_problems = read(out)
        folders, found = [out], [(runs, kept_problems)]
        problems += kept_problems

    if given.csv:
        write_whole(given.csv, tidy(runs).to_csv(index=False).encode())
    planned = []
    for folder, (part, _) in zip(folders, found, strict=True):
        of_plan, wrong = find.with_runs(studies.of_rows(folder), part)
        planned += of_plan
        problems += wrong
    groups = find.setups_with_studies(runs, published, planned)
    if given.against == against.PARENT:
        say(shown(against.parents(groups)))
        return
    if asks or (published.compares and not is_kept(out)):
        published = against.question(published, groups, given.contender, given.against)
        groups = setups_of(runs, published)
    content = Content(groups, published, problems, studied)
    say("\n".join([text(content), *sentences(content.verdicts, published)]))
    if hint := against.hint(published, groups):
        say(hint)
    if given.print or not content.groups:
        return
    if asks and not given.into and is_kept(out):
        say(
            f"nothing is written: the pages beside kept runs are against {Published().baseline}; --into FOLDER writes"
        )
        return
    out.mkdir(parents=True, exist_ok=True)
    say(
        f"written: {', '.join(short_path(page) for page in publish(out, content))} and the figures beside"
    )


if __name__ == "__main__":
    main()
