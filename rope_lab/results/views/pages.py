"""The pages of a folder of results: README.md with the verdicts, and a page for each task that has
one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rope_lab.files import check_regular, write_whole
from rope_lab.results.comparisons import grids
from rope_lab.results.comparisons.answers import Result
from rope_lab.results.comparisons.grids import Sweep
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.setups import Setup
from rope_lab.results.views import headlines, sections, sweeps
from rope_lab.results.views.tables import (
    Section,
    Strong,
    between,
    bullets,
    escaped,
    markdown,
    write_figures,
)

INDEX = "README.md"
FOREST = "verdicts"  # the name of its figure
BEGIN, END = "<!-- generated from here -->", "<!-- to here -->"
PLANNED = (
    "These runs belong to plans, or stand beside them: p values are on "
    "[the page of the plan](../plan.md) only."
)
EVERY = "Every seed, and where the runs come from"
ALT = {
    "verdicts": "published and measured gains, with their intervals",
    "curves": "learning curves",
    "lengths": "scores by length of problem",
    "sweep": "final scores against the setting",
}


@dataclass(frozen=True)
class Content:
    """The runs of a folder, and how to show them.

    studied: the results of each study of the plan in the folder
    problems: lines on runs that could not be read or counted
    title, below: on a page of several folders; `below` another one, whose verdicts lead the page
    """

    setups: list[Setup]
    catalogue: Catalogue
    problems: list[str]
    studied: list[list[Result]]
    title: str = ""
    below: bool = False

    @cached_property
    def headlines(self) -> list[Result]:
        return headlines.headlines(self.setups, self.studied, self.catalogue)

    @property
    def measured(self) -> list[Result]:
        """The verdicts of a forest plot; none if there are fewer than three."""
        found = [result for result in self.headlines if result.gain.n]
        return found if len(found) > 2 else []

    @cached_property
    def sections(self) -> dict[Setup | Sweep, Section]:
        """Of each sweep, and of each setup in none; a sweep stands in the place of its first
        setup.
        """
        shown_in: dict[Setup, Setup | Sweep] = {setup: setup for setup in self.setups}
        for sweep in reversed(grids.find(self.setups)):  # the longest last, and wins
            for setup in sweep.others:
                shown_in[setup] = sweep
        found = {}
        for each in shown_in.values():
            if each not in found:
                found[each] = self._section(each)
        return found

    def _section(self, each: Setup | Sweep) -> Section:
        if isinstance(each, Sweep):
            return sweeps.section(each)
        for headline in self.headlines:
            same = (headline.title, headline.comparison.scale) == (each.report.title, each.scale)
            if same and not (headline.family.planned or each.variant):
                return sections.section(each, headline)
        return sections.section(each, None)


def text(content: Content) -> str:
    """Everything as Markdown, without figures."""
    parts = [_headlines(content), *map(shown, content.sections.values()), _problems(content)]
    return _joined(parts) + "\n"


def publish(out: Path, content: Content) -> list[Path]:
    """Write figures and the generated parts of the pages in `out`; returns the pages.

    A task's setups are on the page that published.yaml names if `out` has it, else in README.md.
    Text around the marks stays. Raises OSError, and ConfigError for a page without such marks.
    """
    from rope_lab.results.views import figures, forest, render  # here: slow to import

    drawn = figures.draw(content.sections)
    files = {f"{figure.name}.svg": render.svg(figure.chart) for figure in drawn.values()}
    pages: dict[str, list[str]] = {INDEX: []}
    others = {}
    for each, section in content.sections.items():
        page = INDEX
        if each.report.page and (out / each.report.page).exists():
            page = each.report.page
            others[page] = f"[{escaped(each.report.title)}]({page})"
        here = pages.setdefault(page, [])
        figure = drawn[each].name if each in drawn else ""
        here.append(shown(section, figure, folded=bool(here)))
    lead = []
    if content.measured:
        files[f"{FOREST}.svg"] = render.svg(forest.forest(content.measured, content.catalogue))
        lead.append(_figure(FOREST))
    lead.append(_headlines(content) if content.catalogue.compares else PLANNED)
    lead.append(" · ".join(others.values()))
    pages[INDEX] = [*lead, *pages[INDEX], _problems(content)]
    written = {out / page: _between(out / page, _joined(parts)) for page, parts in pages.items()}
    write_figures(out, files)
    for path, whole in written.items():
        write_whole(path, whole)
    return list(written)


def _headlines(content: Content) -> str:
    """The verdicts on the contender: planned ones, and exploratory ones folded below them."""
    planned = [result for result in content.headlines if result.family.planned]
    rest = [result for result in content.headlines if not result.family.planned]
    tables = [markdown(headlines.table(found, content.catalogue)) for found in (planned, rest)]
    if all(tables):
        tables[1:] = _folded("Exploratory: what was not planned", tables[1:])
    return _joined([*tables, bullets(headlines.legend(content.headlines, content.catalogue))])


def shown(section: Section, figure: str = "", folded: bool = False) -> str:
    """A section as Markdown, with the figure of a name; `folded`: below its heading."""
    parts = [
        _figure(figure),
        markdown(section.table),
        bullets(section.sentences),
        markdown(section.more),
    ]
    if section.every_seed.rows:
        parts += _folded(EVERY, [markdown(section.every_seed), bullets(section.details)])
    if folded:
        parts = _folded("Tables and figures", parts)
    return _joined([f"## {escaped(section.title)}", *parts])


def _folded(title: str, parts: list[str]) -> list[str]:
    return [f"<details><summary>{title}</summary>", *parts, "</details>"]


def _problems(content: Content) -> str:
    """Unread and uncounted runs."""
    return f"## Not counted\n\n{bullets(map(Strong, content.problems))}" if content.problems else ""


def _figure(name: str) -> str:
    return f"![{ALT[name.rpartition('-')[2]]}](figures/{name}.svg)" if name else ""


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(filter(None, parts))


def _between(page: Path, generated: str) -> bytes:
    """A page with another text between its marks, or a new page."""
    check_regular(page)
    text = f"# Results\n\n{BEGIN}\n{END}\n"
    if page.exists():
        text = page.read_bytes().decode(errors="surrogateescape")
    whole = between(page, text, BEGIN, END, f"\n\n{generated}\n\n")
    return whole.encode(errors="surrogateescape")
