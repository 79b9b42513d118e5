"""List runs, newest first: `rope-lab list [FOLDER]` (default: results/runs).

One line per run: status, steps, its task's main metric, when run.json was written, and folder.
"""

import json
import time
from contextlib import suppress
from pathlib import Path

from rope_lab import command
from rope_lab.files import read_sealed
from rope_lab.places import RESULTS
from rope_lab.results.metrics import declared
from rope_lab.results.published import Published
from rope_lab.text import ConfigError, argument_parser, errors_as_exit, plain, say, short_path

COLUMNS = "{:<11}  {:>15}  {:<22}  {:>16}  {}".format


def line(folder: Path, written: str, published: Published) -> str:
    """One run as a line."""
    content = None
    with suppress(ConfigError):  # of another format
        content = read_sealed(folder / "run.json")
    if content is None or "progress" not in content:
        return COLUMNS("unreadable", "", "", written, short_path(folder))
    metrics, value = content["metrics"], ""
    name = published.report(content["task"], {*metrics}, {}).metric.name
    if name in metrics:
        value = f"{name.removeprefix('eval/')} {metrics[name]:.{declared(name).digits}f}"
    done = content["progress"]["steps"]
    if content["status"] == "running":  # run.json is written at the start and end
        with suppress(OSError, ValueError, LookupError):  # no whole line
            done = json.loads(
                (folder / "metrics.jsonl").read_bytes().rpartition(b"\n")[0].splitlines()[-1]
            )["step"]
    steps = f"{done:,}/{content['config']['train']['steps']:,}"
    return COLUMNS(content["status"], steps, value, written, short_path(folder))


def main(arguments: list[str] | None = None) -> None:
    parser = argument_parser("list", __doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=RESULTS / "runs", metavar="FOLDER")
    folder, published = parser.parse_args(arguments).folder, Published()
    lines = [COLUMNS("status", "steps", "metric", "written", "folder")]
    with errors_as_exit():
        if not folder.is_dir() and folder != RESULTS / "runs":
            raise ConfigError(f"{folder}: {'is a file' if folder.exists() else 'no such folder'}")
        paths = {
            path.parent: path.stat().st_mtime
            for path in folder.rglob("run.json")
            if not path.is_symlink()
        }
        for path, changed in sorted(paths.items(), key=lambda each: -each[1]):
            lines.append(
                line(path, time.strftime("%Y-%m-%d %H:%M", time.localtime(changed)), published)
            )
    say("\n".join(map(plain, lines)) if paths else f"{short_path(folder)}: there are no runs")


if __name__ == "__main__":
    command.begin()
    main()
