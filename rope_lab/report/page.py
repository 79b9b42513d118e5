"""The content of page.html: verdicts, a section for each folder with its recipes, and probes."""

import base64
import functools
import gzip
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import vl_convert
from matplotlib.ticker import MaxNLocator

from rope_lab.places import ROOT
from rope_lab.report import charts
from rope_lab.results.comparisons.grids import Sweep
from rope_lab.results.comparisons.results import Result
from rope_lab.results.comparisons.words import word
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.setups import Setup, seeds
from rope_lab.results.views import advice, against, plan_page, probes, verdicts
from rope_lab.results.views.pages import Content
from rope_lab.results.views.probes import Probed
from rope_lab.results.views.tables import Strong, number
from rope_lab.text import plain, show

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
    studied = [results for folder in folders for results in folder.content.studied]
    planned = any(not folder.content.published.compares for folder in folders)
    sections = [
        (folder, [_section(folder, each, planned) for each in folder.content.sections])
        for folder in folders
    ]
    picture = ROOT / "docs" / f"{published.contender}.svg"
    millions = sorted(run.parameters / 1e6 for g in every for run in g.runs.run)
    sizes = [f"{float(f'{size:.2g}'):,g}M" for size in millions]
    attention = [asdict(p.attention) for p in probed if p.attention]
    data = {
        "sections": [section["data"] for _, each in sections for section in each],
        "probed": attention,
    }
    context = {
        "contender": contender,
        "baseline": baseline,
        "question": _question(found, outcomes, published),
        "outcomes": [plan_page.claim(result, published) for result in outcomes],
        "box": advice.section(every, found, studied, published),
        "about": f"{len(sizes):,} runs of models of {' to '.join(dict.fromkeys([sizes[0], sizes[-1]]))} parameters",
        "picture": base64.b64encode(picture.read_bytes()).decode() if picture.is_file() else "",
        "answers": [
            (
                word(v),
                f"{v.title}, {v.comparison.scale}: {verdicts.gain_text(v)} {v.measure.unit};"
                f" {verdicts.basis(v)}",
            )
            for v in found[:3]
        ],
        "planned": planned,
        "hint": against.hint(
            published, [each for folder in folders for each in folder.content.groups]
        ),
        "strips": _strips(found, published),
        "verdicts": verdicts.table(found, published),
        "legend": verdicts.legend(found, published),
        "folders": sections,
        "probes": [(p.attention, probes.table(p.outcomes, p.title(published))) for p in probed],
        "data": _packed(json.dumps(data, separators=(",", ":"))),
        "library": _packed(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")),
    }
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=lambda value: (
            plain(value) if type(value) in (str, Strong) else value
        ),  # control characters
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


def _strips(found: list[Result], known: Published) -> list[dict[str, Any]]:
    """The gains on each task in each unit, on one axis; places on it are percent of its width."""
    strips: dict[tuple[str, str], list[Result]] = {}
    for v in found:
        if v.gain.n:
            strips.setdefault((v.title, v.measure.unit), []).append(v)
    made = []
    for (title, unit), here in strips.items():
        published = max((verdicts.published_gains(v, known) for v in here), key=len)
        ends = [
            0.0,
            *published,
            *(end for v in here for end in (v.gain.low, v.gain.mean, v.gain.high)),
        ]
        ticks = MaxNLocator(4).tick_values(np.nanmin(ends), np.nanmax(ends))
        strip = {
            "title": title,
            "unit": unit,
            "ticks": ticks,
            "published": published,
            "verdicts": [_mark(v) for v in here],
        }
        made.append(
            strip | {"place": functools.partial(np.interp, xp=[ticks[0], ticks[-1]], fp=[0, 100])}
        )
    return made


def _mark(v: Result) -> dict[str, Any]:
    """A verdict on a strip."""
    return {
        "label": verdicts.label(v),
        "word": word(v),
        "kind": verdicts.kind(v),
        "gain": v.gain,
        "gain_text": verdicts.gain_text(v),
    }


def _packed(text: str) -> str:
    """Compressed for the page, in letters without meaning in HTML."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _section(folder: Folder, shown: Setup | Sweep, planned: bool) -> dict[str, Any]:
    """A recipe or sweep: tables, charts, settings, every run; `planned`: beside planned ones others
    are exploratory.
    """
    groups = list(shown.others.values()) if isinstance(shown, Sweep) else [shown]
    here = [seed for group in groups for seed in group.runs.seed]
    kind = ", planned" if groups[0].study else ", exploratory" if planned else ""
    settings = set.intersection(
        *({f"{k}={show(v)}" for k, v in run.recipe.items()} for run in groups[0].runs.run)
    )
    return {
        "section": folder.content.sections[shown],
        "label": f"{len(here)} run{'s' * (len(here) > 1)}, {seeds(set(here))}{kind}",
        "settings": " ".join(sorted(settings)),
        "data": {"groups": list(map(_group, groups)), "charts": charts.others(shown)},
    }


def _group(group: Setup) -> dict[str, Any]:
    """Every run with its value and origin, the settings of each scheme, and curves."""
    metric, title, rows = group.measure, group.published.title, []
    for run in group.runs.itertuples():
        value = number(metric.times * run.run.metrics.get(metric.metric, math.nan), metric.digits)
        rows.append(
            [title(run.scheme), str(run.seed), value, *(str(getattr(run, name)) for name in ORIGIN)]
        )
    settings = {
        title(scheme): {key: show(value) for key, value in sorted(run.all_settings.items())}
        for scheme, run in group.runs.drop_duplicates("scheme")[["scheme", "run"]].itertuples(
            index=False
        )
    }
    columns = ["scheme", "seed", metric.unit, *ORIGIN]
    shared = {
        "title": f"{group.title}, {group.scale}",
        "columns": columns,
        "runs": rows,
        "settings": settings,
    }
    return shared | {"curves": charts.curves(group)}
