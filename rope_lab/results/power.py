"""How many seeds a comparison needs: `python -m rope_lab.results.power [FOLDER…] [--task T]`.

Of each scheme against the baseline: how far the paired differences of kept rows spread, how large a difference a
number of pairs can see, and, with --difference, how many pairs it needs. The test is the two-sided paired t test;
powers are exact (noncentral t) where paired differences are normal. Without a FOLDER: the rows kept in results/.
"""

import math
import sys
from pathlib import Path

from rope_lab.results import store, studies
from rope_lab.results.__main__ import RESULTS, no_runs
from rope_lab.results.folders import read
from rope_lab.results.groups import Group, group
from rope_lab.results.published import Published
from rope_lab.results.stats import ALPHA, detectable, paired_power, pairs_needed, spread_interval
from rope_lab.results.tables import as_markdown, bullets, escaped
from rope_lab.text import argument_parser, nearest, say

SEEDS = [3, 5, 8, 16, 32]
FEW = 5  # pairs: of fewer the spread is hardly known


def differences(group: Group, scheme: str) -> list[float]:
    """The paired differences of a scheme against the baseline, as they are shown, by seed."""
    pairs = group.pairs(scheme, group.published.baseline)
    return (pairs.value - pairs.value_other).tolist()


def table(group: Group, schemes: list[str], seeds: list[int], power: float, alpha: float, difference: float) -> str:
    """A row a scheme with two pairs or more; empty where there is none. `difference` is nan where none is given."""
    rows, digits = [], group.metric.digits
    for scheme in schemes:
        spread, low, high = spread_interval(differences(group, scheme))
        if not spread > 0:  # one pair, or all alike
            continue
        row = {
            f"− {escaped(group.published.title(group.published.baseline))}": escaped(group.published.title(scheme)),
            "pairs": str(len(differences(group, scheme))),
            "spread [95%]": f"{spread:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]",
        }
        if not math.isnan(difference):
            needed = [pairs_needed(difference, s, power, alpha) for s in (spread, low, high)]
            best, least, most = (f"{n:,}" if n else "over 10,000" for n in needed)
            row[f"pairs for {difference:g}"] = f"{best} [{least}, {most}]"
        for n in seeds:
            cell = f"{detectable(n, spread, power, alpha):.{digits}f}"
            chance = "" if math.isnan(difference) else f" ({paired_power(n, difference, spread, alpha):.0%})"
            row[f"{n} see"] = cell + chance
        rows.append(row)
    return as_markdown(rows)


def notes(group: Group, schemes: list[str], power: float, alpha: float, difference: float) -> list[str]:
    """What the numbers stand on, and where they are not to be trusted."""
    chance = "" if math.isnan(difference) else f"; in brackets, the power of so many pairs to see {difference:g}"
    lines = [
        f"In {group.metric.unit}. *n see*: the least true difference that n pairs find with power {power:g} at "
        f"{alpha:.0%}, two-sided{chance}.",
        "Assumes normal paired differences with the spread of the kept pairs; the brackets are its 95% interval (χ²).",
    ]
    both = [group.published.baseline, *schemes]
    for threshold in group.report.thresholds:
        reached = {scheme: group.first_steps(scheme, threshold) < math.inf for scheme in both}
        split = [s for s, there in reached.items() if 0 < there.sum() < len(there)]
        if split:
            counts = ", ".join(
                f"{escaped(group.published.title(s))} {reached[s].sum()} of {len(reached[s])}" for s in split
            )
            lines.append(
                f"**Runs are bimodal: {threshold.name} by {counts}. The t test is then only a rough guide; plan for "
                "how many seeds reach it (McNemar's test).**"
            )
            break
    few = [escaped(group.published.title(s)) for s in schemes if 1 < len(differences(group, s)) < FEW]
    if few:
        lines.append(f"Fewer than {FEW} pairs, so that the spread is hardly known: {', '.join(few)}.")
    return lines


def main(arguments: list[str] | None = None) -> None:
    parser = argument_parser("results.power", __doc__)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--task", help="this task alone")
    parser.add_argument("--scale", help="this scale alone")
    parser.add_argument("--position", metavar="SCHEME", help="this scheme alone")
    parser.add_argument("--against", metavar="SCHEME", help="the baseline (default: that of published.yaml)")
    parser.add_argument("--difference", type=float, default=math.nan, metavar="D", help="in the unit of the tables")
    parser.add_argument("--power", type=float, default=0.8, help="default: 0.8")
    parser.add_argument("--alpha", type=float, default=ALPHA, help=f"default: {ALPHA}")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, metavar="N", help="numbers of pairs")
    given = parser.parse_args(arguments)
    if not 0 < given.alpha < given.power < 1:
        parser.error("--alpha and --power: must be between 0 and 1, and the power above alpha")
    if min(given.seeds) < 2:
        parser.error("--seeds: a spread needs 2 pairs at least")
    if given.difference == 0 or math.isinf(given.difference):
        parser.error("--difference: must be a number other than 0")
    folders = given.folders or [RESULTS]
    for folder in folders:
        if reason := no_runs(folder):
            sys.exit(reason)
        if store.exists(folder) and studies.covers(folder):
            sys.exit(f"{folder}: planned comparisons, which are tested as planned and nowhere else")
    runs = {run.run_id: run for folder in folders for run in read(folder)[0]}.values()
    published = Published()
    published = published.against(given.against) if given.against else published
    groups = [g for g in group(list(runs), published) if not g.variant]
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
        if shown := table(g, schemes, sorted(set(given.seeds)), given.power, given.alpha, given.difference):
            said = bullets(notes(g, schemes, given.power, given.alpha, given.difference))
            parts.append(f"## {escaped(g.title)}, scale {g.scale}\n\n{shown}\n\n{said}")
    if not parts:
        sys.exit(f"no scheme has two pairs of runs with {published.title(published.baseline)} that differ")
    say("\n\n".join(parts))


if __name__ == "__main__":
    main()
