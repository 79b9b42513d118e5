"""The runs of a study, and why it cannot be tested yet."""

import json
import math
from typing import Any

import pandas as pd

from rope_lab.identity import BACKFILLED
from rope_lab.results.plans.names import arm_name, own_settings, position_of, recorded_name
from rope_lab.results.plans.study import Study
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.frame import runs_frame
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import Setup
from rope_lab.shipped import recipe, shipped, usual_task
from rope_lab.text import ConfigError, Settings, show

Runs = dict[tuple[str, int], Run]  # scheme and seed → the run
OF_SCHEME = "position."
OF_NO_YAML = (OF_SCHEME, "task.corpus", "parent.recipe_id")  # conf/ has no value of these
CHOICES = ("task.", "parent.")  # settings with which one could choose between two results


def find(study: Study, runs: list[Run]) -> Runs:
    """The runs of a study that have ended. Raises ConfigError for two of one cell, which differ in
    another setting.
    """
    found: Runs = {}
    for run in runs:
        fitting = [scheme for scheme in study.seeds if _fits(scheme, study, run)]
        scheme = max(fitting, key=lambda scheme: scheme.count(" "), default="")
        if not run.ended or run.seed not in study.seeds.get(scheme, []):
            continue
        other = found.setdefault((scheme, run.seed), run)
        if other is not run:
            both = f"{other.run_id}, {run.run_id}"
            raise ConfigError(f"{study.name}: two runs are {scheme} seed {run.seed}: {both}")
    return found


def _fits(scheme: str, study: Study, run: Run) -> bool:
    """Whether a run belongs to a study's scheme: it has its settings, and else those of the
    scheme's yaml.
    """
    position = position_of(scheme)
    if (run.task, run.scale, run.position) != (recorded_name(study.task), study.scale, position):
        return False
    recorded = run.settings | {"threads": run.threads}
    compared = {*study.planned(scheme)}
    if shipped(f"position/{position}"):  # one of ours
        compared |= {key for key in recorded if key.startswith(OF_SCHEME)}
    expected = _expected(study, scheme)
    return all(expected.get(key) in (recorded.get(key), "auto") for key in compared)


def _expected(study: Study, scheme: str) -> Settings:
    """The settings of a scheme's runs: the plan's, and else those of conf/ today."""
    usual = recipe(study.task, study.scale) | usual_task(study.task, study.scale)
    own = shipped(f"position/{position_of(scheme)}")
    of_scheme = {f"{OF_SCHEME}{key}": value for key, value in own.items()}
    return BACKFILLED | usual | of_scheme | study.planned(scheme)


def setup_of(study: Study, found: Runs, catalogue: Catalogue) -> Setup:
    """The runs of a study; its schemes have their settings in their names."""
    table = runs_frame(list(found.values()))
    table = table.assign(scheme=[arm_name(scheme) for scheme, _ in found])
    return Setup(table, catalogue, study.unusual, study.name)


def cells_text(cells: list[tuple[str, int]]) -> str:
    """`rope seed 8, roper seed 9`."""
    return ", ".join(f"{scheme} seed {seed}" for scheme, seed in cells)


def settings_not_planned(study: Study, found: Runs) -> list[str]:
    """Settings of the runs that are neither the plan's nor today's of conf/: `train.steps=20`."""
    others = set()
    for (scheme, _), run in found.items():
        expected = _expected(study, scheme)
        for key, value in run.all_settings.items():
            if not _is_known(key, value, expected, run):
                others.add(f"{key}={show(value)}")
    return sorted(others)


def _is_known(key: str, value: Any, expected: Settings, run: Run) -> bool:
    """Whether a run's setting has the value that the plan or conf/ gives, or needs none."""
    if key.endswith("_target_"):
        return True
    if key == "train.weight_decay_on" and not run.settings.get("train.weight_decay"):
        return True  # it has no effect
    if key not in expected:
        return value is None or not key.startswith(OF_NO_YAML)
    known = expected[key]
    if str(known).startswith("${"):  # the value of another setting
        known = run.all_settings.get(known[2:-1])
    return known == value


def untested(study: Study, found: Runs) -> str:
    """Why nothing is tested yet; empty if it is."""
    if len(found) < len(study.cells):
        ended = f"{len(found)} of {len(study.cells)} runs have ended"
        return f"{ended}. Nothing is tested before the last one has."
    if differing := _differing(study, found):
        return f"The runs differ in what the plan does not name: {', '.join(differing)}."
    if choices := [name for name in settings_not_planned(study, found) if name.startswith(CHOICES)]:
        return f"The plan does not name {', '.join(choices)}: without it, runs may choose."
    if impure := [cell for cell, run in found.items() if run.mixed]:
        return f"Of mixed origin, so not to be paired: {cells_text(impure)}."
    return _better_diverged(study, found)


def _differing(study: Study, found: Runs) -> list[str]:
    """Settings, threads and code in which runs differ that should not; those in which schemes may
    differ are compared within each.
    """
    varied = set().union(*map(own_settings, study.seeds))
    rows = []
    for (scheme, _), run in found.items():
        row = {"numerics": run.numbers, f"code of {run.position}": run.plugin.get("position", "")}
        for key, value in (run.all_settings | {"threads": run.threads}).items():
            own = key in varied or key.startswith(OF_SCHEME)
            row[f"{key} of {scheme}" if own else key] = json.dumps(value)
        rows.append(row)
    several = pd.DataFrame(rows).nunique() > 1
    return sorted(several.index[several])


def _better_diverged(study: Study, found: Runs) -> str:
    """Why the value that the plan gives to diverged runs cannot count: a finished run is worse."""
    if all(run.status != "diverged" for run in found.values()):
        return ""
    sign = 1 if study.higher_is_better else -1
    for test in study.comparisons:
        if test.at in ("first step", "log steps"):
            continue
        of_schemes = [run for (scheme, _), run in found.items() if scheme in test.schemes]
        ends = [run.final(test.metric) for run in of_schemes if run.status == "finished"]
        worst = min((sign * end for end in ends if end is not None), default=math.inf)
        if sign * study.diverged > worst:
            better = f"diverged: {study.diverged:g} is better than {sign * worst:.4g}"
            return f"{better}, with which a run finished: a diverged run would count as the better."
    return ""
