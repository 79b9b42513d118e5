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
    """The word of a comparison of the contender with the baseline.

    Of a planned one `open` while runs are to come, `not tested` if they cannot be compared, else as
    in the plan. Of another one, or if the plan does not count: `ahead` or `behind` if p is
    significant; `neither learned it` if both are at the score of a guess; `no verdict` and why
    below three pairs, if a run diverged, or if all pairs differ alike; else `unsure`, also of so
    few pairs that this scale has no test.
    """
    if result.family.open:
        return OPEN
    if result.family.planned:
        if result.family.untested:
            return NOT_TESTED
        if not result.family.flaws:
            return _outcome(result)
    elif reason := _no_verdict(result):
        return f"{NO_VERDICT}: {reason}"
    elif result.at_chance:
        return NEITHER
    if result.p_family < ALPHA:
        return AHEAD if result.ahead else BEHIND
    return UNSURE


def _no_verdict(result: Result) -> str:
    """Why nothing can be said of an unplanned comparison; empty if something can."""
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


def _outcome(result: Result) -> str:
    if result.p_family < ALPHA:
        return CONFIRMED if result.ahead else REVERSED
    published = result.comparison.published
    return REFUTED if published and result.gain.high < published[0] else UNDECIDED
