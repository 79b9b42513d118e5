"""The page of a plan: each study with its tests and every seed."""

import math

import pandas as pd

from rope_lab.results.comparisons.answers import Result, samples
from rope_lab.results.comparisons.paired_tests import TESTS
from rope_lab.results.comparisons.words import plan_word, word
from rope_lab.results.plans.find import cells_text, settings_not_planned
from rope_lab.results.plans.names import arm_name
from rope_lab.results.plans.study import NAME
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.setups import numbers
from rope_lab.results.views.tables import NONE, Strong, Table, escaped, interval, markdown

HEAD = """# Planned comparisons and their outcome

Written by `rope-lab plan` from [plan.yaml](plan.yaml) and the kept runs that it names. Nothing is
tested before the last run of a study has ended. Of steps, fewer are better.

- **confirmed**: p of the family (Holm-corrected over a study's primary tests) below 0.05, \
and the first scheme ahead;
- **reversed**: that p below 0.05, and the second ahead;
- **refuted at the published size**: neither, and the whole 95% interval is below the \
published gain;
- **undecided**: none of these;
- **open**: runs are to come;
- **not tested**: the runs that have ended cannot be compared as planned;
- **ahead, behind or unsure**, with the reason: confirmed, reversed or neither, in a study that \
does not count as planned (*Problems*, below).
"""


STUDY = """## {study.name}

Hypothesis: {study.hypothesis}

Runs: `task={study.task} scale={study.scale} {settings}`; {seeds}."""
REACHED = "{ours:.0f} against {theirs:.0f} of {n}; discordant pairs: {more} and {less}"
FIRST = "median step {ours} against {theirs}; first {less} times against {more}"
ENDED = "All {n} runs have ended, {diverged}. {better} is better."


def section(results: list[Result], catalogue: Catalogue, correction: str = "") -> str:
    """The results of a study as Markdown; without tests, why there are none yet."""
    family = results[0].family
    study = family.study
    settings = " ".join(f"{key}={value}" for key, value in study.settings.items())
    seeds = []
    for scheme, each in study.seeds.items():
        seeds.append(escaped(f"{catalogue.title(arm_name(scheme))} seeds {numbers(each)}"))
    parts = [STUDY.format(study=study, settings=settings, seeds="; ".join(seeds))]
    if correction:
        parts.append(f"Correction: {correction}")
    if family.untested:
        return "\n\n".join([*parts, f"**Outcome: {word(results[0])}.** {family.untested}"])
    parts.append(_ended(results[0]))
    if others := settings_not_planned(study, family.found):
        parts.append(
            f"Not named in the plan, and other than in today's recipe: {', '.join(others)}."
        )
    for primary, about in ((True, "Test"), (False, "Secondary tests decide nothing")):
        here = [result for result in results if result.family.is_primary == primary]
        if here:
            used = {TESTS[result.comparison.test].said for result in here}
            parts += [markdown(_tests(here, catalogue)), f"{about}: {'; '.join(sorted(used))}."]
    return "\n\n".join([*parts, markdown(_every_seed(results, catalogue))])


def _ended(result: Result) -> str:
    """How many runs have ended and diverged, and which direction is better in the first test."""
    family = result.family
    study, diverged = family.study, "none diverged"
    cells = [cell for cell, run in family.found.items() if run.status == "diverged"]
    if cells:
        diverged = f"diverged, counted as {study.diverged:g}: {cells_text(cells)}"
    better = result.measure.better.capitalize()
    return ENDED.format(n=len(family.found), diverged=diverged, better=better)


def _schemes(result: Result, catalogue: Catalogue) -> str:
    return " − ".join(catalogue.title(arm.scheme) for arm in result.comparison.arms)


def _tests(results: list[Result], catalogue: Catalogue) -> Table:
    """A row for each primary or each secondary test."""
    rows = []
    for result in results:
        family = result.family
        kind = "primary" if family.is_primary else "secondary"
        row = {
            f"{kind} comparison": result.comparison.name,
            "schemes": _schemes(result, catalogue),
            "result [95% interval]": result_text(result),
            "p (not corrected)": f"{result.p:.2g}",
        }
        if family.is_primary:
            row[f"p corrected for {len(results)} (Holm)"] = f"{result.p_family:.2g}"
            row["outcome"] = Strong(plan_word(result))
        rows.append(row)
    return Table(rows)


def claim(result: Result, catalogue: Catalogue) -> tuple[str, str]:
    """The word of a primary test, and the test in a line."""
    family = result.family
    about = f"{NAME}, study {family.study.name}, {result.comparison.name}"
    if family.untested:
        return word(result), f"{about}: {family.untested}"
    found = f"{_schemes(result, catalogue)} {result_text(result)}, p {result.p_family:.2g}"
    return plan_word(result), f"{about}: {found}"


def result_text(result: Result) -> str:
    """The result of a planned test in words."""
    at = result.measure.at
    pairs = result.pairs
    more, less = result.alone
    if at == "reached":
        return REACHED.format(**pairs.sum(), n=len(pairs), more=more, less=less)
    if at == "first step":
        return FIRST.format(**pairs.median().map(step_text), more=more, less=less)
    difference = result.difference
    margin = result.comparison.margin
    shown = f"{interval(difference, '+.4g')} {result.comparison.unit}, pairs: {len(pairs)}"
    if result.measure.is_log:
        shown += f": {interval(difference.exp, '.2f')} times the steps"
    if margin is not None:
        matches = "matches it" if result.gain.low > -margin else "is not shown to match it"
        shown += f": {matches} to within {margin:g}"
    return shown


def step_text(step: float) -> str:
    """A step, or `never`."""
    return f"{step:,.0f}" if math.isfinite(step) else "never"


def _every_seed(results: list[Result], catalogue: Catalogue) -> Table:
    """The value of every run in each comparison of values, and its steps, seed by seed.

    Comparisons of the same values share their columns, under the first one's name.
    """
    columns: dict[str, pd.Series] = {}
    shown = set()
    for result in results:
        measure, asked = result.measure, result.comparison
        for arm in asked.arms:
            if measure.at == "reached" or (arm.scheme, measure) in shown:
                continue
            shown.add((arm.scheme, measure))
            title = catalogue.title(arm.scheme)
            name = f"{title}: {asked.short_name}"
            if name in columns:
                name = f"{title}: {asked.name}"
            values = samples(arm, measure).value.map(measure.shown)
            of_steps = measure.is_log or measure.at == "first step"
            columns[name] = values.map(step_text if of_steps else "{:.4g}".format)
    table = pd.DataFrame(columns).sort_index().fillna(NONE).rename_axis("seed").reset_index()
    return Table(table.astype(str).to_dict("records"))
