"""Files that are there whole or not at all, JSON read calmly, and lines for a screen that need not be read."""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """Puts a file in place so that whoever looks, also after a crash or a power cut, sees the old one or the new one.

    Written beside, synced, renamed, the folder synced. Raises OSError where that cannot be.
    """
    beside = path.with_name(path.name + ".tmp")
    try:
        with open(beside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sees to it that what was renamed or removed in a folder stays so after a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append_line(path: Path, content: dict[str, Any]) -> None:
    """Adds an object as a line of JSON, in one write: lines of several processes do not mix. Raises OSError."""
    line = json.dumps(content, allow_nan=False).encode() + b"\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        if os.write(descriptor, line) < len(line):
            raise OSError(28, "No space left on device", str(path))
    finally:
        os.close(descriptor)


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file, or None where there is none or it cannot be read."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def flat(nested: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The leaves of nested objects, each under its whole key: `train.lr`."""
    leaves: dict[str, Any] = {}
    for key, value in nested.items():
        leaves |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return leaves


def say(text: str) -> None:
    """Prints whole lines, in one piece even where several runs print at once.

    Where they cannot be written (a pipe closed, a disk full) work goes on without them; stderr says why, unless it is
    that whoever reads has read enough.
    """
    try:
        print(text + "\n", end="", flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            with suppress(OSError):
                print(f"nothing more is shown here: {error.strerror}", file=sys.stderr, flush=True)
