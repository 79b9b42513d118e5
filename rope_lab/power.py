"""Compute how many seeds a comparison needs: `rope-lab power [FOLDER…] [--task T]`.

For each scheme against the baseline: the spread of paired differences of kept runs, the difference
that a number of pairs detects, and, with --difference, the pairs that it needs. The test is the
two-sided paired t test; powers are exact (noncentral t) if paired differences are normal. Without a
FOLDER: the runs kept in results/.
"""

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd

from rope_lab.places import RESULTS
from rope_lab.results.comparisons import stats
from rope_lab.results.comparisons.answers import answered, samples
from rope_lab.results.comparisons.unplanned import between
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.folders import folders_of_runs, read_or_warn, with_those_below
from rope_lab.results.records.measures import Measure
from rope_lab.results.records.setups import Setup, setups_of
from rope_lab.results.views import against
from rope_lab.results.views.tables import NONE, Row, Strong, Table, bullets, escaped, markdown
from rope_lab.results.views.terminal import say_markdown
from rope_lab.text import (
    FIND_RUNS,
    ConfigError,
    Words,
    argument_parser,
    errors_as_exit,
    nearest,
    short_path,
)

PAIRS = (3, 5, 8, 16, 32)
NOTES = [
    "In {unit}. n pairs detect: the least true difference that they find with power {power:g} at "
    "5%, two-sided; – if only more than possible.",
    "Assumes normal paired differences with the spread of the kept pairs; the brackets are its 95% "
    "interval (χ²): of few pairs the spread is hardly known.",
]
OF_DIFFERENCE = "In brackets behind it: the power of so many pairs to see the given difference."
BIMODAL = (
    "Runs are bimodal: {name} by {split}. The t test is then only a rough guide; plan for how many "
    "seeds reach it (McNemar's test)."
)


def differences(setup: Setup) -> dict[str, pd.Series]:
    """Paired differences of schemes from the baseline that have a spread; in the unit of the
    tables.
    """
    baseline = setup.catalogue.baseline
    compared = {s: answered(between(setup, s, baseline)).differences for s in setup.others}
    return {scheme: each for scheme, each in compared.items() if each.std() > 0}


def row(values: pd.Series, measure: Measure, difference: float | None, power: float) -> Row:
    """The cells of a scheme with these paired differences; no share differs by more than all."""
    digits = measure.digits
    spread, low, high = stats.spread_interval(values)
    cells = {
        "pairs": str(len(values)),
        "spread [95%]": f"{spread:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]",
    }
    if difference:
        needed = [stats.pairs_needed(difference, each, power) for each in (spread, low, high)]
        best, least, most = (f"{n:,}" if n else "over 10,000" for n in needed)
        cells[f"pairs for {difference:g}"] = f"{best} [{least}, {most}]"
    for n in PAIRS:
        detected = stats.detectable(n, spread, power)
        cell = f"{detected:.{digits}f}" if detected <= measure.most else NONE
        if difference:
            cell += f" ({stats.paired_power(n, difference, spread):.0%})"
        cells[f"{n} pairs detect"] = cell
    return cells


def bimodal(setup: Setup, schemes: list[str]) -> list[str]:
    """A sentence if some runs of these schemes reach the task's first threshold and others do
    not.
    """
    first = setup.report.first_threshold
    if first is None:
        return []
    name, threshold = first
    split = []
    for scheme in schemes:
        reached = samples(setup.arm(scheme), replace(threshold, at="ever reached")).value
        if 0 < reached.sum() < len(reached):
            title = setup.catalogue.title(scheme)
            split.append(f"{title} {reached.sum():.0f} of {len(reached)}")
    return [Strong(BIMODAL.format(name=name, split=", ".join(split)))] if split else []


def section(setup: Setup, difference: float | None, power: float) -> str:
    """The table of a setup and its notes, as Markdown; empty if no scheme has a spread."""
    catalogue = setup.catalogue
    found = differences(setup)
    if not found:
        return ""
    rows = []
    for scheme, values in found.items():
        name = {f"against {catalogue.titles[1]}": catalogue.title(scheme)}
        rows.append(name | row(values, setup.measure, difference, power))
    notes = [note.format(unit=setup.measure.unit, power=power) for note in NOTES]
    notes += [OF_DIFFERENCE] if difference else []
    notes += bimodal(setup, [catalogue.baseline, *found])
    heading = f"## {escaped(setup.title)}, scale {setup.scale}"
    return "\n\n".join([heading, markdown(Table(rows)), bullets(notes)])


@errors_as_exit()
def main(arguments: Words = None) -> None:
    parser = argument_parser("power", __doc__)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--task", help="this task alone")
    parser.add_argument("--scale", help="this scale alone")
    parser.add_argument("--against", metavar="SCHEME", help="the baseline (default: rope)")
    parser.add_argument("--difference", type=float, metavar="D", help="in the unit of the tables")
    levels = {"type": float, "choices": (0.8, 0.9, 0.95, 0.99), "default": 0.8}
    parser.add_argument("--power", **levels, help="default: 0.8")
    given = parser.parse_args(arguments)
    if given.difference is not None and not 0 < given.difference < math.inf:
        raise ConfigError(f"--difference {given.difference:g}: must be a number above 0")
    folders = folders_of_runs(given.folders) if given.folders else with_those_below(RESULTS)
    runs = read_or_warn(folders)
    if not runs:
        raise ConfigError(f"{short_path(RESULTS)}: there are no runs; {FIND_RUNS}")
    for name in ("task", "scale"):
        asked = getattr(given, name)
        known = {getattr(run, name) for run in runs}
        if asked not in (None, *known):
            raise ConfigError(f"--{name} {asked}: no run has it; {nearest(asked, known, '')}")
    catalogue = against.question(Catalogue(), setups_of(runs, Catalogue()), None, given.against)
    parts = []
    for setup in setups_of(runs, catalogue):
        if given.task in (None, setup.task) and given.scale in (None, setup.scale):
            parts.append(section(setup, given.difference, given.power))
    if not any(parts):
        baseline = catalogue.titles[1]
        raise ConfigError(f"no scheme has two pairs of such runs with {baseline} that differ")
    say_markdown("\n\n".join(filter(None, parts)))
