"""Rows that are kept in the repository: `rows.csv`, tidy, one row per run and metric, and `curves.jsonl`, one line per
run: its settings, curves and slices.
"""

import csv
import io
import json
import re
from dataclasses import asdict, fields, replace
from pathlib import Path

from rope_lab.results import store
from rope_lab.results.runs import Damaged, RunRow, Source, check, describe, disagreeing, one_line
from rope_lab.results.store import CURVES, ROWS

HEAD = [*(f.name for f in fields(Source)), "metric", "value"]
KINDS = {f.name: f.type for f in fields(Source)} | {
    "commit": lambda cell: cell or "unknown",  # as it is called today
    "threads": lambda cell: int(cell) if cell.isdecimal() else cell,
}
FORMULA = re.compile(r"'*[=+\-@\t\r＝＋－＠]")  # how text begins that a spreadsheet would run, or that was quoted
DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


def keep(runs: list[RunRow], folder: Path) -> None:
    """Adds `runs` to the kept rows in `folder`, in the place of what is kept of the same runs.

    A curve that does not end where its run did, since lines of it are lost, is not kept.
    Raises ValueError where that would lose something, and OSError; what is kept is then as it was.
    """
    with store.writing(folder):
        before, problems = read_kept(folder) if store.exists(folder) else ([], [])
        if problems:
            more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
            raise ValueError("; ".join(problems[:3]) + more)
        merged = {run.source.run_id: run for run in before}
        for run in runs:
            kept = merged.get(run.source.run_id)
            if kept and kept.source.status == "finished" != run.source.status:
                raise ValueError(
                    f"{describe(run.source)} is kept finished, and is {run.source.status} in what is given"
                )
            whole = {name: curve for name, curve in run.curves.items() if name not in disagreeing(run)}
            merged[run.source.run_id] = replace(run, curves=whole)
        order = sorted(merged.values(), key=lambda run: _order(run.source))
        store.write(folder, _table(order), "".join(map(_line, order)).encode())


def read_kept(folder: Path) -> tuple[list[RunRow], list[str]]:
    """The runs that are kept in `folder`, and what is wrong with the files; none where a file cannot be taken apart."""
    try:
        table, curves = store.read(folder)
        found, problems = _parse_table(_text(ROWS, table))
        lines = _text(CURVES, curves).splitlines()
    except FileNotFoundError as error:
        name = Path(error.filename).name
        return [], [one_line(f"the folder has no {name}, without which the other file of its rows cannot be read")]
    except Damaged as error:
        return [], [one_line(str(error))]
    except OSError as error:
        return [], [one_line(f"the kept rows cannot be read ({error.strerror})")]
    runs = []
    for number, line in enumerate(lines, start=1):
        try:
            rest = json.loads(line)
            run_id, name = rest.pop("run_id"), rest.pop("run")
            if run_id not in found:
                problems.append(f"{ROWS}: the rows of {name} (run {run_id}) are missing; it is left out")
            elif (rows := found.pop(run_id)) is not None:
                runs.append(_agreeing(check(RunRow(*rows, **rest))))
        except DAMAGE as error:
            problems.append(f"{CURVES} line {number}: {_reason(error)}; left out")
    for source, _ in filter(None, found.values()):
        problems.append(f"{CURVES}: the line of {describe(source)} (run {source.run_id}) is missing; it is left out")
    return runs, [one_line(problem) for problem in problems]


Rows = tuple[Source, dict[str, float]]  # the rows of a run: their common columns, and its metrics


def _parse_table(text: str) -> tuple[dict[str, Rows | None], list[str]]:
    """run_id → its rows, None where one of them cannot be read; and what is wrong. Raises Damaged."""
    found: dict[str, Rows | None] = {}
    problems = []
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        if next(reader, None) != HEAD:
            names = ",".join(HEAD)
            raise Damaged(f"{ROWS}: must begin with the line {names}, with commas between")
        for cells in reader:
            where = f"{ROWS} line {reader.line_num}"
            if len(cells) != len(HEAD):
                raise Damaged(f"{where}: has {len(cells)} cells, must have {len(HEAD)}")
            row = dict(zip(HEAD, map(_uncell, cells), strict=True))
            try:
                source = Source(**{name: kind(row[name]) for name, kind in KINDS.items()})
                rows = found.setdefault(source.run_id, (source, {}))
                if rows is None:
                    continue
                if rows[0] != source or row["metric"] in rows[1]:
                    raise Damaged(f"is at odds with another row of run {source.run_id}")
                if row["metric"]:
                    rows[1][row["metric"]] = float(row["value"])
            except ValueError as error:
                found[row["run_id"]] = None
                problems.append(f"{where}: {_reason(error)}; its run is left out")
    except csv.Error as error:
        raise Damaged(f"{ROWS} line {reader.line_num}: is no CSV ({error})") from None
    return found, problems


def _agreeing(run: RunRow) -> RunRow:
    """`run`. Raises Damaged where a metric in ROWS is not what its curve in CURVES ends with."""
    for name in disagreeing(run):
        step, last = (part[-1] for part in run.curves[name])
        raise Damaged(
            f"{name} of {describe(run.source)} (run {run.source.run_id}) is {run.metrics.get(name)} in {ROWS}, and "
            f"{last} at step {step:,} here: one of the two is wrong"
        )
    return run


def _table(runs: list[RunRow]) -> bytes:
    """The content of ROWS."""
    table = [HEAD]
    for run in runs:
        values = [(metric, float(value)) for metric, value in sorted(run.metrics.items())]
        table += [[*asdict(run.source).values(), *value] for value in values or [("", "")]]
    return "".join(",".join(map(_cell, row)) + "\n" for row in table).encode()


def _line(run: RunRow) -> str:
    """The line of a run in CURVES."""
    rest = {f.name: getattr(run, f.name) for f in fields(RunRow) if f.name not in ("source", "metrics")}
    named = {"run_id": run.source.run_id, "run": describe(run.source)}
    return json.dumps(named | rest, separators=(",", ":")) + "\n"


def _cell(value: str | float) -> str:
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


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, Damaged) else f"cannot be read ({type(error).__name__}: {error})"


def _order(source: Source) -> tuple:
    return source.task, source.scale, source.recipe_id, source.position, source.seed, source.run_id
