"""Verdicts and groups of runs as Markdown: published beside measured, intervals, and where the numbers come from."""

import math
import re
from collections.abc import Iterable, Sequence

from rope_lab.results import series
from rope_lab.results.groups import Group, numbers
from rope_lab.results.metrics import LENGTH, LENGTH_LOSS
from rope_lab.results.stats import ALPHA, Interval, PairedDifference, sign_p, t_interval, wilson, without_worst
from rope_lab.results.verdicts import AHEAD, BEHIND, CEILING, LAST, NO, OPEN, UNSURE, YES, Verdict, family_of
from rope_lab.text import plain

ACTIVE = re.compile(r"[\\`*|\[\]~$]|(?<!\w)_|_(?!\w)")  # what Markdown acts upon within a line, but for HTML

Rows = list[dict[str, str]]  # of a table: cells, as Markdown, by the heads of their columns


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


def as_markdown(rows: Rows, note: str = "") -> str:
    """The same of rows that name their cells, all by the same names, behind a `note`; empty where there are none."""
    table = markdown(list(rows[0]), [list(row.values()) for row in rows]) if rows else ""
    return f"{note}\n\n{table}" if note and rows else table


def bullets(lines: Iterable[str]) -> str:
    """Lines as a Markdown list."""
    return "\n".join(f"- {line}" for line in lines)


def verdicts(found: list[Verdict], baseline: str, contender: str, short: bool = False) -> str:
    """Whether the contender beats the baseline: published beside measured, a line for each task and scale.

    baseline, contender: their titles; short: what has ended, without means and p
    """
    found = [v for v in found if not (short and v.word == OPEN)]
    if not found:
        return ""
    rows, means, p = [], f"measured {baseline} → {contender}", "p (corrected for)"
    for v in found:
        digits = v.report.metric.digits
        row = {
            "task": escaped(v.report.title),
            "scale": escaped(v.scale + ("" if v.value == LAST else f", {v.value}")),
            "published gain": " / ".join(_published(gain, digits, v.planned) for gain in v.published) or "–",
            means: "–" if math.isnan(v.gain.mean) else " → ".join(rounded(mean, digits) for mean in v.means),
            "measured gain [95% interval]": signed(v.gain, digits),
            "seeds": f"{v.gain.n}" if v.word != OPEN else f"{v.runs[0]} of {v.runs[1]} runs",
            p: "–" if math.isnan(v.p) else f"{v.p:.2g} ({v.family})",
            f"{contender} ahead?": f"**{v.word}**",
            "comparison": "planned" if v.planned else "exploratory",
        }
        left_out = {means, p} if short else set()
        left_out |= set() if any(v.published for v in found) else {"published gain"}
        rows.append({name: cell for name, cell in row.items() if name not in left_out})
    if short:
        return as_markdown(rows)
    units = dict.fromkeys(f"{escaped(v.report.title)}: {escaped(v.report.metric.unit)}" for v in found)
    had = any(gain > 0 for v in found for gain in v.published)
    excludes = "the whole interval lies below half of the published gain, or " if had else ""
    no_room = f"{baseline} leaves no room for half of the published gain, and {contender} is not shown to be behind"
    full = f"**{CEILING}**: {no_room}; " if had else ""
    note = (
        f"Gains of {contender} over {baseline}, positive where it is ahead, paired by seed ({'; '.join(units)}). "
        f"**{YES}**: a planned test is significant in its favour; "
        f"**{NO}**: {excludes}a planned test says the reverse; "
        f"**{AHEAD}**, **{BEHIND}**: significant, but no test was planned; {full}"
        f"**{OPEN}**: runs are to come; **{UNSURE}**: none of these."
    )
    return f"{as_markdown(rows)}\n\n{note}"


def _published(gain: float, digits: int, planned: bool) -> str:
    """A published gain with so many digits; a plan may have rounded it, and then it is shown as the plan has it."""
    return f"{gain:+.{0 if planned and gain == round(gain) else digits}f}"


def schemes(group: Group, verdict: Verdict | None, compared: bool = True) -> Rows:
    """Every scheme of a group, published beside measured and, where `compared`, against the baseline.

    verdict: that of contender and baseline, whose p holds here too; None: the contender is one of the schemes here
    """
    baseline, digits = group.published.baseline, group.metric.digits
    differences, p, _ = _compared(group, verdict, compared)
    published = group.report.published if group.is_published and not group.variant else {}
    rows = []
    for scheme in group.schemes:
        runs, title = group.of(scheme), escaped(group.published.title(scheme))
        row = {"scheme": title}
        if published:
            row["published"] = " / ".join(published.get(scheme, ["–"]))
        row[f"mean, {group.metric.unit}"] = mean_of(runs.value, digits)
        if differences:
            found, p_here = differences.get(scheme), p.get(scheme, math.nan)
            beyond = "**" if p_here < ALPHA else ""
            difference = signed(found.difference, digits) if found else "–"
            row[f"− {escaped(group.published.title(baseline))}"] = f"{beyond}{difference}{beyond}"
            row["p"] = rounded(p_here, None)
        row |= _thresholds(group, scheme)
        if group.optimum:
            row["above the floor"] = rounded(runs.value.mean() - group.optimum, digits)
        rows.append(row)
    return rows


def notes(group: Group, verdict: Verdict | None, compared: bool = True) -> list[str]:
    """What the columns of `schemes` are, and where `compared` what came of thresholds, a sentence each."""
    title = lambda scheme: escaped(group.published.title(scheme))  # noqa: E731
    differences, _, families = _compared(group, verdict, compared)
    lines = []
    if any(found and not found.tested for found in differences.values()):
        lines.append(
            f"of up to {group.published.untested[group.scale]} pairs differences are estimates with 95% intervals, and "
            "were not to be tested"
        )
    if any(found and found.tested for found in differences.values()):
        told = [f"{family} ({title(who)})" if len(families) > 1 else family for who, family in families.items()]
        test = f"paired t test against {title(group.published.baseline)}, corrected (Holm, 1979)"
        lines.append(f"p: {test} for {' and '.join(told)}")
    if thresholds := [threshold.name for threshold in group.report.thresholds]:
        lines.append(f"{', '.join(thresholds)}: how many seeds get there, and at which step in the median")
    return lines + ([*_reached_thresholds(group), *_since_thresholds(group)] if compared else [])


def _reached_thresholds(group: Group) -> list[str]:
    """A sentence on each threshold that some seed reaches under contender or baseline alone: how many do under each."""
    lines, pair = [], (group.published.baseline, group.published.contender)
    names = [escaped(group.published.title(s)) for s in pair]
    for threshold in group.report.thresholds:
        steps = [group.first_steps(s, threshold) for s in pair]
        pairs = group.pairs(*pair[::-1]).index.intersection(steps[0].index).intersection(steps[1].index)
        first, second = (each.loc[pairs] < math.inf for each in steps)
        if (first != second).any():
            alone = int((first & ~second).sum()), int((second & ~first).sum())
            tested = group.published.tests(group.scale, len(pairs))
            test = f" (McNemar's exact p {sign_p(*alone):.2g})" if tested else ""
            lines.append(
                f"{threshold.name}: {first.sum()} of {len(pairs)} seeds under {names[0]}, {second.sum()} under "
                f"{names[1]}; under {names[1]} alone {alone[1]}, under {names[0]} alone {alone[0]}{test}."
            )
    return lines


def _since_thresholds(group: Group) -> list[str]:
    """A sentence on what of the difference is left as long after a threshold, which one may reach before the other.

    None where the learning rate falls, since it has then fallen less for the one that was there first.
    """
    thresholds = [t for t in group.report.thresholds if t.since and group.settings.get("train.decay") == "none"]
    pair, lines = (group.published.contender, group.published.baseline), []
    versus = " − ".join(escaped(group.published.title(scheme)) for scheme in pair)
    for threshold in thresholds:
        if found := group.difference_since(*pair, threshold):
            d, digits = found.difference, group.metric.digits
            how = f" (95% interval {d.low:+.{digits}f} to {d.high:+.{digits}f})" if d.n > 1 else ""
            lines.append(
                f"At the same number of steps after each run {threshold.name}, {versus} is "
                f"{d.mean:+.{digits}f}{how} over {d.n} pair{'s' if d.n > 1 else ''}."
            )
    return lines


def _compared(
    group: Group, verdict: Verdict | None, compared: bool
) -> tuple[dict[str, PairedDifference | None], dict[str, float], dict[str, str]]:
    """By scheme the difference to the baseline and its p; and for how many tests the p of which schemes is corrected.

    All empty where there is no baseline, or where it is not `compared`.
    """
    baseline, contender = group.published.baseline, group.published.contender
    others = [s for s in group.schemes if s != baseline] if compared and baseline in group.schemes else []
    differences = {scheme: group.difference(scheme, baseline) for scheme in others}
    here = [scheme for scheme in others if differences[scheme] and not (verdict and scheme == contender)]
    corrected, family = family_of([differences[scheme].p for scheme in here], "schemes here", "this comparison")
    p, families = dict(zip(here, corrected, strict=True)), {"others": family} if here else {}
    if verdict and compared:
        p[contender], families = verdict.p, {contender: verdict.family} | families
    return differences, p, families


def every_seed(group: Group, compared: bool = True) -> Rows:
    """Every seed of every scheme, the write-up's protocol, and where `compared` the sign-flip test."""
    baseline, metric = group.published.baseline, group.metric
    rows = []
    for scheme in group.schemes:
        runs = group.of(scheme)
        row = {
            "scheme": escaped(group.published.title(scheme)),
            f"every seed, {metric.unit}": " ".join(rounded(v, metric.digits) for v in runs.value) or "–",
            "worst removed": rounded(without_worst(runs.value, metric.higher_is_better), metric.digits),
        }
        for threshold in group.report.thresholds:
            steps = group.first_steps(scheme, threshold).reindex(runs.index)
            shown = ("?" if math.isnan(s) else f"{s:.0f}" if s < math.inf else "–" for s in steps)
            row[f"{threshold.name} at step"] = " ".join(shown) or "–"
        for title, other in group.report.beside.items():
            values = [run.metrics.get(other.name, math.nan) for run in runs.run]
            row[title] = rounded(other.times * sum(values) / len(values) if values else math.nan, other.digits)
        if compared:
            found = group.difference(scheme, baseline) if scheme != baseline else None
            is_tested = found and found.difference.n > 1 and not math.isnan(found.p_signs)
            signs = f"{found.p_signs:.2g} ({found.p_signs_least:.2g})" if is_tested else "–"
            row |= {"pairs": str(found.difference.n) if found else "–", "sign-flip p (least)": signs}
        rows.append(row)
    return rows


def rotations(group: Group) -> tuple[Rows, str]:
    """What comes of rotating some of q, k, v and the output o, beside what was published of it; and a note."""
    source, losses = group.published.rotations["source"], group.published.rotations["loss"]
    if not set(losses) <= {*group.finished.scheme}:
        return [], ""
    rows = [
        {
            "rotated": row["rotated"],
            "published": f"{row['loss']:.3f}",
            f"mean, {group.metric.unit}": mean_of(group.of(scheme).value, group.metric.digits),
        }
        | _thresholds(group, scheme)
        for scheme, row in losses.items()
    ]
    return rows, f"What is rotated; published: {source}."


def lengths(group: Group) -> tuple[Rows, str]:
    """By length, problems right in percent, or the loss: the mean over seeds, the least and the most; and a note."""
    if not group.lengths:
        return [], ""
    shortest, longest = group.trained_lengths or (0, math.inf)
    beyond = {n: "shorter" if n < shortest else "longer" for n in group.lengths if not shortest <= n <= longest}
    graded = group.length_kind == LENGTH
    times, digits, spread = (100, 1, 0) if graded else (1, 3, 3)
    slices = group.slices(group.length_kind)
    slices["mean"] *= times
    table = slices.groupby(["scheme", "value"])["mean"].agg(["mean", "min", "max", "count"])
    cells = dict(zip(table.index, table.itertuples(index=False), strict=True))  # looking up in a frame is slow

    def cell(scheme: str, n: int) -> str:
        if (scheme, n) not in cells:
            return "–"
        mean, least, most, count = cells[scheme, n]
        return f"{mean:.{digits}f}" + (f" ({least:.{spread}f}–{most:.{spread}f})" if count > 1 else "")

    titles = {n: f"{n} ({beyond[n]})" if n in beyond else f"{n}" for n in group.lengths}
    rows = [
        {group.report.length["title"]: escaped(group.published.title(scheme))}
        | {titles[n]: cell(scheme, n) for n in group.lengths}
        for scheme in group.schemes
    ]
    words = "Problems of given lengths whose whole completion is right, in percent"
    if not graded:
        above = " above the Bayes-optimal loss" if series.above_floor(group, LENGTH_LOSS) else ""
        words = f"Loss up to given lengths, from the one before, in nats per token{above}"
    words += ": mean over seeds (least–most)"
    unlike = f"; {', '.join(sorted(set(beyond.values())))}: than any of training" if beyond else ""
    return rows, f"{words}{unlike}."


def details(group: Group, compared: bool = True) -> list[str]:
    """What one has to know of a group to believe it, in lines: deviations, and where the runs come from.

    compared: whether its schemes are compared here
    """
    s, metric = group.settings, group.metric
    n = s.get("eval.problems_at_end") or s["eval.problems"]
    sequences = s["train.steps"] * s["train.batch_size"]
    graded = any("eval/accuracy" in run.metrics for run in group.runs.run)
    held_out = f"{n:,} held-out problems" if graded else "the held-out text"
    seeds = group.runs.groupby("scheme", sort=False).seed
    lines = [
        f"recipe `{group.recipe_id}`: {s['train.steps']:,} optimizer steps = {sequences:,} sequences = "
        f"{sequences * s['train.seq_len']:,} tokens; {held_out}",
        "seeds: " + "; ".join(f"{escaped(group.published.title(name))} {numbers(each)}" for name, each in seeds),
    ]
    columns = ["worst removed: the mean without a scheme's worst seed"]
    columns += [f"{title}: {other.unit}" for title, other in group.report.beside.items() if title != other.unit]
    columns += ["least: the smallest p of so many pairs"] if compared else []
    lines.append("; ".join(columns))
    deviations = group.deviations()
    if deviations and group.is_published:
        lines.append("differs from the write-up in " + escaped("; ".join(deviations)))
    elif group.is_published and group.report.setup:
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
    return lines


def signed(d: Interval, digits: int) -> str:
    """A difference with its sign and its interval."""
    if math.isnan(d.mean):
        return "–"
    return f"{d.mean:+.{digits}f}" + (f" [{d.low:+.{digits}f}, {d.high:+.{digits}f}]" if d.n > 1 else " (one seed)")


def mean_of(values: Sequence[float], digits: int) -> str:
    """The mean over a scheme's seeds and its interval."""
    if not len(values):
        return "–"
    found = t_interval(values)
    if found.n < 2:
        return f"{found.mean:.{digits}f} (one seed)"
    return f"{found.mean:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}] n={found.n}"


def _thresholds(group: Group, scheme: str) -> dict[str, str]:
    """A cell for each threshold: how many seeds reach it, and the median step."""
    cells = {}
    for threshold in group.report.thresholds:
        steps = group.first_steps(scheme, threshold)
        when = f", {steps.median():,.0f}" if math.isfinite(steps.median()) else ""
        reached = f"{(steps < math.inf).sum()} of {len(steps)}{when}" if len(steps) else "–"
        cells[threshold.name] = reached
    return cells


def rounded(value: float, digits: int | None) -> str:
    """With so many digits; with None, two that count."""
    if math.isnan(value):
        return "–"
    return f"{value:.2g}" if digits is None else f"{value:.{digits}f}"
