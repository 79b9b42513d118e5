"""Planned comparisons and their outcome: `python -m rope_lab.results.plan [PLAN.yaml]` (default: results/plan.yaml).

A plan is a list of studies, written before their first run. Its outcome is written beside it, PLAN.md, from what is
kept in the folders that the studies name. Nothing of a study is tested before its last run has ended.
"""

import argparse
import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from rope_lab.files import write_whole
from rope_lab.results.codes import numbers_of
from rope_lab.results.kept import read_kept
from rope_lab.results.published import Published
from rope_lab.results.runs import MIXED, Run
from rope_lab.results.stats import holm, paired_difference, sign_p
from rope_lab.results.studies import PLAN, Comparison, PlanError, Runs, Study, find, load, parsed
from rope_lab.results.tables import as_markdown, escaped
from rope_lab.text import say

ALPHA = 0.05
TESTS = {
    "sign_flip": "sign-flip permutation test of the mean paired difference, with Student's t interval",
    "mcnemar": "McNemar's exact test of the seeds that only one of the two solves",
    "sign": "exact sign test of which of a pair is there first; a run that never is, is later than any that is",
}


def outcome(study: Study, runs: list[Run], published: Published) -> str:
    """What came of a study, as Markdown; how many runs are there, as long as not all are."""
    found = find(study, runs)

    def named(which: list[tuple[str, int]]) -> str:
        return ", ".join(f"{scheme} seed {seed}" for scheme, seed in which)

    settings = " ".join(f"{key}={value}" for key, value in study.settings.items())
    seeds = "; ".join(f"{_title(published, scheme)} seeds {_span(seeds)}" for scheme, seeds in study.seeds.items())
    parts = [
        f"## {study.name}",
        f"Hypothesis: {study.hypothesis}",
        f"Runs: `task={study.task} scale={study.scale} {settings}`; {seeds}.",
    ]
    codes = {numbers_of(run.code) for run in found.values()}
    impure = [cell for cell, run in found.items() if run.mixed]
    diverged = [cell for cell, run in found.items() if run.status == "diverged"]
    if len(found) < len(study.cells):
        left = f"{len(found)} of {len(study.cells)} runs have ended. Nothing is tested before the last one has."
        return "\n\n".join([*parts, f"**Outcome: open.** {left}"])
    if len(codes) > 1:
        return "\n\n".join([*parts, f"**Outcome: none.** The runs are of {len(codes)} codes and cannot be paired."])
    if impure:
        return "\n\n".join([*parts, f"**Outcome: none.** Of mixed origin, so not to be paired: {named(impure)}."])
    which = f" ({named(diverged)}; counted as {study.diverged:g})" if diverged else ""
    parts.append(f"All {len(found)} runs have ended, {len(diverged)} of them diverged{which}.")
    for family, describe in ((study.primary, _primary), (study.secondary, _secondary)):
        if family:
            results = [_test(study, found, comparison) for comparison in family]
            parts += describe(study, results, [_versus(comparison, published) for comparison in family])
    return "\n\n".join([*parts, _every_seed(study, found, published)])


@dataclass(frozen=True)
class Result:
    """What a comparison found: its p value, in words, and for sign_flip the mean and the interval's ends."""

    p: float
    text: str
    mean: float = math.nan
    low: float = math.nan
    high: float = math.nan


def _primary(study: Study, results: list[Result], versus: list[str]) -> list[str]:
    """A sentence on each of the primary comparisons, and their table."""
    rows, lines = [], []
    adjusted = holm([result.p for result in results])
    family = f"p corrected for {len(results)} (Holm)" if len(results) > 1 else "p of the family (one test)"
    for comparison, result, pair, p in zip(study.primary, results, versus, adjusted, strict=True):
        verdict = _verdict(study, comparison, result, p)
        lines.append(f"- **{verdict[0].upper()}{verdict[1:]}**: {comparison.name}: {result.text} (p = {p:.2g}).")
        found = {
            "difference [95% interval]": result.text,
            "p": f"{result.p:.2g}",
            family: f"{p:.2g}",
            "outcome": verdict,
        }
        rows.append({"primary comparison": comparison.name, "schemes": pair} | found)
    return ["\n".join(lines), as_markdown(rows), f"Test: {_tests(study.primary)}."]


def _secondary(study: Study, results: list[Result], versus: list[str]) -> list[str]:
    rows = [
        {"secondary comparison": c.name, "schemes": pair, "found": result.text, "p (not corrected)": f"{result.p:.2g}"}
        for c, result, pair in zip(study.secondary, results, versus, strict=True)
    ]
    return [as_markdown(rows), f"Secondary tests decide nothing: {_tests(study.secondary)}."]


def _tests(family: list[Comparison]) -> str:
    return "; ".join(sorted({TESTS[comparison.test] for comparison in family}))


def _counted(study: Study, found: Runs, comparison: Comparison) -> pd.DataFrame:
    """What each run counts with in a comparison, by seed and scheme; nan where a scheme has no such seed."""
    count = {"sign_flip": _value, "mcnemar": _solves, "sign": _first_step}[comparison.test]
    return pd.DataFrame(
        {
            scheme: pd.Series({seed: count(study, found[scheme, seed], comparison) for seed in study.seeds[scheme]})
            for scheme in comparison.schemes
        }
    )


def _value(study: Study, run: Run, comparison: Comparison) -> float:
    if run.status == "diverged":
        return study.diverged * comparison.times
    if comparison.value == "last":
        return run.metrics[comparison.metric] * comparison.times
    steps, values = run.curves[comparison.metric]
    return float(np.mean([v for step, v in zip(steps, values, strict=True) if step > 0])) * comparison.times


def _solves(study: Study, run: Run, comparison: Comparison) -> float:
    last = study.diverged if run.status == "diverged" else run.metrics[comparison.metric]
    return float(study.reaches(last, comparison))


def _first_step(study: Study, run: Run, comparison: Comparison) -> float:
    """The first evaluated step at which a run is there; infinite where it never is, or diverged."""
    curve = [] if run.status == "diverged" else zip(*run.curves[comparison.metric], strict=True)
    return next((float(step) for step, value in curve if study.reaches(value, comparison)), math.inf)


def _test(study: Study, found: Runs, comparison: Comparison) -> Result:
    """Runs the test that a comparison names, over the seeds that both its schemes have."""
    pairs = _counted(study, found, comparison).dropna()
    a, b = (pairs[scheme] for scheme in comparison.schemes)
    if comparison.test == "sign_flip":
        result = paired_difference(a, b)
        d = result.difference
        text = f"{d.mean:+.4g} [{d.low:+.4g}, {d.high:+.4g}] {comparison.unit}, {d.n} pairs".replace("  ", " ")
        return Result(result.p_signs, text, d.mean, d.low, d.high)
    less, more = int((a < b).sum()), int((a > b).sum())
    if comparison.test == "mcnemar":
        text = f"{a.sum():.0f} against {b.sum():.0f} of {len(pairs)}; alone {more} against {less}"
    else:
        text = f"median step {_step(a.median())} against {_step(b.median())}; first {less} times against {more}"
    return Result(sign_p(less, more), text)


def _verdict(study: Study, comparison: Comparison, result: Result, p: float) -> str:
    """`confirmed`, `reversed`, `refuted at the published size` or `undecided`; see the head of the page."""
    sign = 1 if study.higher_is_better else -1
    if p < ALPHA:
        return "confirmed" if sign * result.mean > 0 else "reversed"
    most = max(sign * result.low, sign * result.high)
    if comparison.published is not None and most < sign * comparison.published:
        return "refuted at the published size"
    return "undecided"


def _every_seed(study: Study, found: Runs, published: Published) -> str:
    """Every run, seed by seed: what it counts with in each comparison of values, and its steps."""
    columns = {}
    for comparison in study.comparisons:
        if comparison.test != "mcnemar":
            show = _step if comparison.test == "sign" else "{:.4g}".format
            for scheme, values in _counted(study, found, comparison).items():
                name = f"{_title(published, scheme)}: {comparison.name.partition(' (')[0]}"
                columns[name] = {seed: show(value) for seed, value in values.dropna().items()}
    every = sorted({seed for _, seed in study.cells})
    return as_markdown([{"seed": str(seed)} | {n: c.get(seed, "–") for n, c in columns.items()} for seed in every])


def _title(published: Published, scheme: str) -> str:
    return escaped(published.title(scheme))


def _versus(comparison: Comparison, published: Published) -> str:
    return " − ".join(_title(published, scheme) for scheme in comparison.schemes)


def _span(seeds: list[int]) -> str:
    whole = seeds == list(range(seeds[0], seeds[-1] + 1)) and len(seeds) > 2
    return f"{seeds[0]}–{seeds[-1]}" if whole else ", ".join(map(str, seeds))


def _step(step: float) -> str:
    return f"{step:,.0f}" if math.isfinite(step) else "never"


def unplanned(path: Path, studies: list[Study], runs: dict[str, list[Run]]) -> list[str]:
    """The commits of runs that do not hold their study as the plan has it now, so that it may have come after them.

    runs: those kept in each folder that a study names
    """
    problems = []
    for study in studies:
        found = find(study, runs[study.rows]).values()
        for commit in sorted({commit for run in found for commit in run.commit.split(MIXED)}):
            held = _at(path, commit)
            if held is None:
                problems.append(f"{study.name}: git does not tell what the plan was at commit {commit}")
            elif commit.endswith(("+", "?")) or study not in held:
                problems.append(f"{study.name}: commit {commit} of its runs does not hold the study as it stands now")
    return problems


def _at(path: Path, commit: str) -> list[Study] | None:
    """The studies of a plan as a commit has them; None where git does not tell."""
    show = ["git", "show", f"{commit.rstrip('+?')}:./{path.name}"]
    try:
        done = subprocess.run(show, cwd=path.resolve().parent, capture_output=True, text=True, timeout=10)
        return parsed(done.stdout, path.name) if done.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired, PlanError):
        return None


HEAD = """# Planned comparisons and their outcome

Written by `python -m rope_lab.results.plan` from [plan.yaml](plan.yaml) and the rows that it names. Nothing is tested
before the last run of a study has ended.

- **confirmed**: p of the family below 0.05, and the first scheme ahead;
- **reversed**: p below 0.05, and the second ahead;
- **refuted at the published size**: neither, and the 95% interval excludes the published difference;
- **undecided**: none of these.
"""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m rope_lab.results.plan", description=__doc__)
    parser.add_argument("plan", nargs="?", type=Path, default=PLAN, metavar="PLAN.yaml")
    path = parser.parse_args(arguments).plan
    try:
        studies = load(path)
        folders = {name: path.parent / name for name in dict.fromkeys(study.rows for study in studies)}
        runs, problems = {}, []
        for name, folder in folders.items():
            runs[name], wrong = read_kept(folder) if folder.is_dir() else ([], [])
            problems += wrong
        problems += unplanned(path, studies, runs)
        parts = [outcome(study, runs[study.rows], Published()) for study in studies]
    except PlanError as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"{path}: cannot be read ({error.strerror})")
    if problems:
        parts.append("## Problems\n\n" + "\n".join(f"- **{escaped(problem)}**" for problem in problems))
    text = "\n\n".join([HEAD.rstrip(), *parts]) + "\n"
    write_whole(path.with_suffix(".md"), text.encode())
    say(text)


if __name__ == "__main__":
    main()
