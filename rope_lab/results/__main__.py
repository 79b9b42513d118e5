"""Tables and figures: `python -m rope_lab.results [FOLDER…]`.

A FOLDER holds run folders, or is one, or holds kept rows (`results/` in the repository does). What comes out is written
beside what went in: README.md and figures/ in the first FOLDER. Without one: results/runs, or results/ if it is empty.

Kept rows are always whole, however many processes keep at once and whenever one is killed. README.md and the figures
are made from them afterwards and may lag behind; the next call without --keep makes them anew.
"""

import argparse
import os
import re
import sys
from pathlib import Path

from rope_lab.files import check_regular, make_folder, read_file, write_whole
from rope_lab.results import figures, plan, rows, tables
from rope_lab.results.groups import Group, group, load_published, worth_keeping
from rope_lab.results.kept import keep
from rope_lab.text import say

RESULTS = Path(__file__).resolve().parent.parent.parent / "results"
BEGIN, END = "<!-- generated from here -->", "<!-- to here -->"
PLANNED = "These comparisons were planned: they are tested as planned, and nowhere else ([plan.md](../plan.md))."
SHOWN = re.compile(rf"\(figures/([\w-]+-(?:{'|'.join(figures.KINDS)})\.svg)\)")  # a figure in README.md


def report(
    groups: list[Group],
    published: dict,
    problems: list[str],
    pictures: dict[str, dict[str, bytes]],
    planned: bool = False,
) -> str:
    """Everything that the rows say, as Markdown; `pictures`, the figures of each group's recipe by their names.

    Rows of `planned` comparisons are shown without differences and tests, which are the plan's.
    """
    parts = [PLANNED] if planned else [tables.comparison(groups, published)]
    for g in groups:
        parts += [f"## {tables.escaped(g.title)}, scale {g.scale}", tables.schemes(g, published, tested=not planned)]
        parts += [make(g, published) for make in (tables.turns, tables.lengths, tables.details)]
        parts += [f"![{Path(name).stem}](figures/{name})" for name in pictures.get(g.recipe_id, {})]
    if problems:
        parts.append("## Not counted\n\n" + "\n".join(f"- **{tables.escaped(problem)}**" for problem in problems))
    return "\n\n".join(part for part in parts if part) + "\n"


def publish(out: Path, groups: list[Group], published: dict, problems: list[str], planned: bool) -> int:
    """Draws, then replaces README.md and the figures in `out`; how many figures that are.

    Text around the marks in README.md stays. Of the figures there, those are removed that it showed between its marks
    and no longer does. Raises OSError, and ValueError where README.md has no such marks.
    """
    before, old, after = _parts(out / "README.md")
    drawn = figures.draw(groups, published)
    files = {name: content for pictures in drawn.values() for name, content in pictures.items()}
    page = f"{before}{BEGIN}\n\n{report(groups, published, problems, drawn, planned)}\n{END}{after}".encode()
    make_folder(out / "figures")
    for name, content in files.items():
        write_whole(out / "figures" / name, content)
    write_whole(out / "README.md", page)
    for name in set(SHOWN.findall(old)) - set(files):
        stale = out / "figures" / name
        if stale.is_file() and not stale.is_symlink():
            stale.unlink()
    return len(files)


def _parts(readme: Path) -> tuple[str, str, str]:
    """The text before the marks of a README, between them and after them."""
    check_regular(readme)
    text = read_file(readme).decode() if readme.exists() else f"# Results\n\n{BEGIN}\n{END}\n"
    if BEGIN not in text or END not in text:
        raise ValueError(f"has no marks {BEGIN} and {END} to write between")
    return text.partition(BEGIN)[0], text.partition(BEGIN)[2].partition(END)[0], text.partition(END)[2]


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

    runs, problems = [], []
    for folder in folders:
        found, wrong = rows.read(folder)
        runs, problems = runs + found, problems + wrong
    once = {run.source.run_id: run for run in runs}
    problems += [
        f"{rows.describe(r.source)} was found more than once; one is shown"
        for r in runs
        if r is not once[r.source.run_id]
    ]
    published, runs, out = load_published(), list(once.values()), folders[0]
    if given.keep:
        out = given.into
        try:
            out.mkdir(parents=True, exist_ok=True)
            keep([worth_keeping(run, published) for run in runs], out)
        except ValueError as error:
            sys.exit(f"{out}: {error}; mend that first")
        except OSError as error:
            sys.exit(f"{out}: cannot be written ({error.strerror}); what was kept there stays as it was")
        runs, kept_problems = rows.read(out)
        problems += kept_problems

    groups = group(runs, published)
    try:
        planned = plan.covers(out)
    except plan.PlanError as error:
        sys.exit(f"{out.resolve().parent / plan.NAME}: {error}")
    say(report(groups, published, problems, {}, planned))
    if given.print or not groups:
        return
    try:
        count = publish(out, groups, published, problems, planned)
    except ValueError as error:
        sys.exit(f"{out / 'README.md'}: {error}")
    except OSError as error:
        sys.exit(f"{error.filename or out}: cannot be written ({error.strerror})")
    say(f"written: {os.path.relpath(out / 'README.md')} and {count} figures beside it")


if __name__ == "__main__":
    main()
