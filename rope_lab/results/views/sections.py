"""The section of a setup: its schemes, lengths and every seed as tables, and sentences on them."""

import math
from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from rope_lab.results.comparisons.answers import Result, answered, samples
from rope_lab.results.comparisons.stats import without_worst
from rope_lab.results.comparisons.unplanned import between, difference_since, of_schemes
from rope_lab.results.records.measures import LENGTH, LENGTH_LOSS, MEASURES
from rope_lab.results.records.setups import Setup
from rope_lab.results.views.notes import details, models, warnings
from rope_lab.results.views.tables import (
    NONE,
    Section,
    Strong,
    Table,
    mean_of,
    number,
    signed,
    tested,
)

RANGE = (
    "[…]: 95% interval over seeds; (…): lowest to highest run, of two runs or if that interval "
    "would include impossible values; n: runs, or pairs of runs with the same seed, numerics and "
    "task code"
)
WORST = "worst removed: the mean without a scheme's worst seed"
# Of lengths: what the table shows, and how a mean with the lowest and the highest run is written
LENGTHS = {
    LENGTH: "Problems of each length, percent correct: mean over seeds (lowest–highest).",
    LENGTH_LOSS: "Loss at positions from the previous column's length to this one, in {unit}: mean "
    "over seeds (lowest–highest).",
}
FORMS = {LENGTH: "{:.1%} ({:.0%}–{:.0%})", LENGTH_LOSS: "{:.3f} ({:.3f}–{:.3f})"}
ABOVE = " Losses are above the Bayes-optimal loss."


def section(setup: Setup, headline: Result | None) -> Section:
    """A setup's tables and sentences; `headline`: of contender and baseline; the first table shows
    its p.
    """
    found = of_schemes(setup, headline)
    sentences = [models(setup), *_tests(setup, found, headline)]
    if setup.catalogue.compares:
        sentences += [*_reached_thresholds(setup), *_since_thresholds(setup)]
    return Section(
        f"{setup.title}, scale {setup.scale}",
        schemes(setup, found),
        [*sentences, *map(Strong, warnings([setup]))],
        lengths(setup),
        every_seed(setup),
        [RANGE, WORST, *details([setup])],
    )


def schemes(setup: Setup, found: dict[str, Result]) -> Table:
    """Every scheme: published, measured, difference from the baseline, and thresholds.

    found: by scheme its result against the baseline
    """
    title = setup.catalogue.title
    measure = setup.measure
    against = title(setup.catalogue.baseline)
    rows = []
    for scheme in setup.schemes:
        values = setup.of(scheme).value
        row = {"scheme": title(scheme)}
        if setup.versions and not setup.variant:
            row["published"] = " / ".join(setup.versions.get(scheme, [NONE]))
        row[f"mean, {measure.unit}"] = mean_of(values, measure)
        if setup.others:
            column = f"difference from {against}, {measure.better} is better"
            row |= tested(found.get(scheme), column)
        for name, threshold in setup.report.thresholds.items():
            steps = samples(setup.arm(scheme), threshold).value
            row[f"seeds that reach {name}, median step"] = _reached(steps)
        if setup.optimum:
            above = values.mean() - setup.optimum
            row["above the Bayes-optimal loss"] = number(above, measure.digits)
        rows.append(row)
    return Table(rows, "Schemes")


def _reached(steps: pd.Series) -> str:
    """`6 of 8, step 4,000`; without the step if fewer than half reach it."""
    if steps.empty:
        return NONE
    reached = f"{(steps < math.inf).sum()} of {len(steps)}"
    median = steps.median()
    return f"{reached}, step {median:,.0f}" if median < math.inf else reached


def _tests(setup: Setup, found: dict[str, Result], headline: Result | None) -> Iterator[str]:
    """A sentence on the tests of differences."""
    measured = [result for result in found.values() if result.difference.n]
    if not measured:
        return
    families = {}
    for result in found.values():
        if not math.isnan(result.p_family):
            who = setup.catalogue.titles[0] if result is headline else "others"
            families[who] = result.corrected_for
    tests = " and ".join(f"{tests} ({who})" for who, tests in families.items())
    if len(families) == 1:
        (tests,) = families.values()
    corrected = f"; corrected (Holm, 1979) for {tests}" if tests else ""
    baseline = setup.catalogue.titles[1]
    fewest = measured[0].comparison.fewest
    yield f"p: paired t test against {baseline}, from {fewest} pairs on{corrected}"


def _reached_thresholds(setup: Setup) -> Iterator[str]:
    """For each threshold that contender and baseline reach on different seeds: on how many each
    does.
    """
    for name, threshold in setup.report.thresholds.items():
        measure = replace(threshold, at="ever reached")
        result = answered(between(setup, *setup.catalogue.pair, measure=measure, test="mcnemar"))
        if any(result.alone):
            ours, theirs = setup.catalogue.titles
            yield (
                f"Seeds that reach {name} under one scheme only: {ours} {result.alone[0]}, {theirs}"
                f" {result.alone[1]}; McNemar's exact p: {number(result.p, None)}"
            )


def _since_thresholds(setup: Setup) -> Iterator[str]:
    """The difference at equal steps after a threshold, which one scheme may reach first.

    Only with a constant learning rate: a decaying one would be higher for the scheme that is first.
    """
    if setup.settings.get("train.decay") != "none":
        return
    for name in setup.report.since:
        difference = difference_since(setup, setup.report.thresholds[name])
        if difference.n:
            pair = " − ".join(setup.catalogue.titles)
            shown = signed(difference, 4)
            yield f"At the same number of steps after each run reaches {name}: {pair} is {shown}"


def every_seed(setup: Setup) -> Table:
    """Every seed of every scheme, the write-up's protocol, and the means of further metrics."""
    measure, rows = setup.measure, []
    for scheme in setup.schemes:
        runs = setup.of(scheme)
        each = " ".join(number(value, measure.digits) for value in runs.value)
        row = {
            "scheme": setup.catalogue.title(scheme),
            f"every seed, {measure.unit}": each or NONE,
            "worst removed": number(
                without_worst(runs.value, measure.higher_is_better), measure.digits
            ),
        }
        for name, threshold in setup.report.thresholds.items():
            row[f"step at {name}"] = " ".join(_step(threshold.of(run)) for run in runs.run) or NONE
        for title, other in setup.report.beside.items():
            mean = runs.run.map(other.of).astype(float).mean(skipna=False)
            row[title] = number(mean, other.digits)
        rows.append(row)
    return Table(rows, "Every seed")


def _step(step: float) -> str:
    return f"{step:.0f}" if step < math.inf else NONE


def lengths(setup: Setup) -> Table:
    """Percent of problems right, or loss, by length: the mean over seeds, least and most."""
    if not setup.lengths:
        return Table([])
    kind = setup.length_kinds[0]
    shortest, longest = setup.trained_lengths or (0, math.inf)
    names = {}
    for length in setup.lengths:
        trained = shortest <= length <= longest
        names[length] = f"{length}" if trained else f"{length} (not in training)"
    values = setup.slices(kind).groupby(["scheme", "value"])["mean"]
    cells = values.agg(lambda each: FORMS[kind].format(each.mean(), each.min(), each.max()))
    shown = cells.unstack("value").reindex(index=setup.schemes, columns=setup.lengths)
    rows = []
    for scheme, row in shown.fillna(NONE).rename(columns=names).iterrows():
        rows.append({setup.report.length["title"]: setup.catalogue.title(scheme)} | row.to_dict())
    above = kind == LENGTH_LOSS and setup.generated
    note = LENGTHS[kind].format(unit=_unit_of_loss(setup))
    return Table(rows, "By length", note + ABOVE if above else note)


def _unit_of_loss(setup: Setup) -> str:
    return MEASURES["eval/loss"].unit if setup.measure.share else setup.measure.unit
