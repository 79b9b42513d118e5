"""What was read of run folders, so that those that have not changed since are not read again.

One file for each folder of run folders, in the user's cache folder; it may be deleted at any time. A run is taken from
it while modification time, change time, size and inode of its run.json and metrics.jsonl are what they were when their
digests were checked.
"""

import hashlib
import os
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from rope_lab import compat, identity
from rope_lab.files import digest, read_file, write_whole
from rope_lab.results import metrics, runs
from rope_lab.results.runs import Run

FEWEST = 500  # run folders of which it is kept
CODE = (compat, identity, metrics, runs)  # what makes a run of what is read
Stamp = list[list[int] | None]
Entry = tuple[Stamp, Run, list[str], bool]  # the last two: what is wrong with its curves; whether it has digests
NAMES = [field.name for field in fields(Run)]


def stamp(folder: Path) -> Stamp:
    """By what a change of a run's files is noticed; to be asked for before they are read."""
    found: Stamp = []
    for name in ("run.json", "metrics.jsonl"):
        try:
            s = os.stat(folder / name)
            found.append([s.st_mtime_ns, s.st_ctime_ns, s.st_size, s.st_ino])
        except OSError:
            found.append(None)
    return found


def load(folder: Path) -> dict[str, Entry]:
    """Name of a run folder → what was read of it; nothing where there is no whole cache of this version's."""
    with suppress(OSError, ValueError):
        head, _, body = read_file(_place(folder)).partition(b"\n")
        if head.decode() == f"{_version()} {digest(body)}":
            return {name: (s, _run(values), wrong, ok) for name, s, values, wrong, ok in from_json(body)}
    return {}


def save(folder: Path, entries: dict[str, Entry]) -> None:
    """Keeps these for `load`, where that can be written."""
    lines = [[name, s, [getattr(run, n) for n in NAMES], wrong, ok] for name, (s, run, wrong, ok) in entries.items()]
    with suppress(OSError, ValueError):  # a name that is no text cannot be written
        body = to_json(lines)
        _place(folder).parent.mkdir(parents=True, exist_ok=True)
        write_whole(_place(folder), f"{_version()} {digest(body)}\n".encode() + body)


def _run(values: list[Any]) -> Run:
    """A run as it was when it was checked: its types are not checked again, which would take the longest of all."""
    record = dict(zip(NAMES, values, strict=True))
    record["curves"] = {name: tuple(curve) for name, curve in record["curves"].items()}
    for part in (record["slices"], {k: v for k, v in record["floor"].items() if isinstance(v, dict)}):
        for each in part.values():
            for value, pair in each.items():
                each[value] = tuple(pair)
    run = object.__new__(Run)
    run.__dict__.update(record)
    return run


def _place(folder: Path) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "rope_lab" / "results" / f"{digest(os.fsencode(folder.resolve()))}.json"


def _version() -> str:
    """Of the code that reads."""
    sources = [Path(module.__file__) for module in CODE] + [Path(__file__).with_name("folders.py"), Path(__file__)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
