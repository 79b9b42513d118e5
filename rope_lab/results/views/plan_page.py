"""The page of a plan: each study with its tests and every seed."""

import math

from rope_lab.results.comparisons.results import Result, samples
from rope_lab.results.comparisons.words import AHEAD, BEHIND, UNSURE, plan_word
from rope_lab.results.plans.evidence import MEANINGS
from rope_lab.results.plans.families import PlannedFamily
from rope_lab.results.plans.find import named, unnamed
from rope_lab.results.plans.study import NAME, PlannedTest, called
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.setups import numbers
from rope_lab.results.views.tables import NONE, Strong, Table, escaped, markdown
from rope_lab.results.views.verdicts import ratio_text

TESTS = {
    "t": "paired t test of the mean difference (without any spread: the sign-flip test), "
    "with Student's t interval",
    "sign_flip": "sign-flip permutation test of the mean paired difference, "
    "with Student's t interval",
    "mcnemar": "McNemar's exact test of the seeds that only one of the two solves",
    "sign": "exact sign test of which run of a pair gets there first; "
    "a run that never does comes last",
}
HEAD = """# Planned comparisons and their outcome

Written by `rope-lab plan` from [plan.yaml](plan.yaml) and the kept runs that it names. Nothing is
tested before the last run of a study has ended.

- **confirmed**: p of the family (Holm-corrected over a study's primary tests) below 0.05, \
and the first scheme ahead;
- **reversed**: that p below 0.05, and the second ahead;
- **refuted at the published size**: neither, and the whole 95% interval is below the \
published gain;
- **undecided**: none of these;
- **open**: runs are to come.
"""


def head(families: list[PlannedFamily]) -> str:
    """The head of the page; also the words of outcomes that do not count as planned."""
    used = {problem.word for family in families for problem in family.problems}
    lines = [
        f"- **{AHEAD}, {BEHIND} or {UNSURE}; {word}**: {meaning} (*Problems*, below);"
        for word, meaning in MEANINGS.items()
        if word in used
    ]
    return "\n".join([HEAD.rstrip(), *lines])


def section(results: list[Result], published: Published, correction: str = "") -> str:
    """The results of a study as Markdown; without tests, why there are none yet."""
    family = results[0].family
    parts = _head(family, published)
    if correction:
        parts.append(f"Correction: {correction}")
    if family.untested:
        word = "open" if family.open else "none"
        return "\n\n".join([*parts, f"**Outcome: {word}.** {family.untested}"])
    parts.append(_ended(family, results))
    if others := unnamed(family.study, family.found):
        parts.append(
            f"Not named in the plan, and other than in today's recipe: {', '.join(others)}."
        )
    primary = [result for result in results if result.family.corrected]
    secondary = [result for result in results if not result.family.corrected]
    if primary:
        parts += [markdown(_primary(primary, published)), f"Test: {_tests(primary)}."]
    if secondary:
        decide = f"Secondary tests decide nothing: {_tests(secondary)}."
        parts += [markdown(_secondary(secondary, published)), decide]
    return "\n\n".join([*parts, markdown(_every_seed(results, published))])


def _head(family: PlannedFamily, published: Published) -> list[str]:
    study = family.study
    settings = " ".join(f"{key}={value}" for key, value in study.settings.items())
    seeds = [
        f"{published.title(called(scheme))} seeds {numbers(each)}"
        for scheme, each in study.seeds.items()
    ]
    return [
        f"## {study.name}",
        f"Hypothesis: {study.hypothesis}",
        f"Runs: `task={study.task} scale={study.scale} {settings}`; {escaped('; '.join(seeds))}.",
    ]


def _ended(family: PlannedFamily, results: list[Result]) -> str:
    """How many runs have ended and diverged, and which direction is better."""
    study, found = family.study, family.found
    diverged = [cell for cell, run in found.items() if run.status == "diverged"]
    ended = f"All {len(found)} runs have ended, {len(diverged)} of them diverged"
    if diverged:
        ended += f" ({named(diverged)}; counted as {study.diverged:g})"
    better = "Higher is better" if study.higher_is_better else "Lower is better"
    if any(result.family.corrected and result.measure.at == "log steps" for result in results):
        better += "; fewer steps are better"
    return f"{ended}. {better}."


def _tests(results: list[Result]) -> str:
    return "; ".join(sorted({TESTS[test.test] for test in results[0].family.tests}))


def _schemes(result: Result, published: Published) -> str:
    arms = result.comparison.ours, result.comparison.theirs
    return " − ".join(published.title(arm.scheme) for arm in arms)


def _primary(results: list[Result], published: Published) -> Table:
    several = f"p corrected for {len(results)} (Holm)"
    corrected = several if len(results) > 1 else "p of the family (one test)"
    return Table(
        [
            {
                "primary comparison": result.comparison.name,
                "schemes": _schemes(result, published),
                "difference [95% interval]": text(result),
                "p": f"{result.p:.2g}",
                corrected: f"{result.p_family:.2g}",
                "outcome": Strong(plan_word(result)),
            }
            for result in results
        ]
    )


def _secondary(results: list[Result], published: Published) -> Table:
    return Table(
        [
            {
                "secondary comparison": result.comparison.name,
                "schemes": _schemes(result, published),
                "found": text(result),
                "p (not corrected)": f"{result.p:.2g}",
            }
            for result in results
        ]
    )


def claim(result: Result, published: Published) -> tuple[str, str]:
    """The word of a primary test, and the test in a line."""
    family = result.family
    about = f"{NAME}, study {family.study.name}, {result.comparison.name}"
    if family.untested:
        return ("open" if family.open else "none"), f"{about}: {family.untested}"
    found = f"{_schemes(result, published)} {text(result)}, p {result.p_family:.2g}"
    return plan_word(result), f"{about}: {found}"


def text(result: Result) -> str:
    """The result of a planned test in words."""
    at, pairs, (more, less) = result.measure.at, result.pairs, result.alone
    if at == "reached":
        solved = f"{pairs.ours.sum():.0f} against {pairs.theirs.sum():.0f} of {len(pairs)}"
        return f"{solved}; discordant pairs: {more} and {less}"
    if at == "first step":
        medians = f"{step_text(pairs.ours.median())} against {step_text(pairs.theirs.median())}"
        return f"median step {medians}; first {less} times against {more}"
    parts = [_difference(result)]
    if at == "log steps":
        parts.append(ratio_text(result))
    if result.comparison.margin is not None and result.difference.n > 1:
        parts.append(_margin(result))
    return ": ".join(parts)


def _difference(result: Result) -> str:
    """`+3.2 [+1, +5] nats, 8 pairs`"""
    difference = result.difference
    found = f"{difference.mean:+.4g}"
    if difference.n > 1:
        found += f" [{difference.low:+.4g}, {difference.high:+.4g}]"
    unit = _test(result).unit
    if unit:
        found += f" {unit}"
    return f"{found}, 1 pair" if difference.n == 1 else f"{found}, {difference.n} pairs"


def _test(result: Result) -> PlannedTest:
    """The test as the plan has it."""
    family = result.family
    return family.tests[family.comparisons.index(result.comparison)]


def _margin(result: Result) -> str:
    """Whether ours is shown to match theirs, by the least favourable end of the interval."""
    margin, least = result.comparison.margin, result.gain.low
    if least > 0:
        return "beats it"
    matches = "matches it" if least > -margin else "is not shown to match it"
    return f"{matches} to within {margin:g}"


def step_text(step: float) -> str:
    """A step, or `never`."""
    return f"{step:,.0f}" if math.isfinite(step) else "never"


def _every_seed(results: list[Result], published: Published) -> Table:
    """The value of every run in each comparison of values, and its steps, seed by seed.

    Comparisons of the same values share their columns, under the first one's name.
    """
    columns, done = {}, set()
    for result in results:
        measure, asked = result.measure, result.comparison
        for arm in (asked.ours, asked.theirs):
            same = (arm.scheme, measure.metric, measure.at, measure.times, measure.reaches)
            if measure.at == "reached" or same in done:
                continue
            done.add(same)
            title, short = published.title(arm.scheme), asked.name.partition(" (")[0]
            name = f"{title}: {short}"
            if name in columns:
                name = f"{title}: {asked.name}"
            columns[name] = samples(arm, measure).value.map(VALUES.get(measure.at, "{:.4g}".format))
    rows = []
    for seed in sorted({seed for _, seed in results[0].family.study.cells}):
        cells = {name: cells.get(seed, NONE) for name, cells in columns.items()}
        rows.append({"seed": str(seed)} | cells)
    return Table(rows, "Every seed")


def _of_logarithm(value: float) -> str:
    return step_text(math.exp(value))


VALUES = {"first step": step_text, "log steps": _of_logarithm}  # other values have four digits
