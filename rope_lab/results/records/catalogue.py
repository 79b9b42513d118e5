"""results/published.yaml: titles and colours, how tasks are shown, and published results to show
beside ours.
"""

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from rope_lab.places import ROOT
from rope_lab.results.records.measures import LENGTH_LOSS, MEASURES, Measure, like
from rope_lab.results.records.run import Record, Run, Settings, one_line

SPARE_COLORS = ("#E7298A", "#6A3D9A", "#1B9E77", "#A6761D", "#66C2A5", "#FB9A99")
LONGEST = 160  # characters of a title
LONG_DECIMAL = re.compile(r"\d+\.\d{5,}")


@dataclass(frozen=True)
class TaskReport:
    """How a task is shown, and its published results; published.yaml explains the keys that are
    named as there.

    measure:    by which schemes are compared
    length:     `title`, and the settings of the `longest` and `shortest` problems
    thresholds: by name, the first step at a value
    since:      names of thresholds after which schemes are compared at equal steps too
    beside:     further measures by their titles
    guess:      the share of problems that a guess has right; None if that is unknown
    has_optimum: whether the Bayes-optimal loss of its text is known
    """

    title: str
    measure: Measure
    length: Record
    thresholds: dict[str, Measure]
    since: list[str]
    beside: dict[str, Measure]
    guess: float | None
    has_optimum: bool
    published: dict[str, list[str]]
    setup: Settings
    attributes: dict[str, str]
    mirrors: list[str]
    elsewhere: str
    page: str
    scored: bool

    def published_gains(self, scheme: str, other: str) -> list[float]:
        """The gains in each version of the write-up that has both schemes; words may follow a
        number.
        """
        versions = self.published.get(scheme, []), self.published.get(other, [])
        return [
            self.measure.sign * (float(ours.split()[0]) - float(theirs.split()[0]))
            for ours, theirs in zip(*versions, strict=False)
        ]

    @property
    def first_threshold(self) -> tuple[str, Measure] | None:
        """The name and the measure of the first threshold; None without any."""
        return next(iter(self.thresholds.items()), None)

    def measure_of(self, metric: str) -> Measure | None:
        """The measure of a metric; of problems of one length, `length/24`, shown as the task's own
        if that is of their kind. None if no run records it.
        """
        declared = like(metric)
        if declared is None or declared.metric == metric:
            return declared
        shown = self.measure if declared.share == self.measure.share else declared
        if metric.startswith(LENGTH_LOSS) and self.has_optimum:
            shown = replace(shown, unit=f"{shown.unit} above the Bayes-optimal loss")
        return replace(shown, metric=metric)

    def trained_lengths(self, settings: Settings) -> tuple[int, int] | None:
        """The shortest and the longest problems of training, counted as `eval.lengths` are; None if
        unknown.
        """
        named = self.length  # settings, and the `least` length of a task without `shortest`
        longest = settings.get(named["longest"])
        if not longest:
            return None
        shortest = settings.get(named.get("shortest"))
        return shortest or named.get("least", longest), longest


def _said(key: str) -> Callable[[], Any]:
    """A function that returns the value of a key of published.yaml."""
    return lambda: _content()[key]


@dataclass(frozen=True)
class Catalogue:
    """The content of published.yaml, which explains these keys.

    compares: whether runs are compared with the baseline; those of a plan are compared in plan.md
              alone
    """

    baseline: str = field(default_factory=_said("baseline"))
    contender: str = field(default_factory=_said("contender"))
    schemes: dict[str, Record] = field(default_factory=_said("schemes"))
    tasks: dict[str, Record] = field(default_factory=_said("tasks"))
    scales: list[str] = field(default_factory=_said("scales"))
    attributes: dict[str, str] = field(default_factory=_said("attributes"))
    estimates: dict[str, int] = field(default_factory=_said("estimates"))
    uses: dict[str, Record] = field(default_factory=_said("uses"))
    rotations: Record = field(default_factory=_said("rotations"))
    compares: bool = True

    @property
    def pair(self) -> tuple[str, str]:
        """Contender and baseline."""
        return self.contender, self.baseline

    @property
    def titles(self) -> tuple[str, str]:
        """Of contender and baseline."""
        return self.title(self.contender), self.title(self.baseline)

    def report(
        self, task: str, metrics: Iterable[str], settings: Settings, data: str = ""
    ) -> TaskReport:
        """The report of a task; its title has the `settings` that `named` lists.

        data: the file of a corpus, as its name if `named` has none

        Without a report, the first of `MEASURES` that the runs recorded is compared.
        """
        entry = self.tasks.get(task) or _unknown(task, metrics)
        thresholds = entry.get("thresholds", [])
        named = entry.get("named", {})
        has_corpus = any(key.endswith(".corpus") for key in named)
        title = entry["title"]
        elsewhere = entry.get("elsewhere", "")
        guess = None
        if names := _names(named, settings, data):
            title += f" ({', '.join(names)})"
        if not _agree(settings, entry.get("elsewhere_of", {})):
            elsewhere = ""
        for each in entry.get("guesses", []):
            if _agree(settings, each["of"]):
                guess = each["share"]
        return TaskReport(
            title=title,
            measure=_measure(entry, settings),
            length=entry.get("length", {"title": "length", "longest": None}),
            thresholds={each["name"]: _first_step(**each) for each in thresholds},
            since=[each["name"] for each in thresholds if "since" in each],
            beside={each: _beside(entry, each) for each in entry.get("beside", {})},
            guess=guess,
            has_optimum=task in self.tasks and not has_corpus,
            published=entry.get("published", {}),
            setup=entry.get("setup", {}),
            attributes=entry.get("attributes", {}),
            mirrors=entry.get("mirrors", []),
            elsewhere=elsewhere,
            page=entry.get("page", ""),
            scored=entry.get("scored", True),
        )

    def report_of(self, run: Run) -> TaskReport:
        """The report of the task of a run."""
        return self.report(run.task, run.metrics, run.settings, run.data)

    def title(self, scheme: str) -> str:
        """The name of a scheme in tables and figures; long decimals of its settings are rounded."""
        if scheme in self.schemes:
            return self.schemes[scheme]["title"]
        name, _, variant = scheme.partition(" ")
        title = self.schemes[name]["title"] if name in self.schemes else name
        shown = LONG_DECIMAL.sub(lambda number: f"{float(number[0]):.3f}", variant)
        return one_line(f"{title} {shown}".strip(), LONGEST)

    def order(self, scheme: str) -> tuple[int, str]:
        """The key that sorts schemes as published.yaml does: variants stand beside their scheme,
        unknown ones last.
        """
        known = scheme if scheme in self.schemes else scheme.partition(" ")[0]
        return rank(self.schemes, known), scheme

    def color(self, scheme: str, beside: Iterable[str] = ()) -> str:
        """A scheme's colour in published.yaml, the same in every figure; any other scheme's differs
        from those `beside` it.

        A scheme with settings in its name has the colour of the plain one, unless another of that
        is `beside` it.
        """
        colors = {name: each["color"] for name, each in self.schemes.items() if "color" in each}
        if scheme in colors:
            return colors[scheme]
        names = {scheme, *beside}
        plain = scheme.partition(" ")[0]
        is_alone = [name.partition(" ")[0] for name in names].count(plain) == 1
        if plain in colors and is_alone and scheme not in self.schemes:
            return colors[plain]
        others = sorted(names - colors.keys())
        return SPARE_COLORS[others.index(scheme) % len(SPARE_COLORS)]


@functools.cache
def _content() -> Record:
    return yaml.safe_load((ROOT / "results" / "published.yaml").read_text("utf-8"))


def _unknown(task: str, metrics: Iterable[str]) -> Record:
    """What published.yaml could say of a task that it lacks: the first known metric compares."""
    metric = next((name for name in MEASURES if name in metrics), "eval/accuracy")
    almost = {"name": "95% correct", "metric": metric, "value": 0.95}
    thresholds = [almost] if MEASURES[metric].share else []
    return {"title": task, "metric": metric, "shown": {}, "thresholds": thresholds}


def _measure(entry: Record, settings: Settings) -> Measure:
    """The measure of a task; its unit may depend on a setting."""
    measure = replace(MEASURES[entry["metric"]], **entry["shown"])
    for key, units in entry.get("units", {}).items():
        measure = replace(measure, unit=units.get(settings.get(key), measure.unit))
    return measure


def _first_step(metric: str, value: float, **_: Any) -> Measure:
    """The first step at a value; a diverged run never reaches it."""
    return replace(MEASURES[metric], at="first step", reaches=value, diverged=0.0)


def _beside(entry: Record, title: str) -> Measure:
    """A further measure of a task; a share is shown in the unit of the task."""
    measure = MEASURES[entry["beside"][title]]
    return replace(measure, **entry["shown"]) if measure.share else measure


def _names(named: Record, settings: Settings, data: str) -> list[str]:
    """The names of those settings that a task's title shows."""
    names = []
    for key, known in named.items():
        value = settings.get(key)
        unnamed = data if data and key.endswith(".corpus") else value
        if value is not None:
            names.append(one_line(str(known.get(value, unnamed)), LONGEST))
    return names


def _agree(settings: Settings, expected: Settings) -> bool:
    """Whether a run's settings have the `expected` values."""
    return all(settings.get(key) == value for key, value in expected.items())


def rank(order: Iterable[str], name: str) -> int:
    """The index of a name in an order; unknown ones are last."""
    return [*order, name].index(name)
