"""The content of the page, handed to page.html: verdicts, a section for each folder and in it each recipe, probes."""

import base64
import gzip
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
import vl_convert

from rope_lab.report import charts
from rope_lab.results import figures, probes, verdicts
from rope_lab.results.groups import Group, seeds
from rope_lab.results.pages import Content
from rope_lab.results.probes import Probed
from rope_lab.results.published import Published
from rope_lab.results.sweeps import Sweep
from rope_lab.results.tables import Strong, Table, number
from rope_lab.text import plain, show

ORIGIN = ("seed", "run_id", "status", "steps", "numerics", "commit", "torch", "hardware", "threads", "parameters")


@dataclass(frozen=True)
class Folder:
    """A folder on the page; `below` another one, whose verdicts lead the page."""

    path: str
    title: str
    content: Content
    below: bool = False


def render(folders: list[Folder], probed: list[Probed], published: Published) -> str:
    """The page, the same for the same records."""
    contender, baseline = published.titles
    found = [verdict for folder in folders if not folder.below for verdict in folder.content.verdicts]
    forest = figures.forest(found, contender) if any(v.word != verdicts.OPEN for v in found) else b""
    planned = any(v.planned for v in found)
    sections = [(folder, [_section(folder, each, planned) for each in folder.content.shown]) for folder in folders]
    drawn = [[chart.spec, chart.rates] for _, each in sections for section in each for chart in section["charts"]]
    context = {
        "contender": contender,
        "baseline": baseline,
        "box": next((box for folder in folders if not folder.below and (box := folder.content.box)), None),
        "forest": base64.b64encode(forest).decode(),
        "answers": [(v.word, f"{v.title}, {v.scale}: {v.gain_text} {v.metric.unit}") for v in found[:3]],
        "planned": planned,
        "uncompared": _uncompared(folders, published),
        "verdicts": verdicts.table(found, published),
        "legend": verdicts.legend(found, published),
        "folders": sections,
        "probes": [(f"{p.task}, {p.scale}, {p.position}, seed {p.seed}", probes.table(p.outcomes)) for p in probed],
        "charts": _packed(json.dumps(drawn, separators=(",", ":"))),
        "library": _packed(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")),
    }
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=lambda value: plain(value) if type(value) in (str, Strong) else value,  # control characters
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["strong"] = lambda value: isinstance(value, Strong)
    return environment.get_template("page.html").render(context)


def _packed(text: str) -> str:
    """As the page unpacks it; letters that HTML gives no meaning."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _uncompared(folders: list[Folder], published: Published) -> str:
    """Why there is no verdict, and the command that leads to one."""
    groups = [each for folder in folders if not folder.below for each in folder.content.groups]
    groups = groups or [each for folder in folders for each in folder.content.groups]
    elsewhere = "; ".join(f"{g.title}, {g.scale}" for g in groups if g.variant and len(g.pairs(*published.pair)))
    usual = (g for g in groups if not g.variant and {*published.pair} & {*g.schemes})
    there = next(usual, groups[0])
    made = [seed for scheme in published.pair for seed in there.of(scheme).index]
    files = {run.position: f"./{run.position}.py" for g in groups for run in g.runs.run if "position" in run.plugin}
    names = [scheme.partition(" ")[0] for scheme in published.pair]
    command = (
        f"rope-lab sweep task={there.task} scale={there.scale} position={','.join(files.get(n, n) for n in names)} "
        f"seed={','.join(map(str, sorted(set(made)))) or 0}"
    )
    return (
        f"No task has {' and '.join(published.titles)} at one seed under its usual recipe, so there is no verdict. "
        + (f"Compared below, without a verdict: {elsewhere}. " if elsewhere else "")
        + f"This makes the runs: {command}"
    )


def _section(folder: Folder, shown: Group | Sweep, planned: bool) -> dict[str, Any]:
    """A recipe, or a sweep of several: tables, charts, settings and every run.

    planned: whether the page has planned comparisons, beside which all others are exploratory
    """
    groups = list(shown.others.values()) if isinstance(shown, Sweep) else [shown]
    here = [seed for group in groups for seed in group.runs.seed]
    kind = ", planned" if not folder.content.published.compares else ", exploratory" if planned else ""
    return {
        "section": folder.content.sections[shown],
        "label": f"{len(here)} runs, {seeds(set(here))}{kind}",
        "charts": charts.of(shown),
        "settings": " ".join(f"{key}={show(value)}" for key, value in sorted(groups[0].settings.items())),
        "runs": Table([row for group in groups for row in _runs(group)], "Every run"),
    }


def _runs(group: Group) -> list[dict[str, str]]:
    """Every run: its value, and where it comes from."""
    metric, columns = group.metric, {name: group.runs[name].astype(str) for name in ORIGIN}
    values = [metric.times * run.metrics.get(metric.name, math.nan) for run in group.runs.run]
    columns |= {"scheme": group.runs.scheme.map(group.published.title)}
    columns |= {metric.unit: [number(value, metric.digits) for value in values]}
    return pd.DataFrame(columns)[["scheme", "seed", metric.unit, *ORIGIN[1:]]].to_dict("records")
