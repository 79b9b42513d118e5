"""Test planned comparisons: `rope-lab plan [PLAN.yaml]` (default: results/plan.yaml).

A plan is a list of studies, written before their first run. Its outcome is written beside it,
PLAN.md, from the kept runs in the folders that the studies name. Nothing of a study is tested
before its last run has ended.
"""

import math
import subprocess
from pathlib import Path

from rope_lab.results.plans import outcomes
from rope_lab.results.plans.outcomes import Outcome, Result, step_text
from rope_lab.results.plans.study import PLAN, Plan, Study, called, from_yaml, load
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.run import MIXED
from rope_lab.results.records.setups import numbers
from rope_lab.results.views.tables import (
    NONE,
    Strong,
    Table,
    bullets,
    escaped,
    markdown,
    write_page,
)
from rope_lab.text import ConfigError, argument_parser, errors_as_exit

TESTS = {
    "t": "paired t test of the mean difference (without any spread: the sign-flip test), with Student's t interval",
    "sign_flip": "sign-flip permutation test of the mean paired difference, with Student's t interval",
    "mcnemar": "McNemar's exact test of the seeds that only one of the two solves",
    "sign": "exact sign test of which run of a pair gets there first; a run that never does comes last",
}
HEAD = """# Planned comparisons and their outcome

Written by `rope-lab plan` from [plan.yaml](plan.yaml) and the kept runs that it names. Nothing is
tested before the last run of a study has ended.

- **confirmed**: p of the family (Holm-corrected over a study's primary tests) below 0.05, and the first scheme ahead;
- **reversed**: that p below 0.05, and the second ahead;
- **refuted at the published size**: neither, and the whole 95% interval is below the published gain;
- **undecided**: none of these;
- **open**: runs are to come.
"""


def section(outcome: Outcome, published: Published, correction: str = "") -> str:
    """The outcome of a study as Markdown; without tests, why there are none yet."""
    study = outcome.study
    settings = " ".join(f"{key}={value}" for key, value in study.settings.items())
    seeds = [
        f"{published.title(called(scheme))} seeds {numbers(each)}"
        for scheme, each in study.seeds.items()
    ]
    parts = [
        f"## {study.name}",
        f"Hypothesis: {study.hypothesis}",
        f"Runs: `task={study.task} scale={study.scale} {settings}`; {escaped('; '.join(seeds))}.",
    ]
    if correction:
        parts.append(f"Correction: {correction}")
    if outcome.untested:
        return "\n\n".join(
            [*parts, f"**Outcome: {'open' if outcome.open else 'none'}.** {outcome.untested}"]
        )
    diverged = [cell for cell, run in outcome.found.items() if run.status == "diverged"]
    which = f" ({outcomes.named(diverged)}; counted as {study.diverged:g})" if diverged else ""
    better = f"{'Higher' if study.higher_is_better else 'Lower'} is better"
    if any(c.value == "log_steps" for c in study.primary):
        better += "; fewer steps are better"
    ended = f"All {len(outcome.found)} runs have ended, {len(diverged)} of them diverged{which}"
    parts.append(f"{ended}. {better}.")
    if unnamed := outcomes.unnamed(study, outcome.found):
        parts.append(
            f"Not named in the plan, and other than in today's recipe: {', '.join(unnamed)}."
        )
    for name, family in (("primary", outcome.primary), ("secondary", outcome.secondary)):
        if family:
            tests = "; ".join(sorted({TESTS[result.comparison.test] for result in family}))
            note = "Test" if name == "primary" else "Secondary tests decide nothing"
            parts += [markdown(_results(name, family, published)), f"{note}: {tests}."]
    return "\n\n".join([*parts, markdown(_every_seed(outcome, published))])


def _results(name: str, family: list[Result], published: Published) -> Table:
    """The results of the primary or of the secondary comparisons."""
    primary, rows = name == "primary", []
    corrected = (
        f"p corrected for {len(family)} (Holm)" if len(family) > 1 else "p of the family (one test)"
    )
    for r in family:
        schemes = " − ".join(published.title(called(scheme)) for scheme in r.comparison.schemes)
        row = {f"{name} comparison": r.comparison.name, "schemes": schemes}
        row |= {"difference [95% interval]" if primary else "found": r.text}
        row |= {"p" if primary else "p (not corrected)": f"{r.p:.2g}"}
        if primary:
            row |= {corrected: f"{r.p_family:.2g}", "outcome": Strong(r.verdict)}
        rows.append(row)
    return Table(rows)


def _every_seed(outcome: Outcome, published: Published) -> Table:
    """The value of every run in each comparison of values, and its steps, seed by seed.

    Comparisons of the same values share their columns, under the first one's name.
    """
    columns, done = {}, set()
    for c in outcome.study.comparisons:
        for scheme, values in outcomes.counted(outcome.study, outcome.found, c).items():
            same = (scheme, c.metric, c.value, c.times, c.reaches)
            if c.compares == "reached" or same in done:
                continue
            done.add(same)
            title, short = published.title(called(scheme)), c.name.partition(" (")[0]
            name = f"{title}: {short if f'{title}: {short}' not in columns else c.name}"
            values = values.dropna().map(math.exp if c.value == "log_steps" else float)
            columns[name] = values.map(
                step_text if c.compares in ("step", "log_steps") else "{:.4g}".format
            )
    seeds = sorted({seed for _, seed in outcome.study.cells})
    rows = [
        {"seed": str(seed)} | {name: cells.get(seed, NONE) for name, cells in columns.items()}
        for seed in seeds
    ]
    return Table(rows, "Every seed")


def unplanned(path: Path, found: list[Outcome]) -> list[str]:
    """A line per commit of runs that lacks their study as it is or their code, or that git cannot
    show.
    """
    problems = []
    for outcome in found:
        study = outcome.study
        for commit in sorted(
            {commit for run in outcome.found.values() for commit in run.commit.split(MIXED)}
        ):
            held = _at(path, commit)
            if held is None:
                problems.append(f"{study.name}: git cannot show the plan at commit {commit}")
            elif study != held.get(study.name):
                problems.append(
                    f"{study.name}: commit {commit} of its runs does not hold the study as it stands now"
                )
            elif commit.endswith(("+", "?")):
                problems.append(
                    f"{study.name}: the code of its runs was changed after commit {commit[:-1]}, or may be"
                )
    return problems


def _at(path: Path, commit: str) -> dict[str, Study] | None:
    """The studies of a plan, by their names, as a commit has them; None if git cannot show it."""
    show = ["git", "show", f"{commit.rstrip('+?')}:./{path.name}"]
    try:
        done = subprocess.run(
            show, cwd=path.resolve().parent, capture_output=True, text=True, timeout=10
        )
        return from_yaml(Plan, done.stdout, path.name).studies if done.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired, ConfigError):
        return None


@errors_as_exit()
def main(arguments: list[str] | None = None) -> None:
    parser = argument_parser("plan", __doc__)
    parser.add_argument("plan", nargs="?", type=Path, default=PLAN, metavar="PLAN.yaml")
    path = parser.parse_args(arguments).plan
    found, problems = outcomes.read(path)
    problems += unplanned(path, found)
    notes = load(path).corrections
    parts = [section(outcome, Published(), notes.get(outcome.study.name, "")) for outcome in found]
    if problems:
        parts.append("## Problems\n\n" + bullets(map(Strong, problems)))
    write_page(path.with_suffix(".md"), [HEAD.rstrip(), *parts])


if __name__ == "__main__":
    main()
