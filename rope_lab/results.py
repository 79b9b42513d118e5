"""Run folders to a table: `python -m rope_lab.results [FOLDER…]`. Reads files, knows neither torch nor other rooms."""

import argparse
import json
import statistics
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

RUNS = Path(__file__).resolve().parent.parent / "results" / "runs"
COLUMNS = {"eval/accuracy": "accuracy", "eval/score": "of 128", "eval/loss": "loss"}


@dataclass(frozen=True)
class RunRecord:
    """What a run's folder says of it."""

    folder: Path
    task: str
    position: str
    scale: str
    seed: int
    recipe_id: str
    status: str
    steps: int
    metrics: dict[str, float]


def read_runs(folders: list[Path]) -> tuple[list[RunRecord], list[str]]:
    """The runs in `folders` (run folders, or folders of them), and a line for each that cannot be read."""
    runs, unreadable = [], []
    for folder in folders:
        found = sorted(folder.glob("*/run.json")) or [folder / "run.json"]
        for path in found:
            try:
                content = json.loads(path.read_text())
                fields = {
                    k: content[k] for k in ("task", "position", "scale", "seed", "recipe_id", "status", "metrics")
                }
                runs.append(RunRecord(path.parent, **fields, steps=content["progress"]["steps"]))
            except FileNotFoundError:
                unreadable.append(f"{folder}: no run in it")
            except (OSError, ValueError, KeyError, TypeError) as error:
                unreadable.append(f"{path}: cannot be read ({type(error).__name__}: {error})")
    return runs, unreadable


def table(runs: list[RunRecord]) -> str:
    """Mean ± standard deviation over seeds of what finished runs ended with, per task, recipe and scheme (Markdown)."""
    cells = defaultdict(list)
    for run in runs:
        if run.status == "finished":
            cells[run.task, run.scale, run.recipe_id, run.position].append(run)
    lines = [
        "| task | scale | recipe | position | seeds | " + " | ".join(COLUMNS.values()) + " |",
        "|---|---|---|---|---|" + "---|" * len(COLUMNS),
    ]
    for key, cell in sorted(cells.items()):
        spread = (_mean_and_spread([r.metrics[name] for r in cell if name in r.metrics]) for name in COLUMNS)
        lines.append(f"| {' | '.join(key)} | {len(cell)} | {' | '.join(spread)} |")
    return "\n".join(lines)


def _mean_and_spread(values: list[float]) -> str:
    if not values:
        return "–"
    if len(values) == 1:
        return f"{values[0]:.4g}"
    return f"{statistics.mean(values):.4g} ± {statistics.stdev(values):.2g}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m rope_lab.results", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="run folders, or folders of them")
    runs, unreadable = read_runs(parser.parse_args(arguments).folders or [RUNS])
    print(table(runs))
    for run in runs:
        if run.status != "finished":
            print(f"not counted: {run.folder.name}, {run.status} at step {run.steps}")
    for line in unreadable:
        print(f"not counted: {line}")


if __name__ == "__main__":
    main()
