"""The pages of a folder of results: README.md with the verdicts, and a page a task if the folder has one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from rope_lab.files import check_regular, make_folder, read_file, write_whole
from rope_lab.results import figures, sections, sweeps
from rope_lab.results import verdicts as verdicts_of
from rope_lab.results.groups import Group
from rope_lab.results.outcomes import Outcome
from rope_lab.results.published import Published
from rope_lab.results.sweeps import Sweep
from rope_lab.results.tables import Section, Strong, bullets, escaped, markdown
from rope_lab.results.verdicts import OPEN, Verdict
from rope_lab.text import ConfigError

INDEX = "README.md"
BEGIN, END = "<!-- generated from here -->", "<!-- to here -->"
PLANNED = "These comparisons were planned: they are tested as planned, and nowhere else ([plan.md](../plan.md))."
FOLDED = "<details><summary>Every seed, and where the runs come from</summary>"
ALT = {
    "verdicts": "published and measured gains, with their intervals",
    "curves": "learning curves",
    "lengths": "scores by length of problem",
    "sweep": "final scores against the setting",
}

Links = dict[Group | Sweep, str]  # the name of the figure of each


@dataclass(frozen=True)
class Content:
    """The runs of a folder, and how to show them.

    planned:  whether they are of planned comparisons, and so shown without differences and tests
    outcomes: of the plan in the folder
    asked:    the answer to `--against`, which comes first
    problems: what could not be read or counted
    """

    groups: list[Group]
    published: Published
    problems: list[str] = field(default_factory=list)
    planned: bool = False
    outcomes: list[Outcome] = field(default_factory=list)
    asked: Section | None = None

    @cached_property
    def verdicts(self) -> list[Verdict]:
        return [] if self.planned else verdicts_of.verdicts(self.groups, self.outcomes, self.published)

    @property
    def has_forest(self) -> bool:
        """Whether there are verdicts enough for a figure."""
        return sum(verdict.word != OPEN for verdict in self.verdicts) > 2

    @cached_property
    def shown(self) -> list[Group | Sweep]:
        """What has a section, in order: the groups, and in the place of the first that a sweep holds, the sweep."""
        within = {group: sweep for sweep in reversed(sweeps.find(self.groups)) for group in sweep.others.values()}
        return list(dict.fromkeys(within.get(group, group) for group in self.groups))

    @cached_property
    def sections(self) -> dict[str, Section]:
        """The section of each group and sweep in `shown`, by its recipe_id."""
        exploratory = {(v.report.title, v.scale): v for v in self.verdicts if not v.planned}
        made = {}
        for each in self.shown:
            if isinstance(each, Sweep):
                made[each.recipe_id] = sweeps.section(each, not self.planned)
            else:
                verdict = None if each.variant else exploratory.get((each.report.title, each.scale))
                made[each.recipe_id] = sections.section(each, verdict, not self.planned)
        return made


def text(content: Content) -> str:
    """Everything as Markdown, without figures."""
    parts = [_section(content.asked)] if content.asked else []
    parts += [verdict_table(content), _sections(content, content.shown, {}), problems(content)]
    return "\n\n".join(filter(None, parts)) + "\n"


def publish(out: Path, content: Content) -> list[Path]:
    """Writes figures and the generated parts of the pages in `out`; returns the pages.

    A task's groups are on the page that published.yaml names if `out` has it, else in README.md. Text around the marks
    stays. Raises OSError, and ConfigError for a page without such marks.
    """
    pages: dict[str, list[Group | Sweep]] = {}
    for each in content.shown:
        page = each.report.page
        pages.setdefault(page if page and (out / page).exists() else INDEX, []).append(each)
    drawn = figures.draw(content.shown)
    links = {each: name for each, (name, _) in drawn.items()}
    made = {page: _sections(content, shown, links) for page, shown in pages.items()}
    made[INDEX] = _index(content, pages, links, made.get(INDEX, ""))
    pieces = {out / page: _between(out / page, generated) for page, generated in made.items()}
    files = dict(drawn.values())
    if content.has_forest:
        files[figures.FOREST] = figures.forest(content.verdicts, content.published.title(content.published.contender))
    if files:
        make_folder(out / "figures")
    for path, piece in [*((out / "figures" / name, svg) for name, svg in files.items()), *pieces.items()]:
        write_whole(path, piece)
    return list(pieces)


def _index(content: Content, pages: dict[str, list[Group | Sweep]], links: Links, own: str) -> str:
    """README.md: the verdicts, a figure of each page, and the sections that are on no other page."""
    parts = [_section(content.asked)] if content.asked else []
    parts += [_figure(figures.FOREST)] if content.has_forest else []
    parts.append(PLANNED if content.planned else verdict_table(content))
    for page, shown in pages.items():
        if page != INDEX:
            parts.append(f"## [{escaped(shown[0].report.title)}]({page})")
            parts.append(_figure(links.get(shown[0])))
    return "\n\n".join(filter(None, [*parts, own, problems(content)]))


def verdict_table(content: Content) -> str:
    """Whether the contender beats the baseline, on each task."""
    found = verdicts_of.table(content.verdicts, content.published)
    legend = verdicts_of.legend(content.verdicts, content.published)
    return "\n\n".join(filter(None, [markdown(found), bullets(legend)]))


def _sections(content: Content, shown: Sequence[Group | Sweep], links: Links) -> str:
    return "\n\n".join(_section(content.sections[each.recipe_id], links.get(each)) for each in shown)


def _section(section: Section, figure: str | None = None) -> str:
    parts = [f"## {escaped(section.title)}", *map(markdown, section.shown), bullets(section.sentences)]
    parts += [_figure(figure), *map(markdown, section.more)]
    if section.folded:
        parts += [FOLDED, *map(markdown, section.folded), bullets(section.details), "</details>"]
    return "\n\n".join(filter(None, parts))


def problems(content: Content) -> str:
    """What could not be read or counted."""
    return f"## Not counted\n\n{bullets(map(Strong, content.problems))}" if content.problems else ""


def _figure(name: str | None) -> str:
    return f"![{ALT[Path(name).stem.rpartition('-')[2]]}](figures/{name})" if name else ""


def _between(page: Path, generated: str) -> bytes:
    """A page with another text between its marks, or a new page."""
    check_regular(page)
    try:
        text = read_file(page).decode() if page.exists() else f"# Results\n\n{BEGIN}\n{END}\n"
    except UnicodeDecodeError as error:
        raise ConfigError(f"{page} holds a byte that is not UTF-8, at {error.start}") from None
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ConfigError(f"{page} has no marks {BEGIN} and {END} to write between")
    return f"{before}{BEGIN}\n\n{generated}\n\n{END}{after}".encode()
