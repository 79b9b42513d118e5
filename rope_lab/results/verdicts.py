"""Does the contender beat the baseline? One verdict for each task and scale, and one for each planned comparison."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rope_lab.results.groups import Group
from rope_lab.results.metrics import Metric, declared
from rope_lab.results.outcomes import Outcome, Result
from rope_lab.results.published import Published, TaskReport, rank
from rope_lab.results.stats import ALPHA, Interval, holm
from rope_lab.results.studies import Comparison
from rope_lab.results.tables import NONE, Strong, Table, number, signed

LAST, MEAN = "last step", "mean over training"
YES, NO, AHEAD, BEHIND, CEILING, UNSURE, OPEN = "yes", "no", "ahead", "behind", "ceiling", "unsure", "open"


@dataclass(frozen=True)
class Verdict:
    """Contender − baseline on one task. Differences are gains: positive if the contender is ahead.

    value:     what was compared: `last step`, `mean over training` or steps to a value
    planned:   whether its plan was committed before its first run
    published: the gains of the write-up's versions, in the unit of `report.metric`; empty without any
    means:     of baseline and contender over the seeds that both have; nan while runs are to come
    gain:      measured, with Student's t interval over paired seeds
    p:         corrected for `family`: of the paired t test, or of the planned test; nan without one
    word:      `yes`: a planned test is significant in the contender's favour; `no`: it is so in the baseline's, or the
               whole 95% interval lies below half of the published gain; `ahead`, `behind`: p is significant, but not
               planned; `ceiling`: the baseline leaves no room for half of the published gain, and a loss of that size
               is excluded; `open`: runs are to come; else `unsure`
    runs:      how many of the runs have ended, and how many are planned
    logarithm: whether gain and means are logarithms of steps
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
    logarithm: bool = False

    @property
    def label(self) -> str:
        """`paper scale, 5 seeds`"""
        label = f"{self.scale} scale" + (f", {self.value}" if self.planned else "")
        return label + (f", {self.gain.n} seed{'s' if self.gain.n > 1 else ''}" if self.gain.n else "")

    @property
    def gain_text(self) -> str:
        """The gain with its interval; of logarithms, as a ratio of steps."""
        if not self.logarithm or math.isnan(self.gain.mean):
            return signed(self.gain, self.report.metric.digits)
        ratio, low, high = (math.exp(-end) for end in (self.gain.mean, self.gain.high, self.gain.low))
        return f"{ratio:.2f} times the steps" + (f" [{low:.2f}, {high:.2f}]" if self.gain.n > 1 else "")

    @property
    def means_text(self) -> str:
        if math.isnan(self.gain.mean):
            return NONE
        shown = [f"{math.exp(m):,.0f}" if self.logarithm else number(m, self.report.metric.digits) for m in self.means]
        return " → ".join(shown)

    @property
    def ended(self) -> str:
        return f"{self.runs[0]} of {self.runs[1]} runs have ended"


def verdicts(groups: list[Group], studies: list[Outcome], published: Published) -> list[Verdict]:
    """Of the planned comparisons, then of the groups under their usual recipe; each by task and scale."""
    found = [verdict for outcome in studies for verdict in _planned(outcome, published)]
    for scale in dict.fromkeys(group.scale for group in groups):
        found += _exploratory([group for group in groups if group.scale == scale])
    return sorted(found, key=lambda v: (not v.planned, rank(published.tasks, v.task), rank(published.scales, v.scale)))


def _exploratory(groups: list[Group]) -> list[Verdict]:
    """Of the groups of one scale under their usual recipe; p is corrected for their number."""
    found = []
    for g in groups:
        pair = g.published.contender, g.published.baseline
        pairs = g.pairs(*pair)
        if g.variant or pairs.empty:
            continue
        difference, means = g.difference(*pair), (pairs.value_other.mean(), pairs.value.mean())
        gain, runs = _gain(difference.difference, g.metric.sign), int(g.runs.scheme.isin(pair).sum())
        gains = _published(g.report, pair, g.metric.sign)
        word = _word(gain, gains, means[0], g.metric)
        same = (g.task, g.scale, g.report, LAST, False, gains, means, gain, difference.p)
        found.append(Verdict(*same, "", word, (runs, runs)))
    corrected, family = family_of([v.p for v in found], "tasks at this scale", "this task alone")
    return [replace(v, p=p, family=family, word=_not_planned(v, p)) for v, p in zip(found, corrected, strict=True)]


def _not_planned(v: Verdict, p: float) -> str:
    """The word for a corrected p without a plan."""
    if v.word == UNSURE and p < ALPHA:
        return AHEAD if v.gain.mean > 0 else BEHIND
    return v.word


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
        first = c.schemes == pair  # the contender is the first of the comparison
        higher, logarithm = study.prefers_high(c), c.value == "log_steps"
        sign = 1 if higher == first else -1
        gain, gains = _gain(result.difference, sign), [sign * c.published] if c.published is not None else []
        task = published.report(study.task, {c.metric}, study.settings)
        report, value = _compared(task, c)
        means, runs = result.means[::-1] if first else result.means, (len(outcome.found), len(study.cells))
        if outcome.open:
            word = OPEN
        elif result.p_family < ALPHA:
            word = YES if result.ahead == first else NO
        else:
            word = _word(gain, gains, means[0], report.metric)
        if gains and report is task and value == LAST:  # the plan may round them
            gains = _published(report, pair, 1 if higher else -1) or gains
        same = (study.task, study.scale, report, value, True, gains, means, gain, result.p_family, family)
        found.append(Verdict(*same, word, runs, logarithm))
    return found


def _compared(report: TaskReport, c: Comparison) -> tuple[TaskReport, str]:
    """A task's report with the metric of a comparison, in its unit, and in words what is compared."""
    if c.value == "log_steps":  # of steps, neither a share nor above a floor
        metric = Metric(c.metric, c.unit or "logarithm of steps", higher_is_better=False, digits=2)
        return replace(report, metric=metric), c.name
    value = {"last": LAST, "mean": MEAN}[c.value]
    if (c.metric, c.times) == (report.metric.name, report.metric.times):
        return report, value
    metric = replace(declared(c.metric) or report.metric, name=c.metric, times=c.times, unit=c.unit or c.metric)
    return replace(report, metric=metric), f"{c.metric}, {value}"


def _gain(difference: Interval, sign: int) -> Interval:
    low, high = sorted((sign * difference.low, sign * difference.high))
    return Interval(sign * difference.mean, low, high, difference.n)


def _word(gain: Interval, published: list[float], baseline: float, metric: Metric) -> str:
    """`ceiling` only if a loss of half the published gain is excluded too, and `no` only if seeds differ.

    Runs that all got none right, or all every one, show no spread and no evidence.
    """
    half = published[0] / 2 if published and published[0] > 0 else math.nan
    least = gain.mean if math.isnan(gain.low) else gain.low
    if metric.share and metric.times - baseline < half and gain.high >= 0:
        return CEILING if least > -half else UNSURE
    return NO if gain.low < gain.high < half else UNSURE


def _published(report: TaskReport, pair: tuple[str, str], sign: int) -> list[float]:
    """The gains of those versions of the write-up that have both schemes; a figure may be followed by words."""
    versions = zip(*(report.published.get(scheme, []) for scheme in pair), strict=False)
    return [sign * (float(ours.split()[0]) - float(theirs.split()[0])) for ours, theirs in versions]


def table(found: list[Verdict], published: Published) -> Table:
    """A row for each verdict whose runs have ended."""
    baseline, contender = (published.title(scheme) for scheme in (published.baseline, published.contender))
    ended, rows = [v for v in found if v.word != OPEN], []
    for v in ended:
        gains = [_published_gain(v, gain) for gain in v.published]
        row = {"task": v.report.title, "scale": v.scale + ("" if v.value == LAST else f", {v.value}")}
        if any(each.published for each in ended):
            row["published gain"] = " / ".join(gains) or NONE
        row[f"measured {baseline} → {contender}"] = v.means_text
        row |= {"measured gain [95% interval]": v.gain_text, "seeds": f"{v.gain.n}"}
        row["p (corrected for)"] = NONE if math.isnan(v.p) else f"{v.p:.2g} ({v.family})"
        row |= {f"{contender} ahead?": Strong(v.word), "comparison": "planned" if v.planned else "exploratory"}
        rows.append(row)
    return Table(rows, "Verdicts")


def _published_gain(v: Verdict, gain: float) -> str:
    """A published gain, with as many digits as the plan gave it."""
    return f"{gain:+.{0 if v.planned and gain == round(gain) else v.report.metric.digits}f}"


def legend(found: list[Verdict], published: Published) -> list[str]:
    """The words and units of `table`, and planned tests whose runs are to come: a sentence each."""
    baseline, contender = (published.title(scheme) for scheme in (published.baseline, published.contender))
    units = dict.fromkeys(f"{v.report.title}: {v.report.metric.unit}" for v in found if v.word != OPEN)
    lines = [f"{OPEN}: {v.report.title}, {v.scale}, {v.value}: {v.ended}" for v in found if v.word == OPEN]
    if units:
        lines = [
            f"Gains of {contender} over {baseline}, positive if it is ahead, paired by seed ({'; '.join(units)}).",
            f"{YES}, {NO}: a planned test is significant in its favour, or says the reverse; {NO} also if the whole "
            "interval lies below half of the published gain",
            f"{AHEAD}, {BEHIND}: significant, but no test was planned; {UNSURE}: none of these",
            f"{CEILING}: no room for half of the published gain, and a loss of that size is excluded",
            *lines,
        ]
    return lines


def headline(found: list[Verdict]) -> list[tuple[str, str]]:
    """The verdicts in sentences, a claim and what it rests on: by the same words as in `table`, worse before better."""
    lines = []
    for planned, how in ((True, "by planned tests"), (False, "not planned beforehand")):
        for word in (NO, BEHIND, YES, AHEAD, CEILING, UNSURE, OPEN):
            here = [v for v in found if (v.planned, v.word) == (planned, word)]
            worse, better = _named(v for v in here if v.gain.mean < 0), _named(v for v in here if not v.gain.mean < 0)
            if word == UNSURE and worse:
                worse, better = f"worse in the mean on {worse}", better and f"better on {better}"
            if here:
                ended = f", {here[0].ended}" if word == OPEN else ""
                lines.append((word.capitalize(), f"{how}{ended}: {'; '.join(filter(None, [worse, better]))}."))
    return lines


def _named(found: Iterable[Verdict]) -> str:
    """`Substring by Prefix, paper and quick; Addition, quick`"""
    scales: dict[str, list[str]] = {}
    for verdict in found:
        scales.setdefault(verdict.report.title, []).append(verdict.scale)
    return "; ".join(f"{title}, {' and '.join(dict.fromkeys(each))}" for title, each in scales.items())
