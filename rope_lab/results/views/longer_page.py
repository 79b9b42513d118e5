"""The page of `rope-lab extend`: the ways to read longer texts, a table for each length and one
figure.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import altair as alt

from rope_lab.results.comparisons.continued import (
    AS_IS,
    WINDOWS,
    Continued,
    Key,
    Ways,
    by_length,
    control_of,
    measure_at,
)
from rope_lab.results.comparisons.stats import FEWEST_PAIRS, t_interval
from rope_lab.results.records.catalogue import Catalogue, TaskReport
from rope_lab.results.records.measures import AT, LENGTH, LENGTH_LOSS, Measure
from rope_lab.results.records.setups import seeds_text
from rope_lab.results.views import charts, palettes, render, tables
from rope_lab.results.views.panels import Colors, Panel, points_frame
from rope_lab.results.views.tables import Strong, Table, bullets, escaped, markdown

PAGE, FIGURE = "extend.md", "extend.svg"
CONTROL = f"{AS_IS} (control)"
Others = dict[str, Callable[[Key], Key | None]]  # by name the way that a way is compared with


def write(page: Path, ways: Ways, trained: int, scheme: str) -> None:
    """Write the page and its figure, and print it.

    trained: the longest length of training; scheme: the name of the parents'
    """
    first = next(iter(ways.values()))[0]
    catalogue = Catalogue()
    report = catalogue.report_of(first)
    title = f"{catalogue.title(scheme)} on {report.title}, {first.scale}: longer texts"
    found = by_length(ways, report)
    parts = [f"# {escaped(title)}", bullets(conclusions(found))]
    parts.append(f"![Each method at each length](figures/{FIGURE})")
    for reading in found:
        times, length = reading.first.times, reading.first.length
        unit = escaped(report.length["title"])
        longer = f"length {length}" if unit == "length" else f"{length} {unit}"
        parts.append(f"## {times}: {longer}")
        parts.append(markdown(table(reading, trained)))
        parts.append(markdown(details(reading, catalogue)))
    longest = max(found, key=lambda reading: reading.first.length)
    parts += ["## How to read it", bullets(notes(longest, trained))]
    drawn = render.svg(chart(longest, title))
    tables.write_page(page, list(filter(None, parts)), {FIGURE: drawn})


def table(reading: Continued, trained: int) -> Table:
    """A row for each way: the numbers at two lengths, and the differences."""
    lengths = (trained, reading.first.length)
    measures = {f"at {at}": measure_at(reading.report, at) for at in lengths}
    others = {AS_IS: control_of}
    if not reading.measure.share:
        others[WINDOWS] = reading.windows
    return of_ways("method", reading, CONTROL, measures, others)


def of_ways(
    heading: str, found: Continued, control: str, measures: dict[str, Measure], others: Others
) -> Table:
    """A row for each way: its numbers by their columns, and its differences from others by their
    names; heading: of the ways.
    """
    rows = []
    for key, runs in found.ways.items():
        is_trained = bool(key.steps) or not key.times  # adopt's control also without steps
        row = {heading: Strong(control) if is_trained and key.way == AS_IS else key.way}
        row["further training"] = _further(key)
        for column, measure in measures.items():
            row[column] = tables.mean_of(measure.values(runs), measure, found.diverged(key))
        for name, other in others.items():
            row[f"minus {name}"] = less(found, key, other(key))
        rows.append(row)
    return Table(rows)


def details(reading: Continued, catalogue: Catalogue) -> Table:
    """For each way the loss by position or, of graded problems, the share correct by the attribute
    that the task crosses with the length. No rows without either.
    """
    length = reading.first.length
    slices = reading.ways[reading.first][0].slices
    crossed = [name for name in slices if name.endswith(f"{AT}{length}")]
    if LENGTH_LOSS in slices:
        name, digits = LENGTH_LOSS, 3
        note = "Mean loss at positions from the column before to this one:"
    elif crossed:
        name, digits = crossed[0], 2
        attribute = name.partition(AT)[0]
        note = f"Share of problems correct by {catalogue.attributes.get(attribute, attribute)}:"
    else:
        return Table([])
    shown = sorted(map(int, slices[name]))
    rows = []
    if name == LENGTH_LOSS:
        shown = [value for value in shown if value <= length]
    for key, runs in reading.ways.items():
        row = {"method": key.way, "further training": _further(key)}
        for value in shown:
            measure = replace(reading.measure, metric=f"{name}/{value}", times=1)
            row[str(value)] = tables.number(t_interval(measure.values(runs)).mean, digits)
        rows.append(row)
    return Table(rows, note=note)


def _further(key: Key) -> str:
    """The further training of a way, in a cell."""
    return f"{key.steps} steps at {key.at}" if key.steps else tables.NONE


def less(reading: Continued, key: Key, other: Key | None) -> str:
    """The difference of a way from another one, emphasized if its interval is on the better side;
    none if a run of either diverged.
    """
    found = reading.difference(key, other)
    shown = tables.signed(found, reading.measure.digits)
    return tables.strong_if(found.side == reading.measure.sign, shown)


def conclusions(found: list[Continued]) -> list[str]:
    """The sentences that begin the page: for each length the best way without and with further
    training, and which ways lower the loss with more context.
    """
    lines = []
    for whole in found:
        for reading in whole.by_steps():
            lines.append(_best(reading))
            if not reading.measure.share:
                lines.append(_context(reading))
    return [line for line in lines if line]


def _best(reading: Continued) -> str:
    """The way with the best mean, beside the scheme as it is with the same training; ways of which
    a run diverged do not count.
    """
    measure, means = reading.measure, {}
    for key, runs in reading.ways.items():
        mean = t_interval(measure.values(runs)).mean
        if not math.isnan(mean) and not reading.diverged(key):
            means[key] = mean
    if not means:
        return ""
    best = max(means, key=lambda key: measure.sign * means[key])
    control = control_of(best)
    how = "without further training"
    if best.steps:
        how = f"with {best.steps} more steps at {best.at} tokens"
    found = f"{best.way}, {measure.text(means[best])}"
    beside = ""
    if control != best and control in means:
        beside = f"; {AS_IS}, {measure.text(means[control])}"
    return f"To read {best.times} as far {how}: {found}{beside} ({measure.unit})."


def _context(reading: Continued) -> str:
    """Which ways have a lower loss than windows of the training length, on the same tokens; ways of
    which a run diverged do not count.
    """
    lower, pairs = [], 0
    for key in reading.ways:
        found = reading.difference(key, reading.windows(key))
        pairs = max(pairs, found.n)
        if found.side == reading.measure.sign:
            lower.append(key.way)
    times = reading.first.times
    if not pairs:
        return ""
    further = "with further training" if reading.first.steps else "without further training"
    if pairs < FEWEST_PAIRS:
        few = f"fewer than {FEWEST_PAIRS} seeds"
        return f"Whether more context lowers the loss at {times} is not known from {few}."
    if not lower:
        none = "more context is not shown to lower the loss with any of these methods"
        return f"At {times}, {further}, {none}."
    names = ", ".join(dict.fromkeys(lower))
    return f"At {times}, {further}, more context lowers the loss with: {names}."


def notes(reading: Continued, trained: int) -> list[str]:
    """What the numbers are, and what they do not show; reading: of the longest texts."""
    measure = reading.measure
    length = reading.first.length
    first = reading.ways[reading.first]
    settings = first[0].all_settings
    layers = settings["model.n_layers"]
    before = max([each for each in settings["eval.lengths"] if each < length], default=0)
    if measure.share:
        shown = f"“at {length}”: {measure.unit}, for problems of that length."
    else:
        shown = f"“at {length}”: mean loss of the tokens at positions {before} to {length}."
    lines = [
        shown,
        f"Means over parents ({seeds_text([each.seed for each in first])}) with 95% intervals; "
        "differences are taken parent by parent. No test was planned: explore with it.",
        f"“minus {AS_IS}”: against the scheme as it is, with the same further training. At the new "
        "length this control has read as many long texts as the others.",
    ]
    further = reading.by_steps()[-1].first
    if further.steps:
        rate = reading.ways[further][0].all_settings["train.lr"]
        lines.append(
            "Training at a longer length reads as many tokens per step, rounded up to whole "
            f"sequences. Its highest learning rate is {rate:g}, at the old length too; no method "
            "has searched it."
        )
    if not measure.share:
        lines.append(
            f"“minus {WINDOWS}”: against the scheme unchanged when each layer sees {trained} "
            "tokens, with as much further training. Below 0, more context lowers the loss. Through "
            f"{layers} layers such windows still reach up to {layers} times as far back. No "
            "interval is corrected for the number of methods."
        )
    return lines


def chart(reading: Continued, title: str) -> alt.TopLevelMixin:
    """A panel without and, if there are such runs, one with further training."""
    names = dict.fromkeys(key.way for key in reading.ways)
    colors = dict(zip(names, palettes.WAYS, strict=False))
    drawn = []
    for part in reading.by_steps():
        steps = part.first.steps
        how = f"{steps} further steps" if steps else "without further training"
        panel = _panel(part.ways, part.report, colors)
        drawn.append(charts.with_title(charts.lines(panel, dots=True), how))
    whole = alt.vconcat(*drawn, spacing=charts.GAP).resolve_scale(color="independent")
    return charts.with_title(whole, title)


def _panel(ways: Ways, report: TaskReport, colors: Colors) -> Panel:
    """The points of every run by length: loss up to it, or the share of problems correct."""
    kind = LENGTH if report.measure.share else LENGTH_LOSS
    rows = []
    for key, runs in ways.items():
        for run in runs:
            for value, (_, mean) in run.slices.get(kind, {}).items():
                counts = run.status == "finished"
                rows.append((_name(key), run.seed, int(value), mean, counts))
    points = points_frame(rows)
    unit = report.measure.unit if kind == LENGTH_LOSS else "share of problems correct"
    most = 1.0 if kind == LENGTH else float("inf")
    of_names = {}
    for key in ways:
        control = key.way == AS_IS and key.at == max(other.at for other in ways)
        of_names[_name(key)] = palettes.GREY if control and key.steps else colors[key.way]
    ticks = sorted({*points.x})
    axis = {"values": ticks, "format": "d"}
    x = report.length["title"]
    return Panel(points, x, unit, most=most, scale={"type": "log"}, axis=axis, colors=of_names)


def _name(key: Key) -> str:
    """A way in the legend; of the scheme as it is also where it was trained further."""
    if key.way == AS_IS and key.steps:
        return f"{key.way}, trained at {key.at}"
    return key.way
