"""Pages of schemes: docs/schemes, and docs/which.md: `python scripts/scheme_pages.py [NAME…]`.

Each is made from the class, its yaml file and the kept runs; rope-lab show prints it. With names,
only the pages of these schemes are made.
"""

import sys
from pathlib import Path

from rope_lab.files import make_folder, write_whole
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.shipped import choices, summary
from rope_lab.showing import facts, measured, which
from rope_lab.showing.command import FIGURE, PAGES, look
from rope_lab.showing.measured import Measured
from rope_lab.showing.page import page, picture

INDEX = """# Schemes

Each page has the formula, a picture that the scheme computes, its cost beside RoPE, its scores and
planned tests, and how to use it. `rope-lab show NAME` prints it; `rope-lab show ./mine.py --html
mine.html` makes one of your own scheme. [Which scheme for what](../which.md) begins with the goal.
"""


def write(names: list[str], kept: Measured, folder: Path = PAGES) -> None:
    """Write the pages and pictures of these schemes."""
    make_folder(folder / "figures")
    for name in names:
        shown = look(name, kept)
        figure = FIGURE.format(name)
        write_whole(folder / f"{name}.md", page(shown, figure).encode())
        write_whole(folder / figure, picture(shown.portrait))
        print(name)


def index() -> str:
    """The index of all pages, by kind."""
    catalogue, parts = Catalogue(), [INDEX]
    for kind, names in facts.by_kind().items():
        title, meaning = facts.kind_title(kind)
        rows = [f"## {title}", f"{meaning[:1].upper()}{meaning[1:]}."]
        table = ["| scheme | `position=` | what it does (linked to its paper) |", "|---|---|---|"]
        for name in names:
            link = f"[{catalogue.title(name)}]({name}.md)"
            table.append(f"| {link} | `{name}` | {summary('position', name)} |")
        parts.append("\n\n".join([*rows, "\n".join(table)]) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    make_folder(PAGES)
    write_whole(PAGES / "README.md", index().encode())
    kept = measured.read()
    write_whole(PAGES.parent / "which.md", which.page(kept).encode())
    write(sys.argv[1:] or choices("position"), kept)
