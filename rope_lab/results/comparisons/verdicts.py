"""Does the contender beat the baseline? One verdict for each task and scale, and one for each
planned comparison.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rope_lab.results.comparisons.stats import ALPHA, Interval, holm
from rope_lab.results.plans.outcomes import CONFIRMED, REFUTED, REVERSED, Outcome, Result, counted
from rope_lab.results.plans.study import Comparison
from rope_lab.results.records.catalogue import Published, TaskReport, rank
from rope_lab.results.records.measures import Metric, declared
from rope_lab.results.records.setups import Group, seeds
from rope_lab.results.views.tables import NONE, Strong, Table, number, signed

LAST, MEAN = "last step", "mean over training"
YES, NO, AHEAD, BEHIND, CEILING, UNSURE, OPEN = (
    "yes",
    "no",
    "ahead",
    "behind",
    "ceiling",
    "unsure",
    "open",
)


@dataclass(frozen=True)
class Verdict:
    """Contender − baseline on one task. Differences are gains: positive if the contender is ahead.

    title: of the task; metric: the compared one, with its unit
    published: the gains of the write-up's versions, in the unit of `metric`; empty without any
    means:     of contender and baseline over the seeds that both have; nan while runs are to come
    gain:      measured, with Student's t interval over paired seeds
    p:         corrected for `family`: of the paired t test, or of the planned test; nan without one
    word:      `yes`: a planned test is significant in the contender's favour; `no`: it is so in the
               baseline's, or excludes the published gain, or, unplanned, half of it; `ahead`,
               `behind`: p is significant, but not planned; `ceiling`: the baseline leaves no room
               for half of the published gain, and a loss of that size is excluded; `open`: runs are
               to come; else `unsure`
    seeds:     that both schemes have
    unusual:   the compared value, unless it is the last one, and the settings that are not the
               recipe's, in words
    planned:   whether its plan was committed before its first run
    runs:      of a plan, how many have ended, and how many are planned
    logarithm: whether gain and means are logarithms of steps
    parameters: of a plan, the number of the larger of its two schemes' models
    """

    task: str
    scale: str
    title: str
    metric: Metric
    published: list[float]
    means: tuple[float, float]
    gain: Interval
    p: float
    family: str
    word: str
    seeds: tuple[int, ...]
    unusual: str = ""
    planned: bool = False
    runs: tuple[int, int] = (0, 0)
    logarithm: bool = False
    parameters: int = 0

    @property
    def label(self) -> str:
        """`paper, seeds 0–4`"""
        return ", ".join(
            filter(None, [self.scale, self.unusual, seeds(self.seeds) if self.seeds else ""])
        )

    @property
    def kind(self) -> str:
        return "planned" if self.planned else "exploratory"

    @property
    def gain_text(self) -> str:
        """The gain with its interval; of logarithms, as a ratio of steps."""
        if not self.logarithm or math.isnan(self.gain.mean):
            return signed(self.gain, self.metric.digits)
        ratio, low, high = (
            math.exp(-end) for end in (self.gain.mean, self.gain.high, self.gain.low)
        )
        return f"{ratio:.2f} times the steps" + (
            f" [{low:.2f}, {high:.2f}]" if self.gain.n > 1 else ""
        )


def verdicts(groups: list[Group], studies: list[Outcome], published: Published) -> list[Verdict]:
    """Of the planned comparisons, then of the groups under their usual recipe; those ahead first,
    by task and scale.
    """
    if not published.compares:
        return []
    found = [verdict for outcome in studies for verdict in _planned(outcome, published)]
    for scale in dict.fromkeys(group.scale for group in groups):
        found += _exploratory(
            [group for group in groups if group.scale == scale and not group.variant]
        )

    def order(v: Verdict) -> tuple:
        return (
            not v.planned,
            v.word not in (YES, AHEAD),
            rank(published.tasks, v.task),
            rank(published.scales, v.scale),
        )

    return sorted(found, key=order)


def _exploratory(groups: list[Group]) -> Iterator[Verdict]:
    """Of the groups of one scale; p is corrected for their number."""
    compared = [
        (g, pairs, g.difference(pairs)) for g in groups if len(pairs := g.pairs(*g.published.pair))
    ]
    corrected, family = family_of(
        [d.p for *_, d in compared], "tasks at this scale", "this task alone"
    )
    for (g, pairs, difference), p in zip(compared, corrected, strict=True):
        means = pairs.value.mean(), pairs.value_other.mean()
        gain = _gain(difference, g.metric.sign)
        gains = g.report.published_gains(*g.published.pair)
        word = _word(gain, gains, means[1], g.metric)
        if word == UNSURE and p < ALPHA:
            word = AHEAD if gain.mean > 0 else BEHIND
        paired = tuple(pairs.index)
        yield Verdict(
            g.task, g.scale, g.report.title, g.metric, gains, means, gain, p, family, word, paired
        )


def family_of(p: list[float], several: str, one: str) -> tuple[list[float], str]:
    """p values corrected for their number, and the family in words; nan, of no test, does not
    count.
    """
    tests = sum(not math.isnan(each) for each in p)
    return holm(p), f"{tests} {several}" if tests > 1 else one


def _planned(outcome: Outcome, published: Published) -> Iterator[Verdict]:
    """Of each primary comparison of contender and baseline."""
    study = outcome.study
    family = f"{len(study.primary)} planned tests" if len(study.primary) > 1 else "one planned test"
    for result in outcome.primary or [Result(c, math.nan, "") for c in study.primary]:
        c = result.comparison
        names = tuple(scheme.partition(" train.lr=")[0] for scheme in c.schemes)
        if set(names) != set(published.pair):
            continue
        first = names == published.pair  # the contender is the first of the comparison
        words = (
            {CONFIRMED: YES, REVERSED: NO, REFUTED: NO} if first else {CONFIRMED: NO, REVERSED: YES}
        )
        sign = 1 if study.prefers_high(c) == first else -1
        gain, gains = (
            _gain(result.difference, sign),
            [sign * c.published] if c.published is not None else [],
        )
        report = published.report(study.task, {c.metric}, study.settings)
        metric, value = _compared(report, c)
        rates = "each at its own rate" if names != c.schemes else ""
        means = result.means if first else result.means[::-1]
        if gains and metric is report.metric and value == LAST:  # the plan may round them
            gains = report.published_gains(*published.pair) or gains
        yield Verdict(
            task=study.task,
            scale=study.scale,
            title=report.title,
            metric=metric,
            unusual=", ".join(filter(None, [value if value != LAST else "", rates, study.unusual])),
            planned=True,
            published=gains,
            means=means,
            gain=gain,
            p=result.p_family,
            family=family,
            word=OPEN if outcome.open else words.get(result.verdict, UNSURE),
            runs=(len(outcome.found), len(study.cells)),
            seeds=tuple(counted(study, outcome.found, c).dropna().index) if outcome.primary else (),
            logarithm=c.value == "log_steps",
            parameters=max(
                (run.parameters for (s, _), run in outcome.found.items() if s in c.schemes),
                default=0,
            ),
        )


def _compared(report: TaskReport, c: Comparison) -> tuple[Metric, str]:
    """The metric of a comparison, with its unit, and the compared value in words."""
    if c.value == "log_steps":  # of steps, neither a share nor above a floor
        return Metric(
            c.metric, c.unit or "logarithm of steps", higher_is_better=False, digits=2
        ), c.name
    value = {"last": LAST, "mean": MEAN}.get(c.compares, c.name)
    if (c.metric, c.times) == (report.metric.name, report.metric.times):
        return report.metric, value
    metric = replace(
        declared(c.metric) or report.metric, name=c.metric, times=c.times, unit=c.unit or c.metric
    )
    return metric, f"{c.metric}, {value}" if declared(c.metric) else c.name


def _gain(difference: Interval, sign: int) -> Interval:
    low, high = sorted((sign * difference.low, sign * difference.high))
    return Interval(sign * difference.mean, low, high, difference.n)


def _word(gain: Interval, published: list[float], baseline: float, metric: Metric) -> str:
    """`ceiling` only if a loss of half the published gain is excluded too, and `no` only if seeds
    differ.

    Runs that all got none right, or all every one, show no spread and no evidence.
    """
    if not published or published[0] <= 0:
        return UNSURE
    half = published[0] / 2
    no_room = metric.share and metric.times - baseline < half
    if no_room and gain.high >= 0:
        return CEILING if gain.low > -half else UNSURE
    return NO if gain.low < gain.high < half else UNSURE


def table(found: list[Verdict], published: Published) -> Table:
    """A row for each verdict whose runs have ended."""
    contender, baseline = published.titles
    ended, rows = [v for v in found if v.word != OPEN], []
    for v in ended:
        row = {"task": v.title, "scale": ", ".join(filter(None, [v.scale, v.unusual]))}
        if any(each.published for each in ended):  # with as many digits as the plan gives
            digits = [
                0 if v.planned and gain == round(gain) else v.metric.digits for gain in v.published
            ]
            gains = (f"{gain:+.{d}f}" for gain, d in zip(v.published, digits, strict=True))
            row["published gain"] = " / ".join(gains) or NONE
        means = [
            f"{math.exp(m):,.0f}" if v.logarithm else number(m, v.metric.digits)
            for m in v.means[::-1]
        ]
        row[f"measured {baseline} → {contender}"] = " → ".join(means) if v.gain.n else NONE
        row |= {"measured gain [95% interval]": v.gain_text, "seeds": f"{len(v.seeds)}"}
        row["p (corrected for)"] = NONE if math.isnan(v.p) else f"{v.p:.2g} ({v.family})"
        row |= {f"{contender} ahead?": Strong(v.word), "comparison": v.kind}
        rows.append(row)
    return Table(rows, "Verdicts")


def sentences(found: list[Verdict], published: Published) -> list[str]:
    """A sentence for each verdict whose runs have ended, for the end of a long output."""
    gain = "gain of {} over {}".format(*published.titles)
    ended = [v for v in found if v.word != OPEN]
    return [
        f"{v.title}, {v.label}, {v.kind}: {gain} {v.gain_text} {v.metric.unit}: {v.word}"
        for v in ended
    ]


def legend(found: list[Verdict], published: Published) -> list[str]:
    """The words of `table` that are used, its units, and planned tests whose runs are to come: a
    sentence each.
    """
    contender, baseline = published.titles
    steps = "times the steps, below 1 if ahead, geometric means"
    units = dict.fromkeys(
        f"{v.title}: {steps if v.logarithm else v.metric.unit}" for v in found if v.word != OPEN
    )
    to_come = [v for v in found if v.word == OPEN]
    lines = [
        f"{OPEN}: {v.title}, {v.scale}, {v.unusual or LAST}: {v.runs[0]} of {v.runs[1]} runs have ended"
        for v in to_come
    ]
    if not units:
        return lines
    meanings = {
        f"{YES}, {NO}: a planned test is significant in its favour, or against it": {YES, NO},
        f"{AHEAD}, {BEHIND}: significant, but no test was planned": {AHEAD, BEHIND},
        f"{NO}, without such a test: the interval lies below the published gain (exploratory: below half of it)": {
            NO
        },
        f"{CEILING}: no room for half of the published gain, and a loss of that size is excluded": {
            CEILING
        },
        f"{UNSURE}: none of these": {UNSURE},
    }
    used = {v.word for v in found}
    words = [meaning for meaning, each in meanings.items() if used & each]
    gains = f"Gains of {contender} over {baseline}, positive if it is ahead, paired by seed ({'; '.join(units)})."
    return [gains, *words, *lines]
