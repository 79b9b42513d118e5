"""Kept records: `runs.jsonl` in a folder, one run per line, each with a digest of itself."""

import json
import os
from dataclasses import replace
from pathlib import Path

from filelock import SoftFileLease

from rope_lab.files import remove_temporary, sealed, write_whole
from rope_lab.results.records.run import (
    DAMAGE,
    NAMES,
    VERSION,
    Run,
    differing,
    from_record,
    one_line,
    reason,
    to_record,
)
from rope_lab.text import ConfigError, first_three

KEPT = "runs.jsonl"


def read_kept(folder: Path) -> tuple[list[Run], list[str]]:
    """The runs kept in `folder`, and a problem for each line that is left out."""
    try:
        lines = (folder / KEPT).read_bytes().splitlines()
    except OSError as error:
        return [], [one_line(f"{folder / KEPT}: cannot be read ({error.strerror})")]
    runs: dict[str, Run] = {}
    problems = []
    for number, line in enumerate(lines, start=1):
        try:
            run = _from_line(line)
            if run.run_id in runs:
                raise ValueError(f"{run} is there twice")
            runs[run.run_id] = run
        except DAMAGE as error:
            problems.append(one_line(f"{KEPT} line {number}: {reason(error)}; left out"))
    return list(runs.values()), problems


def keep(runs: list[Run], folder: Path, replaces: bool = False) -> None:
    """Add `runs` to those kept in `folder`; a run replaces its kept record.

    replaces: whether other numbers may replace the kept ones of a run that has ended

    Raises ConfigError if numbers would be lost, and OSError; the kept records then stay unchanged.
    """
    with SoftFileLease(
        folder / ".lock", lease_duration=60.0, heartbeat_interval=10.0, thread_local=False
    ):
        remove_temporary(folder)
        before, problems = read_kept(folder) if os.path.lexists(folder / KEPT) else ([], [])
        if problems:
            raise ConfigError(f"{folder}: {first_three(problems)}; restore the file first")
        merged, unlike = {run.run_id: run for run in before}, []
        for run in runs:
            kept = merged.get(run.run_id)
            if kept is None or not kept.ended:
                merged[run.run_id] = run
                continue
            if kept.status != run.status and not (replaces and run.ended):
                given = f"is {run.status} in the folder given"
                raise ConfigError(f"{folder}: {run} is kept {kept.status}, and {given}")
            other = ", ".join(_unlike(kept, run)[:3])
            if other:
                unlike.append(f"{run} is kept with other numbers: {other}")
                trace = f"{other}; commits {kept.commit} and {run.commit}"
                merged[run.run_id] = replace(run, replaced=[*kept.replaced, trace])
            else:  # equal numbers are those of the first commit that gave them
                merged[run.run_id] = replace(run, commit=kept.commit, replaced=kept.replaced)
        if unlike and not replaces:
            raise ConfigError(
                f"{folder}: {first_three(unlike)}; --replace keeps the second of each"
            )
        order = sorted(merged.values(), key=lambda run: [getattr(run, name) for name in NAMES])
        lines = (
            json.dumps(sealed(to_record(run), VERSION), separators=(",", ":")) + "\n"
            for run in order
        )
        write_whole(folder / KEPT, "".join(lines).encode())


def _unlike(kept: Run, run: Run) -> list[str]:
    """In which an ended run differs from its kept row: its status, its own code, its numbers."""
    differences = differing(kept, run)
    if kept.plugin != run.plugin:
        differences.insert(0, f"code {kept.plugin} and {run.plugin}")
    if kept.status != run.status:
        differences.insert(0, f"{kept.status} and {run.status}")
    return differences


def _from_line(line: bytes) -> Run:
    """The run of a line. Raises one of `DAMAGE`."""
    record = json.loads(line)
    if record["format"] != VERSION:
        raise ValueError(f"is of format {record['format']}, this program reads format {VERSION}")
    if record["digest"] != sealed(record, VERSION)["digest"]:
        named = " ".join(str(record.get(name)) for name in ("task", "scale", "position", "seed"))
        raise ValueError(f"{named} does not match its digest, so it was edited: restore the line")
    return from_record(record)
