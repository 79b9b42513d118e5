"""Tables and figures: `python -m rope_lab.results [FOLDER…]`.

A FOLDER holds run folders, or is one, or holds kept rows (`results/` in the repository does). What comes out is written
beside what went in: README.md and figures/ in the first FOLDER. Without one: results/runs, or results/ if it is empty.

What is kept is always whole, however many processes keep at once and whenever one is killed. README.md and the figures
are made from it afterwards and may lag behind; the next call without --keep rebuilds them.
"""

import argparse
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

from rope_lab.files import check_regular, make_folder, read_file, write_whole
from rope_lab.results import figures, studies, tables
from rope_lab.results.folders import read
from rope_lab.results.groups import Group, group
from rope_lab.results.kept import keep
from rope_lab.results.published import ROOT, Published
from rope_lab.results.runs import Run
from rope_lab.text import say

RESULTS = ROOT / "results"
BEGIN, END = "<!-- generated from here -->", "<!-- to here -->"
PLANNED = "These comparisons were planned: they are tested as planned, and nowhere else ([plan.md](../plan.md))."
SHOWN = re.compile(rf"\(figures/([\w-]+-(?:{'|'.join(figures.KINDS)})\.svg)\)")  # a figure in README.md


def report(
    groups: list[Group], problems: list[str], figures: dict[str, dict[str, bytes]], planned: bool = False
) -> str:
    """Everything that the records say, as Markdown; `figures`, those of each group's recipe by their names.

    Runs of `planned` comparisons are shown without differences and tests, which are the plan's.
    """
    parts = [PLANNED] if planned else [tables.comparison(groups)]
    for g in groups:
        parts += [f"## {tables.escaped(g.title)}, scale {g.scale}", tables.schemes(g, tested=not planned)]
        parts += [tables.rotations(g), tables.lengths(g), tables.details(g)]
        parts += [f"![{Path(name).stem}](figures/{name})" for name in figures.get(g.recipe_id, {})]
    if problems:
        parts.append("## Not counted\n\n" + "\n".join(f"- **{tables.escaped(problem)}**" for problem in problems))
    return "\n\n".join(part for part in parts if part) + "\n"


def publish(out: Path, groups: list[Group], problems: list[str], planned: bool) -> int:
    """Plots, then replaces README.md and the figures in `out`; how many figures that are.

    Text around the marks in README.md stays. Of the figures there, those are removed that it showed between its marks
    and no longer does. Raises OSError, and ValueError where README.md has no such marks.
    """
    before, old, after = _parts(out / "README.md")
    plotted = figures.plot_all(groups)
    files = {name: content for of_recipe in plotted.values() for name, content in of_recipe.items()}
    page = f"{before}{BEGIN}\n\n{report(groups, problems, plotted, planned)}\n{END}{after}".encode()
    make_folder(out / "figures")
    for name, content in files.items():
        write_whole(out / "figures" / name, content)
    write_whole(out / "README.md", page)
    for name in set(SHOWN.findall(old)) - set(files):
        stale = out / "figures" / name
        if stale.is_file() and not stale.is_symlink():
            stale.unlink()
    return len(files)


def worth_keeping(run: Run, published: Published) -> Run:
    """The run with the curves that are kept of it: those of evaluations, and those that thresholds are read from."""
    read = {threshold.metric for threshold in published.report(run.task, set(run.metrics)).thresholds}
    curves = {name: curve for name, curve in run.curves.items() if name.startswith("eval/") or name in read}
    return replace(run, curves=curves)


def _parts(readme: Path) -> tuple[str, str, str]:
    """The text before the marks of a README, between them and after them."""
    check_regular(readme)
    text = read_file(readme).decode() if readme.exists() else f"# Results\n\n{BEGIN}\n{END}\n"
    before, begin, rest = text.partition(BEGIN)
    old, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"has no marks {BEGIN} and {END} to write between")
    return before, old, after


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m rope_lab.results", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument(
        "--keep", action="store_true", help="add the runs to the rows kept in results/, and rebuild that"
    )
    parser.add_argument("--into", type=Path, default=RESULTS, metavar="FOLDER", help="keep them there instead")
    parser.add_argument("--print", action="store_true", help="write nothing, only print the tables")
    given = parser.parse_args(arguments)
    folders = given.folders or [RESULTS / "runs" if any((RESULTS / "runs").glob("*/run.json")) else RESULTS]
    missing = [str(f) for f in folders if not f.is_dir()]
    if missing:
        sys.exit(f"{', '.join(missing)}: no such folder")

    found = [read(folder) for folder in folders]
    runs, problems = ([each for part in parts for each in part] for parts in zip(*found, strict=True))
    once = {run.run_id: run for run in runs}
    problems += [f"{run} was found more than once; one is shown" for run in runs if run is not once[run.run_id]]
    published, runs, out = Published(), list(once.values()), folders[0]
    if given.keep:
        out = given.into
        try:
            out.mkdir(parents=True, exist_ok=True)
            keep([worth_keeping(run, published) for run in runs], out)
        except ValueError as error:
            sys.exit(f"{out}: {error}; mend that first")
        except OSError as error:
            sys.exit(f"{out}: cannot be written ({error.strerror}); what was kept there stays as it was")
        runs, kept_problems = read(out)
        problems += kept_problems

    groups = group(runs, published)
    try:
        planned = studies.covers(out)
    except studies.PlanError as error:
        sys.exit(f"{out.resolve().parent / studies.NAME}: {error}")
    say(report(groups, problems, {}, planned))
    if given.print or not groups:
        return
    try:
        count = publish(out, groups, problems, planned)
    except ValueError as error:
        sys.exit(f"{out / 'README.md'}: {error}")
    except OSError as error:
        sys.exit(f"{error.filename or out}: cannot be written ({error.strerror})")
    say(f"written: {os.path.relpath(out / 'README.md')} and {count} figures beside it")


if __name__ == "__main__":
    main()
