"""results/published.yaml: titles and colours, how tasks are shown, and published results to show
beside ours.
"""

import copy
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from rope_lab.places import ROOT
from rope_lab.results.records.measures import ACCURACY, MEASURES, Measure, declared
from rope_lab.results.records.run import one_line

SPARE_COLORS = ("#E7298A", "#6A3D9A", "#1B9E77", "#A6761D", "#66C2A5", "#FB9A99")
LONGEST = 160  # characters of a title


@dataclass(frozen=True)
class TaskReport:
    """How a task is shown, and its published results; results/published.yaml explains each key.

    measure:    by which schemes are compared
    thresholds: by name, the first step at a value
    since:      names of thresholds after which schemes are compared at equal steps too
    guess:      the share of problems that a guess has right; None if that is unknown
    """

    title: str
    measure: Measure
    length: dict[str, Any] = field(default_factory=lambda: {"title": "length", "longest": None})
    thresholds: dict[str, Measure] = field(default_factory=dict)
    since: tuple[str, ...] = ()
    beside: dict[str, Measure] = field(default_factory=dict)
    published: dict[str, list[str]] = field(default_factory=dict)
    setup: dict[str, Any] = field(default_factory=dict)
    elsewhere: str = ""
    guess: float | None = None
    page: str = ""
    mirrors: list[str] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)

    def published_gains(self, scheme: str, other: str) -> list[float]:
        """The gains in each version of the write-up that has both schemes; words may follow a
        number.
        """
        versions = zip(*(self.published.get(each, []) for each in (scheme, other)), strict=False)
        return [
            self.measure.sign * (float(ours.split()[0]) - float(theirs.split()[0]))
            for ours, theirs in versions
        ]


@functools.cache
def _content() -> dict[str, Any]:
    """published.yaml, read once per process."""
    return yaml.safe_load((ROOT / "results" / "published.yaml").read_text("utf-8"))


class Published:
    """The content of published.yaml.

    compares: whether runs are compared with the baseline; those of a plan are compared in plan.md
              alone
    """

    def __init__(self):
        content = _content()
        self.baseline, self.contender, self.compares = (
            content["baseline"],
            content["contender"],
            True,
        )
        self.schemes, self.tasks, self.scales = (
            content["schemes"],
            content["tasks"],
            content["scales"],
        )
        self.attributes, self.rotations = content["attributes"], content["rotations"]
        self.untested, self.uses = content["untested"], content["uses"]

    def but(self, **changed: Any) -> "Published":
        """The same with another baseline, contender or `compares`."""
        other = copy.copy(self)
        vars(other).update(changed)
        return other

    @property
    def pair(self) -> tuple[str, str]:
        """Contender and baseline."""
        return self.contender, self.baseline

    @property
    def titles(self) -> tuple[str, str]:
        """Of contender and baseline."""
        return self.title(self.contender), self.title(self.baseline)

    def report(
        self, task: str, metrics: set[str], settings: Mapping[str, Any], data: str = ""
    ) -> TaskReport:
        """The report of a task; its title has the `settings` that `named` lists.

        data: the file of a corpus, as its name if `named` has none

        Without a report, the first of `MEASURES` that the runs recorded is compared.
        """
        if task not in self.tasks:
            return _unknown(task, metrics)
        report = dict(self.tasks[task])
        name, shown = report.pop("metric"), report.pop("shown")
        names = _names(report.pop("named", {}), settings, data)
        if names:
            report["title"] += f" ({', '.join(names)})"
        beside = _beside(report.pop("beside", {}), shown)
        thresholds, since = {}, []
        for each in report.pop("thresholds", []):
            first = replace(declared(each["metric"]), at="first step", reaches=each["value"])
            thresholds[each["name"]] = first
            if each.get("since"):
                since.append(each["name"])
        if not _agree(settings, report.pop("elsewhere_of", {})):
            report["elsewhere"] = ""
        for each in report.pop("guesses", []):
            if _agree(settings, each["of"]):
                report["guess"] = each["share"]
        return TaskReport(
            measure=replace(declared(name), **shown),
            thresholds=thresholds,
            since=tuple(since),
            beside=beside,
            **report,
        )

    def title(self, scheme: str) -> str:
        """The name of a scheme in tables and figures."""
        if scheme in self.schemes:
            return self.schemes[scheme]["title"]
        name, _, variant = scheme.partition(" ")
        return one_line(
            " ".join(filter(None, [self.schemes.get(name, {}).get("title", name), variant])),
            LONGEST,
        )

    def order(self, scheme: str) -> tuple[int, str]:
        """The key that sorts schemes as published.yaml does: variants stand beside their scheme,
        unknown ones last.
        """
        return rank(
            self.schemes, scheme if scheme in self.schemes else scheme.partition(" ")[0]
        ), scheme

    def color(self, scheme: str, beside: Iterable[str] = ()) -> str:
        """A known scheme's colour, the same in every figure; an unknown one's differs from those
        `beside` it.

        A scheme with settings in its name has the colour of the plain one, unless another of that
        is `beside` it.
        """
        plain = scheme.partition(" ")[0]
        alone = [other.partition(" ")[0] for other in {scheme, *beside}].count(plain) == 1
        known = scheme if scheme in self.schemes or not alone else plain
        if known in self.schemes:
            return self.schemes[known]["color"]
        unknown = sorted({scheme, *beside} - self.schemes.keys())
        return SPARE_COLORS[unknown.index(scheme) % len(SPARE_COLORS)]


def _unknown(task: str, metrics: set[str]) -> TaskReport:
    """The report of a task that published.yaml lacks: it compares the first known metric."""
    measure = next((MEASURES[name] for name in MEASURES if name in metrics), ACCURACY)
    almost = {"95% right": replace(measure, at="first step", reaches=0.95)}
    return TaskReport(task, measure, thresholds=almost if measure.share else {})


def _beside(metrics: dict[str, str], shown: dict[str, Any]) -> dict[str, Measure]:
    """Further measures by title; shares are shown in the unit of the task."""
    beside = {}
    for title, name in metrics.items():
        measure = declared(name)
        beside[title] = replace(measure, **shown) if measure.share else measure
    return beside


def _names(named: dict[str, dict[Any, str]], settings: Mapping[str, Any], data: str) -> list[str]:
    """The names of those settings that a task's title shows."""
    names = []
    for key, known in named.items():
        value = settings.get(key)
        if value is None:
            continue
        unnamed = data if data and key.endswith(".corpus") else value
        names.append(one_line(str(known.get(value, unnamed)), LONGEST))
    return names


def _agree(settings: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    """Whether a run's settings have the `expected` values."""
    return all(settings.get(key) == value for key, value in expected.items())


def rank(order: Iterable[str], name: str) -> int:
    """The index of a name in an order; a large number if it is not there."""
    return next((i for i, each in enumerate(order) if each == name), 10**6)
