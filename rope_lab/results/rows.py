"""Run folders, and rows that are kept, to `RunRow`s.

Numbers are cut to six digits when they are first read, so that run folders and the rows that are kept of them lead to
the same tables and figures.
"""

import json
import logging
import os
import re
from pathlib import Path
from typing import Any

from rope_lab.files import as_json, digest, is_sealed, read_file, sealed
from rope_lab.results import store
from rope_lab.results.kept import DAMAGE, read_kept
from rope_lab.results.runs import (
    MIXED,
    ORIGIN,
    Damaged,
    RunRow,
    Source,
    check,
    check_metric,
    check_whole,
    disagreeing,
    one_line,
)
from rope_lab.text import flat

log = logging.getLogger(__name__)

METRICS = "metrics.jsonl"
NAMED = re.compile(r".+-s\d+-[0-9a-f]{12}")  # how the program names run folders
MOST_BYTES, MOST_LINES = 2**26, 200_000  # of a run's files; of its metrics.jsonl


def read(folder: Path) -> tuple[list[RunRow], list[str]]:
    """The runs in a folder of kept rows, in a folder of run folders, or in one run folder; and what is wrong there."""
    if store.exists(folder):
        return read_kept(folder)
    runs, problems, unchecked = [], [], []
    try:
        folders = [folder] if os.path.lexists(folder / "run.json") else _folders(folder)
    except OSError as error:
        return [], [one_line(f"{folder}: cannot be read ({error.strerror})")]
    for path in folders:
        try:
            run, wrong, is_checked = read_run(path)
            runs.append(run)
            unchecked += [] if is_checked else [path.name]
            problems += [f"{path.name}: {line}" for line in wrong]
        except FileNotFoundError:
            problems.append(f"{path.name}: is no run's folder, it has no run.json; left out")
        except OSError as error:
            problems.append(f"{path.name}: cannot be read ({error.strerror}); left out")
        except Damaged as error:
            problems.append(f"{path.name}: {error}; left out")
        except DAMAGE as error:
            problems.append(f"{path.name}: its run.json cannot be read ({type(error).__name__}: {error}); left out")
    if not folders:
        problems.append(f"{folder}: there are no runs")
    if unchecked:
        log.warning(
            "%s%s: recorded before records carried digests, and shown unchecked",
            one_line(unchecked[0]),
            f" and {len(unchecked) - 1} more" if len(unchecked) > 1 else "",
        )
    return runs, [one_line(problem) for problem in problems]


def read_run(folder: Path) -> tuple[RunRow, list[str], bool]:
    """A run from its folder, what is wrong with its curves, and whether its digests were there to be checked.

    Raises OSError, or one of DAMAGE.
    """
    text = _read(folder / "run.json")
    content = json.loads(text)
    if is_sealed(content) and as_json(sealed(content)) != text:
        raise Damaged("run.json is not what its digest says; the training command makes it whole again")
    if NAMED.fullmatch(folder.name) and not folder.name.endswith(content["run_id"]):
        raise Damaged(f"has the name of another run, and is {content['run_id']}")
    provenance, progress, config = content["provenance"], content["progress"], content["config"]
    source = Source(
        **{k: content[k] for k in ("task", "scale", "recipe_id", "position", "seed", "run_id", "status", "parameters")},
        **{k: progress[k] for k in ("steps", "sequences", "tokens")},
        seconds=_short(progress["seconds"]),
        **origin(provenance),
    )
    curves, problems = _read_curves(folder, content.get("digests", {}))
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
    words = {}
    for name in disagreeing(check(run)):
        step, last = (part[-1] for part in curves[name])
        words[name] = f"{name} is {run.metrics.get(name)} in run.json, and {last} at step {step:,} in {METRICS}"
        if source.status == "finished" and step == source.steps and name in run.metrics:
            raise Damaged(words[name])
    if words:
        more = f", and so on for {len(words)} metrics" if len(words) > 1 else ""
        problems.append(f"lines or metrics are lost: {next(iter(words.values()))}{more}")
    return run, problems, is_sealed(content)


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
    return sorted(p for p in folder.iterdir() if os.path.isdir(p) and p.name not in ("wandb", "figures"))


def _read_curves(folder: Path, digests: dict[str, str]) -> tuple[dict[str, list[list[float]]], list[str]]:
    """For each metric its steps and values, and what is wrong with them. Lines that cannot be read are left out.

    Raises Damaged where the file is not the one of `digests`.
    """
    try:
        text = _read(folder / METRICS)
    except FileNotFoundError:
        return {}, []
    if METRICS in digests and digests[METRICS] != digest(text):
        raise Damaged(f"{METRICS} is not what run.json says of it; the training command makes it whole again")
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        return {}, [f"{METRICS} has {len(lines):,} lines, more than {MOST_LINES:,}; the run is shown without curves"]
    curves: dict[str, list[list[float]]] = {}
    cut = 0
    for line in lines:
        try:
            row = json.loads(line.decode())
            step, values = row["step"], {name: value for name, value in row.items() if "/" in name}
            check_whole("step", step)
            for name, value in values.items():
                check_metric(name, value)
                if name in curves and step <= curves[name][0][-1]:
                    raise Damaged(f"step {step} is not after the one before")
        except DAMAGE:
            cut += 1
            continue
        for name, value in values.items():
            steps, curve = curves.setdefault(name, [[], []])
            steps.append(step)
            curve.append(_short(value))
    return curves, [f"{cut} lines of {METRICS} cannot be read and are left out"] if cut else []


def _read(path: Path) -> bytes:
    """The content of a regular file of bounded size. Raises OSError, or Damaged where it is larger."""
    if os.stat(path).st_size > MOST_BYTES:
        raise Damaged(f"{path.name} has {os.stat(path).st_size:,} bytes: at most {MOST_BYTES:,} are read")
    return read_file(path)


def _short(value: Any) -> Any:
    """Floats to six digits, at any depth."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {k: _short(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_short(v) for v in value]
    return value
