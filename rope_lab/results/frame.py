"""Runs as pandas frames: the tidy one that `rope_lab.results.load` gives, and the one that tables are made of."""

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from rope_lab.compat import BACKFILLED, general
from rope_lab.results.codes import numbers_of
from rope_lab.results.folders import read
from rope_lab.results.runs import COLUMNS, Run
from rope_lab.shipped import shipped
from rope_lab.text import show

log = logging.getLogger(__name__)

# defaults backfilled for old runs, of a recipe and of a scheme
RECIPE_DEFAULTS = {key: value for key, value in BACKFILLED.items() if not key.startswith("position.")}
SCHEME_DEFAULTS = {key.removeprefix("position."): v for key, v in BACKFILLED.items() if key.startswith("position.")}


def load(folder: str | Path, settings: Iterable[str] = ()) -> pd.DataFrame:
    """The runs of a folder as a tidy frame: one row a run and metric. Runs that cannot be read are logged and left out.

    folder:   of kept records (`results/`), of run folders (`results/runs`), or one run's
    settings: of the recipe, by name (`train.lr`); each becomes a column more, None where a run has no such setting

    Columns: `task scale recipe_id position seed run_id`, which say what was run; `status` (running, finished,
    interrupted, diverged, failed); `steps sequences tokens seconds`, how far and how long; `parameters`, of the model;
    `code commit torch hardware threads`, where it comes from, ` → ` between the values of the parts of a resumed run;
    `scheme`, the position encoding and in what it is unlike its yaml; `metric` and `value`, its last value.
    """
    runs, problems = read(Path(folder), curves=False)
    for problem in problems:
        log.warning("%s", problem)
    table = runs_frame(runs)
    for name in settings:
        table[name] = [recipe(run).get(name) for run in runs]
    metrics = pd.DataFrame(
        [(run, metric, float(value)) for run in table.index for metric, value in sorted(runs[run].metrics.items())],
        columns=["run", "metric", "value"],
    )
    return (
        table.drop(columns=["run", "mixed", "numbers_of"])
        .join(metrics.set_index("run"), how="inner")
        .reset_index(drop=True)
    )


def runs_frame(runs: list[Run]) -> pd.DataFrame:
    """A row a run: the columns of rows.csv, and four more.

    `scheme` (see `scheme_names`), `mixed` (its history is not pure), `numbers_of` (stands for all codes that give the
    same numbers), `run`.
    """
    table = pd.DataFrame([[getattr(run, name) for name in COLUMNS] for run in runs], columns=list(COLUMNS))
    mixed, numbers = [bool(run.mixed) for run in runs], [numbers_of(run.code, run.precision) for run in runs]
    return table.assign(scheme=scheme_names(runs), mixed=mixed, numbers_of=numbers, run=runs)


def recipe(run: Run) -> dict[str, Any]:
    """Every setting of a run's recipe; of those that are younger than the run, what they were before."""
    return RECIPE_DEFAULTS | run.settings


def full_settings(run: Run) -> dict[str, Any]:
    """Every setting of a run's recipe and, as `position.…`, of its scheme."""
    scheme = SCHEME_DEFAULTS | run.position_settings
    return recipe(run) | {f"position.{key}": value for key, value in scheme.items()}


def curve(run: Run, metric: str) -> pd.Series:
    """The values of a metric by step; empty where a run has none."""
    steps, values = run.curves.get(metric, ([], []))
    return pd.Series(values, index=steps, dtype=float)


def scheme_names(runs: list[Run]) -> list[str]:
    """Of each run its scheme: the name, and in what it is unlike conf/position/<name>.yaml.

    Where there is no such file, in what it is unlike most runs of that name.
    """
    settings = [SCHEME_DEFAULTS | run.position_settings for run in runs]
    counted = defaultdict(Counter)
    for run, own in zip(runs, settings, strict=True):
        counted[run.position][json.dumps(own, sort_keys=True)] += 1
    usual = {
        name: SCHEME_DEFAULTS | (shipped(f"position/{name}") or json.loads(variants.most_common(1)[0][0]))
        for name, variants in counted.items()
    }
    names = []
    for run, own in zip(runs, settings, strict=True):
        other = usual[run.position]
        before = {key: BACKFILLED.get(general(f"position.{key}")) for key in {*own, *other}}
        unlike = [key for key in sorted(before) if own.get(key, before[key]) != other.get(key, before[key])]
        unlike = [f"{key}={show(own[key])}" if key in own else f"without {key}" for key in unlike]
        names.append(run.position + (f" ({', '.join(unlike)})" if unlike else ""))
    return names
