"""Lists runs, newest first: `rope-lab list [FOLDER]` (default: results/runs).

A line a run: status, steps, the metric that its task is compared by, the time since its record was written, and folder.
"""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from rope_lab.files import read_file, read_sealed
from rope_lab.places import RESULTS
from rope_lab.results.metrics import declared
from rope_lab.results.published import Published
from rope_lab.text import argument_parser, errors_as_exit, plain, say, short_path

COLUMNS = "{:<11}  {:>15}  {:<22}  {:>11}  {}".format


def step_of(folder: Path, content: dict[str, Any]) -> int:
    """The step of a run: that in run.json; while it runs, that of its last metric record, if it is later."""
    step = content["progress"]["steps"]
    if content["status"] == "running":
        with suppress(OSError, ValueError, LookupError):
            *_, last, _ = read_file(folder / "metrics.jsonl").split(b"\n")  # what follows the last \n is not yet whole
            step = max(step, json.loads(last)["step"])
    return step


def line(folder: Path, content: dict[str, Any], age: float, published: Published) -> str:
    """A run in a line; `age` in seconds."""
    metrics, value = content["metrics"], ""
    name = published.report(content["task"], {*metrics}, {}).metric.name
    if name in metrics:
        value = f"{name.removeprefix('eval/')} {metrics[name]:.{declared(name).digits}f}"
    units = [("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)]
    unit, seconds = next(((unit, each) for unit, each in units if age >= 2 * each), units[-1])
    steps = f"{step_of(folder, content):,}/{content['config']['train']['steps']:,}"
    return COLUMNS(content["status"], steps, value, f"{age / seconds:.0f} {unit} ago", short_path(folder))


def main(arguments: list[str] | None = None) -> None:
    parser = argument_parser("list", __doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=RESULTS / "runs", metavar="FOLDER")
    folder, now, published = parser.parse_args(arguments).folder, time.time(), Published()
    lines = [COLUMNS("status", "steps", "metric", "written", "folder")]
    with errors_as_exit():
        paths = {path.parent: path.stat().st_mtime for path in folder.rglob("run.json") if not path.is_symlink()}
        for path, changed in sorted(paths.items(), key=lambda each: -each[1]):
            content = read_sealed(path / "run.json")
            if content is None or "progress" not in content:
                lines.append(COLUMNS("unreadable", "", "", "", short_path(path)))
            else:
                lines.append(line(path, content, now - changed, published))
    say("\n".join(map(plain, lines)) if paths else f"{short_path(folder)}: there are no runs")


if __name__ == "__main__":
    main()
