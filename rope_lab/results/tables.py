"""Groups of runs as Markdown: published beside measured, intervals, and what follows in plain words."""

import math
import re
from statistics import median
from typing import Any

from rope_lab.results import groups as named
from rope_lab.results.groups import Group, numbers
from rope_lab.results.stats import Interval, PairedDifference, holm, mcnemar_p, t_interval, wilson, without_worst
from rope_lab.text import plain

ALPHA = 0.05
ACTIVE = re.compile(r"[\\`*|\[\]~$]|(?<!\w)_|_(?!\w)")  # what Markdown acts upon within a line, but for HTML


def escaped(text: str) -> str:
    """What a record says, as Markdown that shows it as it is, in one line and one cell of a table."""
    text = plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return ACTIVE.sub(r"\\\g<0>", text)


def title(published: dict[str, Any], scheme: str) -> str:
    """How a scheme is called, in Markdown."""
    return escaped(named.title(published, scheme))


def comparison(groups: list[Group], published: dict[str, Any]) -> str:
    """The write-up's table: contender against baseline, published beside measured, one table a scale."""
    baseline, contender = published["baseline"], published["contender"]
    names = [title(published, scheme) for scheme in (baseline, contender)]
    parts = []
    for scale in dict.fromkeys(group.scale for group in groups):
        there = [g for g in groups if g.scale == scale and baseline in g.cells and contender in g.cells]
        if not there:
            continue
        differences = [g.difference(contender, baseline) for g in there]
        p = [d.p if d else math.nan for d in differences]
        for besides in (False, True):  # two families: the tasks under their own recipes, and what was tried besides
            family = [i for i, g in enumerate(there) if bool(g.variant) == besides]
            for i, adjusted in zip(family, holm([p[i] for i in family]), strict=True):
                p[i] = adjusted
        rows, words = [], []
        for group, difference, adjusted in zip(there, differences, p, strict=True):
            row = [escaped(group.title), group.facts["unit"]]
            published_here = {} if group.variant else group.facts["published"]
            row += [" / ".join(published_here.get(s, ["–"])) for s in (baseline, contender)]
            row += [
                _interval(t_interval(list(v.values())), group) if (v := group.values(s)) else "–"
                for s in (baseline, contender)
            ]
            row += _difference(difference, adjusted, group)
            rows.append(row)
            words.append("- " + in_words(group, difference, adjusted, *names))
            words += [
                f"  {line}"
                for sentences in (reached_milestones, since_milestones)
                for line in sentences(group, baseline, contender, *names)
            ]
        head = ["task", "unit", *(f"published {n}" for n in names), *(f"measured {n}" for n in names)]
        head += [f"{names[1]} − {names[0]}", "p (Holm)", "sign-flip p (least)", "pairs"]
        parts.append(f"### scale: {scale}\n\n{markdown(head, rows)}\n\n" + "\n".join(words))
    return "\n\n".join(parts)


def in_words(group: Group, difference: PairedDifference | None, p: float, baseline: str, contender: str) -> str:
    """One sentence that says what the numbers of a comparison allow to say."""
    where = f"**{escaped(group.title)}** ({group.scale}): "
    if difference is None:
        return where + f"no seed has finished under both {baseline} and {contender}, so they cannot be compared."
    d, digits = difference.difference, group.facts["digits"]
    better = (d.mean > 0) == group.facts["higher_is_better"]
    size = f"{abs(d.mean):.{digits}f} {group.facts['unit']}"
    ahead = f"{contender} ends {'better' if better else 'worse'} than {baseline} by {size}"
    if d.mean == 0:
        ahead = f"{contender} ends level with {baseline}"
    if d.n < 2:
        return where + f"{ahead} on one seed; with one seed nothing can be said about noise."
    if math.isnan(p):
        return where + f"{ahead} on each of {d.n} seeds alike; without a spread nothing can be said about noise."
    how = f"95% interval of the difference {d.low:+.{digits}f} to {d.high:+.{digits}f} over {d.n} paired seeds"
    if p < ALPHA:
        return where + f"{ahead} ({how}), which is beyond noise."
    corrected = f"; corrected for the number of tasks p is {p:.2g}" if difference.p < ALPHA else ""
    return where + f"no difference beyond noise: {ahead} ({how}{corrected})."


def reached_milestones(group: Group, baseline: str, contender: str, *names: str) -> list[str]:
    """A sentence on each milestone that some seed reaches under one of the two alone: how many do under each."""
    lines, pairs = [], group.pairs(contender, baseline)
    for milestone in group.facts["milestones"]:
        steps = [group.milestone_steps(scheme, milestone) for scheme in (baseline, contender)]
        first, second = ({seed for seed in pairs if reached[seed] < math.inf} for reached in steps)
        if first != second:
            alone = len(first - second), len(second - first)
            lines.append(
                f"{milestone['name']}: {len(first)} of {len(pairs)} seeds under {names[0]}, {len(second)} under "
                f"{names[1]}; under {names[1]} alone {alone[1]}, under {names[0]} alone {alone[0]} "
                f"(McNemar's exact p {mcnemar_p(*alone):.2g})."
            )
    return lines


def since_milestones(group: Group, baseline: str, contender: str, *names: str) -> list[str]:
    """A sentence on what of the difference is left as long after a milestone, which one may reach before the other.

    None where the learning rate falls, since it has then fallen less for the one that was there first.
    """
    lines: list[str] = []
    if group.settings.get("train.decay") != "none":
        return lines
    for milestone in (m for m in group.facts["milestones"] if m.get("since")):
        found = group.difference_since(contender, baseline, milestone)
        if found is None:
            continue
        d, digits = found.difference, group.facts["digits"]
        how = f" (95% interval {d.low:+.{digits}f} to {d.high:+.{digits}f})" if d.n > 1 else ""
        lines.append(
            f"At the same number of steps after each run {milestone['name']}, {names[1]} − {names[0]} is "
            f"{d.mean:+.{digits}f}{how} over {d.n} pair{'s' if d.n > 1 else ''}."
        )
    return lines


def schemes(group: Group, published: dict[str, Any], tested: bool = True) -> str:
    """One group in full: every scheme with every seed, and where `tested`, against the baseline."""
    baseline, facts = published["baseline"], group.facts
    digits = facts["digits"]
    others = [s for s in group.cells if s != baseline]
    differences = {s: group.difference(s, baseline) for s in others}
    adjusted = dict(zip(others, holm([d.p if d else math.nan for d in differences.values()]), strict=True))
    floor = group.floor
    head = ["scheme", f"mean, {facts['unit']}", "worst removed", "every seed"]
    head += [f"{m['name']}: seeds, median step (each)" for m in facts["milestones"]]
    head += ["above the floor"] if floor else []
    head += ["with every step right"] if "eval/sum_accuracy" in facts["metric"] else []
    head += ["first 128"] if facts["times"] == 128 else []
    head += [f"against {title(published, baseline)}", "p (Holm)", "sign-flip p (least)", "pairs"] if tested else []
    rows = []
    for scheme in group.cells:
        values = group.values(scheme)
        row = [title(published, scheme)]
        if not values:
            rows.append(row + ["–"] * (len(head) - 1))
            continue
        worst = without_worst(list(values.values()), facts["higher_is_better"])
        row += [_interval(t_interval(list(values.values())), group), _number(worst, digits)]
        row.append(" ".join(f"{value:.{digits}f}" for value in values.values()))
        row += _milestones(group, scheme)
        row += [f"{t_interval(list(values.values())).mean - floor:.{digits}f}"] if floor else []
        if "eval/sum_accuracy" in facts["metric"]:
            whole = [run.metrics.get("eval/accuracy", math.nan) for run in group.finished(scheme).values()]
            row.append(_number(facts["times"] * sum(whole) / len(whole), digits))
        if facts["times"] == 128:
            scores = [run.metrics.get("eval/score", math.nan) for run in group.finished(scheme).values()]
            row.append(_number(sum(scores) / len(scores), 2))
        row += _difference(differences.get(scheme), adjusted.get(scheme, math.nan), group) if tested else []
        rows.append(row)
    return markdown(head, rows)


def turns(group: Group, published: dict[str, Any]) -> str:
    """What comes of turning some of q, k, v and the output o, beside what was published of it."""
    source, losses = published["turns"]["source"], published["turns"]["loss"]
    if not all(group.values(scheme) for scheme in losses):
        return ""
    head = ["turned", "published", f"mean, {group.facts['unit']}"]
    head += [f"{m['name']}: seeds, median step (each)" for m in group.facts["milestones"]]
    rows = []
    for scheme, row in losses.items():
        measured = _interval(t_interval(list(group.values(scheme).values())), group)
        rows.append([row["turned"], f"{row['loss']:.3f}", measured, *_milestones(group, scheme)])
    return f"What turns; published: {source}.\n\n{markdown(head, rows)}"


def lengths(group: Group, published: dict[str, Any]) -> str:
    """Problems right by length, in percent: the mean over seeds, the least and the most."""
    if not group.lengths:
        return ""
    shortest, longest = group.trained_lengths or (0, math.inf)
    beyond = {n: "shorter" if n < shortest else "longer" for n in group.lengths if not shortest <= n <= longest}
    head = [group.facts["length"]["title"], *(f"{n} ({beyond[n]})" if n in beyond else f"{n}" for n in group.lengths)]
    rows = []
    for scheme in group.cells:
        row = [title(published, scheme)]
        for n in group.lengths:
            runs = (run.slices.get("length", {}) for run in group.finished(scheme).values())
            shares = [100 * there[str(n)][1] for there in runs if str(n) in there]
            spread = f" ({min(shares):.0f}–{max(shares):.0f})" if len(shares) > 1 else ""
            row.append(f"{sum(shares) / len(shares):.1f}{spread}" if shares else "–")
        rows.append(row)
    words = "Problems of given lengths whose whole completion is right, in percent: mean over seeds (least–most)"
    unlike = f"; {', '.join(sorted(set(beyond.values())))}: than any of training" if beyond else ""
    return f"{words}{unlike}.\n\n{markdown(head, rows)}"


def details(group: Group, published: dict[str, Any]) -> str:
    """What one has to know of a group to believe it: deviations, what is missing, where the runs come from."""
    s = group.settings
    steps, batch, length = s["train.steps"], s["train.batch_size"], s["train.seq_len"]
    lines = [
        f"- recipe `{group.recipe_id}`: {steps:,} optimizer steps = {steps * batch:,} sequences = "
        f"{steps * batch * length:,} tokens; {graded(group):,} held-out problems"
    ]
    sources = [run.source for cell in group.cells.values() for run in cell.values()]
    seeds = "; ".join(f"{title(published, scheme)} {numbers(list(cell))}" for scheme, cell in group.cells.items())
    lines.append(f"- seeds: {seeds}")
    if group.facts["setup"]:
        deviations = group.deviations()
        own = "the write-up's own set-up" + (f", but for {escaped(group.variant)}" if group.variant else "")
        lines.append("- differs from the write-up in " + escaped("; ".join(deviations)) if deviations else f"- {own}")
    floor = group.floor
    if floor:
        lines.append(f"- Bayes floor on the held-out text: {floor:.4f} nats per counted letter")
    accuracies = [run.metrics["eval/accuracy"] for run in group.all_finished() if "eval/accuracy" in run.metrics]
    if accuracies and "eval/accuracy" in group.facts["metric"]:
        n = graded(group)
        half = max(high - low for low, high in (wilson(round(accuracy * n), n) for accuracy in accuracies)) / 2
        lines.append(
            f"- one model's accuracy on {n} problems is known to ±{100 * half:.1f} points at most (Wilson, 95%)"
        )
    for what in ("code", "commit", "torch", "hardware", "threads"):
        values = sorted({str(getattr(source, what)) for source in sources})
        lines.append(f"- {what}: {escaped(', '.join(values))}")
    lines += [f"- **{escaped(warning)}**" for warning in group.warnings(published)]
    return "\n".join(lines)


def graded(group: Group) -> int:
    """How many problems a finished run was graded on."""
    return group.settings.get("eval.problems_at_end") or group.settings["eval.problems"]


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table whose columns are as wide as what they hold, so that it can be read as it stands."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in [head, *rows]
    ]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def _interval(interval: Interval, group: Group) -> str:
    digits = group.facts["digits"]
    if interval.n < 2:
        return f"{interval.mean:.{digits}f} (one seed)"
    return f"{interval.mean:.{digits}f} [{interval.low:.{digits}f}, {interval.high:.{digits}f}] n={interval.n}"


def _difference(difference: PairedDifference | None, adjusted: float, group: Group) -> list[str]:
    """The cells difference, p (Holm), sign-flip p (least), pairs."""
    if difference is None:
        return ["–"] * 4
    d, digits = difference.difference, group.facts["digits"]
    if d.n < 2:
        return [f"{d.mean:+.{digits}f}", "–", "–", "1"]
    beyond = "**" if adjusted < ALPHA else ""
    return [
        f"{beyond}{d.mean:+.{digits}f} [{d.low:+.{digits}f}, {d.high:+.{digits}f}]{beyond}",
        "–" if math.isnan(adjusted) else f"{adjusted:.2g}",
        f"{difference.p_signs:.2g} ({difference.p_signs_least:.2g})",
        str(d.n),
    ]


def _milestones(group: Group, scheme: str) -> list[str]:
    return [_milestone(list(group.milestone_steps(scheme, m).values())) for m in group.facts["milestones"]]


def _milestone(steps: list[float]) -> str:
    reached = [s for s in steps if math.isfinite(s)]
    middle = median(steps)
    when = f", {middle:,.0f}" if math.isfinite(middle) else ""
    each = f" ({' '.join(f'{s:.0f}' if math.isfinite(s) else '–' for s in steps)})" if reached else ""
    return f"{len(reached)} of {len(steps)}{when}{each}"


def _number(value: float, digits: int) -> str:
    return "–" if math.isnan(value) else f"{value:.{digits}f}"
