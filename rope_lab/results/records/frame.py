"""Runs as pandas frames: the tidy one that `rope_lab.results.load` gives, and the one that tables
are made of.
"""

from collections import defaultdict
from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from typing import Any

import pandas as pd

from rope_lab.identity import BACKFILLED, general
from rope_lab.places import IN_CHECKOUT, RESULTS
from rope_lab.results.records.folders import read_or_warn
from rope_lab.results.records.kept import KEPT
from rope_lab.results.records.run import COLUMNS, Run
from rope_lab.shipped import shipped
from rope_lab.text import ConfigError, show


def load(folder: str | Path, settings: Iterable[str] = ()) -> pd.DataFrame:
    """The runs of a folder as a tidy frame, one row per run and metric. Unreadable runs are logged
    and left out.

    folder:   of kept records (`results`), of run folders (`results/runs`), or one run's
    settings: by name (`train.lr`, `position.base`); each becomes a column more, None if a run has
              no such setting

    The columns are in docs/questions.md.
    """
    return tidy(read_or_warn(Path(folder)), settings)


def load_kept(settings: Iterable[str] = ()) -> pd.DataFrame:
    """The runs that are kept in this repository, of all folders below results/, each once; as
    `load`.

    Raises ConfigError if the package was installed from a wheel, which holds none.
    """
    if not IN_CHECKOUT:
        remedy = 'clone the repository, or rope_lab.results.load("FOLDER") reads runs of yours'
        raise ConfigError(f"load_kept: an installed rope_lab holds no kept runs; {remedy}")
    folders = [path.parent for path in sorted(RESULTS.glob(f"**/{KEPT}"))]
    runs = {run.run_id: run for folder in folders for run in read_or_warn(folder)}
    return tidy(list(runs.values()), settings)


def tidy(runs: list[Run], settings: Iterable[str] = ()) -> pd.DataFrame:
    """The frame of `load`."""
    table = runs_frame(runs).drop(columns=["run", "pair_as"])
    for name in settings:
        table[name] = [run.all_settings.get(name) for run in runs]
    metrics = []
    for row, run in enumerate(runs):
        metrics += [(row, name, float(value)) for name, value in sorted(run.metrics.items())]
    found = pd.DataFrame(metrics, columns=["row", "metric", "value"]).set_index("row")
    return table.join(found, how="inner").reset_index(drop=True)


def runs_frame(runs: list[Run]) -> pd.DataFrame:
    """A row a run: `COLUMNS`, `scheme` (see `scheme_names`), `run`, and its `pair_as`."""
    table = pd.DataFrame(map(attrgetter(*COLUMNS), runs), columns=list(COLUMNS))
    table["plugin"] = [" ".join(run.plugin.values()) for run in runs]
    pair_as = [run.pair_as for run in runs]
    return table.assign(scheme=scheme_names(runs), pair_as=pair_as, run=runs)


def curve(run: Run, metric: str) -> pd.Series:
    """The values of a metric by step; empty if a run has none."""
    steps, values = run.curves.get(metric, ([], []))
    return pd.Series(values, index=steps, dtype=float)


def scheme_names(runs: list[Run]) -> list[str]:
    """The scheme of each run: its name, and the settings that differ from
    conf/position/<name>.yaml.

    Without such a file, those that differ from most runs of that name, `code` among them. If runs
    of one name began from runs of several schemes, their names end in `from` and the parent's.
    """
    variants = defaultdict(list)
    for run in runs:
        variants[run.position].append(run.scheme)
    usual = {
        name: shipped(f"position/{name}") or max(every, key=every.count)
        for name, every in variants.items()
    }
    names = [_scheme_name(run, usual[run.position]) for run in runs]
    parents = defaultdict(set)
    for run, name in zip(runs, names, strict=True):
        parents[run.recipe_id, name].add(run.parent)
    for at, (run, name) in enumerate(zip(runs, list(names), strict=True)):
        if run.parent and len(parents[run.recipe_id, name]) > 1:
            names[at] = f"{name} from {run.parent}"
    return names


def _scheme_name(run: Run, usual: dict[str, Any]) -> str:
    """The run's scheme, and its settings that differ from the usual ones."""
    own, unlike = run.scheme, []
    for key in sorted({*own, *usual}):
        before = BACKFILLED.get(general(f"position.{key}"))
        if own.get(key, before) != usual.get(key, before):
            unlike.append(f"{key}={show(own[key])}" if key in own else f"without {key}")
    return f"{run.position} ({', '.join(unlike)})" if unlike else run.position
