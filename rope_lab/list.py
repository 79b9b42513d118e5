"""Lists runs, newest first: `rope-lab list [FOLDER]` (default: results/runs).

A line a run: status, steps, the metric that its task is compared by, age and folder.
"""

import time
from pathlib import Path
from typing import Any

from rope_lab.files import read_sealed
from rope_lab.places import RESULTS
from rope_lab.results.metrics import METRICS
from rope_lab.text import argument_parser, errors_as_exit, plain, say, short_path


def line(folder: Path, content: dict[str, Any], age: float) -> str:
    """A run in a line; `age` in seconds."""
    steps, metrics = content["config"]["train"]["steps"], content["metrics"]
    metric = next((each for each in METRICS if each.name in metrics), None)
    value = ""
    if metric:
        value = f"{metric.name.removeprefix('eval/')} {metrics[metric.name]:.{metric.digits}f}"
    units = [("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)]
    unit, seconds = next(((unit, each) for unit, each in units if age >= 2 * each), units[-1])
    progress = f"{content['progress']['steps']:,}/{steps:,}"
    return (
        f"{content['status']:<11}  {progress:>15}  {value:<20}  {age / seconds:>3.0f} {unit:<3}  {short_path(folder)}"
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argument_parser("list", __doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=RESULTS / "runs", metavar="FOLDER")
    folder, now, lines = parser.parse_args(arguments).folder, time.time(), []
    with errors_as_exit():
        paths = {path.parent: path.stat().st_mtime for path in folder.rglob("run.json") if not path.is_symlink()}
        for path, changed in sorted(paths.items(), key=lambda each: -each[1]):
            content = read_sealed(path / "run.json")
            if content is None or "progress" not in content:
                lines.append(f"{'unreadable':<11}  {'':>15}  {'':<20}  {'':>7}  {short_path(path)}")
            else:
                lines.append(line(path, content, now - changed))
    say("\n".join(map(plain, lines)) if lines else f"{short_path(folder)}: there are no runs")


if __name__ == "__main__":
    main()
