"""The box "Should I use it?": for each use the planned answer with its gain, size and cost, and the
best schemes.
"""

import math
from collections.abc import Iterator

from rope_lab.results.comparisons.families import between
from rope_lab.results.comparisons.results import Result, answered
from rope_lab.results.comparisons.scores import FEWEST, widest
from rope_lab.results.comparisons.stats import t_interval
from rope_lab.results.comparisons.words import CONFIRMED, OPEN, REFUTED, REVERSED, word
from rope_lab.results.plans.families import PlannedFamily
from rope_lab.results.plans.find import Runs
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.measures import declared
from rope_lab.results.records.setups import Setup
from rope_lab.results.views.tables import NONE, Section, Strong, Table, number
from rope_lab.results.views.verdicts import gain_text, unusual

AGAINST = (REVERSED, REFUTED)


def section(
    setups: list[Setup],
    found: list[Result],
    studied: list[list[Result]],
    published: Published,
) -> Section | None:
    """The box, from the verdicts, the runs of all studies and all setups; None without planned
    verdicts.

    sentences: the advice, then the best scheme of each task; details: the answer for each use
    """
    families = [results[0].family for results in studied]
    rows, lead = [], []
    for use, about in published.uses.items():
        here = [result for result in found if _counts(result, about["tasks"])]
        if not here:
            continue
        answer = _answer([word(result) for result in here])
        decided = [result for result in here if word(result) in (CONFIRMED, *AGAINST)]
        gains = [f", {_gain(result)} at {_size(result)}" for result in decided]
        lead.append(f"For {use}: {answer}{''.join(gains)}.")
        row = {"for": use, "answer": Strong(answer)}
        row["gain [95% interval]"] = "\n".join(map(_test, here))
        row["a step takes"] = _cost(about["tasks"], families, published)
        rows.append(row | {"not known": about["unknown"]})
    if not rows:
        return None
    contender, baseline = published.titles
    yes = [row["for"] for row in rows if row["answer"] == "yes"]
    advice = f"try {contender} for {' and '.join(yes)}" if yes else f"stay with {baseline}"
    sentences = [Strong(f"Our advice: {advice}."), *best(setups, published)]
    return Section(f"Should I use {contender}?", Table(rows), sentences, details=lead)


def _counts(result: Result, tasks: list[str]) -> bool:
    """Whether a verdict counts: planned, all runs ended, and not at one length alone."""
    return (
        result.comparison.task in tasks
        and result.family.planned
        and word(result) != OPEN
        and declared(result.measure.metric) is not None
    )


def _answer(words: list[str]) -> str:
    if {*words} == {CONFIRMED}:
        return "yes"
    if {*AGAINST} & {*words}:
        return "no"
    if CONFIRMED in words:
        return f"shown in {words.count(CONFIRMED)} of {len(words)} tests"
    return "not shown"


def _test(result: Result) -> str:
    size, unit = _size(result), _unit(result)
    return f"{result.title}, {size}: {gain_text(result)}{unit}, {word(result)}"


def _gain(result: Result) -> str:
    """A gain without its interval."""
    if result.measure.at == "log steps":
        return f"{math.exp(result.difference.mean):.2f} times the steps"
    return f"{result.gain.mean:+.{result.measure.digits}f}{_unit(result)}"


def _unit(result: Result) -> str:
    """The unit of a gain, and of a loss the gain in percent of the baseline's; empty for steps,
    whose text has it.
    """
    if result.measure.at == "log steps":
        return ""
    unit = f" {result.measure.unit}"
    if result.measure.higher_is_better:
        return unit
    return f"{unit} ({100 * result.gain.mean / result.means[1]:.2g}%)"


def _size(result: Result) -> str:
    """`0.6M parameters`, of the larger of the two models, and what else is unusual."""
    runs = result.comparison.ours.runs + result.comparison.theirs.runs
    parameters = max((run.parameters for run in runs), default=0)
    return ", ".join(filter(None, [f"{parameters / 1e6:.1f}M parameters", unusual(result)]))


def _cost(tasks: list[str], families: list[PlannedFamily], published: Published) -> str:
    """The time of a step as a ratio to the baseline, over pairs of planned runs; other runs shared
    the machine.
    """
    logs = []
    for family in families:
        if family.study.task in tasks:
            logs += _log_ratios(family.found, published)
    if len(logs) < FEWEST:
        return NONE
    ratio = t_interval(logs)
    mean, low, high = (math.exp(each) for each in (ratio.mean, ratio.low, ratio.high))
    return f"{mean:.2f} times as long [{low:.2f}, {high:.2f}]"


def _log_ratios(found: Runs, published: Published) -> list[float]:
    """The logarithm of the ratio of the times of a step, contender over baseline, by seed."""
    seconds = {cell: run.seconds / run.steps for cell, run in found.items() if run.steps}
    return [
        math.log(ours / seconds[published.baseline, seed])
        for (scheme, seed), ours in seconds.items()
        if scheme == published.contender and seconds.get((published.baseline, seed))
    ]


def best(setups: list[Setup], published: Published) -> Iterator[str]:
    """The best scheme of each task, where most schemes were run; a sentence each."""
    for setup in widest(setups):
        measure = setup.measure
        means = setup.finished.groupby("scheme").value.agg(["mean", "count"])
        means = means[means["count"] >= FEWEST]
        ordered = means.sort_values(
            "mean", ascending=not measure.higher_is_better, kind="stable"
        ).index
        first, *rest = ordered
        alike = [published.title(scheme) for scheme in rest if _alike(setup, first, scheme)]
        beside = ""
        if alike:
            beside = f"; not distinguishable from it: {'; '.join(alike[:2])}"
        if len(alike) > 2:
            beside += f" and {len(alike) - 2} more"
        mean, n = number(means["mean"][first], measure.digits), means["count"][first]
        said = f"{published.title(first)}, {mean} {measure.unit} ({n} seeds){beside}"
        where = f"{setup.report.title}, {setup.scale}"
        yield f"Best mean of {len(means)} schemes on {where}: {said}"


def _alike(setup: Setup, scheme: str, other: str) -> bool:
    """Whether the interval of a difference includes 0; of one pair there is none, so it may."""
    difference = answered(between(setup, scheme, other)).difference
    return difference.n > 0 and not (difference.low > 0 or difference.high < 0)
