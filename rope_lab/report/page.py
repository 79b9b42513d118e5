"""The content of page.html: verdicts, a section for each folder with its recipes, and probes."""

import base64
import gzip
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from rope_lab.places import ROOT
from rope_lab.report import figures
from rope_lab.results.comparisons.grids import Sweep
from rope_lab.results.comparisons.results import Result
from rope_lab.results.comparisons.words import word
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.run import Run, one_line
from rope_lab.results.records.setups import Setup, seeds
from rope_lab.results.views import advice, plan_page, probes, verdicts
from rope_lab.results.views import render as vega
from rope_lab.results.views.figures import verdicts as forest
from rope_lab.results.views.pages import Content
from rope_lab.results.views.probes import Probed
from rope_lab.results.views.tables import Strong, number
from rope_lab.text import plain, show

NAME = 120  # letters of a run's name
ORIGIN = (
    "run_id",
    "status",
    "steps",
    "numerics",
    "commit",
    "torch",
    "hardware",
    "threads",
    "parameters",
)


@dataclass(frozen=True)
class Folder:
    """A folder on the page; `below` another one, whose verdicts lead the page."""

    path: str
    title: str
    content: Content
    below: bool = False


def render(
    folders: list[Folder],
    every: list[Setup],
    probed: list[Probed],
    published: Published,
    outcomes: list[Result],
) -> str:
    """The page, the same for the same records.

    every:    the groups of all runs on it
    outcomes: of plans, to lead the page
    """
    contender, baseline = published.titles
    found = [
        verdict for folder in folders if not folder.below for verdict in folder.content.verdicts
    ]
    planned = any(not folder.content.published.compares for folder in folders)
    names = run_names([each for folder in folders for each in folder.content.groups])
    sections = []
    for folder in folders:
        own = [_section(folder, each, planned, names) for each in folder.content.sections]
        sections.append((folder, own))
    picture = ROOT / "docs" / f"{published.contender}.svg"
    millions = sorted(run.parameters / 1e6 for g in every for run in g.runs.run)
    sizes = [f"{float(f'{size:.2g}'):,g}M" for size in millions]
    span = " to ".join(dict.fromkeys([sizes[0], sizes[-1]]))
    data = {
        "sections": [section["data"] for _, each in sections for section in each],
        "probed": [figures.of_attention(each.attention) for each in probed if each.attention],
        "two_runs": figures.two_runs(),
        "config": vega.CLEAR,
    }
    context = {
        "contender": contender,
        "baseline": baseline,
        "question": _question(found, outcomes, published),
        "outcomes": [plan_page.claim(result, published) for result in outcomes],
        "box": advice.section(found, published),
        "about": f"{len(sizes):,} runs of models of {span} parameters",
        "picture": base64.b64encode(picture.read_bytes()).decode() if picture.is_file() else "",
        "answers": [(word(verdict), _answer(verdict)) for verdict in found[:3]],
        "planned": planned,
        "forest": _forest(found, published),
        "verdicts": verdicts.table(found, published),
        "legend": verdicts.legend(found, published),
        "folders": sections,
        "probes": [(p.attention, probes.table(p.outcomes, p.title(published))) for p in probed],
        "data": _packed(json.dumps(data, separators=(",", ":"))),
        "library": _packed(vega.library()),
    }
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        # Control characters are escaped.
        finalize=lambda value: plain(value) if type(value) in (str, Strong) else value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["strong"] = lambda value: isinstance(value, Strong)
    return environment.get_template("page.html").render(context)


def _question(found: list[Result], outcomes: list[Result], published: Published) -> str:
    """The heading of the page: about the first plan if there is no verdict."""
    titles = published.titles
    if outcomes and not found:
        asked = outcomes[0].comparison
        titles = published.title(asked.ours.scheme), published.title(asked.theirs.scheme)
    return "Does {} beat {}?".format(*titles)


def _forest(found: list[Result], published: Published) -> str:
    """The forest plot of the gains as SVG without a background; empty without any."""
    measured = [verdict for verdict in found if verdict.gain.n]
    if not measured:
        return ""
    drawn = forest(measured, published, vega.CLEAR).decode()
    return markupsafe.Markup(drawn)


def _packed(text: str) -> str:
    """Compressed for the page, in letters without meaning in HTML."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _answer(verdict: Result) -> str:
    gain = verdicts.in_unit(verdict)
    return f"{verdict.title}, {verdict.comparison.scale}: {gain}; {verdicts.basis(verdict)}"


def run_names(groups: list[Setup]) -> dict[str, str]:
    """A name for each run: scheme, seed, and settings in which runs of both, of one task and scale,
    differ.
    """
    alike: dict[tuple, list[Run]] = {}
    for group in groups:
        for run, scheme in zip(group.runs.run, group.runs.scheme, strict=True):
            key = (group.report.title, group.scale, group.published.title(scheme), run.seed)
            alike.setdefault(key, []).append(run)
    names = {}
    for (_, _, scheme, seed), runs in alike.items():
        keys = sorted({key for run in runs for key in run.recipe})
        differing = []
        for key in keys:
            if len({show(run.recipe.get(key)) for run in runs}) > 1:
                differing.append(key)
        for run in runs:
            own = [f"{key}={show(run.recipe[key])}" for key in differing if key in run.recipe]
            names[run.run_id] = one_line(", ".join([scheme, f"seed {seed}", *own]), NAME)
    return names


def _section(
    folder: Folder, shown: Setup | Sweep, planned: bool, names: dict[str, str]
) -> dict[str, Any]:
    """A recipe or sweep: tables, charts, settings, every run.

    planned: beside planned ones others are exploratory
    names: of all runs, by id
    """
    groups = list(shown.others.values()) if isinstance(shown, Sweep) else [shown]
    here = [seed for group in groups for seed in group.runs.seed]
    kind = ", planned" if groups[0].study else ", exploratory" if planned else ""
    of_runs = []
    for run in groups[0].runs.run:
        of_runs.append({f"{key}={show(value)}" for key, value in run.recipe.items()})
    settings = set.intersection(*of_runs)
    data = {"groups": [_group(each, names) for each in groups], "charts": figures.others(shown)}
    return {
        "section": folder.content.sections[shown],
        "label": f"{len(here)} run{'s' * (len(here) > 1)}, {seeds(set(here))}{kind}",
        "settings": " ".join(sorted(settings)),
        "data": data,
    }


def _group(group: Setup, names: dict[str, str]) -> dict[str, Any]:
    """Every run with its value and origin, the settings of each scheme, and curves."""
    metric, title, rows = group.measure, group.published.title, []
    for run in group.runs.itertuples():
        value = number(metric.times * run.run.metrics.get(metric.metric, math.nan), metric.digits)
        rows.append(
            [title(run.scheme), str(run.seed), value, *(str(getattr(run, name)) for name in ORIGIN)]
        )
    settings, first = {}, group.runs.drop_duplicates("scheme")
    for scheme, run in zip(first.scheme, first.run, strict=True):
        every = sorted(run.all_settings.items())
        settings[title(scheme)] = {key: show(value) for key, value in every}
    columns = ["scheme", "seed", metric.unit, *ORIGIN]
    shared = {
        "title": f"{group.title}, {group.scale}",
        "columns": columns,
        "runs": rows,
        "names": [names[run.run_id] for run in group.runs.run],
        "settings": settings,
    }
    return shared | {"curves": figures.curves(group)}
