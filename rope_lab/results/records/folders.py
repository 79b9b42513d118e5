"""Reading runs: from a folder of kept records, from one of run folders, or from one run folder.

Numbers are cut to six digits when they are first read, so that run folders and kept records give
the same tables and figures.
"""

import json
import logging
import os
import re
from operator import attrgetter
from pathlib import Path
from typing import Any

from rope_lab.files import damaged, digest, read_sealed
from rope_lab.identity import identify
from rope_lab.places import RESULTS
from rope_lab.results.records.kept import KEPT, read_kept
from rope_lab.results.records.measures import declared
from rope_lab.results.records.run import (
    DAMAGE,
    MIXED,
    Run,
    differing,
    from_record,
    one_line,
    reason,
)
from rope_lab.text import FIND_RUNS, ConfigError, first_three

log = logging.getLogger(__name__)

METRICS = "metrics.jsonl"
NAMED = re.compile(r".+-s\d+-([0-9a-f]{12})")  # how the program names run folders


def is_kept(folder: Path) -> bool:
    """Whether `folder` holds kept records."""
    return os.path.lexists(folder / KEPT)


def folders_of_runs(given: list[Path]) -> list[Path]:
    """The folders given, or by default results/runs, or results/ if that is empty. Raises
    ConfigError without runs.
    """
    folders = given or [RESULTS / "runs" if _holds_runs(RESULTS / "runs") else RESULTS]
    for folder in folders:
        if not _holds_runs(folder):
            what = (
                "is a file"
                if folder.is_file()
                else "there are no runs"
                if folder.is_dir()
                else "no such folder"
            )
            raise ConfigError(f"{folder}: {what}; {FIND_RUNS}")
    return folders


def _holds_runs(folder: Path) -> bool:
    return is_kept(folder) or os.path.lexists(folder / "run.json") or any(folder.glob("*/run.json"))


def read(folder: Path) -> tuple[list[Run], list[str]]:
    """The runs of a folder, each once, and the problems of those that are left out. Run folders
    may stand beside kept records, and count before them.
    """
    kept, problems = read_kept(folder) if is_kept(folder) else ([], [])
    runs, wrong, none = _read_run_folders(folder)
    if none and not is_kept(folder):
        problems.append(one_line(f"{folder}: there are no runs"))
    return one_each([*kept, *runs])[0], problems + wrong


def one_each(runs: list[Run]) -> tuple[list[Run], list[str]]:
    """Each run once, and a line on runs that were also found with other numbers.

    One that has ended counts before others, one's own, of a run folder, before kept ones, and the
    last begun before others.
    """
    once = {run.run_id: run for run in sorted(runs, key=attrgetter("ended", "start"))}
    unlike = []
    for run in runs:
        numbers = differing(run, once[run.run_id]) if run.ended else []
        if numbers:
            unlike.append(f"{run}: {', '.join(numbers[:3])}")
    if not unlike:
        return list(once.values()), []
    named = first_three(list(dict.fromkeys(unlike)))
    line = f"found twice with other numbers, of which your own count: {named}"
    return list(once.values()), [line]


def with_those_below(folder: Path) -> list[Path]:
    """A folder and, of one of kept runs, the folders of kept runs in it."""
    below = sorted(path for path in folder.glob("*/") if is_kept(folder) and is_kept(path))
    return [folder, *below]


def _read_run_folders(folder: Path) -> tuple[list[Run], list[str], bool]:
    """The runs of run folders, their problems, and whether there are no such folders."""
    runs: list[Run] = []
    problems: list[str] = []
    within = [folder] if os.path.lexists(folder / "run.json") else sorted(folder.iterdir())
    folders = [
        path for path in within if os.path.lexists(path / "run.json") or NAMED.fullmatch(path.name)
    ]
    for path in folders:
        try:
            run, wrong = read_run(path)
            runs.append(run)
        except DAMAGE as error:
            wrong = [f"run.json: {reason(error)}; left out"]
        problems += [one_line(f"{path.name}: {line}") for line in wrong]
    return runs, problems, not folders


def read_or_warn(folder: Path) -> list[Run]:
    """The runs of a folder; the problems of those that are left out are logged."""
    runs, problems = read(folder)
    for problem in problems:
        log.warning("%s", problem)
    return runs


def read_run(folder: Path) -> tuple[Run, list[str]]:
    """A run from its folder, and the problems of its curves. Raises OSError, or one of `DAMAGE`."""
    content = read_sealed(folder / "run.json")
    if content is None:
        raise ValueError("cannot be read, or was changed; the training command makes it again")
    named = NAMED.fullmatch(folder.name)
    if named and named[1] != content["run_id"]:
        raise ValueError(f"is of run {content['run_id']}, and its folder has the name of another")
    digests = content.get("digests", {})
    curves, problems = _read_curves(folder, digests)
    problems += [f"{name} was changed or damaged" for name in damaged(folder, digests)]
    config = {part: content["config"][part] for part in ("task", "model", "train", "eval")}
    other = ""  # the scheme of its parent, if that is not its own
    if parent := content["config"].get("parent"):
        config["parent"] = {"recipe_id": parent["recipe_id"]}
        own = identify("", "", 0, {"position": content["config"]["position"]}).scheme_id
        if parent["scheme_id"] != own:
            other = f"{parent.get('position', '')}-{parent['scheme_id']}"
    config |= {
        "device": content["provenance"]["hardware"]["device"],
        "position": content["config"]["position"],
    }
    record = json.loads(json.dumps({"slices": {}, "floor": {}} | content), parse_float=six_digits)
    provenance = origin(content["provenance"])
    record |= {
        "config": config,
        "curve": curves,
        "provenance": provenance,
        "plan": provenance["plan"],
        "parent": other,
        "files": content["provenance"].get("files", []),
        "start": content["provenance"].get("start") or "",
    }
    return from_record(record), problems


def origin(provenance: dict[str, Any]) -> dict[str, Any]:
    """The `provenance` of a record: numerics, code, torch and hardware; with the same ones a run
    repeats to the bit.

    If the parts of a resumed run differ, their values are joined by `MIXED`. The commit of a
    changed checkout ends in +, in ? if it may have been changed; `unknown` without git.
    """
    parts = [_origin(part) for part in [*provenance.get("earlier", []), provenance]]
    plugins = [part.pop("plugin") for part in parts]
    return _joined_all(parts) | {"plugin": _joined_all(plugins)}


def _origin(part: dict[str, Any]) -> dict[str, Any]:
    git, hardware = part["git"], part["hardware"]
    dirt = "+" if git["dirty"] else "?" if git["dirty"] is None and git["commit"] else ""
    return {
        "numerics": part["numerics"],
        "plugin": part.get("plugin", {}),
        "commit": (git["commit"] or "unknown")[:12] + dirt,
        "torch": part["versions"]["torch"],
        "hardware": hardware["name"],
        "threads": hardware["threads"],
        "plan": part.get("plan", ""),
    }


def _joined_all(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The values of each name in the parts of a run; different ones are joined."""
    joined = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        values = list(dict.fromkeys(part.get(name) for part in parts))
        joined[name] = values[0] if len(values) == 1 else MIXED.join(map(str, values))
    return joined


def _read_curves(
    folder: Path, digests: dict[str, str]
) -> tuple[dict[str, tuple[list[int], list[Any]]], list[str]]:
    """Evaluations and charted metrics → steps and values, and their problems; unreadable lines are
    left out.

    Raises ValueError if the file does not match `digests`.
    """
    content = (folder / METRICS).read_bytes() if (folder / METRICS).exists() else b""
    if METRICS in digests and digests[METRICS] != digest(content):
        raise ValueError(
            f"{METRICS} does not match its digest in run.json; fresh=true trains the run again"
        )
    curves: dict[str, tuple[list[int], list[Any]]] = {}
    bad = 0
    for line in content.splitlines():
        try:
            record = json.loads(line, parse_float=six_digits)
            for name in record:
                if name.startswith("eval/") or ("/" in name and declared(name)):
                    steps, values = curves.setdefault(name, ([], []))
                    steps.append(record["step"])
                    values.append(record[name])
        except DAMAGE:
            bad += 1
    return curves, [f"{bad} lines of {METRICS} cannot be read and are left out"] if bad else []


def six_digits(text: str) -> float:
    return float(f"{float(text):.6g}")
