"""How many pairs of runs a plan has: those that find the smallest difference of interest."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rope_lab.results.comparisons.stats import (
    detectable,
    pairs_needed,
    spread_interval,
    spread_limit,
)
from rope_lab.results.records.measures import Measure

POWER = 0.8
LIMIT = 0.8  # the spread of the search's pairs is below its upper limit with this probability
FEWEST_PAIRS = 8  # with six, p of the sign-flip test cannot be below 0.03
SHARE, OF_LOSS, OF_STEPS = 0.05, 0.02, 0.10  # smallest difference of interest, if none is given


@dataclass(frozen=True)
class Size:
    """How many pairs a plan has, and why; in the unit of the measure.

    spread: of the search's pairs; limit: its upper limit
    finds:  the least true difference that so many pairs find with POWER; nan without any spread
    """

    pairs: int
    wanted: float
    spread: float
    limit: float
    finds: float


def smallest_difference(measure: Measure, baseline: float) -> float:
    """The smallest difference of interest if none is given, in the unit of the measure: 5 points of
    a share, 10% of the steps, 2% of the baseline's loss.
    """
    if measure.is_log:
        return -math.log(1 - OF_STEPS)
    return SHARE * measure.times if measure.share else abs(OF_LOSS * baseline)


def number_of_pairs(differences: Sequence[float], wanted: float, at_most: int) -> Size:
    """The number of pairs that finds a difference, from the paired differences of a search."""
    spread = spread_interval(differences)[0]
    limit = spread_limit(differences, LIMIT)
    if limit == 0:  # of few pairs, or of steps, which are known to one evaluation
        return Size(at_most, wanted, spread, limit, math.nan)
    pairs = pairs_that_find(wanted, limit, at_most)
    return Size(pairs, wanted, spread, limit, detectable(pairs, limit, POWER))


def pairs_that_find(wanted: float, limit: float, at_most: int) -> int:
    """The fewest pairs that find a difference with POWER, within FEWEST_PAIRS and `at_most`."""
    needed = pairs_needed(wanted, limit, POWER) or at_most
    return min(max(needed, FEWEST_PAIRS), at_most)


def reason(size: Size, measure: Measure, pairs: int) -> str:
    """Why a plan has so many pairs; pairs: of the search."""
    digits, unit = measure.digits, measure.unit
    if math.isnan(size.finds):
        alike = f"In {pairs} pairs of the search the differences are alike: "
        return f"{alike}their spread is not known, and the plan has as many pairs as allowed."
    spread = f"In {pairs} pairs of the search the differences have a standard deviation of "
    spread += f"{size.spread:.3g}; with {LIMIT:.0%} confidence it is below {size.limit:.3g}."
    found = f"{size.pairs} pairs find a difference of {size.finds:.{digits}f} {unit} with power "
    found += f"{POWER:g}; the smallest of interest is {size.wanted:.{digits}f}."
    return f"{spread} {found}"
