"""Reading runs: from a folder of kept records, from one of run folders, or from one run folder.

Numbers are cut to six digits when they are first read, so that run folders and kept records give
the same tables and figures.
"""

import json
import logging
from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from typing import Any

from rope_lab.files import damaged, read_sealed
from rope_lab.identity import identify
from rope_lab.places import OWN, RESULTS, RUNS
from rope_lab.results.records.kept import KEPT, RunsAndProblems, read_kept
from rope_lab.results.records.measures import MEASURES
from rope_lab.results.records.run import (
    DAMAGE,
    MIXED,
    Curve,
    Record,
    Run,
    differing,
    from_record,
    one_line,
    reason,
)
from rope_lab.text import FIND_RUNS, ConfigError, first_three, flat

log = logging.getLogger(__name__)

ByFolder = dict[Path, list[Run]]


def is_kept(folder: Path) -> bool:
    """Whether `folder` holds kept records."""
    return (folder / KEPT).exists()


def folders_of_runs(given: list[Path]) -> list[Path]:
    """The folders given, or by default results/runs, or results/ if that is empty. Raises
    ConfigError without runs.
    """
    own = RESULTS / RUNS
    folders = given or [own if _run_folders(own) else RESULTS]
    for folder in folders:
        if not is_kept(folder) and not _run_folders(folder):
            raise ConfigError(f"{folder}: there are no runs; {FIND_RUNS}")
    return folders


def _run_folders(folder: Path) -> list[Path]:
    """The run folders in a folder, or the folder if it is one itself."""
    if (folder / "run.json").exists():
        return [folder]
    return sorted(path.parent for path in folder.glob("*/run.json"))


def with_those_below(folder: Path) -> list[Path]:
    """A folder and the folders of kept runs in it, but for the user's own."""
    below = [path.parent for path in sorted(folder.glob(f"*/{KEPT}"))]
    return [folder, *(path for path in below if path.name != OWN)]


def read(folder: Path) -> RunsAndProblems:
    """The runs of a folder, each once, and the problems of those that are left out. Run folders
    may stand beside kept records, and count before them.
    """
    runs, problems = _read_both(folder)
    once, twice = one_each(runs)
    return once, problems + twice


def _read_both(folder: Path) -> RunsAndProblems:
    """The kept records and the run folders of a folder; a run may be in both."""
    runs, problems = read_kept(folder)
    for path in _run_folders(folder):
        try:
            runs.append(read_run(path))
        except DAMAGE as error:
            problems.append(one_line(f"{path.name}: {reason(error)}; left out"))
    return runs, problems


def read_ended(folder: Path) -> tuple[dict[str, Run], list[str]]:
    """The runs of a folder that have ended, by their id, and the problems of those that are left
    out; none without the folder.
    """
    runs, problems = _read_both(folder) if folder.is_dir() else ([], [])
    once, _ = one_each(runs)  # its line has numbers, which a plan hides
    return {run.run_id: run for run in once if run.ended}, problems


def read_all(folders: Iterable[Path]) -> tuple[ByFolder, list[str]]:
    """The runs of each folder, and the problems of those that are left out."""
    found, problems = {}, []
    for folder in folders:
        found[folder], wrong = read(folder)
        problems += wrong
    return found, problems


def read_each_or_warn(folders: Iterable[Path]) -> ByFolder:
    """The runs of each folder; the problems of those that are left out are logged."""
    found, problems = read_all(folders)
    for problem in problems:
        log.warning("%s", problem)
    return found


def read_or_warn(folders: Iterable[Path]) -> list[Run]:
    """The runs of all folders, each once; as `read_each_or_warn`."""
    return one_each(*read_each_or_warn(folders).values())[0]


def one_each(*parts: list[Run]) -> RunsAndProblems:
    """Each run of all parts once, and a line on runs that were also found with other numbers.

    One that has ended counts before others, one's own, of a run folder, before kept ones, and the
    last begun before others.
    """
    runs = [run for part in parts for run in part]
    once = {}
    for run in sorted(runs, key=attrgetter("ended", "start")):  # a kept row has no start
        once[run.run_id] = run
    unlike = {}
    for run in runs:
        numbers = differing(run, once[run.run_id])
        if run.ended and numbers:
            unlike[str(run)] = f"{run}: {numbers}"
    named = first_three(list(unlike.values()))
    line = f"found twice with other numbers; your own run counts, else the last one: {named}"
    return list(once.values()), [line] if unlike else []


def read_run(folder: Path) -> Run:
    """A run from its folder. Raises OSError, or one of `DAMAGE`."""
    content = read_sealed(folder / "run.json")
    if content is None:
        raise ValueError(
            "run.json cannot be read, or was changed; the training command makes it again"
        )
    if names := damaged(folder, content.get("digests", {})):
        raise ValueError(f"{names[0]} was changed or damaged; fresh=true trains the run again")
    config, provenance = content["config"], content["provenance"]
    settings = {part: config[part] for part in ("task", "model", "train", "eval")}
    other = ""  # the scheme of its parent, if that is not its own
    if parent := config.get("parent"):
        settings["parent"] = {"recipe_id": parent["recipe_id"]}
        own = identify("", "", 0, {"position": config["position"]}).scheme_id
        if parent["scheme_id"] != own:
            other = f"{parent.get('position', '')}-{parent['scheme_id']}"
    settings |= {"device": provenance["hardware"]["device"], "position": config["position"]}
    rounded = json.loads(json.dumps({"slices": {}, "floor": {}} | content), parse_float=six_digits)
    record = {
        "config": settings,
        "curve": _read_curves(folder / "metrics.jsonl"),
        "provenance": origin(provenance),
        "parent": other,
        "files": provenance.get("files", []),
        "start": provenance.get("start") or "",
    }
    return from_record(rounded | record)


def origin(provenance: Record) -> Record:
    """The `provenance` of a record: numerics, code, torch and hardware; with the same ones a run
    repeats to the bit.

    If the parts of a resumed run differ, their values are joined by `MIXED`. The commit of a
    changed checkout ends in +; `unknown` without git.
    """
    parts = []
    for part in map(flat, [*provenance.get("earlier", []), provenance]):
        commit = part["git.commit"]
        mark = "" if part["git.dirty"] is False else "+"
        parts.append(part | {"commit": commit[:12] + mark if commit else "unknown"})

    def joined(key: str) -> Any:
        values = list(dict.fromkeys(part.get(key) for part in parts))
        return values[0] if len(values) == 1 else MIXED.join(map(str, values))

    plugins = sorted(key for key in set().union(*parts) if key.startswith("plugin."))
    return {
        "numerics": joined("numerics"),
        "plugin": {key.removeprefix("plugin."): joined(key) for key in plugins},
        "commit": joined("commit"),
        "torch": joined("versions.torch"),
        "hardware": joined("hardware.name"),
        "threads": joined("hardware.threads"),
        "plan": joined("plan") or "",
        "source": joined("source") or "",
    }


def _read_curves(path: Path) -> dict[str, Curve]:
    """Evaluations and charted metrics → steps and values, of whole lines."""
    content = path.read_bytes() if path.exists() else b""
    curves = {}
    for line in content.rpartition(b"\n")[0].splitlines():
        record = json.loads(line, parse_float=six_digits)
        for name in record:
            if name.startswith("eval/") or name in MEASURES:
                steps, values = curves.setdefault(name, ([], []))
                steps.append(record["step"])
                values.append(record[name])
    return curves


def six_digits(text: str) -> float:
    return float(f"{float(text):.6g}")
