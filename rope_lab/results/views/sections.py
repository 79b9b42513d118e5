"""The section of a group: its schemes, lengths and every seed as tables, and sentences on them."""

import math
from collections.abc import Iterator

import pandas as pd

from rope_lab.results.comparisons.stats import ALPHA, NOTHING, sign_p, wilson, without_worst
from rope_lab.results.comparisons.verdicts import Verdict, family_of
from rope_lab.results.records.measures import LENGTH
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import Group, numbers
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


def section(group: Group, verdict: Verdict | None) -> Section:
    """A group's tables and sentences; `verdict`: of contender and baseline; the first table shows
    its p.
    """
    table, sentences = schemes(group, verdict)
    if group.published.compares:
        sentences += [*_reached_thresholds(group), *_since_thresholds(group)]
    beside = [
        f"{title}: {other.unit}"
        for title, other in group.report.beside.items()
        if title != other.unit
    ]
    return Section(
        f"{group.title}, scale {group.scale}",
        table,
        [*sentences, *map(Strong, group.warnings())],
        lengths(group),
        every_seed(group),
        ["; ".join([RANGE, WORST, *beside]), *details(group)],
    )


def schemes(group: Group, verdict: Verdict | None) -> tuple[Table, list[str]]:
    """Every scheme: published, measured, difference from the baseline, thresholds; then sentences
    on the tests.

    The contender's p is that of the verdict; those of the others are corrected for their number.
    """
    published, title, digits = group.published, group.published.title, group.metric.digits
    differences = {
        scheme: group.difference(group.pairs(scheme, published.baseline)) for scheme in group.others
    }
    found = {scheme: each for scheme, each in differences.items() if each.n}
    here = [scheme for scheme in found if not (verdict and scheme == published.contender)]
    corrected, family = family_of(
        [found[scheme].p for scheme in here], "schemes here", "this comparison"
    )
    p = dict(zip(here, corrected, strict=True))
    if verdict:
        p[published.contender] = verdict.p
        ours = f" ({title(published.contender)}) and {family} (others)" if here else ""
        family = f"{verdict.family}{ours}"
    versions = {} if group.variant else group.versions
    column = f"difference from {title(published.baseline)}, {group.metric.better} is better"
    rows = []
    for scheme in group.schemes:
        runs, row = group.of(scheme), {"scheme": title(scheme)}
        if versions:
            row["published"] = " / ".join(versions.get(scheme, [NONE]))
        row[f"mean, {group.metric.unit}"] = mean_of(runs.value, digits, group.metric.most)
        if differences:
            difference, p_here = differences.get(scheme, NOTHING), p.get(scheme, math.nan)
            row |= {
                column: strong_if(p_here < ALPHA, signed(difference, digits)),
                "p": number(p_here, None),
            }
        for threshold in group.report.thresholds:  # how many seeds reach it, and the median step
            steps = group.first_steps(scheme, threshold)
            when = f", {steps.median():,.0f}" if math.isfinite(steps.median()) else ""
            row[threshold.name] = (
                f"{(steps < math.inf).sum()} of {len(steps)}{when}" if len(steps) else NONE
            )
        if group.optimum:
            row["above the Bayes-optimal loss"] = number(runs.value.mean() - group.optimum, digits)
        rows.append(row)
    lines, tested = [], {published.tests(group.scale, each.n) for each in found.values()}
    if False in tested:
        lines.append(
            f"with {published.untested[group.scale]} pairs or fewer: estimate and 95% interval, no test"
        )
    if True in tested:
        lines.append(
            f"p: paired t test against {title(published.baseline)}, corrected (Holm, 1979) for {family}"
        )
    if thresholds := [threshold.name for threshold in group.report.thresholds]:
        lines.append(
            f"{', '.join(thresholds)}: how many seeds get there, and at which step in the median"
        )
    return Table(rows, "Schemes"), lines


def _reached_thresholds(group: Group) -> Iterator[str]:
    """For each threshold that contender and baseline reach on different seeds: on how many each
    does.
    """
    pairs = group.pairs(*group.published.pair)[["run", "run_other"]]
    ours, theirs = group.published.titles
    for threshold in group.report.thresholds:
        reached = pairs.map(threshold.first_step).dropna() < math.inf
        other, base = reached.run, reached.run_other
        alone = int((base & ~other).sum()), int((other & ~base).sum())
        if any(alone):
            tested = group.published.tests(group.scale, len(reached))
            test = f" (McNemar's exact p {sign_p(*alone):.2g})" if tested else ""
            both = (
                f"{base.sum()} of {len(reached)} seeds under {theirs}, {other.sum()} under {ours}"
            )
            yield f"{threshold.name}: {both}; under {ours} alone {alone[1]}, under {theirs} alone {alone[0]}{test}."


def _since_thresholds(group: Group) -> Iterator[str]:
    """The difference at equal steps after a threshold, which one scheme may reach first.

    Only with a constant learning rate: a decaying one would be higher for the scheme that is first.
    """
    for threshold in group.report.thresholds:
        constant = threshold.since and group.settings.get("train.decay") == "none"
        if constant and (d := group.difference_since(threshold)).n:
            digits = group.metric.digits
            interval = (
                f" (95% interval {d.low:+.{digits}f} to {d.high:+.{digits}f})" if d.n > 1 else ""
            )
            found = f"{' − '.join(group.published.titles)} is {d.mean:+.{digits}f}{interval}"
            pairs = f"{d.n} pair{'s' if d.n > 1 else ''}"
            yield f"At the same number of steps after each run {threshold.name}, {found} over {pairs}."


def every_seed(group: Group) -> Table:
    """Every seed of every scheme, the write-up's protocol, and the means of further metrics."""
    metric, rows = group.metric, []
    for scheme in group.schemes:
        runs = group.of(scheme)
        row = {
            "scheme": group.published.title(scheme),
            f"every seed, {metric.unit}": " ".join(number(v, metric.digits) for v in runs.value)
            or NONE,
            "worst removed": number(
                without_worst(runs.value, metric.higher_is_better), metric.digits
            ),
        }
        for threshold in group.report.thresholds:
            steps = group.first_steps(scheme, threshold).reindex(runs.index)
            shown = ("?" if math.isnan(s) else f"{s:.0f}" if s < math.inf else NONE for s in steps)
            row[f"{threshold.name} at step"] = " ".join(shown) or NONE
        for title, other in group.report.beside.items():
            values = [run.metrics.get(other.name, math.nan) for run in runs.run]
            row[title] = number(
                other.times * sum(values) / len(values) if values else math.nan, other.digits
            )
        rows.append(row)
    return Table(rows, "Every seed")


def lengths(group: Group) -> Table:
    """Percent of problems right, or loss, by length: the mean over seeds, least and most."""
    if not group.lengths:
        return Table([])
    graded = LENGTH in group.length_kinds
    times, digits, spread = (100, 1, 0) if graded else (1, 3, 3)

    def cell(values: pd.Series) -> str:
        values = times * values
        several = f" ({min(values):.{spread}f}–{max(values):.{spread}f})" if len(values) > 1 else ""
        return f"{values.mean():.{digits}f}{several}"

    shortest, longest = group.trained_lengths or (0, math.inf)
    beyond = {
        n: "shorter" if n < shortest else "longer"
        for n in group.lengths
        if not shortest <= n <= longest
    }
    cells = (
        group.slices(group.length_kinds[0])
        .groupby(["scheme", "value"])["mean"]
        .agg(cell)
        .unstack("value")
    )
    titles = {n: f"{n} ({beyond[n]})" if n in beyond else f"{n}" for n in group.lengths}
    cells = cells.reindex(group.schemes).fillna(NONE).rename(columns=titles)
    cells.insert(
        0, group.report.length["title"], [group.published.title(scheme) for scheme in cells.index]
    )
    above = " above the Bayes-optimal loss" if group.generated else ""
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


def details(group: Group) -> Iterator[str]:
    """Recipe, seeds, deviations from the write-up, and where the runs come from: a line each."""
    s, metric = group.settings, group.metric
    n = s.get("eval.problems_at_end") or s["eval.problems"]
    graded = any("eval/accuracy" in run.metrics for run in group.runs.run)
    held_out = f"{n:,} held-out problems" if graded else "the held-out text"
    seeds = group.runs.groupby("scheme", sort=False).seed
    for steps, recipes in (
        group.runs.groupby(group.runs.run.map(_steps), sort=False).recipe_id.unique().items()
    ):
        yield f"recipe {', '.join(recipes)}: {steps}; {held_out}"
    yield "seeds: " + "; ".join(
        f"{group.published.title(name)} {numbers(each)}" for name, each in seeds
    )
    if group.versions and (deviations := group.deviations()):
        yield "differs from the write-up in " + "; ".join(deviations)
    elif group.versions and group.report.setup:
        yield "the write-up's own set-up" + (f", but for {group.variant}" if group.variant else "")
    if group.report.elsewhere:
        yield f"in another set-up: {group.report.elsewhere}"
    if group.floor:
        yield f"Bayes-optimal loss on the held-out text: {group.floor:.4f} nats per counted letter"
    if metric.name == "eval/accuracy" and len(group.finished):  # a share of independent problems
        intervals = [wilson(round(run.metrics[metric.name] * n), n) for run in group.finished.run]
        half = 100 * max(high - low for low, high in intervals) / 2
        yield f"one model's accuracy on {n} problems is known to ±{half:.1f} points at most (Wilson, 95%)"
    for name in ("numerics", "commit", "torch", "hardware", "threads"):
        yield f"{name}: {', '.join(sorted(group.runs[name].astype(str).unique()))}"
