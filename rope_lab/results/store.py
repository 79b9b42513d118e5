"""Two files that change together: a reader sees both as they were or both as they are, whenever a writer is killed.

A writer puts the new CURVES beside, under a name that holds the digest of the new ROWS, then replaces ROWS, then
renames the new CURVES into their place. Replacing ROWS is the commit: curves that are named after the ROWS that are in
place are valid, others were never committed. So readers need no lock and write nothing, and the next writer cleans up.
"""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from rope_lab.files import check_regular, digest, read_file, sync_folder, write_whole

ROWS, CURVES = "rows.csv", "curves.jsonl"
STAGED = re.compile(r"\.curves-[0-9a-f]{16}\.jsonl")
UNFINISHED = re.compile(rf"\.({re.escape(ROWS)}|{STAGED.pattern})\.[0-9a-f]{{16}}\.tmp")  # as `write_whole` names them
PATIENCE = 300  # seconds to wait for another process that writes


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Within it no other process writes the two files in `folder`, and what a killed one left has been cleaned up.

    Raises OSError, also where another process has not finished within PATIENCE.
    """
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=PATIENCE)
    except Timeout:
        raise OSError(errno.EBUSY, f"another process has been writing it for {PATIENCE} s") from None
    try:
        _recover(folder)
        yield
    finally:
        with suppress(OSError):
            if os.lstat(folder / ".lock").st_size == 0:  # a user's own stays
                (folder / ".lock").unlink()  # who waits for it sees that it is gone, and makes another
        lock.release()


def exists(folder: Path) -> bool:
    """Whether one of the two files is there."""
    return any(os.path.lexists(folder / name) for name in (ROWS, CURVES))


def read(folder: Path) -> tuple[bytes, bytes]:
    """The contents of ROWS and CURVES, which belong together. Raises OSError; FileNotFoundError names a missing one."""
    rows = read_file(folder / ROWS)
    while True:
        try:
            curves = read_file(_staged(folder, rows))
        except FileNotFoundError:
            curves = read_file(folder / CURVES)
        before, rows = rows, read_file(folder / ROWS)
        if rows == before:
            return rows, curves


def write(folder: Path, rows: bytes, curves: bytes) -> None:
    """Replaces both files, within `writing`. Raises OSError, and nothing has changed then."""
    check_regular(folder / CURVES)
    staged = _staged(folder, rows)
    write_whole(staged, curves)
    try:
        write_whole(folder / ROWS, rows)
    except OSError:
        if not _is_in_place(folder, rows):
            staged.unlink(missing_ok=True)
            raise
    with suppress(OSError):  # they are committed: from here on they are read, and the next writer finishes
        _finish(folder, staged)


def _is_in_place(folder: Path, rows: bytes) -> bool:
    """Whether ROWS are these already, whatever went wrong."""
    with suppress(OSError):
        return read_file(folder / ROWS) == rows
    return False


def _staged(folder: Path, rows: bytes) -> Path:
    return folder / f".curves-{digest(rows)}.jsonl"


def _finish(folder: Path, staged: Path) -> None:
    check_regular(folder / CURVES)
    os.replace(staged, folder / CURVES)
    sync_folder(folder)


def _recover(folder: Path) -> None:
    """Finishes what a killed writer had committed, and removes what it had not."""
    committed = _staged(folder, read_file(folder / ROWS)) if (folder / ROWS).is_file() else None
    for path in folder.iterdir():
        if path.is_symlink() or not path.is_file():
            continue
        if path == committed:
            _finish(folder, path)
        elif STAGED.fullmatch(path.name) or UNFINISHED.fullmatch(path.name):
            path.unlink()
