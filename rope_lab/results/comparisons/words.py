"""The word for a result: one for plans, one for headlines."""

from rope_lab.results.comparisons.results import Result
from rope_lab.results.comparisons.stats import ALPHA

CONFIRMED, REVERSED, REFUTED, UNDECIDED = (
    "confirmed",
    "reversed",
    "refuted at the published size",
    "undecided",
)
YES, NO, AHEAD, BEHIND, CEILING, UNSURE, OPEN = (
    "yes",
    "no",
    "ahead",
    "behind",
    "ceiling",
    "unsure",
    "open",
)
HEADLINES = {CONFIRMED: YES, REVERSED: NO, REFUTED: NO, UNDECIDED: UNSURE}


def plan_word(result: Result) -> str:
    """The word of a primary test, by its p corrected for the family; plan.md explains the words. A
    study that does not count as planned has an exploratory word and the reason.
    """
    if result.family.problems:
        return f"{_exploratory(result)}; {result.family.problems[0].word}"
    return _outcome(result)


def _exploratory(result: Result) -> str:
    return {CONFIRMED: AHEAD, REVERSED: BEHIND}.get(_outcome(result), UNSURE)


def _outcome(result: Result) -> str:
    if result.p_family < ALPHA:
        return CONFIRMED if result.ahead else REVERSED
    published = result.comparison.published
    return REFUTED if published and result.gain.high < published[0] else UNDECIDED


def word(result: Result) -> str:
    """The word of a comparison of the contender with the baseline.

    `yes`:     a planned test is significant in the contender's favour
    `no`:      it is so in the baseline's, or excludes the published gain or, unplanned, half of it
    `ahead`, `behind`: p is significant, but not planned
    `ceiling`: the baseline leaves no room for half of the published gain, and a loss of that size
               is excluded
    `open`:    runs are to come
    `unsure`:  none of these
    """
    if result.family.planned:
        if result.family.open:
            return OPEN
        return _exploratory(result) if result.family.problems else HEADLINES[_outcome(result)]
    found = _of_published_gain(result)
    if found == UNSURE and result.p_family < ALPHA:
        return AHEAD if result.gain.mean > 0 else BEHIND
    return found


def _of_published_gain(result: Result) -> str:
    """`ceiling` only if a loss of half the published gain is excluded too, and `no` only if seeds
    differ.

    Runs that all got none right, or all every one, show no spread and no evidence.
    """
    published, gain, measure = result.comparison.published, result.gain, result.measure
    if not published or published[0] <= 0:
        return UNSURE
    half = published[0] / 2
    _, baseline = result.means
    no_room = measure.share and measure.times - baseline < half
    if no_room and gain.high >= 0:
        return CEILING if gain.low > -half else UNSURE
    return NO if gain.low < gain.high < half else UNSURE
