"""Planned comparisons and their outcome: `python -m rope_lab.results.plan [PLAN.yaml]` (default: results/plan.yaml).

A plan is a list of studies, written before their first run. Its outcome is written beside it, PLAN.md, from the rows
kept in the folders that the studies name. Nothing of a study is tested before its last run has ended.
"""

import argparse
import math
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from rope_lab.files import write_whole
from rope_lab.results.groups import ROOT, load_published, scheme_names, title
from rope_lab.results.kept import read_kept
from rope_lab.results.runs import MIXED, RunRow, mixed
from rope_lab.results.stats import holm, mcnemar_p, paired_difference, sign_p
from rope_lab.results.tables import escaped, markdown
from rope_lab.text import say

NAME = "plan.yaml"
PLAN = ROOT / "results" / NAME
ALPHA = 0.05
TESTS = {
    "sign_flip": "sign-flip permutation test of the mean paired difference, with Student's t interval",
    "mcnemar": "McNemar's exact test of the seeds that only one of the two solves",
    "sign": "exact sign test of which of a pair is there first; a run that never is, is later than any that is",
}


class PlanError(ValueError):
    """A plan that cannot be read: the message names the study, the key and the remedy."""


@dataclass(frozen=True)
class Comparison:
    """One planned comparison of two schemes over the same seeds, schemes[0] − schemes[1].

    test:    see TESTS
    metric:  a metric of the run records; its values are multiplied by `times` and then in `unit`
    value:   of sign_flip: `last`, the value after the last step, or `mean`, over all evaluations after step 0
    reaches: of mcnemar, the value that solves the task after the last step; of sign, the value to reach in training
    published: the published difference in the same unit, if there is one
    """

    name: str
    schemes: tuple[str, str]
    test: str
    metric: str
    value: str = "last"
    times: float = 1.0
    unit: str = ""
    reaches: float | None = None
    published: float | None = None


@dataclass(frozen=True)
class Study:
    """One question: its runs, and the comparisons that answer it.

    settings: what all runs share besides task and scale, as overrides of the training command
    seeds:    scheme → its seeds
    diverged: the value that a run counts with which diverged, in the metric's own unit
    primary:  one family, corrected by Holm; these decide
    secondary: described and not corrected; these decide nothing
    """

    name: str
    hypothesis: str
    rows: str
    task: str
    scale: str
    settings: dict[str, Any]
    seeds: dict[str, list[int]]
    higher_is_better: bool
    diverged: float
    reason: str = ""
    primary: list[Comparison] = field(default_factory=list)
    secondary: list[Comparison] = field(default_factory=list)

    @property
    def cells(self) -> list[tuple[str, int]]:
        """Scheme and seed of every run, seed by seed."""
        every = sorted({seed for seeds in self.seeds.values() for seed in seeds})
        return [(scheme, seed) for seed in every for scheme, seeds in self.seeds.items() if seed in seeds]


Runs = dict[tuple[str, int], RunRow]  # scheme and seed → the run


def load(path: Path = PLAN) -> list[Study]:
    """The studies of a plan. Raises PlanError, and OSError where there is no such file."""
    return _studies(path.read_text("utf-8"), path.name)


def covers(folder: Path) -> bool:
    """Whether a plan beside a folder of kept rows names it. Raises PlanError."""
    path = folder.resolve().parent / NAME
    return path.exists() and folder.resolve().name in {study.rows for study in load(path)}


def _studies(text: str, name: str) -> list[Study]:
    try:
        plain = OmegaConf.to_container(OmegaConf.create(text), resolve=True)["studies"]
        return [_study(study, content) for study, content in plain.items()]
    except (OmegaConfBaseException, YAMLError, KeyError, TypeError, AttributeError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise PlanError(f"{name}: is no plan ({type(error).__name__}: {reason})") from None


def _study(name: str, content: dict[str, Any]) -> Study:
    seeds = {scheme: _seeds(f"{name}: seeds.{scheme}", given) for scheme, given in content["seeds"].items()}
    comparisons = {
        kind: [_comparison(name, seeds, entry) for entry in content.get(kind, [])] for kind in ("primary", "secondary")
    }
    study = Study(**{"name": name} | content | {"seeds": seeds} | comparisons)
    if not study.primary + study.secondary:
        raise PlanError(f"{name}: has neither primary nor secondary comparisons")
    return study


def _comparison(study: str, seeds: dict[str, list[int]], entry: dict[str, Any]) -> Comparison:
    comparison = Comparison(**entry | {"schemes": tuple(entry["schemes"])})
    where = f"{study}: {comparison.name}"
    if comparison.test not in TESTS:
        raise PlanError(f"{where}: test={comparison.test}: must be one of {', '.join(TESTS)}")
    if comparison.value not in ("last", "mean"):
        raise PlanError(f"{where}: value={comparison.value}: must be last or mean")
    if comparison.test != "sign_flip" and comparison.reaches is None:
        raise PlanError(f"{where}: test={comparison.test} needs reaches, the value that counts as reached")
    unknown = [scheme for scheme in comparison.schemes if scheme not in seeds]
    if unknown or len(comparison.schemes) != 2:
        raise PlanError(f"{where}: schemes={list(comparison.schemes)}: must be two of {', '.join(seeds)}")
    if not set(seeds[comparison.schemes[0]]) & set(seeds[comparison.schemes[1]]):
        raise PlanError(f"{where}: the two schemes have no seed in common")
    return comparison


def _seeds(where: str, given: int | str | list[int]) -> list[int]:
    """`8-31`, one seed or a list of them."""
    if isinstance(given, list):
        return given
    first, _, last = str(given).partition("-")
    if not (first.isdigit() and (last or first).isdigit()):
        raise PlanError(f"{where}={given}: must be seeds, 8-31 for example")
    return list(range(int(first), int(last or first) + 1))


def find(study: Study, runs: list[RunRow]) -> Runs:
    """The runs of a study that have ended. Raises PlanError where two fit one cell: they differ in another setting."""
    found: Runs = {}
    names = scheme_names(runs)
    for run in runs:
        s, settings = run.source, run.settings | {"threads": run.source.threads}
        cell = names[s.run_id], s.seed
        if (s.task, s.scale) != (study.task, study.scale) or cell not in study.cells:
            continue
        if s.status not in ("finished", "diverged") or any(settings.get(k) != v for k, v in study.settings.items()):
            continue
        if cell in found:
            raise PlanError(
                f"{study.name}: two runs are {cell[0]} seed {cell[1]}: {found[cell].source.run_id}, {s.run_id}"
            )
        found[cell] = run
    return found


def outcome(study: Study, runs: list[RunRow]) -> str:
    """What came of a study, as Markdown; how many runs are there, as long as not all are."""
    published = load_published()
    found = find(study, runs)
    settings = " ".join(f"{key}={value}" for key, value in study.settings.items())
    parts = [
        f"## {study.name}",
        f"Hypothesis: {study.hypothesis}",
        f"Runs: `task={study.task} scale={study.scale} {settings}`; "
        + "; ".join(f"{title(published, scheme)} seeds {_span(seeds)}" for scheme, seeds in study.seeds.items())
        + ".",
    ]
    missing = [f"{scheme} seed {seed}" for scheme, seed in study.cells if (scheme, seed) not in found]
    codes = Counter(run.source.code for run in found.values())
    if missing:
        left = f"{len(found)} of {len(study.cells)} runs have ended. Nothing is tested before the last one has."
        return "\n\n".join([*parts, f"**Outcome: open.** {left}"])
    if len(codes) > 1:
        return "\n\n".join([*parts, f"**Outcome: none.** The runs are of {len(codes)} codes and cannot be paired."])
    if impure := [f"{scheme} seed {seed}" for (scheme, seed), run in found.items() if mixed(run.source)]:
        return "\n\n".join([*parts, f"**Outcome: none.** Of mixed origin, so not to be paired: {', '.join(impure)}."])
    diverged = [f"{scheme} seed {seed}" for (scheme, seed), run in found.items() if run.source.status == "diverged"]
    parts.append(
        f"All {len(found)} runs have ended, {len(diverged)} of them diverged"
        + (f" ({', '.join(diverged)}; counted as {study.diverged:g})" if diverged else "")
        + "."
    )
    if study.primary:
        parts += _primary(study, found, published)
    if study.secondary:
        parts += _secondary(study, found, published)
    parts.append(_every_seed(study, found, published))
    return "\n\n".join(parts)


def _primary(study: Study, found: Runs, published: dict[str, Any]) -> list[str]:
    """The table of the primary comparisons, and a sentence on each."""
    results = [_test(study, found, comparison) for comparison in study.primary]
    adjusted = holm([result.p for result in results])
    rows, lines = [], []
    for comparison, result, p in zip(study.primary, results, adjusted, strict=True):
        verdict = _verdict(study, comparison, result, p)
        rows.append(
            [comparison.name, _versus(comparison, published), result.text, f"{result.p:.2g}", f"{p:.2g}", verdict]
        )
        lines.append(f"- **{verdict[0].upper()}{verdict[1:]}**: {comparison.name}: {result.text} (p = {p:.2g}).")
    family = f"p corrected for {len(rows)} (Holm)" if len(rows) > 1 else "p of the family (one test)"
    head = ["primary comparison", "schemes", "difference [95% interval]", "p", family, "outcome"]
    tests = sorted({TESTS[c.test] for c in study.primary})
    return ["\n".join(lines), markdown(head, rows), f"Test: {'; '.join(tests)}."]


def _secondary(study: Study, found: Runs, published: dict[str, Any]) -> list[str]:
    rows = []
    for comparison in study.secondary:
        result = _test(study, found, comparison)
        rows.append([comparison.name, _versus(comparison, published), result.text, f"{result.p:.2g}"])
    head = ["secondary comparison", "schemes", "found", "p (not corrected)"]
    tests = sorted({TESTS[c.test] for c in study.secondary})
    return [markdown(head, rows), f"Secondary tests decide nothing: {'; '.join(tests)}."]


@dataclass(frozen=True)
class Result:
    """What a comparison found: its p value, in words, and for sign_flip the mean and the interval's ends."""

    p: float
    text: str
    mean: float = math.nan
    low: float = math.nan
    high: float = math.nan


def _test(study: Study, found: Runs, comparison: Comparison) -> Result:
    """Runs the test that a comparison names, over the seeds that both its schemes have."""
    first, second = comparison.schemes
    seeds = [seed for seed in study.seeds[first] if seed in study.seeds[second]]
    if comparison.test == "sign_flip":
        a, b = ([_value(study, found[scheme, seed], comparison) for seed in seeds] for scheme in (first, second))
        result = paired_difference(a, b)
        d = result.difference
        text = f"{d.mean:+.4g} [{d.low:+.4g}, {d.high:+.4g}] {comparison.unit}, {d.n} pairs".replace("  ", " ")
        return Result(result.p_signs, text, d.mean, d.low, d.high)
    if comparison.test == "mcnemar":
        a, b = ([_solves(study, found[scheme, seed], comparison) for seed in seeds] for scheme in (first, second))
        alone = [sum(x and not y for x, y in zip(*pair, strict=True)) for pair in ((a, b), (b, a))]
        text = f"{sum(a)} against {sum(b)} of {len(seeds)}; alone {alone[0]} against {alone[1]}"
        return Result(mcnemar_p(*alone) if sum(alone) else 1.0, text)
    a, b = ([_steps(study, found[scheme, seed], comparison) for seed in seeds] for scheme in (first, second))
    sooner = [sum(x < y for x, y in zip(*pair, strict=True)) for pair in ((a, b), (b, a))]
    text = f"median step {_step(median(a))} against {_step(median(b))}; first {sooner[0]} times against {sooner[1]}"
    return Result(sign_p(*sooner), text)


def _value(study: Study, run: RunRow, comparison: Comparison) -> float:
    """What a run counts with in a sign_flip comparison."""
    if run.source.status == "diverged":
        return study.diverged * comparison.times
    if comparison.value == "last":
        return run.metrics[comparison.metric] * comparison.times
    curve = [value for step, value in zip(*run.curves[comparison.metric], strict=True) if step > 0]
    return float(np.mean(curve)) * comparison.times


def _solves(study: Study, run: RunRow, comparison: Comparison) -> bool:
    last = study.diverged if run.source.status == "diverged" else run.metrics[comparison.metric]
    return _reaches(study, last, comparison)


def _steps(study: Study, run: RunRow, comparison: Comparison) -> float:
    """The first evaluated step at which a run is there; infinite where it never is, or diverged."""
    if run.source.status == "diverged":
        return math.inf
    curve = zip(*run.curves[comparison.metric], strict=True)
    return next((step for step, value in curve if _reaches(study, value, comparison)), math.inf)


def _reaches(study: Study, value: float, comparison: Comparison) -> bool:
    return value >= comparison.reaches if study.higher_is_better else value <= comparison.reaches


def _verdict(study: Study, comparison: Comparison, result: Result, p: float) -> str:
    """`confirmed`, `reversed`, `refuted at the published size` or `undecided`; see the head of the page."""
    sign = 1 if study.higher_is_better else -1
    if p < ALPHA:
        return "confirmed" if sign * result.mean > 0 else "reversed"
    most = max(sign * result.low, sign * result.high)
    if comparison.published is not None and most < sign * comparison.published:
        return "refuted at the published size"
    return "undecided"


def _every_seed(study: Study, found: Runs, published: dict[str, Any]) -> str:
    """Every run, seed by seed: what it counts with in each comparison of values, and its steps."""
    columns = []
    for comparison in study.primary + study.secondary:
        for scheme in comparison.schemes:
            name = f"{title(published, scheme)}: {comparison.name.partition(' (')[0]}"
            if comparison.test == "sign_flip":
                columns.append((name, scheme, lambda run, c=comparison: f"{_value(study, run, c):.4g}"))
            elif comparison.test == "sign":
                columns.append((name, scheme, lambda run, c=comparison: _step(_steps(study, run, c))))
    every = sorted({seed for _, seed in study.cells})
    rows = [
        [str(seed), *(show(found[scheme, seed]) if (scheme, seed) in found else "–" for _, scheme, show in columns)]
        for seed in every
    ]
    return markdown(["seed", *(name for name, _, _ in columns)], rows)


def _versus(comparison: Comparison, published: dict[str, Any]) -> str:
    return " − ".join(title(published, scheme) for scheme in comparison.schemes)


def _span(seeds: list[int]) -> str:
    whole = seeds == list(range(seeds[0], seeds[-1] + 1)) and len(seeds) > 2
    return f"{seeds[0]}–{seeds[-1]}" if whole else ", ".join(map(str, seeds))


def _step(step: float) -> str:
    return f"{step:,.0f}" if math.isfinite(step) else "never"


def unplanned(path: Path, studies: list[Study], runs: dict[str, list[RunRow]]) -> list[str]:
    """The commits of runs that do not hold their study as the plan has it now, so that it may have come after them.

    runs: rows of each folder that a study names
    """
    problems = []
    for study in studies:
        found = find(study, runs[study.rows]).values()
        commits = sorted({commit for run in found for commit in run.source.commit.split(MIXED)})
        for commit in commits:
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
        return _studies(done.stdout, path.name) if done.returncode == 0 else None
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
        parts = [outcome(study, runs[study.rows]) for study in studies]
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
