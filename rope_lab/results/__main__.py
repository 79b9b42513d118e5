"""Tables and figures: `python -m rope_lab.results [FOLDER…]`.

A FOLDER holds run folders, or is one, or holds kept rows (`results/` in the repository does). What comes out is written
beside what went in: README.md and figures/ in the first FOLDER. Without one: results/runs, or results/ if it is empty.
"""

import argparse
import os
import sys
from pathlib import Path

from rope_lab.files import say, write_whole
from rope_lab.results import figures, rows, tables
from rope_lab.results.groups import Group, group, load_published, worth_keeping

RESULTS = Path(__file__).resolve().parent.parent.parent / "results"
BEGIN, END = "<!-- generated from here -->", "<!-- to here -->"


def report(groups: list[Group], published: dict, problems: list[str], pictures: dict[str, list[str]]) -> str:
    """Everything that the rows say, as Markdown; `pictures`, the figures of each group's recipe."""
    parts = [tables.comparison(groups, published)]
    for g in groups:
        parts.append(f"## {g.title}, scale {g.scale}")
        parts += [make(g, published) for make in (tables.schemes, tables.turns, tables.lengths, tables.details)]
        parts += [f"![{Path(p).stem}]({p})" for p in pictures.get(g.recipe_id, [])]
    if problems:
        parts.append("## Not counted\n\n" + "\n".join(f"- **{p}**" for p in problems))
    return "\n\n".join(part for part in parts if part) + "\n"


def write(text: str, path: Path) -> None:
    """Puts `text` between the marks of a file, so that what people wrote around them stays."""
    old = path.read_text() if path.exists() else f"# Results\n\n{BEGIN}\n{END}\n"
    if BEGIN not in old or END not in old:
        raise SystemExit(f"{path} has no marks {BEGIN} and {END} to write between")
    before, after = old.partition(BEGIN)[0], old.partition(END)[2]
    write_whole(path, f"{before}{BEGIN}\n\n{text}\n{END}{after}".encode())


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
        out.mkdir(parents=True, exist_ok=True)
        try:
            rows.keep([worth_keeping(run, published) for run in runs], out)
        except ValueError as error:
            sys.exit(f"{out}: {error}; mend that first")
        except OSError as error:
            sys.exit(f"{out}: cannot be written ({error.strerror}); what was kept there stays as it was")
        runs, kept_problems = rows.read(out)
        problems += kept_problems

    groups = group(runs, published)
    say(report(groups, published, problems, {}))
    if given.print or not groups:
        return
    drawn = figures.draw(groups, published, out / "figures")
    pictures = {recipe: [f"figures/{path.name}" for path in paths] for recipe, paths in drawn.items()}
    write(report(groups, published, problems, pictures), out / "README.md")
    say(f"written: {os.path.relpath(out / 'README.md')} and {sum(map(len, drawn.values()))} figures beside it")


if __name__ == "__main__":
    main()
