"""Atomic writes that follow no link, and records that carry a digest of themselves."""

import errno
import fcntl
import functools
import hashlib
import json
import logging
import math
import os
import re
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")  # the names of files that `write_whole` had not finished
UNSYNCED = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM, errno.ENOSYS)
FORMAT, DIGEST = "format", "digest"  # keys of a sealed file; those written before had neither
VERSION = 2  # of the format; 1 had ids that no later version works out


def write_whole(path: Path, content: bytes | memoryview, within: Path | None = None) -> None:
    """Puts a file in place so that whoever looks, also after a crash or a power cut, sees the old one or the new one.

    Written under a random name beside it, or `within` another folder of its file system, synced, renamed, the folder
    synced. Raises OSError where that cannot be, or where `path` is anything but a regular file: a link is neither
    followed nor replaced.
    """
    check_regular(path)
    beside = (within or path.parent) / f".{path.name}.{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with open(os.open(beside, flags, 0o666), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def check_regular(path: Path) -> None:
    """Raises OSError where `path` is there and is no regular file: a link, a folder, a pipe."""
    with suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            raise OSError(errno.ELOOP, "is a symbolic link, which is neither followed nor replaced", str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "is not a regular file", str(path))


def make_folder(folder: Path) -> None:
    """Makes a folder in one that is there. Raises OSError where a link stands in its place, which is not followed."""
    folder.mkdir(exist_ok=True)
    check_folder(folder)


def check_folder(folder: Path) -> None:
    """Raises OSError where a link, which is not followed, or a file stands in its place; nothing may stand there."""
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "is a symbolic link, which is not followed", str(folder))
    if folder.exists() and not folder.is_dir():
        raise OSError(errno.ENOTDIR, "is no folder", str(folder))


def read_file(path: Path, most: float = math.inf) -> bytes:
    """The content of a regular file of at most so many bytes, or of one that `path` links to.

    Raises OSError, also where reading might wait.
    """
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    if found.st_size > most:
        raise OSError(errno.EFBIG, f"has {found.st_size:,} bytes: at most {most:,} are read", str(path))
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        content = file.read()
    if content is None:  # files of /proc may have nothing to read yet
        raise OSError(errno.EAGAIN, "reading it would wait", str(path))
    return content


def newest_run(folder: Path) -> Path | None:
    """The run folder that may be meant by `folder`, which is none: the one that it lies in, or the newest near it."""
    if (folder.parent / "run.json").is_file():
        return folder.parent
    places = [folder, folder / "runs", folder / "results" / "runs"] if folder.is_dir() else [folder.parent]
    found = [path for place in places for path in place.glob("*/run.json") if path.is_file()]
    return max(found, key=lambda path: path.stat().st_mtime).parent if found else None


def remove_temporary(folder: Path) -> None:
    """Removes what `write_whole` left in a folder when its process was killed."""
    for path in folder.glob(".*.tmp"):
        if TEMPORARY.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            path.unlink()


def sync_folder(folder: Path) -> None:
    """Sees to it that what was renamed or removed in a folder stays so after a power cut.

    Warns, once, where its file system syncs no folders, as some network file systems do not.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in UNSYNCED:
            raise
        _warn_unsynced(error.strerror)
    finally:
        os.close(descriptor)


@functools.cache
def _warn_unsynced(reason: str) -> None:
    log.warning("this file system cannot sync a folder (%s): a power cut may undo the last writes", reason)


def append_line(path: Path, content: dict[str, Any], check: Callable[[], None] = lambda: None) -> None:
    """Adds an object as a line of JSON, in one write: lines of several processes do not mix. Raises OSError.

    check: called once the file is open, before anything is written
    """
    line = json.dumps(content, allow_nan=False).encode() + b"\n"
    check_regular(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        check()
        if os.write(descriptor, line) < len(line):
            raise OSError(28, "No space left on device", str(path))
    finally:
        os.close(descriptor)


def lock(path: Path, kind: int) -> int:
    """The descriptor of a file, which is made if need be, and locked while that is open. Raises OSError.

    kind: of `fcntl.flock`; with LOCK_NB it raises BlockingIOError where another process has locked the file
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(descriptor, kind)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def digest(content: bytes | memoryview) -> str:
    """The first 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(content).hexdigest()[:16]


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """`content` with a digest of itself, by which `read_sealed` notices any changed bit."""
    plain = {FORMAT: VERSION} | {key: value for key, value in content.items() if key != DIGEST}
    return plain | {DIGEST: digest(json.dumps(plain, allow_nan=False).encode())}


def as_json(content: dict[str, Any]) -> bytes:
    """An object as a file that people can read too."""
    return json.dumps(content, indent=2, allow_nan=False).encode() + b"\n"


def read_sealed(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None where there is none, it cannot be read, or it is not what its digest says.

    A file without a digest, as they were written before there were digests, is taken as it is.
    """
    try:
        found = read_file(path)
        content = json.loads(found)
        if not isinstance(content, dict):
            return None
        again = as_json(sealed(content))  # raises ValueError at numbers that are not finite, which no record has
        if is_sealed(content) and again != found:
            return None
    except (OSError, ValueError, RecursionError, MemoryError):
        return None
    return content


def is_sealed(content: dict[str, Any]) -> bool:
    """Whether an object was read from a file that says what its digest is, or should."""
    return DIGEST in content or FORMAT in content
