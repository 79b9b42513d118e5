"""What stands on the page, handed to page.html: verdicts, a section for each folder and in it each group, probes."""

import base64
import functools
import gzip
import hashlib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import vl_convert

from rope_lab.report import charts, frames
from rope_lab.report.colors import NIGHT, PAPER, readable
from rope_lab.report.frames import Charts
from rope_lab.results import series
from rope_lab.results.groups import Group
from rope_lab.results.pages import Content
from rope_lab.results.probes import Probed
from rope_lab.results.published import Published
from rope_lab.results.tables import Strong, Table
from rope_lab.results.verdicts import OPEN, Verdict, headline
from rope_lab.text import plain, show

HERE = Path(__file__).parent
ORIGIN = ("status", "steps", "numerics", "plugin", "commit", "torch", "hardware", "threads", "parameters")


@dataclass(frozen=True)
class Section:
    """A folder on the page.

    folder: as it was given; title: what the page in it is called
    links:  run_id → address of its W&B run, of runs that were logged online
    below:  whether it only came with the folder that it is in, whose verdicts are on top of the page
    """

    folder: str
    title: str
    content: Content
    links: dict[str, str] = field(default_factory=dict)
    below: bool = False


def render(sections: list[Section], probed: list[Probed], published: Published) -> str:
    """The page, the same for the same records."""
    page = Charts(published)
    verdicts = [verdict for section in sections if not section.below for verdict in section.content.verdicts]
    context = {
        "contender": published.title(published.contender),
        "baseline": published.title(published.baseline),
        "said": headline(verdicts),
        "tasks": [_task(found) for found in _by_task(verdicts)],
        "sections": [_section(page, section, f"f{number}") for number, section in enumerate(sections)],
        "probes": frames.probes(page, probed),
    }
    schemes = [
        {
            "title": page.title(s),
            "light": readable(published.color(s, page.schemes), PAPER),
            "dark": readable(published.color(s, page.schemes), NIGHT),
        }
        for s in page.schemes
    ]
    data = {
        "specs": page.specs,
        "frames": page.frames,
        "config": charts.CONFIG,
        "titles": [s["title"] for s in schemes],
    }
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        finalize=lambda value: plain(value) if type(value) is str else value,  # no marks of direction, no line ends
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "separators": (",", ":")}
    script, (library, digest) = (HERE / "page.js").read_text("utf-8"), _library()
    code = {"script": script, "library": library, "digests": [_digest(script), digest]}
    return environment.get_template("page.html").render(**context, **code, schemes=schemes, data=data)


@functools.cache
def _library() -> tuple[str, str]:
    """Vega-Embed with all that it needs, gzipped, which is a third of its size; and its digest."""
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    code = f"(() => {{{bundle}}})();"  # its names are its own
    return base64.b64encode(gzip.compress(code.encode(), mtime=0)).decode(), _digest(code)


def _digest(script: str) -> str:
    """By which the page's Content-Security-Policy lets a script run, and no other."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _by_task(verdicts: list[Verdict]) -> list[list[Verdict]]:
    titles = dict.fromkeys(v.report.title for v in verdicts)
    return [[v for v in verdicts if v.report.title == title] for title in titles]


def _task(verdicts: list[Verdict]) -> dict[str, Any]:
    """The verdicts of a task as rows of a forest plot: places are in percent of an axis that holds all of them."""
    published = next((v.published for v in sorted(verdicts, key=lambda v: v.planned) if v.published), [])
    gains = [end for v in verdicts for end in (v.gain.mean, v.gain.low, v.gain.high) if math.isfinite(end)]
    ends = [0.0, *published, *gains]
    low, room = min(ends), 1.1 * (max(ends) - min(ends)) or 1.0

    def place(value: float) -> float | None:
        return round(100 * (value - low) / room + 4.5, 2) if math.isfinite(value) else None

    rows = [
        _verdict(v)
        | {
            "label": f"{v.scale} scale",
            "kind": f"planned, {v.value}" if v.planned else "exploratory",
            "planned": v.planned,
            "places": [place(value) for value in (v.gain.low, v.gain.mean, v.gain.high)],
            "published": [place(value) for value in v.published[:1]],
        }
        for v in verdicts
    ]
    report = verdicts[0].report
    said = " / ".join(f"{value:+.{report.metric.digits}f}" for value in published)
    about = {"title": report.title, "unit": report.metric.unit, "published": said}
    return about | {"zero": place(0.0), "rows": rows}


def _verdict(verdict: Verdict) -> dict[str, str]:
    """A verdict in words."""
    gain, (ended, wanted) = verdict.gain, verdict.runs
    p = "" if math.isnan(verdict.p) else f", p = {verdict.p:.2g} (family: {verdict.family})"
    return {
        "word": verdict.word,
        "gain": "" if math.isnan(gain.mean) else verdict.gain_text,
        "how": f"{ended} of {wanted} runs have ended" if verdict.word == OPEN else f"{gain.n} paired seeds{p}",
    }


def _section(page: Charts, section: Section, name: str) -> dict[str, Any]:
    content = section.content
    own = any(not group.variant for group in content.groups)  # what was tried besides is folded away behind that
    groups = [
        _group(page, content, section.links, group, f"{name}-{number}") | {"folded": own and bool(group.variant)}
        for number, group in enumerate(content.groups)
    ]
    runs = sum(len(group.runs) for group in content.groups)
    about = {"id": name, "title": section.title, "folder": section.folder, "planned": content.planned, "runs": runs}
    return about | {"groups": groups, "problems": content.problems}


def _group(page: Charts, content: Content, links: dict[str, str], group: Group, name: str) -> dict[str, Any]:
    """A group: its charts and what filters them, its tables, and what one has to know to believe it."""
    verdict, section = content.verdict_of(group), content.section(group)
    shown = [*section.shown, *section.more, *section.folded]
    return {
        "id": name,
        "title": group.title,
        "scale": group.scale,
        "verdict": verdict and _verdict(verdict),
        "charts": frames.of(page, group),
        "pair": [page.number(s) for s in (group.published.baseline, group.published.contender) if s in group.schemes],
        "shown": [page.number(s) for s in series.best(group)],
        "quiet": len(series.best(group)) > series.FEW,
        "sentences": [sentence for sentence in section.sentences if not isinstance(sentence, Strong)],
        "warnings": group.warnings(),
        "tables": [_table(table) for table in shown if table.rows],
        "details": section.details,
        "settings": _settings(group.settings),
        "own": [
            (page.title(scheme), _settings(run.position_settings))
            for scheme, run in group.runs.drop_duplicates("scheme")[["scheme", "run"]].itertuples(index=False)
        ],
        "runs": _runs(page, group, links),
    }


def _runs(page: Charts, group: Group, links: dict[str, str]) -> dict[str, Any]:
    """Every run of a group; what all have in common of where they come from is in its details."""
    metric, runs = group.metric, group.runs
    values = [metric.times * run.metrics.get(metric.name, math.nan) for run in runs.run]
    columns = {
        "scheme": [page.title(scheme) for scheme in runs.scheme],
        "seed": list(map(str, runs.seed)),
        metric.unit: ["–" if math.isnan(value) else f"{value:.{metric.digits}f}" for value in values],
        "seconds": [f"{seconds:,.0f}" for seconds in runs.seconds],
        "run": list(runs.run_id),
    }
    origins = {name: list(map(str, runs[name])) for name in ORIGIN}
    columns |= {name: origin for name, origin in origins.items() if len(set(origin)) > 1}
    shared = ", ".join(f"{name} {origin[0]}" for name, origin in origins.items() if name not in columns)
    addresses = [links.get(run_id, "") for run_id in runs.run_id]
    rows = [{"cells": cells, "link": link} for *cells, link in zip(*columns.values(), addresses, strict=True)]
    return {"shared": shared, "head": [*columns, *(["W&B"] if any(addresses) else [])], "rows": rows}


def _table(table: Table) -> dict[str, Any]:
    cells = [[{"text": cell, "strong": isinstance(cell, Strong)} for cell in row.values()] for row in table.rows]
    head = [{"text": name, "strong": False} for name in table.columns]
    return {"title": table.title, "note": table.note, "head": head, "rows": cells}


def _settings(settings: dict[str, Any]) -> str:
    return " ".join(f"{key}={show(value)}" for key, value in sorted(settings.items()))
