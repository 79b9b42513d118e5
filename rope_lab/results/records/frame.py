"""Runs as pandas frames: the tidy one that `rope_lab.results.load` gives, and the one that tables
are made of.
"""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from rope_lab.identity import BACKFILLED, general
from rope_lab.places import IN_CHECKOUT, RESULTS
from rope_lab.results.records.folders import folders_of_runs, read_or_warn, with_those_below
from rope_lab.results.records.run import COLUMNS, Run, Settings
from rope_lab.shipped import shipped
from rope_lab.text import ConfigError, written


def load(folder: str | Path, settings: Iterable[str] = ()) -> pd.DataFrame:
    """The runs of a folder as a tidy frame, one row per run and metric. Unreadable runs are logged
    and left out.

    folder:   of kept records (`results`), of run folders (`results/runs`), or one run's
    settings: by name (`train.lr`, `position.base`); each becomes a column more, None if a run has
              no such setting

    The columns are in docs/questions.md. Raises ConfigError without runs.
    """
    return tidy(read_or_warn(folders_of_runs([Path(folder)])), settings)


def load_kept(settings: Iterable[str] = ()) -> pd.DataFrame:
    """The runs that are kept in this repository, of all folders in results/, each once; as `load`.

    Raises ConfigError if the package was installed from a wheel, which holds none.
    """
    if not IN_CHECKOUT:
        remedy = 'clone the repository, or rope_lab.results.load("FOLDER") reads runs of yours'
        raise ConfigError(f"load_kept: an installed rope_lab holds no kept runs; {remedy}")
    return tidy(read_or_warn(with_those_below(RESULTS)), settings)


def tidy(runs: list[Run], settings: Iterable[str] = ()) -> pd.DataFrame:
    """The frame of `load`; settings: names, or one name."""
    table = runs_frame(runs)
    for name in [settings] if isinstance(settings, str) else settings:
        table[name] = [run.all_settings.get(name) for run in runs]
    table["metric"] = [sorted(run.metrics) for run in runs]
    table = table.explode("metric").dropna(subset="metric", ignore_index=True)
    table["value"] = [float(row.run.metrics[row.metric]) for row in table.itertuples()]
    return table.drop(columns=["run", "pair_as"])


def runs_frame(runs: list[Run]) -> pd.DataFrame:
    """A row a run: `COLUMNS`, `scheme`, `run`, and its `pair_as`."""
    table = pd.DataFrame([vars(run) for run in runs], columns=COLUMNS)
    table["run"] = runs
    table["scheme"] = scheme_names(runs)
    table["plugin"] = [" ".join(run.plugin.values()) for run in runs]
    table["pair_as"] = [run.pair_as for run in runs]
    return table


def scheme_names(runs: list[Run]) -> list[str]:
    """The scheme of each run: its name and the settings that differ from the usual ones, those of
    conf/position/<name>.yaml or, without such a file, of most runs of that name.

    If runs of one recipe and scheme began from runs of several schemes, `from` and the parent's are
    added.
    """
    by_name: dict[str, list[Settings]] = {}
    for run in runs:
        by_name.setdefault(run.position, []).append(run.scheme)
    usual = {}
    for name, schemes in by_name.items():
        usual[name] = shipped(f"position/{name}") or max(schemes, key=schemes.count)
    names = [_scheme(run.position, run.scheme, usual[run.position]) for run in runs]
    begun = pd.DataFrame({"name": names, "parent": [run.parent for run in runs]})
    begun["recipe_id"] = [run.recipe_id for run in runs]
    parents = begun.groupby(["recipe_id", "name"]).parent.transform("nunique")
    for place, run in enumerate(runs):
        if run.parent and parents[place] > 1:
            names[place] += f" from {run.parent}"
    return names


def curve(run: Run, metric: str) -> pd.Series:
    """The values of a metric by step; empty if a run has none."""
    return pd.Series(dict(run.points(metric)), dtype=float)


def _scheme(name: str, own: Settings, usual: Settings) -> str:
    """The name of a scheme, and its settings that differ from the usual ones."""
    unlike = []
    for key in sorted({*own, *usual}):
        before = BACKFILLED.get(general(f"position.{key}"))
        if own.get(key, before) != usual.get(key, before):
            unlike.append(f"{key}={written(own[key])}" if key in own else f"without {key}")
    return f"{name} ({', '.join(unlike)})" if unlike else name
