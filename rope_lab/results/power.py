"""How many seeds a comparison needs: `python -m rope_lab.results.power [FOLDER…] [--task T]`.

Of each scheme against the baseline: how far the paired differences of kept runs spread, how large a difference a
number of pairs can see, and, with --difference, how many pairs it needs. The test is the two-sided paired t test;
powers are exact (noncentral t) if paired differences are normal. Without a FOLDER: the runs kept in results/.
"""

import math
import sys
from argparse import Namespace
from pathlib import Path

from rope_lab.results import studies
from rope_lab.results.__main__ import RESULTS, folders_of_runs
from rope_lab.results.folders import read
from rope_lab.results.groups import Group, group
from rope_lab.results.published import Published
from rope_lab.results.stats import ALPHA, detectable, paired_power, pairs_needed, spread_interval
from rope_lab.results.tables import Strong, Table, bullets, escaped, markdown
from rope_lab.text import argument_parser, errors_as_exit, nearest, say

SEEDS = [3, 5, 8, 16, 32]
FEW = 5  # pairs: of fewer the spread is hardly known


def differences(group: Group, scheme: str) -> list[float]:
    """The paired differences of a scheme against the baseline, by seed, in the unit of the tables."""
    pairs = group.pairs(scheme, group.published.baseline)
    return (pairs.value - pairs.value_other).tolist()


def table(group: Group, schemes: list[str], given: Namespace) -> Table:
    """A row a scheme with two pairs or more that differ."""
    rows, digits, title = [], group.metric.digits, group.published.title
    for scheme in schemes:
        spread, low, high = spread_interval(differences(group, scheme))
        if not spread > 0:  # one pair, or all alike
            continue
        row = {
            f"− {title(group.published.baseline)}": title(scheme),
            "pairs": str(len(differences(group, scheme))),
            "spread [95%]": f"{spread:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]",
        }
        if given.difference:
            needed = [pairs_needed(given.difference, s, given.power, given.alpha) for s in (spread, low, high)]
            best, least, most = (f"{n:,}" if n else "over 10,000" for n in needed)
            row[f"pairs for {given.difference:g}"] = f"{best} [{least}, {most}]"
        for n in sorted(set(given.seeds)):
            row[f"{n} see"] = f"{detectable(n, spread, given.power, given.alpha):.{digits}f}"
            if given.difference:
                row[f"{n} see"] += f" ({paired_power(n, given.difference, spread, given.alpha):.0%})"
        rows.append(row)
    return Table(rows, "Power")


def notes(group: Group, schemes: list[str], given: Namespace) -> list[str]:
    """The assumptions of the table, and where they do not hold."""
    title = group.published.title
    chance = f"; in brackets, the power of so many pairs to see {given.difference:g}" if given.difference else ""
    lines = [
        f"In {group.metric.unit}. n see: the least true difference that n pairs find with power {given.power:g} at "
        f"{given.alpha:.0%}, two-sided{chance}.",
        "Assumes normal paired differences with the spread of the kept pairs; the brackets are its 95% interval (χ²).",
    ]
    for threshold in group.report.thresholds:
        reached = {s: group.first_steps(s, threshold) < math.inf for s in (group.published.baseline, *schemes)}
        split = [f"{title(s)} {r.sum()} of {len(r)}" for s, r in reached.items() if 0 < r.sum() < len(r)]
        if split:
            warning = (
                f"Runs are bimodal: {threshold.name} by {', '.join(split)}. The t test is then only a rough guide; "
                "plan for how many seeds reach it (McNemar's test)."
            )
            lines.append(Strong(warning))
            break
    if few := [title(s) for s in schemes if 1 < len(differences(group, s)) < FEW]:
        lines.append(f"Fewer than {FEW} pairs, so that the spread is hardly known: {', '.join(few)}.")
    return lines


@errors_as_exit()
def main(arguments: list[str] | None = None) -> None:
    parser = argument_parser("results.power", __doc__)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--task", help="this task alone")
    parser.add_argument("--scale", help="this scale alone")
    parser.add_argument("--position", metavar="SCHEME", help="this scheme alone")
    parser.add_argument("--against", metavar="SCHEME", help="the baseline (default: that of published.yaml)")
    parser.add_argument("--difference", type=float, metavar="D", help="in the unit of the tables")
    parser.add_argument("--power", type=float, default=0.8, help="default: 0.8")
    parser.add_argument("--alpha", type=float, default=ALPHA, help=f"default: {ALPHA}")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, metavar="N", help="numbers of pairs")
    given = parser.parse_args(arguments)
    if not 0 < given.alpha < given.power < 1:
        parser.error("--alpha and --power: must be between 0 and 1, and the power above alpha")
    if min(given.seeds) < 2:
        parser.error("--seeds: a spread needs 2 pairs at least")
    if given.difference is not None and not (given.difference and math.isfinite(given.difference)):
        parser.error("--difference: must be a number other than 0")
    folders = folders_of_runs(given.folders or [RESULTS])
    for folder in folders:
        if studies.covers(folder):
            sys.exit(f"{folder}: planned comparisons, which are tested as planned and nowhere else")
    runs = {run.run_id: run for folder in folders for run in read(folder)[0]}
    published = Published()
    published = published.against(given.against) if given.against else published
    groups = [g for g in group(list(runs.values()), published) if not g.variant]
    for name, wanted in (("task", given.task), ("scale", given.scale)):
        there = sorted({getattr(g, name) for g in groups})
        if wanted and wanted not in there:
            sys.exit(f"--{name} {wanted}: no run is of it; {nearest(wanted, there, '')}")
        groups = [g for g in groups if wanted in (None, getattr(g, name))]
    there = sorted({scheme for g in groups for scheme in g.schemes})
    for wanted in (given.position, given.against):
        if wanted and wanted not in there:
            hint = "or give another FOLDER, or, for a new scheme, take the spread of one like it"
            sys.exit(f"{wanted}: no run is of this scheme; {nearest(wanted, there, '')}, {hint}")
    parts = []
    for g in groups:
        schemes = [s for s in g.schemes if s != published.baseline and given.position in (None, s)]
        if shown := markdown(table(g, schemes, given)):
            heading = f"## {escaped(g.title)}, scale {g.scale}"
            parts.append(f"{heading}\n\n{shown}\n\n{bullets(notes(g, schemes, given))}")
    if not parts:
        sys.exit(f"no scheme has two pairs of runs with {published.title(published.baseline)} that differ")
    say("\n\n".join(parts))


if __name__ == "__main__":
    main()
