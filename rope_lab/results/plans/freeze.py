"""The plan of a comparison, made from its search: rates, seeds, number of pairs and test."""

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from rope_lab.results.comparisons.stats import (
    detectable,
    pairs_needed,
    spread_interval,
    spread_limit,
)
from rope_lab.results.plans.study import NAME, OF_LENGTHS, Plan, Study, called, from_yaml
from rope_lab.results.records.catalogue import TaskReport
from rope_lab.results.records.measures import Measure, declared
from rope_lab.text import ConfigError

FIRST_SEED = 200
POWER = 0.8
LIMIT = 0.8  # the spread of the search's pairs is below its upper limit with this probability
FEWEST_PAIRS = 8  # with six, p of the sign-flip test cannot be below 0.03
ROWS = "kept"
SHARE, OF_LOSS, OF_STEPS = 0.05, 0.02, 0.10  # smallest difference of interest, if none is given


@dataclass(frozen=True)
class Question:
    """ours, theirs: as `position=` takes them; measure: the number of a run that is compared;
    settings: of all runs, that a plan fixes.
    """

    name: str
    ours: str
    theirs: str
    task: str
    scale: str
    measure: Measure
    report: TaskReport
    settings: dict[str, Any]

    def arm(self, scheme: str, rates: dict[str, float]) -> str:
        """A scheme at its rate, as plans call it."""
        return f"{scheme} train.lr={rates[scheme]:g}"

    @property
    def comparison(self) -> dict[str, Any]:
        """The metric of a planned test, and how it is shown."""
        measure = self.measure
        content = {"metric": measure.metric, "times": measure.times, "unit": measure.unit}
        if measure.is_log:
            content |= {"value": "log_steps", "reaches": measure.reaches}
        return content


@dataclass(frozen=True)
class Size:
    """How many pairs a plan has, and why; in the unit of the measure.

    spread: of the search's pairs; limit: its upper limit
    finds:  the least true difference that so many pairs find with POWER
    """

    pairs: int
    wanted: float
    spread: float
    limit: float
    finds: float


def measure_of(report: TaskReport, name: str) -> Measure:
    """The measure that a name means: `score`, the task's own; `steps`, the logarithm of the first
    step at its first threshold; or a metric of the records. Raises ConfigError.
    """
    if name == "score":
        return report.measure
    if name == "steps":
        if not report.thresholds:
            raise ConfigError(f"--measure steps: {report.title} has no threshold to reach")
        title, threshold = next(iter(report.thresholds.items()))
        steps = {"unit": f"logarithm of steps until {title}", "digits": 3, "times": 1}
        return replace(threshold, at="log steps", **steps)
    kind = name.partition("/")[0]
    if kind in OF_LENGTHS:
        graded = OF_LENGTHS[kind] == report.measure.higher_is_better
        like = report.measure if graded else declared("eval/loss")
        return replace(like, metric=name, higher_is_better=OF_LENGTHS[kind])
    if known := declared(name):
        return known
    raise ConfigError(
        f"--measure {name}: no run records it; score, steps, or a metric such as "
        "eval/loss or length/24"
    )


def smallest_difference(measure: Measure, baseline: float) -> float:
    """The smallest difference of interest if none is given, in the unit of the measure: 5 points of
    a share, 10% of the steps, 2% of the baseline's loss.
    """
    if measure.is_log:
        return -math.log(1 - OF_STEPS)
    return SHARE * measure.times if measure.share else abs(OF_LOSS * baseline)


def size(differences: Sequence[float], wanted: float, at_most: int) -> Size:
    """The number of pairs that finds a difference, from the paired differences of a search."""
    spread = spread_interval(differences)[0]
    limit = spread_limit(differences, LIMIT)
    if limit == 0:
        return Size(FEWEST_PAIRS, wanted, spread, limit, 0.0)
    needed = pairs_needed(wanted, limit, POWER) or at_most
    pairs = min(max(needed, FEWEST_PAIRS), at_most)
    return Size(pairs, wanted, spread, limit, detectable(pairs, limit, POWER))


def fresh_seeds(pairs: int, known: Collection[int]) -> list[int]:
    """So many seeds from FIRST_SEED that no known run has."""
    unused = (seed for seed in itertools.count(FIRST_SEED) if seed not in known)
    return list(itertools.islice(unused, pairs))


def plan_text(
    question: Question,
    rates: dict[str, float],
    seeds: Sequence[int],
    reason: str,
    difference: float,
    diverged: float,
    code: dict[str, str],
) -> str:
    """The text of a plan.yaml with one study.

    rates:    of both schemes
    diverged: the value of a diverged run, in the metric's own unit
    code:     name and digest of each file of the user's own
    """
    ours, theirs = question.arm(question.ours, rates), question.arm(question.theirs, rates)
    common = {"schemes": [ours, theirs], **question.comparison}
    written = _seeds(seeds)
    study = {
        "hypothesis": f"{called(ours)} is ahead of {called(theirs)}.",
        "reason": reason,
        "rows": ROWS,
        "task": question.task,
        "scale": question.scale,
        "settings": question.settings,
        "seeds": {ours: written, theirs: written},
        "higher_is_better": question.measure.higher_is_better,
        "diverged": diverged,
        "difference": difference,
        "code": code,
        "primary": [{"name": _title(question), "test": "sign_flip", **common}],
        "secondary": _described(question, [ours, theirs]),
    }
    given = {key: value for key, value in study.items() if value != {} and value != []}
    content = {"studies": {question.name: given}}
    return HEAD + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)


HEAD = """\
# Written by `rope-lab compare` after its search and before the first of these runs. Every run
# records a digest of this study: after a change no run counts for it.

"""


def study_of(text: str) -> Study:
    """The one study of a plan's text. Raises ConfigError."""
    studies = list(from_yaml(Plan, text, NAME).studies.values())
    if len(studies) != 1:
        raise ConfigError(f"{NAME}: must have one study, not {len(studies)}")
    return studies[0]


def _title(question: Question) -> str:
    measure = question.measure
    if measure.is_log:
        return f"steps to {measure.metric} {measure.reaches:g}"
    return f"{measure.metric} after the last step"


def _described(question: Question, schemes: list[str]) -> list[dict[str, Any]]:
    """Secondary tests: steps to the task's first threshold, and how many runs end beyond it."""
    described = []
    for name, threshold in list(question.report.thresholds.items())[:1]:
        fits = threshold.higher_is_better == question.measure.higher_is_better
        if not fits or question.measure.is_log:
            continue
        common = {"schemes": schemes, "metric": threshold.metric, "reaches": threshold.reaches}
        steps = {"test": "sign_flip", "value": "log_steps", "unit": "log steps"}
        described.append({"name": f"steps: {name}", **steps, **common})
        if threshold.share:
            described.append({"name": f"runs that end beyond: {name}", "test": "mcnemar", **common})
    return described


def _seeds(seeds: Sequence[int]) -> str | list[int]:
    """`200-211` if none is left out."""
    first, last = seeds[0], seeds[-1]
    return f"{first}-{last}" if last - first + 1 == len(seeds) else list(seeds)
