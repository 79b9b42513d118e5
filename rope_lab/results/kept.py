"""Records that are kept in the repository: `rows.csv`, tidy, one line a run and metric, and `curves.jsonl`, one line a
run: its settings, curves and slices.
"""

import csv
import io
import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from rope_lab.results import store
from rope_lab.results.runs import COLUMNS, DAMAGE, Damaged, Run, from_record, one_line, reason
from rope_lab.results.store import CURVES, ROWS

HEAD = [*COLUMNS, "metric", "value"]
NUMBERS = dict.fromkeys(("seed", "steps", "sequences", "tokens", "parameters"), int) | {"seconds": float}
REST = [field.name for field in fields(Run) if field.name not in (*COLUMNS, "metrics")]  # what CURVES holds
FORMULA = re.compile(r"'*[=+\-@\t\r＝＋－＠]")  # how text begins that a spreadsheet would run, or that was quoted


def keep(runs: list[Run], folder: Path) -> None:
    """Adds `runs` to what is kept in `folder`, in the place of what is kept of the same runs.

    A curve that does not end where its run did, since lines of it are lost, is not kept; one that is kept stays.
    Raises ValueError where that would lose something, and OSError; what is kept is then as it was.
    """
    with store.writing(folder):
        before, problems = read_kept(folder) if store.exists(folder) else ([], [])
        if problems:
            more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
            raise ValueError("; ".join(problems[:3]) + more)
        merged = {run.run_id: run for run in before}
        for run in runs:
            kept = merged.get(run.run_id)
            if kept and kept.status == "finished" != run.status:
                raise ValueError(f"{run} is kept finished, and is {run.status} in what is given")
            curves = _whole(replace(run, curves=kept.curves)) if kept else {}
            merged[run.run_id] = replace(run, curves=curves | _whole(run))
        names = ("task", "scale", "recipe_id", "position", "seed", "run_id")
        order = sorted(merged.values(), key=lambda run: [getattr(run, name) for name in names])
        store.write(folder, _table(order), "".join(map(_line, order)).encode())


def read_kept(folder: Path) -> tuple[list[Run], list[str]]:
    """The runs that are kept in `folder`, and what is wrong with the files; none where a file cannot be taken apart."""
    try:
        table, curves = store.read(folder)
        found, problems = _parse_table(_text(ROWS, table))
        lines = _text(CURVES, curves).splitlines()
    except FileNotFoundError as error:
        name = Path(error.filename).name
        return [], [one_line(f"the folder has no {name}, without which the other of its two files cannot be read")]
    except Damaged as error:
        return [], [one_line(str(error))]
    except OSError as error:
        return [], [one_line(f"the kept records cannot be read ({error.strerror})")]
    runs = []
    for number, line in enumerate(lines, start=1):
        try:
            rest = json.loads(line)
            run_id, name = rest.pop("run_id"), rest.pop("run")
            if run_id not in found:
                problems.append(f"{ROWS}: the rows of {name} (run {run_id}) are missing; it is left out")
            elif (record := found.pop(run_id)) is not None:
                runs.append(_agreeing(from_record(dict(**record, **rest))))
        except DAMAGE as error:
            problems.append(f"{CURVES} line {number}: {reason(error)}; left out")
    for run_id in (run_id for run_id, record in found.items() if record):
        problems.append(f"{CURVES}: the line of run {run_id} is missing; it is left out")
    return runs, [one_line(problem) for problem in problems]


def _parse_table(text: str) -> tuple[dict[str, dict[str, Any] | None], list[str]]:
    """run_id → its columns and metrics, None where a line of it cannot be read; and what is wrong. Raises Damaged."""
    found: dict[str, dict[str, Any] | None] = {}
    problems = []
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        if next(reader, None) != HEAD:
            raise Damaged(f"{ROWS}: must begin with the line {','.join(HEAD)}, with commas between")
        for cells in reader:
            where = f"{ROWS} line {reader.line_num}"
            if len(cells) != len(HEAD):
                raise Damaged(f"{where}: has {len(cells)} cells, must have {len(HEAD)}")
            *columns, metric, value = map(_uncell, cells)
            run_id = columns[COLUMNS.index("run_id")]
            try:
                record = found.setdefault(run_id, columns_of := _columns(columns) | {"metrics": {}})
                if record is None:
                    continue
                if columns_of != record | {"metrics": {}} or metric in record["metrics"]:
                    raise Damaged(f"is at odds with another line of run {run_id}")
                if metric:
                    record["metrics"][metric] = float(value)
            except ValueError as error:
                found[run_id] = None
                problems.append(f"{where}: {reason(error)}; its run is left out")
    except csv.Error as error:
        raise Damaged(f"{ROWS} line {reader.line_num}: is no CSV ({error})") from None
    return found, problems


def _columns(cells: list[str]) -> dict[str, Any]:
    """The columns of a line, of their types. Raises ValueError."""
    columns: dict[str, Any] = dict(zip(COLUMNS, cells, strict=True))
    columns |= {name: kind(columns[name]) for name, kind in NUMBERS.items()}
    columns["commit"] = columns["commit"] or "unknown"  # as it is called today
    columns["threads"] = int(columns["threads"]) if columns["threads"].isdecimal() else columns["threads"]
    return columns


def _whole(run: Run) -> dict[str, Any]:
    """The curves of a run that end where it did."""
    return {name: curve for name, curve in run.curves.items() if name not in run.disagreeing}


def _agreeing(run: Run) -> Run:
    """`run`. Raises Damaged where a metric in ROWS is not what its curve in CURVES ends with."""
    for name in run.disagreeing:
        step, last = (part[-1] for part in run.curves[name])
        raise Damaged(
            f"{name} of {run} (run {run.run_id}) is {run.metrics.get(name)} in {ROWS}, and {last} at step {step:,} "
            "here: one of the two is wrong"
        )
    return run


def _table(runs: list[Run]) -> bytes:
    """The content of ROWS."""
    table: list[list[Any]] = [HEAD]
    for run in runs:
        values = [(metric, float(value)) for metric, value in sorted(run.metrics.items())]
        table += [[*(getattr(run, name) for name in COLUMNS), *value] for value in values or [("", "")]]
    return "".join(",".join(map(_cell, row)) + "\n" for row in table).encode()


def _line(run: Run) -> str:
    """The line of a run in CURVES."""
    content = {"run_id": run.run_id, "run": str(run)} | {name: getattr(run, name) for name in REST}
    return json.dumps(content, separators=(",", ":")) + "\n"


def _cell(value: Any) -> str:
    """A value as CSV, with a ' before text that a spreadsheet would run as a formula; numbers stay numbers."""
    text = f"'{value}" if isinstance(value, str) and FORMULA.match(value) else str(value)
    quoted = text.replace('"', '""')
    return f'"{quoted}"' if re.search(r'[",\r\n]', text) else text


def _uncell(cell: str) -> str:
    """The text that `_cell` was given, from what a CSV reader makes of it."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


def _text(name: str, content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise Damaged(f"{name} line {line}: holds a byte that is not UTF-8") from None
    if text.startswith("\ufeff"):
        raise Damaged(f"{name}: begins with a byte order mark; save it without")
    return text
