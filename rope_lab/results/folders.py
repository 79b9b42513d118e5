"""Run folders, and folders of kept records, to `Run`s.

Numbers are cut to six digits when they are first read, so that run folders and what is kept of them lead to the same
tables and figures.
"""

import functools
import gc
import json
import logging
import os
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from rope_lab.files import DIGEST, FORMAT, digest, is_sealed, read_file, sealed
from rope_lab.results import cache, store
from rope_lab.results.kept import read_kept
from rope_lab.results.metrics import declared
from rope_lab.results.runs import DAMAGE, MIXED, ORIGIN, Damaged, Run, check_curves, from_record, one_line, reason
from rope_lab.text import flat

log = logging.getLogger(__name__)

METRICS = "metrics.jsonl"
NAMED = re.compile(r".+-s\d+-[0-9a-f]{12}")  # how the program names run folders
MANY, MOST_PROCESSES = 2_000, 8  # run folders that are read in several processes; how many of these
MOST_BYTES, MOST_LINES = 2**26, 200_000  # of a run's files; of its metrics.jsonl


def read(folder: Path, curves: bool = True, cached: bool = False) -> tuple[list[Run], list[str]]:
    """The runs in a folder of kept records, in one of run folders, or in one run folder; and what is wrong there.

    Without `curves`, those of runs whose digests say that nothing is lost are not taken apart, which is much faster.
    cached: whether run folders that have not changed since they were last read are not read again (`cache.py`)
    """
    if store.exists(folder):
        return read_kept(folder)
    runs, problems, unchecked = [], [], []
    try:
        folders = [folder] if os.path.lexists(folder / "run.json") else _folders(folder)
    except OSError as error:
        return [], [one_line(f"{folder}: cannot be read ({error.strerror})")]
    cached = cached and curves and len(folders) >= cache.FEWEST
    before = cache.load(folder) if cached else {}
    stamps = {path.name: cache.stamp(path) for path in folders} if cached else {}
    found = {name: entry[1:] for name, entry in before.items() if entry[0] == stamps.get(name)}
    found |= _read_runs([path for path in folders if path.name not in found], curves)
    for path in folders:
        run, wrong, is_checked = found[path.name]
        runs += [] if run is None else [run]
        unchecked += [] if is_checked else [path.name]
        problems += [f"{path.name}: {line}" for line in wrong]
    if cached:
        whole = {name: entry for name, entry in found.items() if name in stamps and entry[0] is not None}
        now = {name: (stamps[name], *entry) for name, entry in whole.items() if name.isprintable()}
        if now.keys() != before.keys() or any(now[name][0] != before[name][0] for name in now):
            cache.save(folder, now)
    if not folders:
        problems.append(f"{folder}: there are no runs")
    if unchecked:
        more = f" and {len(unchecked) - 1} more" if len(unchecked) > 1 else ""
        log.warning("%s%s: recorded before records carried digests, and shown unchecked", one_line(unchecked[0]), more)
    return runs, [one_line(problem) for problem in problems]


def _read_runs(folders: list[Path], curves: bool) -> dict[str, tuple[Run | None, list[str], bool]]:
    """By name what `read_run` gives of each of these run folders, or no run and why there is none."""
    if len(folders) < MANY:
        return {path.name: _read_or_reason(path, curves) for path in folders}
    from joblib import Parallel, cpu_count, delayed  # a third of a second

    parts = [folders[i : i + MANY // 4] for i in range(0, len(folders), MANY // 4)]
    try:
        work = [delayed(_read_part)(part, curves, os.getpid()) for part in parts]
        found = Parallel(min(cpu_count(), MOST_PROCESSES))(work)
    except BrokenProcessPool:  # one was killed, where memory is short for example
        found = [_read_part(folders, curves, os.getpid())]
    return {path.name: each for path, each in zip(folders, chain(*found), strict=True)}


def _read_part(folders: list[Path], curves: bool, reader: int) -> list[tuple[Run | None, list[str], bool]]:
    """`_read_or_reason` of each, for the process `reader`."""
    _end_with(reader)
    with no_collection():
        return [_read_or_reason(path, curves) for path in folders]


@functools.cache
def _end_with(reader: int) -> None:
    """Has this process end with `reader`, if it is another: joblib's workers outlive a process that is killed."""

    def watch() -> None:
        while os.getppid() == reader:
            time.sleep(1)
        os._exit(1)

    if os.getpid() != reader:
        threading.Thread(target=watch, daemon=True).start()


def _read_or_reason(folder: Path, curves: bool) -> tuple[Run | None, list[str], bool]:
    try:
        return read_run(folder, curves)
    except FileNotFoundError:
        found = "is no run's folder, it has no run.json"
    except OSError as error:
        found = f"cannot be read ({error.strerror})"
    except DAMAGE as error:
        found = f"run.json: {reason(error)}"
    return None, [f"{found}; left out"], True


@contextmanager
def no_collection() -> Iterator[None]:
    """No cyclic garbage collection meanwhile: what is read stays, and to look for what does not takes a third more."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def read_run(folder: Path, curves: bool = True) -> tuple[Run, list[str], bool]:
    """A run from its folder, what is wrong with its curves, and whether its digests were there to be checked.

    Raises OSError, or one of `DAMAGE`.
    """
    content = json.loads(_read(folder / "run.json"))
    if is_sealed(content) and sealed(content)[DIGEST] != content.get(DIGEST):
        raise Damaged("is not what its digest says; the training command makes it whole again")
    if NAMED.fullmatch(folder.name) and not folder.name.endswith(content["run_id"]):
        raise Damaged(f"is of run {content['run_id']}, and its folder has the name of another")
    found, problems = _read_curves(folder, content.get("digests", {}), curves)
    shown = {name: curve for name, curve in found.items() if name.startswith("eval/") or declared(name)}
    run = from_record(_record(content, shown))
    if content.get(FORMAT, 1) > 1 and run.run_id != content["run_id"]:
        raise Damaged(f"is of run {content['run_id']}, and its settings are those of {run.run_id}")
    lost = {name: curve for name, curve in found.items() if run.metrics.get(name) != short(curve[1][-1])}
    lost = {} if run.status == "running" else lost  # a running run has no last values yet
    wrong = []
    for name, (steps, values) in lost.items():
        step, last = steps[-1], short(values[-1])
        wrong.append(f"{name} is {run.metrics.get(name)} in run.json, and {last} at step {step:,} in {METRICS}")
        if run.status == "finished" and step == run.steps and name in run.metrics:
            raise Damaged(wrong[-1])
    if wrong:
        more = f", and so on for {len(wrong)} metrics" if len(wrong) > 1 else ""
        problems.append(f"lines or metrics are lost: {wrong[0]}{more}")
    return run, problems, is_sealed(content)


def _record(content: dict[str, Any], curves: dict[str, Any]) -> dict[str, Any]:
    """The record of a run from what its run.json says."""
    named = ("task", "scale", "recipe_id", "position", "seed", "run_id", "status", "parameters")
    config, provenance, progress = content["config"], content["provenance"], content["progress"]
    recipe = {part: config[part] for part in ("task", "model", "train", "eval")}
    return {
        **{name: content[name] for name in named},
        **{name: progress[name] for name in ("steps", "sequences", "tokens")},
        "seconds": short(progress["seconds"]),
        **origin(provenance),
        "metrics": short(content["metrics"]),
        "settings": flat(recipe | {"device": provenance["hardware"]["device"]}),
        "position_settings": flat(config["position"]),
        "curves": {name: (steps, short(values)) for name, (steps, values) in curves.items()},
        "slices": short(content.get("slices", {})),
        "floor": short(content.get("floor", {})),
    }


def origin(provenance: dict[str, Any]) -> dict[str, Any]:
    """What one has to know of a run to repeat it to the bit; the commit of a changed checkout ends in +.

    Of every part of a resumed run, in their order: where parts differ, what each had is joined by `MIXED`. A commit
    that git did not tell is `unknown`; one that ends in ? may have been changed, git did not tell.
    """
    found: dict[str, list[Any]] = {name: [] for name in ORIGIN}
    for part in [*provenance.get("earlier", []), provenance]:
        git, hardware = part["git"], part["hardware"]
        commit = (git["commit"] or "unknown")[:12]
        commit += "+" if git["dirty"] else "?" if git["dirty"] is None and git["commit"] else ""
        values = part["code"], commit, part["versions"]["torch"], hardware["name"], hardware["threads"]
        for name, value in zip(ORIGIN, values, strict=True):
            if MIXED.strip() in str(value):
                raise Damaged(f"{name} holds {MIXED.strip()}, which stands between the parts of a run")
            if value not in found[name]:
                found[name].append(value)
    return {name: each[0] if len(each) == 1 else MIXED.join(map(str, each)) for name, each in found.items()}


def _folders(folder: Path) -> list[Path]:
    """What may be run folders in a folder."""
    return sorted(p for p in folder.iterdir() if os.path.isdir(p) and p.name not in ("wandb", "figures", "sweeps"))


def _read_curves(
    folder: Path, digests: dict[str, str], wanted: bool
) -> tuple[dict[str, tuple[list[int], list[float]]], list[str]]:
    """For each metric its steps and values, and what is wrong with them. Lines that cannot be read are left out.

    Raises Damaged where the file is not the one of `digests`.
    """
    try:
        text = _read(folder / METRICS)
    except FileNotFoundError:
        if METRICS in digests:
            raise Damaged(f"{METRICS} is gone; the training command makes it whole again") from None
        return {}, []
    if METRICS in digests:
        if digests[METRICS] != digest(text):
            raise Damaged(f"{METRICS} is not what run.json says of it; the training command makes it whole again")
        if not wanted:
            return {}, []
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        return {}, [f"{METRICS} has {len(lines):,} lines, more than {MOST_LINES:,}; the run is shown without curves"]
    try:
        return check_curves(_collected({}, from_json(b"[" + b",".join(lines) + b"]"))), []
    except DAMAGE:
        return _curves_of_good_lines(lines)


def _curves_of_good_lines(lines: list[bytes]) -> tuple[dict[str, Any], list[str]]:
    curves: dict[str, tuple[list[int], list[float]]] = {}
    cut = 0
    for line in lines:
        try:
            row = json.loads(line)
            for name, point in _collected({}, [row]).items():  # each with the one before
                before = curves.get(name, ([], []))
                check_curves({name: [part[-1:] + more for part, more in zip(before, point, strict=True)]})
        except DAMAGE:
            cut += 1
        else:
            _collected(curves, [row])
    return curves, [f"{cut} lines of {METRICS} cannot be read and are left out"] if cut else []


def _collected(curves: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """`curves` with the values of more records of metrics."""
    for row in rows:
        step = row["step"]
        for name, value in row.items():
            if "/" in name:
                if name not in curves:
                    curves[name] = ([], [])
                steps, values = curves[name]
                steps.append(step)
                values.append(value)
    return curves


def _read(path: Path) -> bytes:
    """The content of a regular file of bounded size. Raises OSError, or Damaged where it is larger."""
    if os.stat(path).st_size > MOST_BYTES:
        raise Damaged(f"{path.name} has {os.stat(path).st_size:,} bytes: at most {MOST_BYTES:,} are read")
    return read_file(path)


def short(value: Any) -> Any:
    """Floats to six digits, at any depth."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {k: short(v) for k, v in value.items()}
    return [float(f"{v:.6g}") if type(v) is float else short(v) for v in value] if isinstance(value, list) else value
