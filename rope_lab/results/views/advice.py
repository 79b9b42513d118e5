"""The box "Should I use it?": for each use the planned answer with its gain, size and cost, and the
best schemes.
"""

import math
from collections.abc import Iterator

from rope_lab.results.comparisons.scores import FEWEST, widest
from rope_lab.results.comparisons.stats import t_interval
from rope_lab.results.comparisons.verdicts import NO, OPEN, YES, Verdict
from rope_lab.results.plans.outcomes import Outcome
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.measures import declared
from rope_lab.results.records.setups import Group
from rope_lab.results.views.tables import NONE, Section, Strong, Table, number


def section(
    groups: list[Group], found: list[Verdict], outcomes: list[Outcome], published: Published
) -> Section | None:
    """The box, from the planned verdicts, the runs of their studies and all groups; None without
    such verdicts.

    sentences: the advice, then the best scheme of each task; details: the answer for each use
    """
    rows, lead = [], []
    for use, about in published.uses.items():
        here = [v for v in found if v.task in about["tasks"] and v.planned and v.word != OPEN]
        here = [v for v in here if declared(v.metric.name)]  # not those at one length alone
        if not here:
            continue
        words = [v.word for v in here]
        some = f"shown in {words.count(YES)} of {len(here)} tests" if YES in words else "not shown"
        answer = "yes" if {*words} == {YES} else "no" if NO in words else some
        decided = [v for v in here if v.word in (YES, NO)]
        gains = [f", {_gain(v)} at {_size(v)}" for v in decided]
        lead.append(f"For {use}: {answer}{''.join(gains)}.")
        tests = [f"{v.title}, {_size(v)}: {v.gain_text}{_unit(v)}, {v.word}" for v in here]
        row = {"for": use, "answer": Strong(answer), "gain [95% interval]": "\n".join(tests)}
        row |= {
            "a step takes": _cost(about["tasks"], outcomes, published),
            "not known": about["unknown"],
        }
        rows.append(row)
    if not rows:
        return None
    contender, baseline = published.titles
    yes = [row["for"] for row in rows if row["answer"] == "yes"]
    advice = f"try {contender} for {' and '.join(yes)}" if yes else f"stay with {baseline}"
    sentences = [Strong(f"Our advice: {advice}."), *best(groups, published)]
    return Section(f"Should I use {contender}?", Table(rows), sentences, details=lead)


def _gain(v: Verdict) -> str:
    """A gain without its interval."""
    mean = v.gain.mean
    return (
        f"{math.exp(-mean):.2f} times the steps"
        if v.logarithm
        else f"{mean:+.{v.metric.digits}f}{_unit(v)}"
    )


def _unit(v: Verdict) -> str:
    """The unit of a gain, and of a loss the gain in percent of the baseline's; empty for steps,
    whose text has it.
    """
    share = "" if v.metric.higher_is_better else f" ({100 * v.gain.mean / v.means[1]:.2g}%)"
    return "" if v.logarithm else f" {v.metric.unit}{share}"


def _size(v: Verdict) -> str:
    """`0.6M parameters`, of the runs of a verdict, and what else is unusual about it."""
    return ", ".join(filter(None, [f"{v.parameters / 1e6:.1f}M parameters", v.unusual]))


def _cost(tasks: list[str], outcomes: list[Outcome], published: Published) -> str:
    """The time of a step as a ratio to the baseline, over pairs of planned runs; other runs shared
    the machine.
    """
    logs = []
    for found in (outcome.found for outcome in outcomes if outcome.study.task in tasks):
        seconds = {cell: run.seconds / run.steps for cell, run in found.items() if run.steps}
        for (scheme, seed), ours in seconds.items():
            if scheme == published.contender and (
                theirs := seconds.get((published.baseline, seed))
            ):
                logs.append(math.log(ours / theirs))
    if len(logs) < FEWEST:
        return NONE
    ratio = t_interval(logs)
    mean, low, high = (math.exp(each) for each in (ratio.mean, ratio.low, ratio.high))
    return f"{mean:.2f} times as long [{low:.2f}, {high:.2f}]"


def best(groups: list[Group], published: Published) -> Iterator[str]:
    """The best scheme of each task, where most schemes were run; a sentence each."""
    for g in widest(groups):
        means = g.finished.groupby("scheme").value.agg(["mean", "count"])
        means = means[means["count"] >= FEWEST]
        first, *rest = means.sort_values(
            "mean", ascending=not g.metric.higher_is_better, kind="stable"
        ).index
        mean, n = number(means["mean"][first], g.metric.digits), means["count"][first]
        differences = {scheme: g.difference(g.pairs(first, scheme)) for scheme in rest}
        alike = [
            published.title(scheme)
            for scheme, d in differences.items()
            if d.n and not (d.low > 0 or d.high < 0)
        ]
        more = f" and {len(alike) - 2} more" if len(alike) > 2 else ""
        beside = f"; not distinguishable from it: {'; '.join(alike[:2])}{more}" if alike else ""
        said = f"{published.title(first)}, {mean} {g.metric.unit} ({n} seeds){beside}"
        yield f"Best mean of {len(means)} schemes on {g.report.title}, {g.scale}: {said}"
