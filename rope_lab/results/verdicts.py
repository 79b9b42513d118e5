"""Does the contender beat the baseline? One line for each task and scale, and one for each planned comparison."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

from rope_lab.results import outcomes
from rope_lab.results.groups import Group
from rope_lab.results.metrics import Metric, declared
from rope_lab.results.outcomes import Outcome, Result
from rope_lab.results.published import Published, TaskReport, rank
from rope_lab.results.stats import ALPHA, Interval, holm
from rope_lab.results.studies import NAME, Comparison

LAST, MEAN, STEPS = "last step", "mean over training", "logarithm of steps"
YES, NO, AHEAD, BEHIND, CEILING, UNSURE, OPEN = "yes", "no", "ahead", "behind", "ceiling", "unsure", "open"


@dataclass(frozen=True)
class Verdict:
    """What is known of contender − baseline on one task. Differences are gains: positive where the contender is ahead.

    value:     what was compared: `last step`, or `mean over training`; before it a metric that is not the task's own
    planned:   whether its plan was committed before its first run
    published: the gains of the write-up's versions, in the unit of `report.metric`; empty where it has none
    means:     of baseline and contender over the seeds that both have; nan as long as runs are to come
    gain:      measured, with Student's t interval over paired seeds
    p:         corrected for `family`: of the paired t test, or of the test that was planned; nan without one
    word:      `yes`: a planned test is significant in the contender's favour; `no`: it is so in the baseline's, or the
               whole 95% interval lies below half of the published gain; `ahead`, `behind`: p is significant, but not
               planned; `ceiling`: the baseline leaves no room for half of the published gain, and the contender is not
               shown to be behind; `open`: runs are to come; else `unsure`
    runs:      how many of the runs have ended, and how many there are to be
    """

    task: str
    scale: str
    report: TaskReport
    value: str
    planned: bool
    published: list[float]
    means: tuple[float, float]
    gain: Interval
    p: float
    family: str
    word: str
    runs: tuple[int, int]

    @property
    def label(self) -> str:
        """What it is of, in a few words: `paper scale, 5 seeds`."""
        what = f"{self.scale} scale" + (f", {self.value}" if self.planned else "")
        return what + (f", {self.gain.n} seed{'s' if self.gain.n > 1 else ''}" if self.gain.n else "")

    def is_of(self, group: Group) -> bool:
        """Whether it is of the group's task, as it is titled (each corpus has a title of its own), and scale."""
        return (self.report.title, self.scale) == (group.report.title, group.scale)


def verdicts(groups: list[Group], studies: list[Outcome], published: Published) -> list[Verdict]:
    """Those of the planned comparisons, and of the groups under their own recipe, by task and scale."""
    found = [verdict for outcome in studies for verdict in _planned(outcome, published)]
    for scale in dict.fromkeys(group.scale for group in groups):
        found += _exploratory([group for group in groups if group.scale == scale])
    return sorted(found, key=lambda v: (rank(published.tasks, v.task), rank(published.scales, v.scale), not v.planned))


def _exploratory(groups: list[Group]) -> list[Verdict]:
    """Of the groups of one scale: p is corrected for the tasks there. What was tried besides is left out."""
    found = []
    for g in groups:
        pair = g.published.contender, g.published.baseline
        pairs = g.pairs(*pair)
        if g.variant or pairs.empty:
            continue
        difference, means = g.difference(*pair), (pairs.value_other.mean(), pairs.value.mean())
        sign = 1 if g.metric.higher_is_better else -1
        gain, runs = _gain(difference.difference, sign), int(g.runs.scheme.isin(pair).sum())
        gains = _published(g.report, pair, sign)
        word = _word(gain, gains, means[0], g.metric)
        same = (g.task, g.scale, g.report, LAST, False, gains, means, gain, difference.p)
        found.append(Verdict(*same, "", word, (runs, runs)))
    corrected, family = family_of([v.p for v in found], "tasks at this scale", "this task alone")
    return [replace(v, p=p, family=family, word=_not_planned(v, p)) for v, p in zip(found, corrected, strict=True)]


def _not_planned(v: Verdict, p: float) -> str:
    """What a corrected p says that no plan asked for: never yes or no."""
    return (AHEAD if v.gain.mean > 0 else BEHIND) if v.word == UNSURE and p < ALPHA else v.word


def family_of(p: list[float], several: str, one: str) -> tuple[list[float], str]:
    """p values corrected for their number, and that in words; nan is of no test and does not count."""
    tests = sum(not math.isnan(each) for each in p)
    return holm(p), f"{tests} {several}" if tests > 1 else one


def _planned(outcome: Outcome, published: Published) -> list[Verdict]:
    """Of each primary comparison of contender and baseline."""
    study, found, pair = outcome.study, [], (published.contender, published.baseline)
    family = f"{len(study.primary)} planned tests" if len(study.primary) > 1 else "one planned test"
    for result in outcome.primary or [Result(c, math.nan, "") for c in study.primary]:
        c = result.comparison
        if set(c.schemes) != set(pair):
            continue
        first = c.schemes == pair  # whether the contender is
        higher = study.prefers_high(c)
        sign = 1 if higher == first else -1
        gain, gains = _gain(result.difference, sign), [sign * c.published] if c.published is not None else []
        significant = result.p_family < ALPHA
        task = published.report(study.task, {c.metric}, study.settings)
        report, value = _compared(task, c)
        means, runs = result.means[::-1] if first else result.means, (len(outcome.found), len(study.cells))
        asked = YES if result.ahead == first else NO
        word = asked if significant else _word(gain, gains, means[0], report.metric)
        if gains and report is task and value == LAST:  # in the plan they may be rounded
            gains = _published(report, pair, 1 if higher else -1) or gains
        same = (study.task, study.scale, report, value, True, gains, means, gain, result.p_family, family)
        found.append(Verdict(*same, OPEN if outcome.open else word, runs))
    return found


def _compared(report: TaskReport, c: Comparison) -> tuple[TaskReport, str]:
    """A task's report with the metric of a comparison, in its unit, and in words what is compared."""
    value = f"{STEPS} to {c.reaches:g}" if c.value == "log_steps" else {"last": LAST, "mean": MEAN}[c.value]
    if c.value != "log_steps" and (c.metric, c.times) == (report.metric.name, report.metric.times):
        return report, value
    metric = replace(declared(c.metric) or report.metric, name=c.metric, times=c.times, unit=c.unit or c.metric)
    return replace(report, metric=metric), f"{c.metric}, {value}"


def read_outcomes(folder: Path) -> tuple[list[Outcome], list[str]]:
    """The outcomes of the plan in a folder of kept records, and what cannot be read. Raises PlanError, OSError."""
    return outcomes.read(folder / NAME) if (folder / NAME).exists() else ([], [])


def _gain(difference: Interval, sign: int) -> Interval:
    """A difference as a gain."""
    low, high = sorted((sign * difference.low, sign * difference.high))
    return Interval(sign * difference.mean, low, high, difference.n)


def _word(gain: Interval, published: list[float], baseline: float, metric: Metric) -> str:
    """`no` only where seeds differ: runs that all got none right, or all every one, show no spread and no evidence.

    `ceiling` only where the interval does not say that the contender is behind; of one seed there is none.
    """
    half = published[0] / 2 if published and published[0] > 0 else math.nan  # of a loss: with the schemes exchanged
    if metric.share and metric.times - baseline < half and gain.high >= 0:
        return CEILING
    return NO if gain.low < gain.high < half else UNSURE


def _published(report: TaskReport, pair: tuple[str, str], sign: int) -> list[float]:
    """The gains of those versions of the write-up that have both schemes."""
    versions = zip(*(report.published.get(scheme, []) for scheme in pair), strict=False)
    return [sign * (_number(ours) - _number(theirs)) for ours, theirs in versions]


def _number(published: str) -> float:
    """The number that a published figure begins with: `0.3269 in the later version`."""
    return float(published.split()[0])
