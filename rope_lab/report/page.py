"""The content of page.html: verdicts, a section for each folder with its recipes, and probes."""

import base64
import gzip
import json
import math
from pathlib import Path

import jinja2
import markupsafe

from rope_lab.report import figures
from rope_lab.results.comparisons.answers import Result
from rope_lab.results.comparisons.grids import Sweep
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.setups import Setup, seeds_text
from rope_lab.results.views import advice, headlines, plan_page, probes
from rope_lab.results.views import render as vega
from rope_lab.results.views.forest import forest
from rope_lab.results.views.pages import Content
from rope_lab.results.views.probes import Probed
from rope_lab.results.views.tables import Strong, number
from rope_lab.text import Record, plain, written

ORIGIN = [
    "run_id",
    "status",
    "steps",
    "numerics",
    "commit",
    "torch",
    "hardware",
    "threads",
    "parameters",
]


def render(
    folders: list[Content],
    count: int,
    probed: list[Probed],
    catalogue: Catalogue,
    outcomes: list[Result],
    problems: list[str],
) -> str:
    """The page, the same for the same records.

    count:    of all runs on it
    outcomes: of plans, to lead the page
    problems: lines on records that could not be read or counted
    """
    found, sections = [], []
    for content in folders:
        found += [] if content.below else content.headlines
        sections.append((content, [_section(content, each) for each in content.sections]))
    measured = [result for result in found if result.gain.n]
    drawing = vega.svg(forest(measured, catalogue), vega.CLEAR).decode() if measured else ""
    data = {
        "sections": [section["data"] for _, each in sections for section in each],
        "probed": [figures.of_attention(each.attention) for each in probed if each.attention],
        "two_runs": figures.two_runs(),
        "config": vega.CLEAR,
    }
    contender, baseline = catalogue.titles
    context = {
        "contender": contender,
        "baseline": baseline,
        "question": _question(found, outcomes, catalogue),
        "outcomes": [plan_page.claim(result, catalogue) for result in outcomes],
        "box": advice.section(found, catalogue),
        "count": count,
        "answers": headlines.sentences(found[:3], catalogue),
        "forest": markupsafe.Markup(drawing),
        "verdicts": headlines.table(found, catalogue),
        "legend": headlines.legend(found, catalogue),
        "folders": sections,
        "problems": problems,
        "probes": [(each, probes.table(each.outcomes, each.title(catalogue))) for each in probed],
        "data": _packed(json.dumps(data, separators=(",", ":"))),
        "library": _packed(vega.javascript()),
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


def _question(found: list[Result], outcomes: list[Result], catalogue: Catalogue) -> str:
    """The heading of the page: about the first plan if there is no verdict."""
    titles = catalogue.titles
    if outcomes and not found:
        ours, theirs = outcomes[0].comparison.arms
        titles = catalogue.title(ours.scheme), catalogue.title(theirs.scheme)
    return "Does {} beat {}?".format(*titles)


def _packed(text: str) -> str:
    """Compressed for the page, in letters without meaning in HTML."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _section(content: Content, shown: Setup | Sweep) -> Record:
    """A recipe or sweep: tables, charts, every run."""
    setups = shown.others if isinstance(shown, Sweep) else [shown]
    here = [seed for setup in setups for seed in setup.runs.seed]
    return {
        "section": content.sections[shown],
        "label": f"runs: {len(here)}, {seeds_text(set(here))}",
        "data": {"groups": list(map(_setup, setups)), "charts": figures.others(shown)},
    }


def _setup(setup: Setup) -> Record:
    """Every run with its value and origin, the settings of each scheme, and curves."""
    measure = setup.measure
    title = setup.catalogue.title
    values, settings = [], {}
    for run, scheme in zip(setup.runs.run, setup.runs.scheme, strict=True):
        value = measure.times * run.metrics.get(measure.metric, math.nan)
        values.append(number(value, measure.digits))
        every = sorted(run.all_settings.items())
        settings[title(scheme)] = {key: written(value) for key, value in every}
    runs = setup.runs[["scheme", "seed", *ORIGIN]].astype(str)
    runs["scheme"] = setup.runs.scheme.map(title)
    runs.insert(2, measure.unit, values)
    return {
        "title": f"{setup.title}, {setup.scale}",
        "variant": setup.variant,  # the settings that tell it from others of its task and scale
        "columns": list(runs),
        "runs": runs.to_numpy().tolist(),
        "settings": settings,
        "curves": figures.curves(setup),
    }
