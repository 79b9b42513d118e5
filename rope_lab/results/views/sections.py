"""The section of a setup: its schemes, lengths and every seed as tables, and sentences on them."""

import math
from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from rope_lab.results.comparisons.families import between, difference_since, of_schemes
from rope_lab.results.comparisons.results import Result, answered, samples
from rope_lab.results.comparisons.stats import ALPHA, NOTHING, wilson, without_worst
from rope_lab.results.records.measures import LENGTH
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import Setup, numbers
from rope_lab.results.views.notes import warnings
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

RANGE = "[…]: 95% interval over seeds; (…): the range, of two runs or if that interval would hold impossible values"
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
        both = f"{pairs.theirs.sum():.0f} of {len(pairs)} seeds under {theirs}, {pairs.ours.sum():.0f} under {ours}"
        alone = f"under {ours} alone {ours_alone}, under {theirs} alone {theirs_alone}"
        yield f"{name}: {both}; {alone}{test}."


def _since_thresholds(setup: Setup) -> Iterator[str]:
    """The difference at equal steps after a threshold, which one scheme may reach first.

    Only with a constant learning rate: a decaying one would be higher for the scheme that is first.
    """
    if setup.settings.get("train.decay") != "none":
        return
    digits, titles = setup.measure.digits, " − ".join(setup.published.titles)
    for name in setup.report.since:
        d = difference_since(setup, setup.report.thresholds[name])
        if not d.n:
            continue
        found = f"{titles} is {d.mean:+.{digits}f}"
        if d.n > 1:
            found += f" (95% interval {d.low:+.{digits}f} to {d.high:+.{digits}f})"
        pairs = "1 pair" if d.n == 1 else f"{d.n} pairs"
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
    graded = LENGTH in setup.length_kinds
    times, digits, spread = (100, 1, 0) if graded else (1, 3, 3)

    def cell(values: pd.Series) -> str:
        values = times * values
        several = f" ({min(values):.{spread}f}–{max(values):.{spread}f})" if len(values) > 1 else ""
        return f"{values.mean():.{digits}f}{several}"

    shortest, longest = setup.trained_lengths or (0, math.inf)
    beyond = {
        n: "shorter" if n < shortest else "longer"
        for n in setup.lengths
        if not shortest <= n <= longest
    }
    cells = (
        setup.slices(setup.length_kinds[0])
        .groupby(["scheme", "value"])["mean"]
        .agg(cell)
        .unstack("value")
    )
    titles = {n: f"{n} ({beyond[n]})" if n in beyond else f"{n}" for n in setup.lengths}
    cells = cells.reindex(setup.schemes).fillna(NONE).rename(columns=titles)
    cells.insert(
        0, setup.report.length["title"], [setup.published.title(scheme) for scheme in cells.index]
    )
    above = " above the Bayes-optimal loss" if setup.generated else ""
    words = f"Loss up to given lengths, from the one before, in nats per token{above}"
    if graded:
        words = "Problems of given lengths whose whole completion is right, in percent"
    unlike = f"; {', '.join(sorted(set(beyond.values())))}: than any of training" if beyond else ""
    return Table(
        cells.to_dict("records"), "By length", f"{words}: mean over seeds (least–most){unlike}."
    )


def _steps(run: Run) -> str:
    s = run.settings
    sequences = s["train.steps"] * s["train.batch_size"]
    return f"{s['train.steps']:,} optimizer steps = {sequences:,} sequences = {sequences * s['train.seq_len']:,} tokens"


def details(setup: Setup) -> Iterator[str]:
    """Recipe, seeds, deviations from the write-up, and where the runs come from: a line each."""
    s, measure = setup.settings, setup.measure
    n = s.get("eval.problems_at_end") or s["eval.problems"]
    graded = any("eval/accuracy" in run.metrics for run in setup.runs.run)
    held_out = f"{n:,} held-out problems" if graded else "the held-out text"
    seeds = setup.runs.groupby("scheme", sort=False).seed
    for steps, recipes in (
        setup.runs.groupby(setup.runs.run.map(_steps), sort=False).recipe_id.unique().items()
    ):
        yield f"recipe {', '.join(recipes)}: {steps}; {held_out}"
    yield "seeds: " + "; ".join(
        f"{setup.published.title(name)} {numbers(each)}" for name, each in seeds
    )
    if setup.is_published and setup.deviations():
        yield "differs from the write-up in " + "; ".join(setup.deviations())
    elif setup.versions and setup.report.setup:
        yield "the write-up's own set-up" + (f", but for {setup.variant}" if setup.variant else "")
    if setup.report.elsewhere:
        yield f"in another set-up: {setup.report.elsewhere}"
    if setup.floor:
        yield f"Bayes-optimal loss on the held-out text: {setup.floor:.4f} nats per counted letter"
    if measure.metric == "eval/accuracy" and len(setup.finished):  # a share of independent problems
        intervals = [
            wilson(round(run.metrics[measure.metric] * n), n) for run in setup.finished.run
        ]
        half = 100 * max(high - low for low, high in intervals) / 2
        yield f"one model's accuracy on {n} problems is known to ±{half:.1f} points at most (Wilson, 95%)"
    for name in ("numerics", "commit", "torch", "hardware", "threads"):
        yield f"{name}: {', '.join(sorted(setup.runs[name].astype(str).unique()))}"
