"""Does the contender beat the baseline? One result for each task and scale, and one for each
planned comparison; their table, sentences and legend.
"""

import math
from collections.abc import Iterator

from rope_lab.results.comparisons.families import headlines
from rope_lab.results.comparisons.results import Result
from rope_lab.results.comparisons.words import (
    AHEAD,
    BEHIND,
    CONFIRMED,
    NEITHER,
    NO_VERDICT,
    NOT_TESTED,
    OPEN,
    REFUTED,
    REVERSED,
    UNDECIDED,
    UNSURE,
    word,
)
from rope_lab.results.records.catalogue import Published, rank
from rope_lab.results.records.measures import declared
from rope_lab.results.records.setups import Setup, seeds
from rope_lab.results.views.tables import NONE, Strong, Table, number, signed

ONE_RATE = "one learning rate, not searched"
LAST, MEAN = "last step", "mean over training"
TIMES = "times the steps, below 1 if ahead, geometric means"  # the unit of logarithms of steps


def verdicts(
    setups: list[Setup], studied: list[list[Result]], published: Published
) -> list[Result]:
    """Contender − baseline: of the planned comparisons, then of the setups under their usual
    recipe; those ahead first, by task and scale.

    studied: the results of each study
    """
    if not published.compares:
        return []
    found = [result for results in studied for result in _planned(results, published)]
    for scale in dict.fromkeys(setup.scale for setup in setups):
        usual = [setup for setup in setups if setup.scale == scale and not setup.variant]
        found += headlines(usual, setups)

    def order(result: Result) -> tuple:
        return (
            not result.family.planned,
            word(result) not in (CONFIRMED, AHEAD),
            rank(published.tasks, result.comparison.task),
            rank(published.scales, result.comparison.scale),
        )

    return sorted(found, key=order)


def _planned(results: list[Result], published: Published) -> Iterator[Result]:
    """The primary tests of contender and baseline, at any learning rates, as contender −
    baseline.
    """
    for result in results:
        names = _name(result.comparison.ours.scheme), _name(result.comparison.theirs.scheme)
        if result.family.corrected and names == published.pair:
            yield result
        elif result.family.corrected and names == published.pair[::-1]:
            yield result.swapped()


def _name(scheme: str) -> str:
    """A scheme without its learning rate."""
    return scheme.partition(" (train.lr=")[0]


def kind(result: Result) -> str:
    return "planned" if result.family.planned else "exploratory"


def basis(result: Result) -> str:
    """What a verdict rests on: `planned`, what is wrong with the plan, or `exploratory`."""
    if result.family.planned:
        return result.family.problems[0].word if result.family.problems else kind(result)
    return kind(result) if result.comparison.searched else f"{kind(result)} ({ONE_RATE})"


def unusual(result: Result) -> str:
    """The compared value, unless it is the last one, and the settings that are not the recipe's, in
    words.
    """
    if not result.family.planned:
        return ""
    value, arms = _value(result), (result.comparison.ours, result.comparison.theirs)
    tuned = any(_name(arm.scheme) != arm.scheme for arm in arms)
    words = [
        "" if value == LAST else value,
        "own learning rates" if tuned else "",
        result.family.study.unusual,
    ]
    return ", ".join(filter(None, words))


def _value(result: Result) -> str:
    """The compared number of a run, in words."""
    measure, usual = result.measure, result.comparison.report.measure
    name = result.comparison.name
    if measure.at == "log steps":
        return name
    value = {"last": LAST, "mean": MEAN}.get(measure.at, name)
    if (measure.metric, measure.times) == (usual.metric, usual.times):
        return value
    return f"{measure.metric}, {value}" if declared(measure.metric) else name


def label(result: Result) -> str:
    """`paper, seeds 0–4`"""
    parts = [result.comparison.scale, unusual(result)]
    if result.seeds:
        parts.append(seeds(result.seeds))
    return ", ".join(filter(None, parts))


def published_gains(result: Result, published: Published) -> list[float]:
    """The gains of the write-up's versions; of a plan, which may round them, the plan's if it
    compares another number.
    """
    usual = result.comparison.report.measure
    same = (result.measure.metric, result.measure.times) == (usual.metric, usual.times)
    gains = list(result.comparison.published)
    if result.family.planned and gains and same and result.measure.at == "last":
        return result.comparison.report.published_gains(*published.pair) or gains
    return gains


def gain_text(result: Result) -> str:
    """The gain with its interval; of logarithms, as a ratio of steps."""
    gain = result.gain
    if result.measure.at != "log steps" or math.isnan(gain.mean):
        return signed(gain, result.measure.digits)
    return ratio_text(result)


def ratio_text(result: Result) -> str:
    """The ratio of steps, below 1 if ours is ahead, with its interval."""
    difference = result.difference
    text = f"{math.exp(difference.mean):.2f} times the steps"
    if difference.n > 1:
        text += f" [{math.exp(difference.low):.2f}, {math.exp(difference.high):.2f}]"
    return text


def table(found: list[Result], published: Published) -> Table:
    """A row for each verdict whose runs have ended."""
    ended = [result for result in found if word(result) != OPEN]
    gains = [published_gains(result, published) for result in ended]
    rows = []
    for result, published_here in zip(ended, gains, strict=True):
        scale = ", ".join(filter(None, [result.comparison.scale, unusual(result)]))
        row = {"task": result.title, "scale": scale}
        if any(gains):
            row["published gain"] = _published_text(result, published_here)
        rows.append(row | _measured(result, published))
    return Table(rows, "Verdicts")


def _published_text(result: Result, gains: list[float]) -> str:
    """With as many digits as the plan gives."""
    texts = []
    for gain in gains:
        whole = result.family.planned and gain == round(gain)
        digits = 0 if whole else result.measure.digits
        texts.append(f"{gain:+.{digits}f}")
    return " / ".join(texts) or NONE


def _measured(result: Result, published: Published) -> dict[str, str]:
    contender, baseline = published.titles
    p = result.p_family
    return {
        f"measured {baseline} → {contender}": _means(result),
        "measured gain [95% interval]": gain_text(result),
        "seeds": f"{len(result.seeds)}",
        "p (corrected for)": NONE if math.isnan(p) else f"{p:.2g} ({result.corrected_for})",
        f"{contender} ahead?": Strong(word(result)),
        "comparison": basis(result),
    }


def _means(result: Result) -> str:
    """`65.6 → 104.6`, the baseline's first."""
    if not result.gain.n:
        return NONE
    ours, theirs = result.means
    if result.measure.at == "log steps":
        return f"{math.exp(theirs):,.0f} → {math.exp(ours):,.0f}"
    digits = result.measure.digits
    return f"{number(theirs, digits)} → {number(ours, digits)}"


def sentences(found: list[Result], published: Published) -> list[str]:
    """A sentence for each verdict whose runs have ended, for the end of a long output."""
    gain = "gain of {} over {}".format(*published.titles)
    return [
        f"{result.title}, {label(result)}, {basis(result)}: {gain} {gain_text(result)} "
        f"{result.measure.unit}: {word(result)}"
        for result in found
        if word(result) != OPEN
    ]


def legend(found: list[Result], published: Published) -> list[str]:
    """The words of `table` that are used, its units, and planned tests whose runs are to come: a
    sentence each.
    """
    to_come = [_to_come(result) for result in found if word(result) == OPEN]
    units = dict.fromkeys(
        f"{result.title}: {_unit(result)}" for result in found if word(result) != OPEN
    )
    if not units:
        return to_come
    contender, baseline = published.titles
    gains = f"Gains of {contender} over {baseline}, positive if it is ahead, paired by seed"
    used = {word(result) for result in found}
    meanings = [line for line, words in MEANINGS.items() if _is_used(words, used)]
    return [f"{gains} ({'; '.join(units)}).", *meanings, *to_come]


def _is_used(words: set[str], used: set[str]) -> bool:
    return any(each.partition(":")[0] in words for each in used)


def _unit(result: Result) -> str:
    return TIMES if result.measure.at == "log steps" else result.measure.unit


MEANINGS = {
    f"{CONFIRMED}, {REVERSED}: a planned test is significant in its favour, or against it": {
        CONFIRMED,
        REVERSED,
    },
    f"{REFUTED}: not so, and the interval lies below the published gain": {REFUTED},
    f"{UNDECIDED}: a planned test says none of these": {UNDECIDED},
    f"{NOT_TESTED}: planned, but its runs cannot be compared; plan.md says why": {NOT_TESTED},
    f"{AHEAD}, {BEHIND}: significant, but it does not count as planned": {AHEAD, BEHIND},
    f"{UNSURE}: not significant, and does not count as planned": {UNSURE},
    f"{NEITHER}: neither is better than a guess, so a difference means nothing": {NEITHER},
    f"{NO_VERDICT}: fewer than three seeds; (…) holds both differences": {NO_VERDICT},
}


def _to_come(result: Result) -> str:
    ended, planned = len(result.family.found), len(result.family.study.cells)
    what = unusual(result) or LAST
    where = f"{result.title}, {result.comparison.scale}, {what}"
    return f"{OPEN}: {where}: {ended} of {planned} runs have ended"
