"""The section of a setup: its schemes, lengths and every seed as tables, and sentences on them."""

import math
from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from rope_lab.results.comparisons.families import between, difference_since, of_schemes
from rope_lab.results.comparisons.results import Result, answered, samples
from rope_lab.results.comparisons.stats import ALPHA, NOTHING, without_worst
from rope_lab.results.records.measures import LENGTH, LENGTH_LOSS
from rope_lab.results.records.setups import Setup
from rope_lab.results.views.notes import details, warnings
from rope_lab.results.views.tables import (
    NONE,
    Section,
    Strong,
    Table,
    mean_of,
    number,
    signed,
    strong_if,
)

RANGE = (
    "[…]: 95% interval over seeds; (…): the range, of two runs or if that interval would hold "
    "impossible values"
)
WORST = "worst removed: the mean without a scheme's worst seed"


def section(setup: Setup, verdict: Result | None) -> Section:
    """A setup's tables and sentences; `verdict`: of contender and baseline; the first table shows
    its p.
    """
    found = of_schemes(setup, verdict)
    sentences = list(_tests(setup, found, verdict))
    if setup.published.compares:
        sentences += [*_reached_thresholds(setup), *_since_thresholds(setup)]
    beside = [
        f"{title}: {other.unit}"
        for title, other in setup.report.beside.items()
        if title != other.unit
    ]
    return Section(
        f"{setup.title}, scale {setup.scale}",
        schemes(setup, found),
        [*sentences, *map(Strong, warnings(setup))],
        lengths(setup),
        every_seed(setup),
        ["; ".join([RANGE, WORST, *beside]), *details(setup)],
    )


def schemes(setup: Setup, found: dict[str, Result]) -> Table:
    """Every scheme: published, measured, difference from the baseline, and thresholds.

    found: by scheme its result against the baseline
    """
    title, measure = setup.published.title, setup.measure
    versions = {} if setup.variant else setup.versions
    rows = []
    for scheme in setup.schemes:
        values, row = setup.of(scheme).value, {"scheme": title(scheme)}
        if versions:
            row["published"] = " / ".join(versions.get(scheme, [NONE]))
        row[f"mean, {measure.unit}"] = mean_of(values, measure.digits, measure.most)
        if setup.others:
            row |= _difference(setup, found.get(scheme))
        for name, threshold in setup.report.thresholds.items():
            row[name] = _reached(samples(setup.arm(scheme), threshold).value)
        if setup.optimum:
            above = values.mean() - setup.optimum
            row["above the Bayes-optimal loss"] = number(above, measure.digits)
        rows.append(row)
    return Table(rows, "Schemes")


def _difference(setup: Setup, result: Result | None) -> dict[str, str]:
    """The cells of a difference from the baseline."""
    baseline, measure = setup.published.titles[1], setup.measure
    difference = result.difference if result else NOTHING
    p = result.p_family if result else math.nan
    text = strong_if(p < ALPHA, signed(difference, measure.digits))
    return {
        f"difference from {baseline}, {measure.better} is better": text,
        "p": number(p, None),
    }


def _reached(steps: pd.Series) -> str:
    """How many seeds reach a threshold, and the median step."""
    if not len(steps):
        return NONE
    reached = f"{(steps < math.inf).sum()} of {len(steps)}"
    median = steps.median()
    return f"{reached}, {median:,.0f}" if math.isfinite(median) else reached


def _tests(setup: Setup, found: dict[str, Result], verdict: Result | None) -> Iterator[str]:
    """Sentences on the tests of differences, and on thresholds."""
    published = setup.published
    compared = [result for result in found.values() if result.difference.n]
    tested = [len(result.pairs) > result.comparison.untested for result in compared]
    few = published.untested.get(setup.scale)
    if few and not all(tested):
        yield f"with {few} pairs or fewer: estimate and 95% interval, no test"
    if any(tested):
        family = _families(setup, [result for result in compared if result is not verdict], verdict)
        baseline = published.title(published.baseline)
        yield f"p: paired t test against {baseline}, corrected (Holm, 1979) for {family}"
    if setup.report.thresholds:
        names = ", ".join(setup.report.thresholds)
        yield f"{names}: how many seeds get there, and at which step in the median"


def _families(setup: Setup, others: list[Result], verdict: Result | None) -> str:
    """For which tests p values are corrected."""
    if not verdict:
        return others[0].corrected_for
    if not others:
        return verdict.corrected_for
    contender = setup.published.titles[0]
    return f"{verdict.corrected_for} ({contender}) and {others[0].corrected_for} (others)"


def _reached_thresholds(setup: Setup) -> Iterator[str]:
    """For each threshold that contender and baseline reach on different seeds: on how many each
    does.
    """
    ours, theirs = setup.published.titles
    for name, threshold in setup.report.thresholds.items():
        measure = replace(threshold, at="ever reached")
        result = answered(between(setup, *setup.published.pair, measure=measure, test="mcnemar"))
        pairs, (ours_alone, theirs_alone) = result.pairs, result.alone
        if not any(result.alone):
            continue
        test = "" if math.isnan(result.p) else f" (McNemar's exact p {result.p:.2g})"
        baseline = f"{pairs.theirs.sum():.0f} of {len(pairs)} seeds under {theirs}"
        both = f"{baseline}, {pairs.ours.sum():.0f} under {ours}"
        discordant = f"discordant pairs: {ours_alone} only {ours}, {theirs_alone} only {theirs}"
        yield f"{name}: {both}; {discordant}{test}."


def _since_thresholds(setup: Setup) -> Iterator[str]:
    """The difference at equal steps after a threshold, which one scheme may reach first.

    Only with a constant learning rate: a decaying one would be higher for the scheme that is first.
    """
    if setup.settings.get("train.decay") != "none":
        return
    digits, titles = setup.measure.digits, " − ".join(setup.published.titles)
    for name in setup.report.since:
        difference = difference_since(setup, setup.report.thresholds[name])
        if not difference.n:
            continue
        found = f"{titles} is {difference.mean:+.{digits}f}"
        if difference.n > 1:
            low, high = difference.low, difference.high
            found += f" (95% interval {low:+.{digits}f} to {high:+.{digits}f})"
        pairs = "1 pair" if difference.n == 1 else f"{difference.n} pairs"
        yield f"At the same number of steps after each run {name}, {found} over {pairs}."


def every_seed(setup: Setup) -> Table:
    """Every seed of every scheme, the write-up's protocol, and the means of further metrics."""
    measure, rows = setup.measure, []
    for scheme in setup.schemes:
        values = setup.of(scheme).value
        each = " ".join(number(value, measure.digits) for value in values)
        without = without_worst(values, measure.higher_is_better)
        row = {
            "scheme": setup.published.title(scheme),
            f"every seed, {measure.unit}": each or NONE,
            "worst removed": number(without, measure.digits),
        }
        for name, threshold in setup.report.thresholds.items():
            steps = samples(setup.arm(scheme), threshold).value.reindex(values.index)
            row[f"{name} at step"] = " ".join(map(_step, steps)) or NONE
        for title, other in setup.report.beside.items():
            recorded = [other.of(run) for run in setup.of(scheme).run]
            mean = sum(recorded) / len(recorded) if recorded else math.nan
            row[title] = number(mean, other.digits)
        rows.append(row)
    return Table(rows, "Every seed")


def _step(step: float) -> str:
    """The step of a threshold: `?` without a record, a dash if it was never reached."""
    if math.isnan(step):
        return "?"
    return f"{step:.0f}" if step < math.inf else NONE


def lengths(setup: Setup) -> Table:
    """Percent of problems right, or loss, by length: the mean over seeds, least and most."""
    if not setup.lengths:
        return Table([])
    kind = setup.length_kinds[0]
    cell = _percent if kind == LENGTH else _loss
    slices = setup.slices(kind).groupby(["scheme", "value"])["mean"].agg(cell).unstack("value")
    rows = []
    for scheme, cells in slices.reindex(setup.schemes).fillna(NONE).iterrows():
        row = {setup.report.length["title"]: setup.published.title(scheme)}
        rows.append(row | {_length(setup, length): text for length, text in cells.items()})
    words = "Problems of given lengths whose whole completion is right, in percent"
    if kind == LENGTH_LOSS:
        words = "Loss up to given lengths, from the one before, in nats per token"
        if setup.generated:
            words += " above the Bayes-optimal loss"
    note = f"{words}: mean over seeds (least–most)"
    beyond = sorted({_beyond(setup, length) for length in setup.lengths} - {""})
    if beyond:
        note += f"; {', '.join(beyond)}: than any of training"
    return Table(rows, "By length", f"{note}.")


def _beyond(setup: Setup, length: int) -> str:
    """`shorter` or `longer` than any problem of training; empty if it is neither."""
    shortest, longest = setup.trained_lengths or (0, math.inf)
    if length < shortest:
        return "shorter"
    return "longer" if length > longest else ""


def _length(setup: Setup, length: int) -> str:
    """The head of the column of a length."""
    beyond = _beyond(setup, length)
    return f"{length} ({beyond})" if beyond else str(length)


def _percent(shares: pd.Series) -> str:
    """`97.1 (95–99)`"""
    mean, least, most = 100 * shares.mean(), 100 * shares.min(), 100 * shares.max()
    return f"{mean:.1f} ({least:.0f}–{most:.0f})" if len(shares) > 1 else f"{mean:.1f}"


def _loss(losses: pd.Series) -> str:
    """`1.123 (1.101–1.150)`"""
    mean, least, most = losses.mean(), losses.min(), losses.max()
    return f"{mean:.3f} ({least:.3f}–{most:.3f})" if len(losses) > 1 else f"{mean:.3f}"
