"""Tables and figures for a paper: LaTeX, CSV and PDF of what the pages show."""

from pathlib import Path

from rope_lab.files import write_files
from rope_lab.results.views import tables
from rope_lab.results.views.pages import Content

FOLDER = "paper"  # beside the pages


def write(out: Path, content: Content) -> Path:
    """Write every table of the pages as .tex and .csv, and every figure as .pdf, into a folder in
    `out`; returns that folder.
    """
    from rope_lab.results.views import figures, render  # here: slow to import

    _, drawn = figures.draw(content.sections, render.pdf)
    files = {name.replace(".svg", ".pdf"): content for name, content in drawn.items()}
    names: set[str] = set()
    for each, section in content.sections.items():
        name = figures.unused(names, f"{each.file}-{each.recipe_id}")
        names.add(name)
        parts = {"": section.table, "-more": section.more, "-seeds": section.folded}
        for part, table in parts.items():
            if table.rows:
                files[f"{name}{part}.tex"] = tables.latex(table, section.title).encode()
                files[f"{name}{part}.csv"] = tables.csv(table).encode()
    write_files(out / FOLDER, files)
    return out / FOLDER
