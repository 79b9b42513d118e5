"""Run folders to rows, and rows to the small files that are kept in the repository, and back.

Kept are `rows.csv`, tidy: one row per run and metric, and `curves.jsonl`, one line per run: its settings, curves and
slices. Numbers are cut to six digits when they are first read, so that both ways lead to the same tables and figures.
"""

import csv
import io
import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from rope_lab.files import flat, write_whole

ROWS, CURVES = "rows.csv", "curves.jsonl"
SIZES = ("train.steps", "train.batch_size", "train.seq_len", "eval.problems")  # settings that every run has
LARGEST = 1e100  # numbers from here on are damage: their squares are not finite


@dataclass(frozen=True)
class Source:
    """The columns of rows.csv that say which run a value is of, and where that comes from."""

    task: str
    scale: str
    recipe_id: str
    position: str
    seed: int
    run_id: str
    status: str
    steps: int
    sequences: int
    tokens: int
    seconds: float
    parameters: int
    code: str
    commit: str
    torch: str
    hardware: str
    threads: int


@dataclass(frozen=True)
class RunRow:
    """One run: where it comes from, what it ended with, and how it got there.

    metrics:  the last value of each
    settings: of the recipe, flat (`train.lr`); position_settings: of the scheme
    curves:   for each metric [steps, values]
    slices:   fact → value → [count, mean], see `rope_lab/evaluate.py`; floor: the ideal predictor's, likewise
    """

    source: Source
    metrics: dict[str, float]
    settings: dict[str, Any]
    position_settings: dict[str, Any]
    curves: dict[str, list[list[float]]]
    slices: dict[str, dict[str, list[float]]]
    floor: dict[str, Any]


def read(folder: Path) -> tuple[list[RunRow], list[str]]:
    """The runs in a folder of kept rows, in a folder of run folders, or in one run folder; and what is wrong there."""
    if (folder / ROWS).exists() or (folder / CURVES).exists():
        return read_kept(folder)
    runs, problems = [], []
    if (folder / "run.json").exists():
        folders = [folder]
    else:
        folders = sorted(p for p in folder.glob("*") if p.is_dir() and p.name not in ("wandb", "figures"))
    for path in folders:
        try:
            row, cut = read_run(path)
            runs.append(row)
            if cut:
                problems.append(f"{path.name}: {cut} lines of metrics.jsonl cannot be read and are left out")
        except FileNotFoundError:
            problems.append(f"{path.name}: is no run's folder, it has no run.json; left out")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            problems.append(f"{path.name}: its run.json cannot be read ({type(error).__name__}: {error}); left out")
    if not folders:
        problems.append(f"{folder}: there are no runs")
    return runs, problems


def read_run(folder: Path) -> tuple[RunRow, int]:
    """A run from its folder, and how many lines of its metrics could not be read."""
    content = json.loads((folder / "run.json").read_text())
    provenance, progress, config = content["provenance"], content["progress"], content["config"]
    source = Source(
        **{k: content[k] for k in ("task", "scale", "recipe_id", "position", "seed", "run_id", "status", "parameters")},
        **{k: progress[k] for k in ("steps", "sequences", "tokens")},
        seconds=_short(progress["seconds"]),
        **origin(provenance),
    )
    curves: dict[str, list[list[float]]] = {}
    cut = 0
    metrics_file = folder / "metrics.jsonl"
    for line in metrics_file.read_text().splitlines() if metrics_file.exists() else []:
        try:
            row = {k: v for k, v in json.loads(line).items() if "/" in k or k == "step"}
            step = row.pop("step")
            _check_numbers("metrics.jsonl", step, *row.values())
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            cut += 1
            continue
        for name, value in row.items():
            steps, values = curves.setdefault(name, [[], []])
            steps.append(step)
            values.append(_short(value))
    kept = ("task", "model", "train", "eval")
    run = RunRow(
        source,
        metrics=_short(content["metrics"]),
        settings=_short(flat({k: config[k] for k in kept} | {"device": provenance["hardware"]["device"]})),
        position_settings=_short(flat(config["position"])),
        curves=curves,
        slices=_short(content.get("slices", {})),
        floor=_short(content.get("floor", {})),
    )
    return _checked(run), cut


def origin(provenance: dict[str, Any]) -> dict[str, Any]:
    """What one has to know of a run to repeat it to the bit; the commit of a changed checkout ends in +."""
    return {
        "code": provenance["code"],
        "commit": (provenance["git"]["commit"] or "")[:12] + ("+" if provenance["git"]["dirty"] else ""),
        "torch": provenance["versions"]["torch"],
        "hardware": provenance["hardware"]["name"],
        "threads": provenance["hardware"]["threads"],
    }


def keep(runs: list[RunRow], folder: Path) -> None:
    """Adds `runs` to the kept rows in `folder`, in the place of what is kept of the same runs."""
    there = any((folder / name).exists() for name in (ROWS, CURVES))
    before, problems = read_kept(folder) if there else ([], [])
    if problems:
        raise ValueError("; ".join(problems))
    merged = {run.source.run_id: run for run in before}
    for run in runs:
        kept = merged.get(run.source.run_id)
        if kept and kept.source.status == "finished" != run.source.status:
            raise ValueError(f"{describe(run.source)} is kept finished, and is {run.source.status} in what is given")
        merged[run.source.run_id] = run
    order = sorted(merged.values(), key=lambda run: _order(run.source))
    table, curves = io.StringIO(), []
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow([*(f.name for f in fields(Source)), "metric", "value"])
    for run in order:
        values = [(metric, float(value)) for metric, value in sorted(run.metrics.items())]
        writer.writerows([*asdict(run.source).values(), *value] for value in values or [("", "")])
        rest = {f.name: getattr(run, f.name) for f in fields(RunRow) if f.name not in ("source", "metrics")}
        named = {"run_id": run.source.run_id, "run": describe(run.source)}
        curves.append(json.dumps(named | rest, separators=(",", ":")) + "\n")
    write_whole(folder / ROWS, table.getvalue().encode())
    write_whole(folder / CURVES, "".join(curves).encode())


def read_kept(folder: Path) -> tuple[list[RunRow], list[str]]:
    """The runs that are kept in `folder`, and what is wrong with the files."""
    problems, sources, metrics = [], {}, {}
    for name in (ROWS, CURVES):
        if not (folder / name).exists():
            return [], [f"{folder}: has no {name}, without which the other file of its rows cannot be read"]
    types = {f.name: f.type for f in fields(Source)}
    with open(folder / ROWS, newline="") as file:
        for number, row in enumerate(csv.DictReader(file), start=2):
            try:
                source = Source(**{name: kind(row[name]) for name, kind in types.items()})
                values = metrics.setdefault(source.run_id, {})
                if row["metric"]:
                    values[row["metric"]] = float(row["value"])
                sources[source.run_id] = source
            except (ValueError, KeyError, TypeError) as error:
                problems.append(f"{ROWS} line {number}: cannot be read ({error}); left out")
    runs = []
    for number, line in enumerate((folder / CURVES).read_text().splitlines(), start=1):
        try:
            rest = json.loads(line)
            run_id, name = rest.pop("run_id"), rest.pop("run")
            if run_id in sources:
                runs.append(_checked(RunRow(sources.pop(run_id), metrics[run_id], **rest)))
            else:
                problems.append(f"{ROWS}: the rows of {name} (run {run_id}) are missing; it is left out")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            problems.append(f"{CURVES} line {number}: cannot be read ({error}); left out")
    for source in sources.values():
        problems.append(f"{CURVES}: the line of {describe(source)} (run {source.run_id}) is missing; it is left out")
    return runs, problems


def describe(source: Source) -> str:
    """A run in a few words."""
    return f"{source.task} {source.scale} {source.position} seed {source.seed}"


def _checked(run: RunRow) -> RunRow:
    """`run`. Raises TypeError, KeyError, ValueError or AttributeError where a part of it is not what `RunRow` says."""
    for field in fields(Source):
        value, kind = getattr(run.source, field.name), field.type
        if kind in (int, float):
            _check_numbers(field.name, value)
        if not isinstance(value, (int, float) if kind is float else kind):
            raise TypeError(f"{field.name} is {value!r}")
    for name in ("task", "scale", "position", "recipe_id", "run_id"):  # they become the names of files
        if not re.fullmatch(r"[\w-]+", getattr(run.source, name)):
            raise TypeError(f"{name} is {getattr(run.source, name)!r}")
    _check_numbers("a metric", *run.metrics.values())
    for name, value in run.metrics.items():
        if name.endswith("accuracy") and not 0 <= value <= 1:
            raise TypeError(f"{name} is {value!r}")
    places = [run.floor["place"]] if run.floor else []
    for values in [*run.slices.values(), *places]:
        for key, (count, mean) in values.items():
            _check_numbers("a slice", int(key), count, mean)
    for steps, values in run.curves.values():
        _check_numbers("a curve", *steps, *values)
    if run.floor:
        _check_numbers("the floor", run.floor["loss"])
    _check_numbers("a setting", *(run.settings[name] for name in SIZES))
    for name, value in (run.settings | run.position_settings).items():
        if not isinstance(value, str | int | float | list | None):
            raise TypeError(f"{name} is {value!r}")
    return run


def _check_numbers(what: str, *values: Any) -> None:
    """Raises TypeError where one of `values` is not a number, or an absurd one."""
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST:
            raise TypeError(f"{what} is {value!r}")


def _order(source: Source) -> tuple:
    return source.task, source.scale, source.recipe_id, source.position, source.seed, source.run_id


def _short(value: Any) -> Any:
    """Floats to six digits, at any depth."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {k: _short(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_short(v) for v in value]
    return value
