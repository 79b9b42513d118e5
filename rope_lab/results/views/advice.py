"""The box "Should I use it?": for each use, what the planned tests say."""

from rope_lab.results.comparisons.answers import Result
from rope_lab.results.comparisons.words import CONFIRMED, OPEN, REFUTED, REVERSED, word
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.measures import MEASURES
from rope_lab.results.views.headlines import in_unit, unusual
from rope_lab.results.views.tables import Section, Strong, Table


def section(found: list[Result], catalogue: Catalogue) -> Section | None:
    """The box, from the verdicts; None without planned ones."""
    rows = []
    for use, about in catalogue.uses.items():
        here = [result for result in found if _counts(result, about["tasks"])]
        if here:
            row = {"for": use, "answer": Strong(_answer([word(result) for result in here]))}
            row["gain [95% interval]"] = "\n".join(map(_test, here))
            rows.append(row | {"not known": about["unknown"]})
    if not rows:
        return None
    contender, baseline = catalogue.titles
    yes = [row["for"] for row in rows if row["answer"] == "yes"]
    advice = f"try {contender} for {' and '.join(yes)}" if yes else f"stay with {baseline}"
    return Section(f"Should I use {contender}?", Table(rows), [f"Our advice: {advice}."])


def _counts(result: Result, tasks: list[str]) -> bool:
    """Whether a verdict counts: planned, all runs ended, and not at one length alone."""
    planned = result.family.planned and word(result) != OPEN
    return planned and result.comparison.task in tasks and result.measure.metric in MEASURES


def _answer(words: list[str]) -> str:
    if {*words} == {CONFIRMED}:
        return "yes"
    if {REVERSED, REFUTED} & {*words}:
        return "no"
    return f"shown in {words.count(CONFIRMED)} of {len(words)} tests"


def _test(result: Result) -> str:
    size = max((run.parameters for run in result.comparison.ours.runs), default=0)
    model = ", ".join(filter(None, [f"{size / 1e6:.1f}M parameters", unusual(result)]))
    return f"{result.title}, {model}: {in_unit(result)}, {word(result)}"
