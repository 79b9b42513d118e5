"""List runs, newest first: `rope-lab list [FOLDER]` (default: results/runs).

Of each run: status, steps, its task's main metric, when run.json was written, folder, and the
settings in which the runs of its task and scheme differ. `interrupted?`: it has not recorded its
end, and no process has given a sign of life for a minute.
"""

import json
import math
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

from rope_lab.files import PATIENCE, read_sealed
from rope_lab.identity import identify
from rope_lab.places import RESULTS, RUNS
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.measures import MEASURES
from rope_lab.text import (
    ConfigError,
    Record,
    Words,
    argument_parser,
    errors_as_exit,
    filled,
    plain,
    say,
    screen_width,
    short_path,
    show,
    written,
)

COLUMNS = "{:<12}  {:>15}  {:<20}  {:>16}".format


def find(folder: Path) -> list[Path]:
    """The run.json of each run below a folder, newest first. A run that is reached by a link
    counts, once.
    """
    paths = {}
    for path in [*folder.glob("*/run.json"), *folder.rglob("run.json")]:
        if not path.parent.name.startswith("."):  # there a run keeps what it is about to replace
            paths.setdefault(path.resolve(), path)
    return sorted(paths.values(), key=changed, reverse=True)


def changed(path: Path) -> float:
    """When a file was written, in seconds since 1970; 0 without the file."""
    return path.stat().st_mtime if path.exists() else 0.0


def read(path: Path) -> Record | None:
    """The content of a run.json; None if it is damaged or of another format."""
    with suppress(ConfigError):
        return read_sealed(path)
    return None


def columns(path: Path, content: Record | None, catalogue: Catalogue) -> str:
    """Status, steps, metric and date of a run."""
    written = time.strftime("%Y-%m-%d %H:%M", time.localtime(changed(path)))
    if content is None:
        return COLUMNS("unreadable", "", "", written)
    status = content["status"]
    done = content["progress"]["steps"]
    if status == "running":  # run.json is written at the start and the end
        done = last_step(path.with_name("metrics.jsonl"))
        if time.time() - changed(path.with_name(".lock")) > PATIENCE:
            status = "interrupted?"
    metrics, metric = content["metrics"], ""
    name = catalogue.report(content["task"], set(metrics), {}).measure.metric
    if name in metrics:
        value = f"{metrics[name]:.{MEASURES[name].digits}f}"
        metric = f"{name.removeprefix('eval/')} {value}"
    return COLUMNS(status, f"{done:,}/{content['config']['train']['steps']:,}", metric, written)


def last_step(metrics: Path) -> int:
    """The step of the last whole line of a metrics.jsonl; 0 without one."""
    with suppress(OSError, ValueError, LookupError):
        whole_lines = metrics.read_bytes().rpartition(b"\n")[0]
        return json.loads(whole_lines.splitlines()[-1])["step"]
    return 0


def settings_of(content: Record) -> list[str]:
    """The settings of a run, as one types them, and the digest of the user's own files."""
    settings = identify("", "", 0, content["config"]).settings | {"scale": content["scale"]}
    for group, digest in content["provenance"].get("plugin", {}).items():
        settings[f"code of its {group}"] = digest
    return [f"{key}={written(value)}" for key, value in settings.items()]


def table(paths: list[Path]) -> str:
    """The list of runs; in a terminal, folder and settings stand below."""
    catalogue = Catalogue()
    contents = {path: read(path) for path in paths}
    settings, alike = {}, defaultdict(list)
    for path, content in contents.items():
        if content:
            settings[path] = settings_of(content)
            alike[content["task"], content["position"]].append(set(settings[path]))
    lines = [row(COLUMNS("status", "steps", "metric", "written"), "folder")]
    for path, content in contents.items():
        own = []
        if content:
            shared = set.intersection(*alike[content["task"], content["position"]])
            own = [show(setting) for setting in settings[path] if setting not in shared]
        where = plain("  ".join([short_path(path.parent), *own]))
        lines.append(row(columns(path, content, catalogue), where))
    return "\n".join(lines)


def row(columns: str, where: str) -> str:
    """A row of the list: columns, then folder and settings, in a terminal below them."""
    if screen_width() == math.inf:
        return f"{columns}  {where}"
    return filled(f"{columns}\n    {where}", indent="      ")


@errors_as_exit()
def main(arguments: Words = None) -> None:
    parser = argument_parser("list", __doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=RESULTS / RUNS, metavar="FOLDER")
    folder = parser.parse_args(arguments).folder
    if not folder.is_dir() and folder != RESULTS / RUNS:
        raise ConfigError(f"{folder}: is not a folder")
    paths = find(folder)
    say(table(paths) if paths else f"{short_path(folder)}: there are no runs")
