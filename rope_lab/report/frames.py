"""The rows of the charts: what of a group is shown, rounded and thinned, and each chart's place on the page."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from rope_lab.report import charts
from rope_lab.results import series
from rope_lab.results.frame import curve
from rope_lab.results.groups import Group
from rope_lab.results.metrics import LENGTH, LENGTH_LOSS, LOSS_ATTRIBUTES, declared
from rope_lab.results.probes import Probed
from rope_lab.results.published import Published
from rope_lab.results.runs import one_line

POINTS = 200  # of a curve; of a longer one as many, evenly spaced
DIGITS = 5  # that count, of a number in a chart
BESIDE = ("eval/accuracy", "eval/loss")  # shown beside what counts
LABEL = 60  # characters of a label
HIGH, LOW, ROOM = 280, 200, 50  # pixels: of a chart over training, of a slice, of an axis

Line = tuple[str, Any, pd.Series, bool]  # a run: scheme, seed, values by x, whether it has not ended


@dataclass
class Charts:
    """The charts of a page: each specification and each scheme once, by their numbers."""

    published: Published
    schemes: dict[str, int] = field(default_factory=dict)
    specs: list[dict[str, Any]] = field(default_factory=list)
    frames: list[dict[str, Any]] = field(default_factory=list)

    def number(self, scheme: str) -> int:
        return self.schemes.setdefault(scheme, len(self.schemes))

    def title(self, scheme: str) -> str:
        return one_line(self.published.title(scheme), LABEL)

    def add(self, title: str, note: str, spec: dict[str, Any], frame: dict[str, Any], rows: int = 0) -> dict[str, Any]:
        """A chart and how the template places it; `rows`, of a chart in rows: how many it begins with."""
        if spec not in self.specs:
            self.specs.append(spec)
        self.frames.append(frame)
        numbers = {"spec": self.specs.index(spec), "frame": len(self.frames) - 1}
        height = ROOM + (frame.get("height") or rows * charts.ROW)
        return {"title": title, "note": note, "height": height, "zooms": "height" in frame} | numbers

    def frame(
        self,
        runs: Iterable[Line],
        means: Mapping[str, pd.DataFrame],
        axis: charts.Axis,
        span: tuple[float, float] | None = None,
        marks: Iterable[dict[str, Any]] = (),
        height: int | None = None,
    ) -> dict[str, Any]:
        """Values over one list of x, as the page's script takes them apart; null where a run has none.

        means: of each scheme its seeds' values by x, a column a seed
        span:  the ends of the value axis, if not those of the runs
        height: in pixels; of a chart in rows as high as these are
        """
        runs = [run for run in runs if len(run[2])]
        x = list(dict.fromkeys(value for run in runs for value in run[2].index))
        x = x if isinstance(x[0] if x else "", str) else sorted(x)
        if len(x) > POINTS:
            x = [x[i] for i in np.unique(np.linspace(0, len(x) - 1, POINTS).round().astype(int))]
        bands = []
        for scheme, table in means.items():
            band = series.band(table.reindex(x))
            ends = [_short(band[end]) if band[end].notna().any() else [] for end in ("low", "high")]
            bands.append([self.number(scheme), table.shape[1], _short(band["mean"]), *ends])
        return {
            "x": [value if isinstance(value, str) else _round(value) for value in x],
            "runs": [[self.number(s), str(seed), _short(v.reindex(x)), int(o)] for s, seed, v, o in runs],
            "means": bands,
            "marks": list(marks),
            "positive": int(axis == "log"),
            "span": span,
        } | ({"height": height} if height else {"row": charts.ROW})


def of(page: Charts, group: Group) -> dict[str, list[dict[str, Any]]]:
    """The charts of a group: over training, at its end, and by what the problems are like."""
    if group.finished.empty:
        return {"training": [_curves(page, group)]}
    if group.variant and group.finished.scheme.is_unique:  # one seed of another recipe
        return {"training": [_curves(page, group), _scores(page, group)]}
    beside = [declared(name) for name in BESIDE if name != group.metric.name]
    others = [replace(group, report=replace(group.report, metric=metric)) for metric in beside]
    others = [other for other in others if any(other.metric.name in run.curves for run in other.runs.run)][-1:]
    kinds = [kind for kind in (LENGTH, LENGTH_LOSS) if len(group.slices(kind))]
    return {
        "training": [_curves(page, each) for each in (group, *others)],
        "end": [_scores(page, group)],
        "lengths": [_by_value(page, group, kind) for kind in kinds],
        "slices": [_by_value(page, group, attribute) for attribute in series.sliced(group)],
    }


def _curves(page: Charts, group: Group) -> dict[str, Any]:
    """Learning curves, those of runs that have not ended too."""
    metric, floor, axis = group.metric, group.optimum, _axis(group)
    runs = [
        (row.scheme, row.seed, metric.times * curve(row.run, metric.name) - floor, row.status != "finished")
        for row in group.runs.itertuples()
    ]
    means = {scheme: group.curves(scheme) - floor for scheme in group.schemes}
    spec = charts.lines("optimizer steps", metric.unit, f".{metric.digits}f", axis)
    frame = page.frame(runs, means, axis, _span(group), height=HIGH)
    return page.add(series.score_label(group), "by optimizer step", spec, frame)


def _scores(page: Charts, group: Group) -> dict[str, Any]:
    """After the last step; the best scheme first."""
    metric, floor, axis = group.metric, group.optimum, _axis(group)
    schemes = [scheme for scheme in group.schemes if len(group.of(scheme))]
    schemes.sort(key=lambda scheme: group.of(scheme).value.mean(), reverse=metric.higher_is_better)
    means = {scheme: (group.of(scheme)[["value"]] - floor).T.set_axis([0]) for scheme in schemes}
    runs = [(s, seed, pd.Series([v]), False) for s in schemes for seed, v in means[s].loc[0].items()]
    published = {scheme: series.published(group, scheme) for scheme in schemes}
    marks = [{"s": page.number(s), "scheme": page.title(s), "y": _round(v)} for s, v in published.items() if v]
    spec = charts.dots(series.score_label(group), f".{metric.digits}f", axis, published=bool(marks))
    frame = page.frame(runs, means, axis, _span(group), marks)
    better = "higher" if metric.higher_is_better else "lower"
    note = f"every seed after the last step; {better} is better" + ("; ◇ published" if marks else "")
    return page.add(series.score_label(group), note, spec, frame, rows=len({*schemes} & {*series.best(group)}))


def _by_value(page: Charts, group: Group, attribute: str) -> dict[str, Any]:
    """Problems right, or a loss, by an attribute of the problems."""
    tables, share = series.by_value(group, attribute), attribute not in LOSS_ATTRIBUTES
    axis = "log" if series.above_floor(group, attribute) else "linear"
    runs = [(scheme, seed, table[seed].dropna(), False) for scheme, table in tables.items() for seed in table]
    name, marks = group.label(attribute), []
    if attribute in (LENGTH, LENGTH_LOSS):
        name = group.report.length["title"]
        marks = [dict(zip(("from", "to"), group.trained_lengths, strict=True))] if group.trained_lengths else []
    unit = "share of problems right" if share else "nats above the Bayes-optimal loss"
    unit = unit if share or axis == "log" else group.metric.unit
    spec = charts.lines(one_line(name, LABEL), unit, ".3f", axis, points=True, shaded=bool(marks))
    note = unit + ("; shaded: lengths of training" if marks else "")
    frame = page.frame(runs, tables, axis, (-0.04, 1.04) if share else None, marks, height=LOW)
    return page.add(f"By {one_line(name, LABEL)}", note, spec, frame)


def probes(page: Charts, probed: list[Probed]) -> list[dict[str, Any]]:
    """What each probe costs, in each run: a chart for each task and scale."""
    found = []
    for task, scale in dict.fromkeys((each.task, each.scale) for each in probed):
        alike = [each for each in probed if (each.task, each.scale) == (task, scale)]
        lines = []
        for each in alike:
            costs = {one_line(label, LABEL): cost for label, cost in each.costs.items()}
            lines.append((each.position, each.seed, pd.Series(costs, dtype=float), False))
        lines.sort(key=lambda line: -len(line[2]))  # rows in the order of the run with most of them
        costs = [cost for *_, line, _ in lines for cost in line.dropna()]
        span = (min(costs, default=0.0) - 0.002, 1.2 * max(costs, default=1.0))
        spec = charts.dots("nats per answer token", "+.4f", "symlog", row="x")
        title = f"{page.published.report(task, set(), {}).title}: nats per answer token that each probe costs"
        frame = page.frame(lines, {}, "symlog", span)
        found.append(page.add(title, f"{scale} scale", spec, frame, rows=len(frame["x"])))
    return found


def _axis(group: Group) -> charts.Axis:
    return "linear" if group.metric.higher_is_better else "log"


def _span(group: Group) -> tuple[float, float] | None:
    """The ends of an axis of shares, with room for dots at both."""
    top = group.metric.times
    return (-0.04 * top, 1.04 * top) if group.metric.share else None


def _round(value: float) -> float | int:
    return int(value) if value == int(value) else float(f"{value:.{DIGITS}g}")


def _short(values: Iterable[float]) -> list[float | int | None]:
    return [_round(value) if math.isfinite(value) else None for value in values]
