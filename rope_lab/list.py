"""List runs, newest first: `rope-lab list [FOLDER]` (default: results/runs).

Of each run: status, steps, its task's main metric, when run.json was written, folder, and the
settings in which the runs of its task and scheme differ. `interrupted?`: no process trains the run
any more, and it has not recorded its end.
"""

import json
import os
import shutil
import socket
import sys
import textwrap
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import SoftFileLease

from rope_lab import command
from rope_lab.files import read_sealed
from rope_lab.identity import BACKFILLED, GROUPS, general
from rope_lab.places import RESULTS
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.measures import declared
from rope_lab.text import (
    ConfigError,
    argument_parser,
    errors_as_exit,
    flat,
    plain,
    say,
    short_path,
    show,
)

COLUMNS = "{:<12}  {:>15}  {:<20}  {:>16}".format
BEAT_LOST = 60.0  # seconds without a sign of life of another machine's run


@dataclass(frozen=True)
class Listed:
    """A run folder; content: of its run.json, None if that is unreadable."""

    folder: Path
    changed: float  # when run.json was written, in seconds since 1970
    content: dict[str, Any] | None

    def line(self, published: Published) -> str:
        """Status, steps, metric and date in columns."""
        written = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.changed))
        if self.content is None:
            return COLUMNS("unreadable", "", "", written)
        steps = f"{self._steps_done():,}/{self.content['config']['train']['steps']:,}"
        return COLUMNS(self._status(), steps, self._metric(published), written)

    def _status(self) -> str:
        status = self.content["status"]
        return "interrupted?" if status == "running" and not is_held(self.folder) else status

    def _steps_done(self) -> int:
        if self.content["status"] == "running":  # run.json is written at the start and the end
            with suppress(OSError, ValueError, LookupError):  # no whole line
                whole_lines = (self.folder / "metrics.jsonl").read_bytes().rpartition(b"\n")[0]
                return json.loads(whole_lines.splitlines()[-1])["step"]
        return self.content["progress"]["steps"]

    def _metric(self, published: Published) -> str:
        metrics = self.content["metrics"]
        name = published.report(self.content["task"], {*metrics}, {}).measure.metric
        if name not in metrics:
            return ""
        return f"{name.removeprefix('eval/')} {metrics[name]:.{declared(name).digits}f}"


def is_held(folder: Path) -> bool:
    """Whether a process trains the run in `folder` now."""
    lock = folder / ".lock"
    owner = SoftFileLease(lock).owner
    if owner is None:
        return False
    if owner.hostname != socket.gethostname():
        with suppress(OSError):
            return time.time() - lock.stat().st_mtime < BEAT_LOST
        return False
    try:
        os.kill(owner.pid, 0)  # sends nothing
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def find(folder: Path) -> list[Listed]:
    """The runs below a folder, newest first. A run that is reached by a link counts, once."""
    files = {}
    for path in [*folder.glob("*/run.json"), *folder.rglob("run.json")]:
        if not path.parent.name.startswith("."):  # there a run keeps what it is about to replace
            files.setdefault(path.parent.resolve(), path)
    found = []
    for path in files.values():
        content = None
        with suppress(ConfigError):  # of another format
            content = read_sealed(path)
        if content is not None and "progress" not in content:
            content = None
        found.append(Listed(path.parent, path.stat().st_mtime, content))
    return sorted(found, key=lambda run: -run.changed)


def differences(contents: Iterable[dict[str, Any]]) -> dict[str, str]:
    """For each run id, the settings that not all runs of its task and scheme share.

    contents: of run.json
    """
    of_scheme = defaultdict(list)
    for content in contents:
        of_scheme[content["task"], content["position"]].append(content)
    texts = {}
    for alike in of_scheme.values():
        settings = [_settings(content) for content in alike]
        shared = set.intersection(*(set(each.items()) for each in settings))
        for content, own in zip(alike, settings, strict=True):
            words = [f"{key}={value}" for key, value in own.items() if (key, value) not in shared]
            texts[content["run_id"]] = " ".join(words)
    return texts


def _settings(content: dict[str, Any]) -> dict[str, str]:
    """The settings of a run, as one types them, and the digest of the user's own files."""
    settings = {"scale": content["scale"]}
    recorded = flat(content["config"])
    defaults = {key: value for key, value in BACKFILLED.items() if not key.startswith("position.")}
    for key, value in (defaults | recorded).items():
        group = key.partition(".")[0]
        backfilled = general(key) in BACKFILLED and value == BACKFILLED[general(key)]
        if group in GROUPS and not (key.startswith("position.") and backfilled):
            settings[key] = show(value)
    for group, digest in content["provenance"].get("plugin", {}).items():
        settings[f"code of its {group}"] = digest
    return settings


def table(runs: list[Listed], width: int | None) -> str:
    """The list of runs. Folder and settings stand below if a line would be longer than `width`."""
    published = Published()
    texts = differences(run.content for run in runs if run.content)
    lines = [(COLUMNS("status", "steps", "metric", "written"), "folder", "")]
    for run in runs:
        settings = texts[run.content["run_id"]] if run.content else ""
        lines.append((run.line(published), short_path(run.folder), settings))
    whole = [plain("  ".join(line).rstrip()) for line in lines]
    if width is None or max(map(len, whole)) <= width:
        return "\n".join(whole)
    narrow = [lines[0][0]]
    for columns, folder, settings in lines[1:]:
        below = f"{plain(folder)}  {plain(settings)}".rstrip()
        narrow.append(columns.rstrip())
        narrow += textwrap.wrap(
            below,
            width,
            initial_indent="  ",
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(narrow)


def main(arguments: list[str] | None = None) -> None:
    parser = argument_parser("list", __doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=RESULTS / "runs", metavar="FOLDER")
    folder = parser.parse_args(arguments).folder
    with errors_as_exit():
        if not folder.is_dir() and folder != RESULTS / "runs":
            problem = "is a file" if folder.exists() else "no such folder"
            raise ConfigError(f"{folder}: {problem}")
        runs = find(folder)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    say(table(runs, width) if runs else f"{short_path(folder)}: there are no runs")


if __name__ == "__main__":
    command.begin()
    main()
