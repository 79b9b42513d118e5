"""The word for a result: one vocabulary for plans, one for what was not planned."""

import math

from rope_lab.results.comparisons.answers import Result
from rope_lab.results.comparisons.stats import ALPHA, FEWEST_PAIRS

CONFIRMED = "confirmed"
REVERSED = "reversed"
REFUTED = "refuted at the published size"
UNDECIDED = "undecided"
OPEN = "open"
AHEAD = "ahead"
BEHIND = "behind"
UNSURE = "unsure"
NEITHER = "neither learned it"
NO_VERDICT = "no verdict"
NOT_TESTED = "not tested"


def plan_word(result: Result) -> str:
    """The word of a primary test, by its p corrected for the family; plan.md explains the words. A
    study that does not count as planned has an exploratory word and the reason.
    """
    flaws = result.family.flaws
    return f"{word(result)}; {flaws[0].word}" if flaws else word(result)


def word(result: Result) -> str:
    """The word of a comparison of two schemes, from the side of the first."""
    return _of_plan(result) if result.family.planned else _not_planned(result)


def _of_plan(result: Result) -> str:
    """`open` while runs are to come, `not tested` if they cannot be compared, exploratory if the
    plan does not count, else an outcome of the plan.
    """
    family, published = result.family, result.comparison.published
    if family.open:
        return OPEN
    if family.untested:
        return NOT_TESTED
    if family.flaws:
        return _exploratory(result)
    if result.p_family < ALPHA:
        return CONFIRMED if result.ahead else REVERSED
    return REFUTED if published and result.gain.high < published[0] else UNDECIDED


def _not_planned(result: Result) -> str:
    """`no verdict` and why, `neither learned it` if both are at the score of a guess, else
    exploratory.
    """
    if reason := _no_verdict(result):
        return f"{NO_VERDICT}: {reason}"
    return NEITHER if result.at_chance else _exploratory(result)


def _exploratory(result: Result) -> str:
    """`ahead` or `behind` if p is significant, else `unsure`, also of so few pairs that this scale
    has no test.
    """
    if result.p_family < ALPHA:
        return AHEAD if result.ahead else BEHIND
    return UNSURE


def _no_verdict(result: Result) -> str:
    """Why nothing can be said of an unplanned comparison: below three pairs, if a run diverged, or
    if all pairs differ alike. Empty if something can.
    """
    missing = FEWEST_PAIRS - len(result.pairs)
    if missing > 0:
        return "add 1 seed" if missing == 1 else f"add {missing} seeds"
    diverged = sum(run.status == "diverged" for run in result.runs)
    if diverged:
        return "1 run diverged" if diverged == 1 else f"{diverged} runs diverged"
    has_test = len(result.pairs) >= result.comparison.fewest and not result.at_chance
    if has_test and math.isnan(result.p_family):
        return "all pairs differ alike, so there is no test"
    return ""
