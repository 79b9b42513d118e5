"""A corpus of text as files of tokens (bytes, characters or byte pairs), made once and mapped into
memory.

A corpus is known by a digest of its bytes. A copy of it and its tokens lie in a folder of that name
in the user's cache (`$XDG_CACHE_HOME/rope_lab`, `~/.cache/rope_lab` by default), out of reach of
later changes of its files.
"""

import codecs
import functools
import glob
import hashlib
import logging
import os
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
from filelock import FileLock

from rope_lab.text import ConfigError, MissingText

from .coders import CODERS, Coder, Kind

log = logging.getLogger(__name__)

BLOCK = 2**16  # bytes that are read at once
HELD_OUT_SHARE, MOST_HELD_OUT = 10, 2**18  # the last tenth is held out, at most so many bytes
LEARNED = 2**28  # bytes from which byte pairs are learned, at most


def cache() -> Path:
    """The folder of copies and tokens of corpora. Raises RuntimeError if there is no home
    folder.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "rope_lab"


def locate(path: str) -> list[Path]:
    """The files of a corpus: one file, those in a folder except hidden ones and runs, or those of a
    pattern.

    A file with several names (links) counts once. Raises ConfigError if there is no text.
    """
    given = Path(path).expanduser()
    if path and given.is_dir():
        found = _inside(given)
    else:
        found = [given, *map(Path, glob.glob(str(given), recursive=True))]
    named = sorted({p.resolve() for p in found if p.is_file()})
    by_inode: dict[tuple[int, int], Path] = {}
    for file in named:
        status = file.stat()
        by_inode.setdefault((status.st_dev, status.st_ino), file)
    files = list(by_inode.values())
    if not any(file.stat().st_size for file in files):
        hint = (
            "name a file, a folder or a pattern; the files of conf/corpus say where texts are from"
        )
        raise MissingText(f"path={path}: there is no text; {hint}")
    return files


def _inside(folder: Path) -> list[Path]:
    """Everything in a folder but hidden files and the folders of runs."""
    found, runs = list[Path](), set[Path]()
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        if any(part.startswith(".") for part in parts):
            continue
        found.append(path)
        if path.name == "run.json":
            runs |= {path.parent, path.parent.parent}
    runs.discard(folder)
    return [path for path in found if runs.isdisjoint(path.parents)]


def register(path: str | None) -> str:
    """The digest of a corpus, 16 hexadecimal digits; copies it into the cache.

    Raises ConfigError if that fails.
    path: None: the sources of Python's standard library
    """
    try:
        files = _library() if path is None else locate(path)
        if path is not None:
            _warn_of_copies(files)
        digest = hashlib.sha256()
        for piece in _pieces(files):
            digest.update(piece)
        folder = cache() / digest.hexdigest()[:16]
        if not (folder / "text").exists():
            folder = _copy(files, folder)
        if path is not None:
            _warn_of_bytes(folder)
        with suppress(OSError):  # a read-only cache may have all that is needed
            name = os.path.basename(os.path.abspath(path)) if path else "Python's standard library"
            (folder / "name").write_text(name, "utf-8")
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"path={path}: {error}") from None
    return folder.name


@functools.cache
def warn(message: str) -> None:
    """Log a warning, once in a process."""
    log.warning(message)


def _copy(files: list[Path], expected: Path) -> Path:
    """Copy a corpus into the cache; returns the folder named by the digest of the copied bytes.

    That is `expected`, unless the files have changed since they were first read.
    """
    expected.mkdir(parents=True, exist_ok=True)
    with FileLock(expected / "text.lock"):
        if (expected / "text").exists():
            return expected
        part = expected / "text.part"
        digest = hashlib.sha256()
        with part.open("wb") as copy:
            for piece in _pieces(files):
                digest.update(piece)
                copy.write(piece)
            copy.flush()
            os.fsync(copy.fileno())
        folder = cache() / digest.hexdigest()[:16]
        folder.mkdir(exist_ok=True)
        if folder != expected:
            warn("the corpus changed while it was read; this run uses it as it was then")
        if odd := next((file for file in files if not _is_utf8(file)), None):
            (folder / "odd").write_text(odd.name, "utf-8")
        part.replace(folder / "text")
        return folder


def _warn_of_bytes(folder: Path) -> None:
    """Warn if a file of a cached corpus was not UTF-8."""
    with suppress(OSError):
        odd = (folder / "odd").read_text("utf-8")
        warn(f"{odd} is not UTF-8 text, and is read as bytes all the same: convert or unpack it")


def _warn_of_copies(files: list[Path]) -> None:
    """Warn of a file with the same content as another."""
    sizes = Counter(file.stat().st_size for file in files)
    seen: dict[bytes, Path] = {}
    for file in files:
        size = file.stat().st_size
        if size == 0 or sizes[size] == 1:
            continue
        with file.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").digest()
        first = seen.setdefault(digest, file)
        if first != file:
            warn(f"{file} is a copy of {first}: held-out text may be trained on; remove one")
            return


def name(corpus: str) -> str:
    """The name of the file, folder or pattern of a corpus; empty if it is not known here."""
    with suppress(OSError, RuntimeError):
        return (cache() / corpus / "name").read_text("utf-8")
    return ""


def read(
    corpus: str, kind: Kind, vocabulary: int, context: int, name: str
) -> tuple[np.ndarray, np.ndarray, Coder]:
    """The tokens of the training and of the held-out part, uint8, uint16 or uint32 [N], and their
    coder.

    Raises ConfigError if the corpus is not known here, is too small for windows of `context`
    tokens, or has other text.
    """
    folder = cache() / corpus
    stem = {"bpe": f"bpe-{vocabulary}", "characters": "all-characters"}.get(kind, kind)
    source = folder / "text"
    if not source.exists():
        hint = (
            f"run its training command again with task.path=…/{name}" if name else "set task.path"
        )
        raise ConfigError(f"corpus={corpus}: there is no copy of its text in {cache()}; {hint}")
    text = np.memmap(source, np.uint8, "r")
    split = _character(text, len(text) - min(len(text) // HELD_OUT_SHARE, MOST_HELD_OUT))
    learned_from = _character(text, min(split, LEARNED)) if kind == "bpe" else len(text)
    sides = {"training": (0, split, 2 * context + 1), "held-out": (split, len(text), context + 1)}
    parts = []
    try:
        learned = _once(
            folder / f"{stem}-coder",
            CODERS[kind].learn(_blocks(source, 0, learned_from), vocabulary),
        )
        coder = CODERS[kind](learned.read_bytes().decode())
        for side, (begin, end, least) in sides.items():
            part = text[begin:end]
            if kind != "bytes" and len(part) >= least:
                tokens = map(coder.encode, _blocks(source, begin, end))
                part = np.memmap(_once(folder / f"{stem}-{side}", tokens), coder.dtype, "r")
            if len(part) < least:
                has = f"its {side} part has at most {len(part):,} tokens"
                needs = f"context={context} needs {least:,}"
                raise ConfigError(f"path={name}: the corpus is too small: {has}, {needs}")
            parts.append(part)
    except UnicodeDecodeError as error:
        at = error.object[error.start :][:20]
        raise ConfigError(
            f"tokens={kind}: {name} is not UTF-8, at {at!r}; use task.tokens=bytes"
        ) from None
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"corpus={corpus}: {error}") from None
    return *parts, coder


def _once(path: Path, pieces: Iterable[bytes | np.ndarray]) -> Path:
    """A file of the cache, written by one process if it is not there."""
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if path.exists():
            return path
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        return part.replace(path)


def _pieces(files: Iterable[Path]) -> Iterator[bytes]:
    """The bytes of files, one after the other."""
    for path in files:
        with path.open("rb") as file:
            while piece := file.read(BLOCK):
                yield piece


def _blocks(path: Path, begin: int, end: int) -> Iterator[bytes]:
    """Part of a file in blocks of whole lines, so that tokens do not depend on the blocks."""
    with path.open("rb") as file:
        file.seek(begin)
        while begin < end:
            block = b"".join(file.readlines(BLOCK))[: end - begin]
            begin += len(block)
            yield block


def _character(text: np.ndarray, at: int) -> int:
    """The last place at or before `at` where a character of UTF-8 begins."""
    return next(
        (
            at - back
            for back in range(4)
            if back <= at < len(text) and text[at - back] & 0xC0 != 0x80
        ),
        at,
    )


def _is_utf8(path: Path) -> bool:
    """Whether a file is text in UTF-8, without NUL bytes."""
    try:
        return not any("\0" in part for part in codecs.iterdecode(_pieces([path]), "utf-8"))
    except UnicodeDecodeError:
        return False


def _library() -> list[Path]:
    """The sources of Python's standard library, in an order that mixes its packages."""
    root = Path(sysconfig.get_path("stdlib"))
    elsewhere = {"site-packages", "dist-packages", "__pycache__"}
    found = [
        path
        for path in root.rglob("*.py")
        if not elsewhere & set(path.relative_to(root).parts) and _is_utf8(path)
    ]
    return sorted(found, key=lambda p: hashlib.sha256(str(p.relative_to(root)).encode()).digest())
