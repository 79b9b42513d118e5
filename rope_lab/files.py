"""Atomic writes that follow no link, and JSON records that carry a digest of themselves."""

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from filelock import SoftFileLease

from rope_lab.text import ConfigError, Record

FORMAT, DIGEST = "format", "digest"  # keys of a sealed record
VERSION = 2  # of its format
BEAT = 10.0  # seconds between two signs of life of a process that holds a lock
PATIENCE = 60.0  # seconds without one until others take over
NOT_OURS = "was not written by this command, and stays; move it away"


def lease(folder: Path) -> SoftFileLease:
    """The lock of a folder, which also machines that share its disk respect."""
    return SoftFileLease(
        folder / ".lock", lease_duration=PATIENCE, heartbeat_interval=BEAT, thread_local=False
    )


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """Write a file atomically: a reader sees the old content or the new one, also after a crash.

    Raises OSError, also if `path` is a link, which is neither followed nor replaced, or not a
    regular file.
    """
    check_regular(path)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(beside, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException as error:
        with suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError):
            # The error of a full disk names no file, other errors the temporary one.
            error.filename = str(path)
        raise


def remove_temporary(folder: Path) -> None:
    """Remove the temporary files that a killed `write_whole` has left in a folder."""
    for path in folder.glob(f".*.{16 * '[0-9a-f]'}.tmp"):
        if path.is_file() and not path.is_symlink():
            path.unlink(missing_ok=True)


def check_regular(path: Path) -> None:
    """Raise OSError unless `path` is a regular file or does not exist."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise OSError(22, "is a link or not a regular file; nothing is written there", str(path))


def check_ours(path: Path, begin: str) -> None:
    """Raise ConfigError if there is a file of that name that begins otherwise, so that another
    wrote it.
    """
    if path.exists() and not path.read_bytes().startswith(begin.encode()):
        raise ConfigError(f"{path}: {NOT_OURS}")


def check_writable(folder: Path) -> None:
    """Raise ConfigError if a folder can neither be made nor written to."""
    there = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    if not (there.is_dir() and os.access(there, os.W_OK)):
        remedy = "choose another folder, out=FOLDER or --out FOLDER"
        raise ConfigError(f"{folder}: cannot be written; {remedy}")


def make_folder(folder: Path) -> None:
    """Make a folder if it does not exist. Raises OSError if a link or a file stands in its
    place.
    """
    if folder.is_symlink():
        raise OSError(40, "is a symbolic link, which is not followed", str(folder))
    folder.mkdir(exist_ok=True)


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files, by their names, into a folder, which is made if it does not exist."""
    make_folder(folder)
    for name, content in contents.items():
        write_whole(folder / name, content)


def digest(content: bytes | memoryview) -> str:
    """The first 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(content).hexdigest()[:16]


def digest_of(path: Path) -> str:
    """`digest` of a file's content, however large it is. Raises OSError."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def damaged(folder: Path, digests: dict[str, str]) -> list[str]:
    """The names of files in a folder whose content does not match their digest; those that are not
    there are not damaged. Raises OSError.
    """
    changed = []
    for name, expected in digests.items():
        if (folder / name).is_file() and digest_of(folder / name) != expected:
            changed.append(name)
    return changed


def sealed(content: Record, version: int = VERSION) -> Record:
    """`content` with its format and a digest, so that `read_sealed` notices a change."""
    plain = {FORMAT: version} | {key: value for key, value in content.items() if key != DIGEST}
    return plain | {DIGEST: digest(json.dumps(plain, allow_nan=False).encode())}


def as_json(content: Record) -> bytes:
    """An object as readable JSON."""
    return json.dumps(content, indent=2, allow_nan=False).encode() + b"\n"


def read_sealed(path: Path) -> Record | None:
    """The record in a JSON file; None if it is unreadable or does not match its digest. Raises
    ConfigError.
    """
    if not path.is_file():  # nor read from a pipe
        return None
    try:
        content = json.loads(path.read_bytes())
        if content.get(FORMAT, VERSION) == VERSION:
            return content if content == sealed(content) else None
    except (OSError, ValueError, RecursionError, AttributeError):
        return None
    raise ConfigError(
        f"{path}: has format {content[FORMAT]}, not {VERSION}: "
        "read it with the version that wrote it"
    )
