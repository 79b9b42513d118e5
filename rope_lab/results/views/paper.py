"""Tables and figures for a paper: LaTeX, CSV and PDF of what the pages show."""

from pathlib import Path

from rope_lab.files import write_files
from rope_lab.results.views import headlines, tables
from rope_lab.results.views.pages import FOREST, Content
from rope_lab.results.views.tables import Table, unused

FOLDER = "paper"  # beside the pages


def write(out: Path, content: Content) -> Path:
    """Write every table of the pages as .tex and .csv, and every figure as .pdf, into a folder in
    `out`; returns that folder.
    """
    from rope_lab.results.views import figures, forest, render  # here: slow to import

    charts = {figure.name: figure.chart for figure in figures.draw(content.sections).values()}
    if content.measured:
        charts[FOREST] = forest.forest(content.measured, content.catalogue)
    files = {f"{name}.pdf": render.pdf(chart) for name, chart in charts.items()}
    for name, (title, table) in _tables(content).items():
        if table.rows:
            files[f"{name}.tex"] = tables.latex(table, title).encode()
            files[f"{name}.csv"] = tables.csv(table).encode()
    write_files(out / FOLDER, files)
    return out / FOLDER


def _tables(content: Content) -> dict[str, tuple[str, Table]]:
    """The title and the content of each table, by its name."""
    found = {FOREST: ("Verdicts", headlines.table(content.headlines, content.catalogue))}
    for each, section in content.sections.items():
        name = unused(found, f"{each.file}-{each.recipe_id}")
        found[name] = section.title, section.table
        found[f"{name}-more"] = section.title, section.more
        found[f"{name}-seeds"] = section.title, section.every_seed
    return found
