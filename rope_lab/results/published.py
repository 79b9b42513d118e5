"""results/published.yaml: what was published, beside which the measured is put; names and colours."""

import copy
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from rope_lab.places import ROOT
from rope_lab.results.metrics import METRICS, Metric, declared
from rope_lab.results.runs import Run, one_line

PUBLISHED = ROOT / "results" / "published.yaml"
SPARE_COLORS = ("#F0E442", "#6A3D9A", "#B15928", "#1B9E77", "#E7298A", "#A6761D", "#66C2A5", "#FB9A99")
LONGEST = 160  # characters of a title: what it says is all in the records


@dataclass(frozen=True)
class Threshold:
    """A value of a metric that runs reach, or do not; `since`: schemes are also compared as long after it."""

    name: str
    metric: str
    value: float
    since: bool = False

    def first_step(self, run: Run) -> float:
        """The first evaluated step at which a run is there, infinite where it never is; nan without its curve."""
        if self.metric not in run.curves:
            return float("nan")
        there = operator.ge if declared(self.metric).higher_is_better else operator.le
        curve = zip(*run.curves[self.metric], strict=True)
        return next((float(step) for step, value in curve if there(value, self.value)), float("inf"))


@dataclass(frozen=True)
class TaskReport:
    """What the write-up says of a task, and how it is shown; each key is explained in results/published.yaml."""

    title: str
    metric: Metric
    length: dict[str, Any] = field(default_factory=lambda: {"title": "length", "longest": None})
    thresholds: list[Threshold] = field(default_factory=list)
    beside: dict[str, Metric] = field(default_factory=dict)
    published: dict[str, list[str]] = field(default_factory=dict)
    setup: dict[str, Any] = field(default_factory=dict)
    elsewhere: str = ""
    page: str = ""
    mirrors: list[str] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)


class Published:
    """The content of published.yaml."""

    def __init__(self, path: Path = PUBLISHED):
        content = OmegaConf.to_container(OmegaConf.load(path))
        self.baseline, self.contender = content["baseline"], content["contender"]
        self.schemes, self.tasks, self.scales = content["schemes"], content["tasks"], content["scales"]
        self.attributes, self.rotations = content["attributes"], content["rotations"]
        self.untested = content["untested"]

    def against(self, baseline: str, contender: str = "") -> "Published":
        """The same with another baseline and contender; where the baseline is the contender, they change places."""
        other = copy.copy(self)
        other.contender = contender or (self.baseline if baseline == self.contender else self.contender)
        other.baseline = baseline
        return other

    def tests(self, scale: str, pairs: int) -> bool:
        """Whether a difference of so many pairs is tested; else it is an estimate, with its interval alone."""
        return pairs > self.untested.get(scale, 0)

    def report(self, task: str, metrics: set[str], settings: Mapping[str, Any]) -> TaskReport:
        """Of a task, its title with those of its runs' `settings` that belong there.

        A task that was not published is compared by the first of `METRICS` that its runs recorded.
        """
        if task not in self.tasks:
            metric = next((m for m in METRICS if m.name in metrics), METRICS[0])
            return TaskReport(
                task, metric, thresholds=[Threshold("95% right", metric.name, 0.95)] if metric.share else []
            )
        report = dict(self.tasks[task])
        shown = report.pop("shown")
        metric = _metric(report.pop("metric"), shown)
        values = [(names, settings.get(setting)) for setting, names in report.pop("named", {}).items()]
        if told := [one_line(str(names.get(value, value)), LONGEST) for names, value in values if value is not None]:
            report["title"] += f" ({', '.join(told)})"
        beside = {
            title: _metric(name, shown if declared(name).share else {}) for title, name in report.pop("beside").items()
        }
        thresholds = [Threshold(**threshold) for threshold in report.pop("thresholds")]
        return TaskReport(metric=metric, thresholds=thresholds, beside=beside, **report)

    def title(self, scheme: str) -> str:
        """How a scheme is called in tables and figures."""
        if scheme in self.schemes:
            return self.schemes[scheme]["title"]
        name, _, variant = scheme.partition(" ")
        return one_line(" ".join(filter(None, [self.schemes.get(name, {}).get("title", name), variant])), LONGEST)

    def rank(self, scheme: str) -> int:
        """Where a scheme stands in published.yaml, a variant where its scheme does; after the last if nowhere."""
        return rank(self.schemes, scheme if scheme in self.schemes else scheme.partition(" ")[0])

    def color(self, scheme: str, beside: Iterable[str] = ()) -> str:
        """A known scheme's colour, the same wherever it is plotted; an unknown one's differs from those `beside` it."""
        if scheme in self.schemes:
            return self.schemes[scheme]["color"]
        unknown = sorted({scheme, *beside} - self.schemes.keys())
        return SPARE_COLORS[unknown.index(scheme) % len(SPARE_COLORS)]


def rank(order: Iterable[str], name: str) -> int:
    """Where a name stands in an order; after the last where it does not."""
    return next((i for i, each in enumerate(order) if each == name), 10**6)


def _metric(name: str, shown: dict[str, Any]) -> Metric:
    """A metric as the write-up prints it."""
    return replace(declared(name), name=name, **shown)
