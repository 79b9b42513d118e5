"""How often `rope-lab compare` is wrong, by simulation: `scripts/simulate_compare.py [TIMES]`.

Paired differences are drawn from those of kept runs, around their mean, and moved by a true
difference. Equal schemes are drawn twice: with random signs, as if each pair could be exchanged,
which the test assumes, so that it is right by construction; and with signs and shape as kept, which
are skewed where a few runs fail. Learning rates are not simulated. Each time a search of five pairs
decides the number of pairs, as `compare` does, and the sign-flip test answers.
"""

import sys

import numpy as np

from rope_lab.comparing.order import MOST_PAIRS
from rope_lab.places import RESULTS
from rope_lab.results.comparisons.answers import answered
from rope_lab.results.comparisons.paired_tests import sign_flip_p
from rope_lab.results.comparisons.stats import ALPHA, spread_limit
from rope_lab.results.comparisons.unplanned import between
from rope_lab.results.plans.number_of_pairs import LIMIT, pairs_that_find
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.folders import read
from rope_lab.results.records.setups import setups_of

SEARCH_PAIRS, LEAST_KEPT = 5, 8
WANTED = (0.8, 1.0, 1.5)  # differences of interest, in standard deviations


def kept_differences() -> dict[str, np.ndarray]:
    """By setup the paired differences of RoPER and RoPE in results/, around their mean."""
    found = {}
    for folder in (RESULTS, *sorted(RESULTS.glob("*/"))):
        if not (folder / "runs.jsonl").exists():
            continue
        for setup in setups_of(read(folder)[0], Catalogue()):
            if not {"rope", "roper"} <= {*setup.schemes}:
                continue
            values = answered(between(setup, "roper", "rope")).differences.to_numpy()
            if len(values) >= LEAST_KEPT and np.ptp(values) > 0:
                centred = values - values.mean()
                found[f"{folder.name} {setup.title}"] = centred / centred.std(ddof=1)
    return found


def found_different(
    kept: np.ndarray, true: float, wanted: float, random: np.random.Generator
) -> tuple[bool, int]:
    """Whether one comparison of a true difference finds any, and over how many pairs."""
    searched = true + random.choice(kept, SEARCH_PAIRS)
    if np.ptp(searched) == 0:  # the same pair five times
        return False, 0
    pairs = pairs_that_find(wanted, spread_limit(searched, LIMIT), MOST_PAIRS)
    differences = true + random.choice(kept, pairs)
    p = sign_flip_p(differences, samples=2**11)
    is_ahead = differences.mean() > 0
    return p < ALPHA and (is_ahead or not true), pairs


def main() -> None:
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    kept = kept_differences()
    random = np.random.default_rng(0)
    names = sorted(kept)
    print(f"{len(names)} setups of at least {LEAST_KEPT} kept pairs")
    for wanted in WANTED:
        for true, signs in ((0.0, "random"), (0.0, "kept"), (wanted, "kept")):
            found, pairs = [], []
            for _ in range(times):
                values = kept[names[random.integers(len(names))]]
                if signs == "random":
                    values = np.concatenate([values, -values])
                is_different, n = found_different(values, true, wanted, random)
                found.append(is_different)
                pairs.append(n)
            print(
                f"of interest {wanted:g} sd, true {true:g} sd, signs {signs}: called different "
                f"{np.mean(found):.1%} of {times:,}; median {np.median(pairs):g} pairs, "
                f"{np.mean(np.array(pairs) == MOST_PAIRS):.0%} at the most",
                flush=True,
            )


if __name__ == "__main__":
    main()
