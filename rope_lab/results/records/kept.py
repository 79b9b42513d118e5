"""Kept records: `runs.jsonl` in a folder, one run per line, each with a digest of itself."""

import json
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

from rope_lab.files import lease, remove_temporary, sealed, write_whole
from rope_lab.results.records.catalogue import Catalogue
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
RunsAndProblems = tuple[list[Run], list[str]]  # and a line on each run that is left out


def read_kept(folder: Path) -> RunsAndProblems:
    """The runs kept in `folder`, and a problem for each line that is left out. Raises OSError."""
    path = folder / KEPT
    lines = path.read_bytes().splitlines() if path.exists() else []
    runs, problems = {}, []
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
    """Add `runs` to those kept in `folder`. A run that has ended stays unless another end with
    other numbers may replace it.

    Raises ConfigError if numbers would be lost, and OSError; the kept records then stay unchanged.
    """
    with lease(folder):
        remove_temporary(folder)
        before, problems = read_kept(folder)
        if problems:
            raise ConfigError(f"{folder}: {first_three(problems)}; restore the file first")
        merged = {run.run_id: run for run in before}
        unlike = []
        for run in runs:
            kept = merged.get(run.run_id)
            if kept is None or not kept.ended:
                merged[run.run_id] = run
            elif run.ended and (other := differing(kept, run)):
                unlike.append(f"{run} is kept with other numbers: {other}")
                trace = f"{other}; commits {kept.commit} and {run.commit}"
                merged[run.run_id] = replace(run, replaced=[*kept.replaced, trace])
        if unlike and not replaces:
            raise ConfigError(
                f"{folder}: {first_three(unlike)}; --replace keeps the second of each"
            )
        order = sorted(merged.values(), key=attrgetter(*NAMES))
        records = [sealed(to_record(run), VERSION) for run in order]
        lines = [json.dumps(record, separators=(",", ":")) + "\n" for record in records]
        write_whole(folder / KEPT, "".join(lines).encode())


def _from_line(line: bytes) -> Run:
    """The run of a line. Raises one of `DAMAGE`."""
    record = json.loads(line)
    if record["format"] != VERSION:
        raise ValueError(f"is of format {record['format']}, this program reads format {VERSION}")
    if record["digest"] != sealed(record, VERSION)["digest"]:
        raise ValueError("does not match its digest, so it was edited: restore the line")
    return from_record(record)


def worth_keeping(run: Run) -> Run:
    """The run with what is to keep: curves of evaluations and of metrics with thresholds, and
    Bayes-optimal losses by an attribute unless all are 0.
    """
    report = Catalogue().report_of(run)
    used = {threshold.metric for threshold in report.thresholds.values()}
    curves = {
        name: curve
        for name, curve in run.curves.items()
        if name.startswith("eval/") or name in used
    }
    floor = {}
    for name, value in run.floor.items():
        if name == "loss" or any(nats for _, nats in value.values()):
            floor[name] = value
    return replace(run, curves=curves, floor=floor)
