"""Groups of runs as Markdown: published beside measured, intervals, and what follows in plain words."""

import math
import re
from collections.abc import Sequence

import pandas as pd

from rope_lab.results.groups import Group, numbers
from rope_lab.results.metrics import LENGTH
from rope_lab.results.stats import PairedDifference, holm, sign_p, t_interval, wilson, without_worst
from rope_lab.text import plain

ALPHA = 0.05
ACTIVE = re.compile(r"[\\`*|\[\]~$]|(?<!\w)_|_(?!\w)")  # what Markdown acts upon within a line, but for HTML


def escaped(text: str) -> str:
    """What a record says, as Markdown that shows it as it is, in one line and one cell of a table."""
    text = plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return ACTIVE.sub(r"\\\g<0>", text)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns are as wide as what they hold, so that it can be read as it stands."""
    columns = list(zip(head, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in (head, *rows)]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def as_markdown(rows: list[dict[str, str]]) -> str:
    """The same of rows that name their cells, all by the same names."""
    return markdown(list(rows[0]), [list(row.values()) for row in rows])


def comparison(groups: list[Group]) -> str:
    """The write-up's table: contender against baseline, published beside measured, one table a scale."""
    parts = []
    for scale in dict.fromkeys(group.scale for group in groups):
        there = [
            g for g in groups if g.scale == scale and {g.published.baseline, g.published.contender} <= {*g.schemes}
        ]
        if not there:
            continue
        pair = there[0].published.baseline, there[0].published.contender
        names = [escaped(there[0].published.title(scheme)) for scheme in pair]
        differences = [group.difference(*pair[::-1]) for group in there]
        p = pd.Series([difference.p if difference else math.nan for difference in differences])
        # two families: the tasks under their own recipes, and what was tried besides
        p = p.groupby([bool(group.variant) for group in there]).transform(lambda family: holm(family))
        rows, words = [], []
        for group, difference, adjusted in zip(there, differences, p, strict=True):
            published = {} if group.variant else group.report.published
            rows.append(
                {"task": escaped(group.title), "unit": group.metric.unit}
                | {
                    f"published {name}": " / ".join(published.get(s, ["–"]))
                    for s, name in zip(pair, names, strict=True)
                }
                | {f"measured {name}": _mean(group, s) for s, name in zip(pair, names, strict=True)}
                | _difference(f"{names[1]} − {names[0]}", difference, adjusted, group)
            )
            words.append(f"- **{escaped(group.title)}** ({scale}): {in_words(group, difference, adjusted, *names)}")
            for line in [*reached_thresholds(group, *pair, *names), *since_thresholds(group, *pair, *names)]:
                words.append(f"  {line}")
        parts.append(f"### scale: {scale}\n\n{as_markdown(rows)}\n\n" + "\n".join(words))
    return "\n\n".join(parts)


def in_words(group: Group, difference: PairedDifference | None, p: float, baseline: str, contender: str) -> str:
    """One sentence that says what the numbers of a comparison allow to say."""
    if difference is None:
        return f"no seed has finished under both {baseline} and {contender}, so they cannot be compared."
    d, metric = difference.difference, group.metric
    better = "better" if (d.mean > 0) == metric.higher_is_better else "worse"
    ahead = f"{contender} ends {better} than {baseline} by {_number(abs(d.mean), metric.digits)} {metric.unit}"
    if d.mean == 0:
        ahead = f"{contender} ends level with {baseline}"
    if d.n < 2:
        return f"{ahead} on one seed; with one seed nothing can be said about noise."
    if math.isnan(p):
        return f"{ahead} on each of {d.n} seeds alike; without a spread nothing can be said about noise."
    low, high = (f"{end:+.{metric.digits}f}" for end in (d.low, d.high))
    how = f"95% interval of the difference {low} to {high} over {d.n} paired seeds"
    if p < ALPHA:
        return f"{ahead} ({how}), which is beyond noise."
    corrected = f"; corrected for the number of tasks p is {p:.2g}" if difference.p < ALPHA else ""
    return f"no difference beyond noise: {ahead} ({how}{corrected})."


def reached_thresholds(group: Group, baseline: str, contender: str, *names: str) -> list[str]:
    """A sentence on each threshold that some seed reaches under one of the two alone: how many do under each."""
    lines, pairs = [], group.pairs(contender, baseline).index
    for threshold in group.report.thresholds:
        first, second = (group.first_steps(s, threshold).loc[pairs] < math.inf for s in (baseline, contender))
        if (first != second).any():
            alone = int((first & ~second).sum()), int((second & ~first).sum())
            lines.append(
                f"{threshold.name}: {first.sum()} of {len(pairs)} seeds under {names[0]}, {second.sum()} under "
                f"{names[1]}; under {names[1]} alone {alone[1]}, under {names[0]} alone {alone[0]} "
                f"(McNemar's exact p {sign_p(*alone):.2g})."
            )
    return lines


def since_thresholds(group: Group, baseline: str, contender: str, *names: str) -> list[str]:
    """A sentence on what of the difference is left as long after a threshold, which one may reach before the other.

    None where the learning rate falls, since it has then fallen less for the one that was there first.
    """
    thresholds = [t for t in group.report.thresholds if t.since and group.settings.get("train.decay") == "none"]
    lines, digits = [], group.metric.digits
    for threshold in thresholds:
        if found := group.difference_since(contender, baseline, threshold):
            d = found.difference
            how = f" (95% interval {d.low:+.{digits}f} to {d.high:+.{digits}f})" if d.n > 1 else ""
            lines.append(
                f"At the same number of steps after each run {threshold.name}, {names[1]} − {names[0]} is "
                f"{d.mean:+.{digits}f}{how} over {d.n} pair{'s' if d.n > 1 else ''}."
            )
    return lines


def schemes(group: Group, tested: bool = True) -> str:
    """One group in full: every scheme with every seed, and where `tested`, against the baseline."""
    baseline, metric, floor = group.published.baseline, group.metric, group.floor
    others = [scheme for scheme in group.schemes if scheme != baseline] if tested else []
    differences = {scheme: group.difference(scheme, baseline) for scheme in others}
    adjusted = dict(zip(others, holm([d.p if d else math.nan for d in differences.values()]), strict=True))
    rows = []
    for scheme in group.schemes:
        runs = group.of(scheme)
        row = {
            "scheme": escaped(group.published.title(scheme)),
            f"mean, {metric.unit}": _mean(group, scheme),
            "worst removed": _number(without_worst(runs.value, metric.higher_is_better), metric.digits),
            "every seed": " ".join(_number(value, metric.digits) for value in runs.value) or "–",
        }
        row |= _thresholds(group, scheme)
        if floor:
            row["above the floor"] = _number(runs.value.mean() - floor, metric.digits)
        for title, other in group.report.beside.items():
            values = [run.metrics.get(other.name, math.nan) for run in runs.run]
            row[title] = _number(other.times * sum(values) / len(values) if values else math.nan, other.digits)
        if tested:
            versus = f"against {escaped(group.published.title(baseline))}"
            row |= _difference(versus, differences.get(scheme), adjusted.get(scheme, math.nan), group)
        rows.append(row)
    return as_markdown(rows)


def rotations(group: Group) -> str:
    """What comes of rotating some of q, k, v and the output o, beside what was published of it."""
    source, losses = group.published.rotations["source"], group.published.rotations["loss"]
    if not set(losses) <= {*group.finished.scheme}:
        return ""
    rows = [
        {
            "rotated": row["rotated"],
            "published": f"{row['loss']:.3f}",
            f"mean, {group.metric.unit}": _mean(group, scheme),
        }
        | _thresholds(group, scheme)
        for scheme, row in losses.items()
    ]
    return f"What is rotated; published: {source}.\n\n{as_markdown(rows)}"


def lengths(group: Group) -> str:
    """Problems right by length, in percent: the mean over seeds, the least and the most."""
    if not group.lengths:
        return ""
    shortest, longest = group.trained_lengths or (0, math.inf)
    beyond = {n: "shorter" if n < shortest else "longer" for n in group.lengths if not shortest <= n <= longest}
    shares = group.slices(LENGTH).assign(mean=lambda slices: 100 * slices["mean"])
    table = shares.groupby(["scheme", "value"])["mean"].agg(["mean", "min", "max", "count"])

    def cell(scheme: str, n: int) -> str:
        if (scheme, n) not in table.index:
            return "–"
        mean, least, most, count = table.loc[scheme, n]
        return f"{mean:.1f}" + (f" ({least:.0f}–{most:.0f})" if count > 1 else "")

    titles = {n: f"{n} ({beyond[n]})" if n in beyond else f"{n}" for n in group.lengths}
    rows = [
        {group.report.length["title"]: escaped(group.published.title(scheme))}
        | {titles[n]: cell(scheme, n) for n in group.lengths}
        for scheme in group.schemes
    ]
    words = "Problems of given lengths whose whole completion is right, in percent: mean over seeds (least–most)"
    unlike = f"; {', '.join(sorted(set(beyond.values())))}: than any of training" if beyond else ""
    return f"{words}{unlike}.\n\n{as_markdown(rows)}"


def details(group: Group) -> str:
    """What one has to know of a group to believe it: deviations, what is missing, where the runs come from."""
    s, metric = group.settings, group.metric
    n = s.get("eval.problems_at_end") or s["eval.problems"]
    sequences = s["train.steps"] * s["train.batch_size"]
    schemes = group.runs.groupby("scheme", sort=False).seed
    lines = [
        f"recipe `{group.recipe_id}`: {s['train.steps']:,} optimizer steps = {sequences:,} sequences = "
        f"{sequences * s['train.seq_len']:,} tokens; {n:,} held-out problems",
        "seeds: " + "; ".join(f"{escaped(group.published.title(name))} {numbers(seeds)}" for name, seeds in schemes),
    ]
    if deviations := group.deviations():
        lines.append("differs from the write-up in " + escaped("; ".join(deviations)))
    elif group.report.setup:
        lines.append("the write-up's own set-up" + (f", but for {escaped(group.variant)}" if group.variant else ""))
    if group.report.elsewhere:
        lines.append(f"in another set-up: {escaped(group.report.elsewhere)}")
    if group.floor:
        lines.append(f"Bayes-optimal loss on the held-out text: {group.floor:.4f} nats per counted letter")
    if metric.wilson and len(group.finished):
        intervals = [wilson(round(run.metrics[metric.name] * n), n) for run in group.finished.run]
        half = 100 * max(high - low for low, high in intervals) / 2
        lines.append(f"one model's accuracy on {n} problems is known to ±{half:.1f} points at most (Wilson, 95%)")
    for what in ("code", "commit", "torch", "hardware", "threads"):
        lines.append(f"{what}: {escaped(', '.join(sorted(group.runs[what].astype(str).unique())))}")
    lines += [f"**{escaped(warning)}**" for warning in group.warnings()]
    return "\n".join(f"- {line}" for line in lines)


def _mean(group: Group, scheme: str) -> str:
    """The mean over a scheme's seeds and its interval."""
    values, digits = group.of(scheme).value, group.metric.digits
    if values.empty:
        return "–"
    mean = t_interval(values)
    if mean.n < 2:
        return f"{mean.mean:.{digits}f} (one seed)"
    return f"{mean.mean:.{digits}f} [{mean.low:.{digits}f}, {mean.high:.{digits}f}] n={mean.n}"


def _difference(name: str, difference: PairedDifference | None, adjusted: float, group: Group) -> dict[str, str]:
    """The cells of a paired difference."""
    cells = dict.fromkeys((name, "p (Holm)", "sign-flip p (least)", "pairs"), "–")
    if difference is None:
        return cells
    d, digits = difference.difference, group.metric.digits
    if d.n < 2:
        return cells | {name: f"{d.mean:+.{digits}f}", "pairs": "1"}
    beyond = "**" if adjusted < ALPHA else ""
    return {
        name: f"{beyond}{d.mean:+.{digits}f} [{d.low:+.{digits}f}, {d.high:+.{digits}f}]{beyond}",
        "p (Holm)": _number(adjusted, None),
        "sign-flip p (least)": f"{difference.p_signs:.2g} ({difference.p_signs_least:.2g})",
        "pairs": str(d.n),
    }


def _thresholds(group: Group, scheme: str) -> dict[str, str]:
    """A cell for each threshold: how many seeds reach it, and when."""
    return {
        f"{threshold.name}: seeds, median step (each)": _reached(group.first_steps(scheme, threshold))
        for threshold in group.report.thresholds
    }


def _reached(steps: pd.Series) -> str:
    if steps.empty:
        return "–"
    reached, middle = steps < math.inf, steps.median()
    when = f", {middle:,.0f}" if math.isfinite(middle) else ""
    each = " ".join(f"{step:.0f}" if math.isfinite(step) else "–" for step in steps)
    return f"{reached.sum()} of {len(steps)}{when}" + (f" ({each})" if reached.any() else "")


def _number(value: float, digits: int | None) -> str:
    """With so many digits; with None, two that count."""
    if math.isnan(value):
        return "–"
    return f"{value:.2g}" if digits is None else f"{value:.{digits}f}"
