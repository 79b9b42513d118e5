"""The box "Should I use it?": for each use the planned answer with its gain, size and cost, and the best schemes."""

import math

import pandas as pd

from rope_lab.results.groups import Group, group
from rope_lab.results.outcomes import Outcome
from rope_lab.results.published import Published, rank
from rope_lab.results.stats import t_interval
from rope_lab.results.tables import NONE, Section, Strong, Table, number
from rope_lab.results.verdicts import LAST, NO, OPEN, YES, Verdict

FEWEST = 3  # seeds of a scheme that may be called the best


def section(groups: list[Group], found: list[Verdict], outcomes: list[Outcome], published: Published) -> Section | None:
    """The box, from the planned verdicts and the runs of their studies; None without any."""
    rows: list[dict[str, str]] = []
    for use, about in published.uses.items():
        here = [v for v in found if v.task in about["tasks"] and v.planned and v.value == LAST and v.word != OPEN]
        if not here:
            continue
        words = {v.word for v in here}
        some = f"shown in {sum(v.word == YES for v in here)} of {len(here)} tests"
        answer = "yes" if words == {YES} else "no" if NO in words else some if YES in words else "not shown"
        rows.append(
            {
                "for": use,
                "answer": Strong(answer),
                "gain [95% interval]": "; ".join(f"{v.title}: {v.gain_text} {v.metric.unit}, {v.word}" for v in here),
                "tested with": _size(about["tasks"], outcomes),
                "a step takes": _cost(about["tasks"], outcomes, published),
                "not known": about["unknown"],
            }
        )
    if not rows:
        return None
    contender, baseline = published.titles
    yes = [row["for"] for row in rows if row["answer"] == "yes"]
    advice = f"try {contender} for {' and '.join(yes)}" if yes else f"stay with {baseline}"
    lines = [Strong(f"Our advice: {advice}."), *best(groups, outcomes, published)]
    return Section(f"Should I use {contender}?", [Table(rows)], lines)


def _size(tasks: list[str], outcomes: list[Outcome]) -> str:
    sizes = [run.parameters / 1e6 for o in outcomes if o.study.task in tasks for run in o.found.values()]
    ends = sorted({f"{size:.2g}" for size in (min(sizes), max(sizes))}, key=float)
    return f"{' to '.join(ends)} million parameters"


def _cost(tasks: list[str], outcomes: list[Outcome], published: Published) -> str:
    """The time of a step as a ratio to the baseline: over pairs of planned runs, beside which others ran."""
    logs = []
    for found in (outcome.found for outcome in outcomes if outcome.study.task in tasks):
        seconds = {cell: run.seconds / run.steps for cell, run in found.items() if run.steps}
        for (scheme, seed), ours in seconds.items():
            if scheme == published.contender and (theirs := seconds.get((published.baseline, seed))):
                logs.append(math.log(ours / theirs))
    if len(logs) < FEWEST:
        return NONE
    ratio = t_interval(logs)
    mean, low, high = (math.exp(each) for each in (ratio.mean, ratio.low, ratio.high))
    return f"{mean:.2f} times as long [{low:.2f}, {high:.2f}]"


def best(groups: list[Group], outcomes: list[Outcome], published: Published) -> list[str]:
    """The best scheme of each task, where most schemes were run; a sentence each."""
    planned = group([run for outcome in outcomes for run in outcome.found.values()], published)
    tasks: dict[str, list[tuple[int, int, Group]]] = {}
    for g in [*planned, *groups]:
        means = g.finished.groupby("scheme").value.agg(["mean", "count"])
        several = int((means["count"] >= FEWEST).sum())
        if several > 1 and not g.variant:
            tasks.setdefault(g.report.title, []).append((several, -rank(published.scales, g.scale), g))
    lines = []
    for title, each in tasks.items():
        several, _, g = max(each, key=lambda item: item[:2])
        means = g.finished.groupby("scheme").value.agg(["mean", "count"])
        means = means[means["count"] >= FEWEST]
        first, *rest = means.sort_values("mean", ascending=not g.metric.higher_is_better, kind="stable").index
        mean, n = number(means["mean"][first], g.metric.digits), means["count"][first]
        alike = [published.title(scheme) for scheme in rest if not _apart(g.pairs(first, scheme))]
        more = f" and {len(alike) - 2} more" if len(alike) > 2 else ""
        beside = f"; not told apart from it: {'; '.join(alike[:2])}{more}" if alike else ""
        lines.append(
            f"Best mean of {several} schemes on {title}, {g.scale}: {published.title(first)}, {mean} {g.metric.unit} "
            f"({n} seeds){beside}"
        )
    return lines


def _apart(pairs: pd.DataFrame) -> bool:
    """Whether the 95% interval of paired differences leaves 0 out."""
    if len(pairs) < 2:
        return False
    difference = t_interval(pairs.value - pairs.value_other)
    return not difference.low <= 0 <= difference.high
