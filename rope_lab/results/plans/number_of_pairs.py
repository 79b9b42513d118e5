"""How many pairs of runs a plan has: those that find the smallest difference of interest."""

import math
from collections.abc import Sequence

from rope_lab.results.comparisons.stats import (
    detectable,
    pairs_needed,
    spread_interval,
    spread_limit,
)
from rope_lab.results.records.measures import Measure

POWER = 0.8
LIMIT = 0.8  # the spread of the search's pairs is below its upper limit with this probability
FEWEST_PLANNED = 8  # with six, p of the sign-flip test cannot be below 0.03
SHARE, OF_LOSS, OF_STEPS = 0.05, 0.02, 0.10  # smallest difference of interest, if none is given


def smallest_difference(measure: Measure, baseline: float) -> float:
    """The smallest difference of interest if none is given, in the unit of the measure: 5 points of
    a share, 10% of the steps, 2% of the baseline's loss.
    """
    if measure.is_log:
        return -math.log(1 - OF_STEPS)
    return SHARE * measure.times if measure.share else abs(OF_LOSS * baseline)


def number_of_pairs(
    differences: Sequence[float], wanted: float, at_most: int, measure: Measure
) -> tuple[int, str]:
    """The number of pairs that finds a difference, in the unit of the measure, and why, from the
    paired differences of a search.
    """
    searched = f"In {len(differences)} pairs of the search the differences"
    limit = spread_limit(differences, LIMIT)
    if limit == 0:  # of few pairs, or of steps, which are known to one evaluation
        alike = "are alike: their spread is not known, and the plan has as many pairs as allowed."
        return at_most, f"{searched} {alike}"
    pairs = pairs_that_find(wanted, limit, at_most)
    spread = spread_interval(differences)[0]
    finds = f"{detectable(pairs, limit, POWER):.{measure.digits}f} {measure.unit}"
    return pairs, (
        f"{searched} have a standard deviation of {spread:.3g}; with {LIMIT:.0%} confidence it is "
        f"below {limit:.3g}. {pairs} pairs find a difference of {finds} with power {POWER:g}; the "
        f"smallest of interest is {wanted:.{measure.digits}f}."
    )


def pairs_that_find(wanted: float, limit: float, at_most: int) -> int:
    """The fewest pairs that find a difference with POWER, within FEWEST_PLANNED and `at_most`."""
    needed = pairs_needed(wanted, limit, POWER) or at_most
    return min(max(needed, FEWEST_PLANNED), at_most)
