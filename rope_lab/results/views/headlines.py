"""Does the contender beat the baseline? One result for each task and scale, and one for each
planned comparison; their table, sentences and legend.
"""

import math
from itertools import chain

from rope_lab.results.comparisons.answers import Result
from rope_lab.results.comparisons.unplanned import of_contender
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
from rope_lab.results.plans.names import RATE, scheme_of
from rope_lab.results.records.catalogue import Catalogue, rank
from rope_lab.results.records.setups import Setup, seeds_text
from rope_lab.results.views.tables import NONE, Strong, Table, interval, signed

GAINS = (
    "Gains of {0} over {1}, paired by seed: positive if {0} is ahead; as a ratio of steps "
    "(geometric mean), below 1"
)
MEANINGS = {
    CONFIRMED: "a planned test is significant in its favour",
    REVERSED: "a planned test is significant against it",
    REFUTED: "neither, and the interval lies below the published gain",
    UNDECIDED: "no planned test is significant",
    NOT_TESTED: "planned, but its runs cannot be compared; plan.md says why",
    AHEAD: "significantly better, but not in a test that counts as planned",
    BEHIND: "significantly worse, but not in a test that counts as planned",
    UNSURE: "not significant, and not in a test that counts as planned",
    NEITHER: "neither is better than a guess, so a difference means nothing",
    NO_VERDICT: "fewer than three seeds, or another reason that is given",
}


def headlines(
    setups: list[Setup], studied: list[list[Result]], catalogue: Catalogue
) -> list[Result]:
    """Contender − baseline: of the planned comparisons, then of the setups under their usual
    recipe; those ahead first, by task and scale.

    studied: the results of each study
    """
    if not catalogue.compares:
        return []
    found = []
    for result in chain.from_iterable(studied):
        names = [scheme_of(arm.scheme) for arm in result.comparison.arms]
        if result.family.is_primary and {*names} == {*catalogue.pair}:
            found.append(result if names[0] == catalogue.contender else result.swapped())
    for scale in dict.fromkeys(setup.scale for setup in setups):
        usual = [setup for setup in setups if setup.scale == scale and not setup.variant]
        found += of_contender(usual, setups)

    def order(result: Result) -> tuple:
        return (
            not result.family.planned,
            word(result) not in (CONFIRMED, AHEAD),
            rank(catalogue.tasks, result.comparison.task),
            rank(catalogue.scales, result.comparison.scale),
        )

    return sorted(found, key=order)


def kind(result: Result) -> str:
    return "planned" if result.family.planned else "exploratory"


def basis(result: Result) -> str:
    """What a verdict rests on: `planned`, what is wrong with the plan, or `exploratory`."""
    if result.family.flaws:
        return result.family.flaws[0].word
    if result.family.planned:
        return kind(result)
    if result.comparison.searched:
        return "exploratory (at the recipe's learning rate)"
    return "exploratory (one learning rate, not searched)"


def is_usual(result: Result) -> bool:
    """Whether the compared number is the one by which the schemes of the task are compared."""
    ours = result.measure
    usual = result.comparison.report.measure
    return (ours.metric, ours.times, ours.at) == (usual.metric, usual.times, usual.at)


def unusual(result: Result) -> str:
    """Of a planned test, the compared number and the settings, in words if they are not the
    recipe's.
    """
    words, asked = [], result.comparison
    if not is_usual(result):
        words.append(asked.short_name)
    if result.family.planned:
        if RATE in asked.ours.scheme + asked.theirs.scheme:
            words.append("own learning rates")
        words.append(result.family.study.unusual)
    return ", ".join(filter(None, words))


def label(result: Result) -> str:
    """`paper, seeds 0–4`"""
    runs = seeds_text(result.seeds) if result.seeds else ""
    return ", ".join(filter(None, [where(result), runs]))


def where(result: Result) -> str:
    """The scale, and what is unusual."""
    return ", ".join(filter(None, [result.comparison.scale, unusual(result)]))


def published_gains(result: Result, catalogue: Catalogue) -> list[float]:
    """The gains of the write-up's versions; of a plan, which may round them, the plan's if it
    compares another number.
    """
    gains = list(result.comparison.published)
    if result.family.planned and gains and is_usual(result):
        return result.comparison.report.published_gains(*catalogue.pair) or gains
    return gains


def gain_text(result: Result) -> str:
    """The gain with its interval; of logarithms of steps, as a ratio."""
    if result.measure.is_log and result.gain.n:
        return f"{interval(result.difference.exp, '.2f')} times the steps"
    return signed(result.gain, result.measure.digits)


def in_unit(result: Result) -> str:
    """The gain with its interval and its unit."""
    if result.measure.is_log or not result.gain.n:
        return gain_text(result)
    return f"{gain_text(result)} {result.measure.unit}"


def table(found: list[Result], catalogue: Catalogue) -> Table:
    """A row for each verdict whose runs have ended."""
    contender, baseline = catalogue.titles
    ended = [result for result in found if word(result) != OPEN]
    gains = [published_gains(result, catalogue) for result in ended]
    rows = []
    for result, written in zip(ended, gains, strict=True):
        p = result.p_family
        row = {"task": result.title, "scale": where(result)}
        if any(gains):
            row["published gain"] = " / ".join(f"{gain:+.3g}" for gain in written) or NONE
        row |= {
            f"measured {baseline} → {contender}": _means(result),
            "measured gain [95% interval]": in_unit(result),
            "seeds": f"{len(result.seeds)}",
            "p (corrected for)": NONE if math.isnan(p) else f"{p:.2g} ({result.corrected_for})",
            f"{contender} ahead?": Strong(word(result)),
            "comparison": basis(result),
        }
        rows.append(row)
    return Table(rows, "Verdicts")


def _means(result: Result) -> str:
    """`65.6 → 104.6`, the baseline's first."""
    if not result.gain.n:
        return NONE
    ours, theirs = map(result.measure.text, result.means)
    return f"{theirs} → {ours}"


def sentences(found: list[Result], catalogue: Catalogue) -> list[str]:
    """A sentence for each verdict whose runs have ended, for the end of a long output."""
    gain = "gain of {} over {}".format(*catalogue.titles)
    return [
        f"{result.title}, {label(result)}, {basis(result)}: {gain} {in_unit(result)}: "
        f"{word(result)}"
        for result in found
        if word(result) != OPEN
    ]


def legend(found: list[Result], catalogue: Catalogue) -> list[str]:
    """The words of `table` that are used, and planned tests whose runs are to come: a sentence
    each.
    """
    used = {word(result).partition(":")[0] for result in found}
    lines = [f"{each}: {meaning}" for each, meaning in MEANINGS.items() if each in used]
    if lines:
        lines.insert(0, GAINS.format(*catalogue.titles))
    for result in found:
        if word(result) == OPEN:
            lines.append(f"{OPEN}: {result.title}, {label(result)}: {result.family.untested}")
    return lines
