"""The pages of a folder of results: README.md with the verdicts, and a page a task where the folder has one."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from rope_lab.files import check_regular, make_folder, read_file, write_whole
from rope_lab.results import figures, sweep_figure, sweep_tables, sweeps, tables
from rope_lab.results.forest import forest
from rope_lab.results.groups import Group
from rope_lab.results.outcomes import Outcome
from rope_lab.results.published import Published
from rope_lab.results.sweeps import Sweep
from rope_lab.results.tables import as_markdown, bullets, escaped
from rope_lab.results.verdicts import Verdict, verdicts

INDEX = "README.md"
BEGIN, END = "<!-- generated from here -->", "<!-- to here -->"
FOREST = "verdicts.svg"
PLANNED = "These comparisons were planned: they are tested as planned, and nowhere else ([plan.md](../plan.md))."
FOLDED = "<details><summary>Every seed, and where the runs come from</summary>"
ALT = {  # what a figure shows, for who does not see it
    "verdicts": "published and measured gains, with their intervals",
    "curves": "learning curves",
    "scores": "scores after the last step",
    "slices": "scores by kind of problem",
    "lengths": "scores by length of problem",
    "sweep": "final scores against the setting, and the expected best against budget",
}
KINDS = "|".join((*figures.KINDS, "sweep", "charts"))  # those of before among them
SHOWN = re.compile(rf"\(figures/(verdicts\.svg|[\w-]+-(?:{KINDS})\.svg)\)")  # a figure of ours on a page


@dataclass(frozen=True)
class Content:
    """What is known of a folder's runs.

    planned:  whether they are of planned comparisons: they are then shown without differences and tests
    outcomes: of the plan in the folder
    asked:    what else was asked, answered in Markdown: it comes first
    problems: what could not be read or counted
    """

    groups: list[Group]
    published: Published
    problems: list[str] = field(default_factory=list)
    planned: bool = False
    outcomes: list[Outcome] = field(default_factory=list)
    asked: str = ""

    @cached_property
    def verdicts(self) -> list[Verdict]:
        return [] if self.planned else verdicts(self.groups, self.outcomes, self.published)

    @cached_property
    def sweeps(self) -> list[Sweep]:
        return sweeps.find(self.groups)

    @cached_property
    def shown(self) -> list[Group | Sweep]:
        """What has a section, in order: the groups, and in the place of the first that a sweep shows, this."""
        within = {group: sweep for sweep in reversed(self.sweeps) for group in sweep.others.values()}
        return list(dict.fromkeys(within.get(group, group) for group in self.groups))

    def verdict_of(self, group: Group) -> Verdict | None:
        """What was found of a group that was not planned; None of other recipes than the usual one."""
        mine = (v for v in self.verdicts if not v.planned and v.is_of(group))
        return None if group.variant else next(mine, None)

    @cached_property
    def section(self) -> Callable[[Group | Sweep], tuple[list[str], list[str]]]:
        """The parts of a section, those before its figures and those after them. Made once: it takes the longest."""
        return cache(lambda shown: (_section if isinstance(shown, Group) else _sweep_section)(self, shown))


def text(content: Content) -> str:
    """Everything that there is to say, as Markdown, without figures."""
    parts = [content.asked, verdict_table(content), sections(content, content.shown, {}), problems(content)]
    return "\n\n".join(part for part in parts if part) + "\n"


def publish(out: Path, content: Content) -> list[Path]:
    """Plots, then replaces figures and the generated parts of the pages in `out`; the pages.

    A task's groups are on the page that published.yaml names where `out` has it, else in README.md. Text around the
    marks stays. Of the figures there, those are removed that a page showed between its marks and no longer does.
    Raises OSError, and ValueError where a page has no such marks.
    """
    paged: dict[str, list[Group | Sweep]] = {}
    for each in content.shown:
        page = each.report.page
        paged.setdefault(page if page and (out / page).exists() else INDEX, []).append(each)
    plotted = figures.plot_all([each for each in content.shown if isinstance(each, Group)])
    plotted |= sweep_figure.plot_all([each for each in content.shown if isinstance(each, Sweep)])
    files = {name: svg for of_one in plotted.values() for name, svg in of_one.items()}
    if found := content.verdicts:
        files[FOREST] = forest(found, content.published.title(content.published.contender))
    made = {INDEX: index(content, paged, plotted)}
    made |= {page: sections(content, groups, plotted) for page, groups in paged.items() if page != INDEX}

    parts = {page: _parts(out / page) for page in made}
    make_folder(out / "figures")
    for name, svg in files.items():
        write_whole(out / "figures" / name, svg)
    for page, generated in made.items():
        before, _, after = parts[page]
        write_whole(out / page, f"{before}{BEGIN}\n\n{generated}\n{END}{after}".encode())
    for name in {name for _, old, _ in parts.values() for name in SHOWN.findall(old)} - set(files):
        stale = out / "figures" / name
        if stale.is_file() and not stale.is_symlink():
            stale.unlink()
    return [out / page for page in made]


def index(content: Content, paged: dict[str, list[Group | Sweep]], plotted: dict[str, dict[str, bytes]]) -> str:
    """README.md: the verdicts, a figure of each page, and what is on no other page."""
    parts = [PLANNED if content.planned else verdict_table(content)]
    if content.verdicts:
        parts.insert(0, _figure(FOREST))
    parts.insert(0, content.asked)
    for page, shown in paged.items():
        first = next((name for each in shown for name in plotted.get(each.recipe_id, ())), None)
        if page != INDEX:
            parts += [f"## [{escaped(shown[0].report.title)}]({page})", _figure(first) if first else ""]
    parts += [sections(content, paged.get(INDEX, []), plotted), problems(content)]
    return "\n\n".join(part for part in parts if part) + "\n"


def verdict_table(content: Content, short: bool = False) -> str:
    """Whether the contender beats the baseline, on each task."""
    pair = content.published.baseline, content.published.contender
    return tables.verdicts(content.verdicts, *(escaped(content.published.title(s)) for s in pair), short)


def put_verdicts(page: Path, content: Content, figures: str) -> None:
    """Writes the forest plot, found in the folder `figures`, and the verdicts between the marks of a page.

    Raises OSError, and ValueError where the page has no marks.
    """
    before, _, after = _parts(page)
    figure = f"![{ALT['verdicts']}]({figures}/{FOREST})\n\n" if content.verdicts else ""
    generated = f"{figure}{verdict_table(content, short=True)}"
    write_whole(page, f"{before}{BEGIN}\n\n{generated}\n\n{END}{after}".encode())


def sections(content: Content, shown: list[Group | Sweep], plotted: dict[str, dict[str, bytes]]) -> str:
    """A section for each of these, with its figures where they are plotted."""
    parts = []
    for each in shown:
        before, after = content.section(each)
        parts += [*before, *(_figure(name) for name in plotted.get(each.recipe_id, ())), *after]
    return "\n\n".join(part for part in parts if part)


def _sweep_section(content: Content, sweep: Sweep) -> tuple[list[str], list[str]]:
    """A sweep: scores by value, figure, what tuning gains; folded away, every seed and where the runs come from."""
    compared = not content.planned
    found = sweep_tables.tuned(sweep, compared)
    lines = [*sweep_tables.notes(sweep), *(f"**{escaped(warning)}**" for warning in sweep_tables.warnings(sweep))]
    before = [
        f"## {sweep_tables.heading(sweep)}",
        sweep_tables.scores(sweep, compared),
        bullets(lines),
    ]
    after = [
        f"{sweep_tables.TUNED}\n\n{found}" if found else "",
        FOLDED,
        sweep_tables.every_seed(sweep, compared),
        sweep_tables.origins(sweep, compared),
        "</details>",
    ]
    return before, after


def _section(content: Content, group: Group) -> tuple[list[str], list[str]]:
    """A group: its schemes, what is missing, its figures; folded away, every seed and where the runs come from."""
    verdict, compared = content.verdict_of(group), not content.planned
    lines = [*tables.notes(group, verdict, compared), *(f"**{escaped(warning)}**" for warning in group.warnings())]
    before = [
        f"## {escaped(group.title)}, scale {group.scale}",
        as_markdown(tables.schemes(group, verdict, compared)),
        bullets(lines),
    ]
    after = [
        as_markdown(*tables.rotations(group)),
        as_markdown(*tables.lengths(group)),
        FOLDED,
        as_markdown(tables.every_seed(group, compared)),
        bullets(tables.details(group, compared)),
        "</details>",
    ]
    return before, after


def problems(content: Content) -> str:
    """What could not be read or counted."""
    lines = bullets(f"**{escaped(problem)}**" for problem in content.problems)
    return f"## Not counted\n\n{lines}" if lines else ""


def _figure(name: str) -> str:
    return f"![{ALT.get(Path(name).stem.rpartition('-')[2], name)}](figures/{name})"


def _parts(page: Path) -> tuple[str, str, str]:
    """The text before the marks of a page, between them and after them."""
    check_regular(page)
    try:
        text = read_file(page).decode() if page.exists() else f"# Results\n\n{BEGIN}\n{END}\n"
    except UnicodeDecodeError as error:
        raise ValueError(f"{page} holds a byte that is not UTF-8, at {error.start}") from None
    before, begin, rest = text.partition(BEGIN)
    old, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no marks {BEGIN} and {END} to write between")
    return before, old, after
