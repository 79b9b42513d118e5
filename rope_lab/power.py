"""Compute how many seeds a comparison needs: `rope-lab power [FOLDER…] [--task T]`.

For each scheme against the baseline: the spread of paired differences of kept runs, the difference
that a number of pairs detects, and, with --difference, the pairs that it needs. The test is the
two-sided paired t test; powers are exact (noncentral t) if paired differences are normal. Without a
FOLDER: the runs kept in results/.
"""

import math
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

import pandas as pd

from rope_lab import command
from rope_lab.places import RESULTS
from rope_lab.results.comparisons.families import between
from rope_lab.results.comparisons.results import answered, samples
from rope_lab.results.comparisons.stats import (
    ALPHA,
    detectable,
    paired_power,
    pairs_needed,
    spread_interval,
)
from rope_lab.results.plans import study as studies
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.folders import folders_of_runs, read_or_warn
from rope_lab.results.records.setups import Setup, setups_of
from rope_lab.results.views import against
from rope_lab.results.views.tables import Strong, Table, bullets, escaped, markdown
from rope_lab.results.views.terminal import say_markdown
from rope_lab.text import argument_parser, errors_as_exit, nearest

FEW = 5  # pairs: of fewer the spread is hardly known


def differences(setup: Setup) -> dict[str, pd.Series]:
    """Paired differences of schemes from the baseline that have a spread; in the unit of the
    tables.
    """
    baseline = setup.published.baseline
    compared = {s: answered(between(setup, s, baseline)).differences for s in setup.others}
    return {scheme: each for scheme, each in compared.items() if spread_interval(each)[0] > 0}


def table(setup: Setup, found: dict[str, pd.Series], given: Namespace) -> Table:
    """A row a scheme."""
    rows, digits = [], setup.measure.digits
    for scheme, values in found.items():
        spread, low, high = spread_interval(values)
        row = {
            f"against {setup.published.titles[1]}": setup.published.title(scheme),
            "pairs": str(len(values)),
            "spread [95%]": f"{spread:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]",
        }
        if given.difference:
            needed = [pairs_needed(given.difference, s, given.power) for s in (spread, low, high)]
            best, least, most = (f"{n:,}" if n else "over 10,000" for n in needed)
            row[f"pairs for {given.difference:g}"] = f"{best} [{least}, {most}]"
        for n in sorted(set(given.seeds)):
            row[f"{n} pairs detect"] = f"{detectable(n, spread, given.power):.{digits}f}"
            if given.difference:
                row[f"{n} pairs detect"] += f" ({paired_power(n, given.difference, spread):.0%})"
        rows.append(row)
    return Table(rows, "Power")


def notes(setup: Setup, found: dict[str, pd.Series], given: Namespace) -> list[str]:
    """The table's assumptions, and cases in which they fail."""
    title = setup.published.title
    detect = f"the least true difference that they find with power {given.power:g} at {ALPHA:.0%}"
    detect += ", two-sided"
    if given.difference:
        detect += f"; in brackets, the power of so many pairs to see {given.difference:g}"
    lines = [
        f"In {setup.measure.unit}. n pairs detect: {detect}.",
        "Assumes normal paired differences with the spread of the kept pairs; "
        "the brackets are its 95% interval (χ²).",
    ]
    for name, threshold in list(setup.report.thresholds.items())[:1]:
        measure = replace(threshold, at="ever reached")
        split = []
        for scheme in (setup.published.baseline, *found):
            reached = samples(setup.arm(scheme), measure).value
            if 0 < reached.sum() < len(reached):
                split.append(f"{title(scheme)} {reached.sum():.0f} of {len(reached)}")
        if split:
            guide = "The t test is then only a rough guide; plan for how many seeds reach it"
            bimodal = f"Runs are bimodal: {name} by {', '.join(split)}"
            lines.append(Strong(f"{bimodal}. {guide} (McNemar's test)."))
    if few := [title(scheme) for scheme, values in found.items() if len(values) < FEW]:
        lines.append(
            f"Fewer than {FEW} pairs, so that the spread is hardly known: {', '.join(few)}."
        )
    return lines


def arguments_parser() -> ArgumentParser:
    parser = argument_parser("power", __doc__)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--task", help="this task alone")
    parser.add_argument("--scale", help="this scale alone")
    parser.add_argument("--against", metavar="SCHEME", help="the baseline (default: rope)")
    parser.add_argument("--difference", type=float, metavar="D", help="in the unit of the tables")
    parser.add_argument("--power", type=float, default=0.8, help="default: 0.8")
    pairs = {"nargs": "+", "default": [3, 5, 8, 16, 32], "metavar": "N", "help": "numbers of pairs"}
    parser.add_argument("--seeds", type=int, **pairs)
    return parser


def checked(parser: ArgumentParser, arguments: list[str] | None) -> Namespace:
    """The arguments; exits with status 2 if a number is impossible."""
    given = parser.parse_args(arguments)
    if not ALPHA < given.power < 1:
        parser.error(f"--power: must be between {ALPHA:g} and 1")
    if min(given.seeds) < 2:
        parser.error("--seeds: a spread needs 2 pairs at least")
    if given.difference is not None and not (given.difference and math.isfinite(given.difference)):
        parser.error("--difference: must be a number other than 0")
    return given


def read_setups(given: Namespace) -> list[Setup]:
    """The setups under their usual recipe, of the given task and scale, with the given baseline."""
    folders = folders_of_runs(given.folders or [RESULTS])
    if planned := [folder for folder in folders if studies.of_rows(folder)]:
        sys.exit(f"{planned[0]}: planned comparisons, which are tested as planned and nowhere else")
    runs = read_or_warn(folders)
    every = setups_of(runs, Published())
    published = against.question(Published(), every, None, given.against)
    setups = setups_of(runs, published)
    for option in ("task", "scale"):
        wanted = getattr(given, option)
        there = sorted({getattr(setup, option) for setup in setups})
        if wanted and wanted not in there:
            sys.exit(f"--{option} {wanted}: no run is of it; {nearest(wanted, there, '')}")
        if wanted:
            setups = [setup for setup in setups if getattr(setup, option) == wanted]
    if not setups:
        sys.exit("no run can be read")
    return setups


@errors_as_exit()
def main(arguments: list[str] | None = None) -> None:
    given = checked(arguments_parser(), arguments)
    setups, parts = read_setups(given), []
    for setup in setups:
        if found := differences(setup):
            heading = f"## {escaped(setup.title)}, scale {setup.scale}"
            parts += [heading, markdown(table(setup, found, given))]
            parts.append(bullets(notes(setup, found, given)))
    if not parts:
        baseline = setups[0].published.titles[1]
        sys.exit(f"no scheme has two pairs of runs with {baseline} that differ")
    say_markdown("\n\n".join(parts))


if __name__ == "__main__":
    command.begin()
    main()
