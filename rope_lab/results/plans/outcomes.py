"""The outcome of a planned study: its tests, computed once the last of its runs has ended."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from rope_lab.identity import BACKFILLED, general
from rope_lab.results.comparisons.stats import (
    ALPHA,
    NOTHING,
    Interval,
    holm,
    paired_difference,
    sign_flip_p,
    sign_p,
)
from rope_lab.results.plans.study import Comparison, Runs, Study, called, find, load
from rope_lab.results.records.kept import read_kept
from rope_lab.results.records.run import Run
from rope_lab.shipped import recipe, shipped
from rope_lab.text import show

CONFIRMED, REVERSED, REFUTED, UNDECIDED = (
    "confirmed",
    "reversed",
    "refuted at the published size",
    "undecided",
)


@dataclass(frozen=True)
class Result:
    """The result of a comparison.

    text:       in words
    difference: of t and sign_flip: schemes[0] − schemes[1], in the comparison's unit; means: of
                each of the two
    ahead:      whether schemes[0] is ahead: in value, in seeds that solve the task alone, or in
                being there first
    p_family:   of a primary comparison, p corrected for its family (Holm)
    verdict:    of a primary comparison; the head of plan.md explains the words
    """

    comparison: Comparison
    p: float
    text: str
    difference: Interval = NOTHING
    means: tuple[float, float] = (math.nan, math.nan)
    ahead: bool = False
    p_family: float = math.nan
    verdict: str = ""


@dataclass(frozen=True)
class Outcome:
    """A study, its runs that have ended, and its results; without results, `untested` says why."""

    study: Study
    found: Runs
    untested: str = ""
    primary: list[Result] = field(default_factory=list)
    secondary: list[Result] = field(default_factory=list)

    @property
    def open(self) -> bool:
        """Whether runs are still to come."""
        return len(self.found) < len(self.study.cells)


def of(study: Study, runs: list[Run]) -> Outcome:
    """The outcome of a study, from the runs kept in its folder. Raises ConfigError for two runs of
    one cell.
    """
    found = find(study, runs)
    if untested := _untested(study, found):
        return Outcome(study, found, untested)
    primary, secondary = (
        [_test(study, found, c) for c in family] for family in (study.primary, study.secondary)
    )
    corrected = zip(primary, holm([result.p for result in primary]), strict=True)
    judged = [
        replace(result, p_family=p, verdict=verdict(study, result, p)) for result, p in corrected
    ]
    return Outcome(study, found, "", judged, secondary)


def read(plan: Path) -> tuple[list[Outcome], list[str]]:
    """The outcomes of a plan, none without such a file, and problems with kept runs. Raises
    ConfigError, OSError.
    """
    studies = load(plan).studies.values() if plan.exists() else []
    folders = {study.rows: plan.parent / study.rows for study in studies}
    kept = {
        rows: read_kept(folder) if folder.is_dir() else ([], []) for rows, folder in folders.items()
    }
    problems = [problem for _, wrong in kept.values() for problem in wrong]
    return [of(study, kept[study.rows][0]) for study in studies], problems


def named(cells: list[tuple[str, int]]) -> str:
    """`rope seed 8, roper seed 9`."""
    return ", ".join(f"{scheme} seed {seed}" for scheme, seed in cells)


def verdict(study: Study, result: Result, p: float) -> str:
    """The verdict of a primary comparison by its p corrected for the family; the head of plan.md
    explains the words.
    """
    if p < ALPHA:
        return CONFIRMED if result.ahead else REVERSED
    sign = 1 if study.prefers_high(result.comparison) else -1
    most = max(sign * result.difference.low, sign * result.difference.high)
    published = result.comparison.published
    return REFUTED if published is not None and most < sign * published else UNDECIDED


def counted(study: Study, found: Runs, c: Comparison) -> pd.DataFrame:
    """The value of each run in a comparison, by seed and scheme; nan if a scheme lacks the seed."""
    return pd.DataFrame(
        {s: {seed: _value(study, found[s, seed], c) for seed in study.seeds[s]} for s in c.schemes}
    )


def unnamed(study: Study, found: Runs) -> list[str]:
    """Settings that are neither the plan's nor today's recipe's, and all other ones of a scheme
    without a yaml file.
    """
    usual, others = recipe(study.task, study.scale), set()
    for (scheme, _), run in found.items():
        named = study.settings.keys() | {
            setting.partition("=")[0] for setting in scheme.split()[1:]
        }
        other = {
            k: v
            for k, v in run.recipe.items()
            if k not in named and usual.get(k, v) not in (v, "auto")
        }
        if not run.settings.get("train.weight_decay"):  # it then decides nothing
            other.pop("train.weight_decay_on", None)
        others |= {f"{key}={show(value)}" for key, value in other.items()}
        if not shipped(f"position/{run.position}"):
            own = {
                k: v
                for k, v in run.settings.items()
                if k.startswith("position.") and k not in named
            }
            others |= {
                f"{k}={show(v)} of {called(scheme)}"
                for k, v in own.items()
                if not k.endswith("_target_")
            }
    return sorted(others)


def step_text(step: float) -> str:
    """A step, or `never`."""
    return f"{step:,.0f}" if math.isfinite(step) else "never"


def _untested(study: Study, found: Runs) -> str:
    """Why nothing is tested yet; empty if it is."""
    if len(found) < len(study.cells):
        return f"{len(found)} of {len(study.cells)} runs have ended. Nothing is tested before the last one has."
    if len(codes := {run.numbers for run in found.values()}) > 1:
        return f"The runs are of {len(codes)} codes and cannot be paired."
    if edited := _several((run.position, run.plugin.get("position", "")) for run in found.values()):
        return f"The runs of {' and of '.join(edited)} differ in the code of that scheme."
    if differing := _several(_settings(study, found)):
        return f"The runs differ in settings that the plan does not name: {', '.join(differing)}."
    if impure := [cell for cell, run in found.items() if run.mixed]:
        return f"Of mixed origin, so not to be paired: {named(impure)}."
    if lacking := {
        cell: names for cell, run in found.items() if (names := _lacking(study, cell[0], run))
    }:
        names = ", ".join(sorted(set.union(*lacking.values())))
        return f"Not recorded, so nothing can be tested: {names} of {named(list(lacking))}."
    return ""


def _settings(study: Study, found: Runs) -> Iterator[tuple[str, str]]:
    """Each setting of the runs with its values; a setting in which schemes may differ, per
    scheme.
    """
    given = {setting.partition("=")[0] for scheme in study.seeds for setting in scheme.split()[1:]}
    settings = {cell: run.all_settings for cell, run in found.items()}
    for key in {key for each in settings.values() for key in each}:
        for (scheme, _), each in settings.items():
            name = f"{key} of {scheme}" if key in given or key.startswith("position.") else key
            yield name, json.dumps(each.get(key, BACKFILLED.get(general(key))))


def _several(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """The names that have more than one value."""
    return sorted(
        name for name, count in Counter(name for name, _ in set(pairs)).items() if count > 1
    )


def _lacking(study: Study, scheme: str, run: Run) -> set[str]:
    """The metrics and curves that comparisons use and a run has no record of, unless it
    diverged.
    """
    if run.status == "diverged":
        return set()
    curves = {f"the curve of {name}" for name, (steps, _) in run.curves.items() if steps[-1] > 0}
    used = [c for c in study.comparisons if scheme in c.schemes]
    lacking = {c.metric for c in used if not c.of_curves and run.final(c.metric) is None}
    return lacking | ({f"the curve of {c.metric}" for c in used if c.of_curves} - curves)


def _value(study: Study, run: Run, c: Comparison) -> float:
    """The value of a run in a comparison: of a sign test the step, of McNemar's whether it is there
    at the end.
    """
    diverged = run.status == "diverged"
    if c.compares in ("step", "log_steps"):
        curve = [] if diverged else zip(*run.curves[c.metric], strict=True)
        first = next((float(step) for step, value in curve if study.reaches(value, c)), math.inf)
        never = run.settings["train.steps"] + run.settings.get("eval.every", 0)
        return first if c.compares == "step" else math.log(max(min(first, never), 1))
    if diverged:
        value = study.diverged
    elif c.of_curves:
        steps, values = run.curves[c.metric]
        value = float(
            np.mean([value for step, value in zip(steps, values, strict=True) if step > 0])
        )
    else:
        value = run.final(c.metric)
    return float(study.reaches(value, c)) if c.compares == "reached" else value * c.times


def _test(study: Study, found: Runs, c: Comparison) -> Result:
    """Run the test of a comparison over the seeds that both schemes have."""
    pairs = counted(study, found, c).dropna()
    a, b = (pairs[scheme] for scheme in c.schemes)
    if c.compares not in ("step", "reached"):
        return _test_of_values(study, c, a, b)
    less, more = int((a < b).sum()), int((a > b).sum())
    if c.compares == "reached":
        text = f"{a.sum():.0f} against {b.sum():.0f} of {len(pairs)}; alone {more} against {less}"
        return Result(c, sign_p(less, more), text, ahead=more > less)
    medians = f"median step {step_text(a.median())} against {step_text(b.median())}"
    return Result(
        c, sign_p(less, more), f"{medians}; first {less} times against {more}", ahead=less > more
    )


def _test_of_values(study: Study, c: Comparison, a: pd.Series, b: pd.Series) -> Result:
    d, higher = paired_difference(a, b), study.prefers_high(c)
    text = f"{d.mean:+.4g}" + (f" [{d.low:+.4g}, {d.high:+.4g}]" if d.n > 1 else "")
    text = f"{text} {c.unit}, {d.n} pair{'s' * (d.n > 1)}".replace(" ,", ",")
    if c.compares == "log_steps":
        text += f": {math.exp(d.mean):.2f} times the steps"
        text += f" [{math.exp(d.low):.2f}, {math.exp(d.high):.2f}]" if d.n > 1 else ""
    if c.margin is not None and d.n > 1:
        least = d.low if higher else -d.high  # the least favourable end
        matches = "matches it" if least > -c.margin else "is not shown to match it"
        text += ": beats it" if least > 0 else f": {matches} to within {c.margin:g}"
    p = d.p if c.test == "t" else math.nan
    if math.isnan(
        p
    ):  # t has no spread to go by if differences are all alike; of one pair there is no test
        p = sign_flip_p(a - b) if d.n > 1 else 1.0
    return Result(c, p, text, d, (a.mean(), b.mean()), d.mean > 0 if higher else d.mean < 0)
