"""A corpus of text as files of tokens: read in pieces, split once, and mapped into memory rather than loaded.

A corpus is known by a digest of its bytes. What is worked out of it lies in a folder of that name in the user's cache
(`$XDG_CACHE_HOME/rope_lab`, `~/.cache/rope_lab` by default): where its files are, and its tokens, made once.
"""

import codecs
import fcntl
import glob
import hashlib
import json
import logging
import os
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasks import coders
from tasks.coders import Kind

log = logging.getLogger(__name__)

PIECE = 2**22  # bytes that are read at once
LARGE = 2**26  # bytes that are not tokenized without a word
HELD_OUT_SHARE, MOST_HELD_OUT = 10, 2**18  # the last tenth is held out, and at most so many bytes
SIDES = ("training", "held_out")
KNOWN = ("digest", "files", "state")  # what is noted of a corpus
NOTHING = {"bytes": 0, "tokens": 0, "whole": False}  # what is tokenized of a part before it begins


@dataclass(frozen=True)
class Tokens:
    """The tokens of a corpus.

    training, held_out: uint8, uint16 or uint32 [N], mapped into memory
    alphabet:           what each token is written as; of bytes, latin-1 characters
    held_out_bytes:     how many bytes the held-out tokens are
    """

    training: np.ndarray
    held_out: np.ndarray
    alphabet: list[str]
    held_out_bytes: int


def cache() -> Path:
    """The folder of what is worked out of corpora."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rope_lab"


def locate(path: str | None) -> list[Path]:
    """The files of a corpus: a file, all in a folder, or those that a pattern fits, by name; of None, Python's library.

    Raises ValueError where there are none.
    """
    if path is None:
        return _library()
    if not path:
        raise ValueError("path: is empty; leave it out for the sources of Python's standard library")
    given = Path(path).expanduser()
    if given.is_dir():
        found = [Path(folder) / name for folder, _, names in os.walk(given) for name in names]
        found = [p for p in found if not any(part.startswith(".") for part in p.relative_to(given).parts)]
    else:
        found = [given] if given.is_file() else [Path(p) for p in glob.glob(str(given), recursive=True)]
    files = sorted(p.resolve() for p in found if p.is_file())
    if not files and given.exists():
        raise ValueError(f"path={path}: {'holds no file' if given.is_dir() else 'is not a regular file'}")
    if not files:
        raise ValueError(
            f"path={path}: there is no such file or folder, and no file fits it as a pattern; "
            "python scripts/get_corpus.py downloads those of conf/corpus"
        )
    return files


def place(digest: str) -> str:
    """Where the first file of a registered corpus lies, and how many more there are."""
    first, *more = _read(cache() / digest / "files.json", *KNOWN)["files"]
    return f"{first} and {len(more)} more" if more else first


def _library() -> list[Path]:
    """The sources of Python's standard library that are UTF-8, in an order that mixes its packages."""
    root = Path(sysconfig.get_path("stdlib"))
    elsewhere = {"site-packages", "dist-packages", "__pycache__"}
    found = [p for p in root.rglob("*.py") if not elsewhere & set(p.relative_to(root).parts)]
    if not found:
        raise ValueError(f"path=null: {root} holds no sources of Python's standard library; set task.path=FILE")
    return sorted(found, key=lambda p: hashlib.sha256(str(p.relative_to(root)).encode()).digest())


def register(path: str | None) -> str:
    """The digest of a corpus, 16 hexadecimal digits; notes where it lies. Raises ValueError where it cannot be read.

    The bytes are read where a file is new here or its size or time has changed.
    """
    files = locate(path)
    with _readable(path):
        state = _state(files)
        known = cache() / "known" / f"{hashlib.sha256(json.dumps([path, state]).encode()).hexdigest()[:32]}.json"
        before = _read(cache() / "known" / f"{hashlib.sha256(str(path).encode()).hexdigest()[:32]}-last.json", *KNOWN)
        content = _read(known, *KNOWN)
        if content is None:
            if path is None:
                files = [p for p in files if _is_utf8(p)]
                state = _state(files)
            digest = hashlib.sha256()
            for piece in pieces(files):
                digest.update(piece)
            content = {"digest": digest.hexdigest()[:16], "files": [str(p) for p in files], "state": state}
            _write(known, content)
        _write(known.with_name(f"{hashlib.sha256(str(path).encode()).hexdigest()[:32]}-last.json"), content)
        _write(cache() / content["digest"] / "files.json", content)
    if before is not None and before["digest"] != content["digest"]:
        log.warning(
            "path=%s has changed: corpus %s before, %s now; runs on the two are different runs",
            *(path, before["digest"], content["digest"]),
        )
    return content["digest"]


def tokens(digest: str, kind: Kind, vocabulary: int) -> Tokens:
    """The tokens of a registered corpus, made first if they are not there; `vocabulary`: how many, of `bpe`.

    Raises ValueError where the corpus is not known here, has changed, or cannot be read in this way.
    """
    folder = cache() / digest
    known = _read(folder / "files.json", *KNOWN)
    if known is None:
        raise ValueError(f"corpus={digest}: is not known on this machine; train with task.path=… of it once")
    files = [Path(p) for p in known["files"]]
    with _readable(None):
        state = _state(files)
        if state != known["state"]:
            now = hashlib.sha256()
            for piece in pieces(files):
                now.update(piece)
            if now.hexdigest()[:16] != digest:
                raise ValueError(f"corpus={digest}: its files have changed since, they are {now.hexdigest()[:16]} now")
        total = sum(p.stat().st_size for p in files)
        split = _boundary(files, total - min(total // HELD_OUT_SHARE, MOST_HELD_OUT))
        parts = {"training": (0, split), "held_out": (split, total)}
        if kind == "bytes" and len(files) == 1 and total:
            whole = np.memmap(files[0], np.uint8, "r")
            return Tokens(whole[:split], whole[split:], [chr(i) for i in range(256)], total - split)
        name = _name(kind, vocabulary)
        try:
            with _alone(folder / f".{name}.lock"), _unchanged(files, state, folder, name):
                coder = _coder(kind, folder / f"{name}.json", files, split, vocabulary)
                found = [_token_file(folder / f"{name}-{side}", files, parts[side], coder, side) for side in SIDES]
        except UnicodeDecodeError as error:
            where = next((p for p in files if not _is_utf8(p)), files[0])
            raise ValueError(f"tokens={kind}: {where} is not UTF-8 ({error.reason}): use task.tokens=bytes") from None
    return Tokens(*found, coder.alphabet, total - split)


def pieces(files: Iterable[Path], begin: int = 0, end: float = np.inf, size: int = PIECE) -> Iterator[bytes]:
    """The bytes `begin` to `end` of files one after the other, in pieces of at most `size`."""
    at = 0
    for path in files:
        length = path.stat().st_size
        if at + length > begin and at < end:
            with path.open("rb") as file:
                file.seek(max(0, begin - at))
                left = min(end, at + length) - max(begin, at)
                while left > 0 and (piece := file.read(int(min(size, left)))):
                    left -= len(piece)
                    yield piece
        at += length


def learned_pairs(digest: str, vocabulary: int) -> Any:
    """The `tokenizers.Tokenizer` of a corpus whose tokens have been made."""
    return coders.Pairs((cache() / digest / f"{_name('bpe', vocabulary)}.json").read_text("utf-8")).learned


def _name(kind: Kind, vocabulary: int) -> str:
    """What the files of tokens begin with; before, as `bpe-…`, lines were not tokenized one by one."""
    return f"bpe-lines-{vocabulary}" if kind == "bpe" else kind


def _coder(kind: Kind, path: Path, files: list[Path], split: int, vocabulary: int) -> coders.Coder:
    """The coder of a corpus, from the file that keeps what it has learned; made again where that is damaged."""
    make = coders.CODERS[kind]
    with suppress(OSError, ValueError):
        return make(path.read_text("utf-8"))
    learned = make.learn(pieces(files, 0, min(split, make.learns_from)), vocabulary)
    if learned:
        _write_bytes(path, learned.encode())
    return make(learned)


def _token_file(stem: Path, files: list[Path], part: tuple[int, int], coder: coders.Coder, side: str) -> np.ndarray:
    """The tokens of one part of a corpus, from STEM.bin; made, or made to its end, if that is not whole."""
    whole, begun, told = stem.with_suffix(".bin"), stem.with_suffix(".part"), stem.with_suffix(".json")
    size = np.dtype(coder.dtype).itemsize
    done = _read(told, *NOTHING) or NOTHING
    if not (done["whole"] and whole.exists() and whole.stat().st_size == done["tokens"] * size):
        if done["whole"] or not begun.exists() or begun.stat().st_size < done["tokens"] * size:
            done = NOTHING
        begin, end = part
        if end - begin > LARGE:
            log.warning("tokenizing %d MB of text, once", (end - begin) // 10**6)
        mode = "r+b" if done["bytes"] else "wb"
        with begun.open(mode) as file:
            file.truncate(done["tokens"] * size)
            file.seek(0, os.SEEK_END)
            rest, read = b"", begin + done["bytes"]
            for piece in pieces(files, read, end):
                read += len(piece)
                found, used = coder.encode(rest + piece, read == end)
                rest = (rest + piece)[used:]
                file.write(found.tobytes())
                file.flush()
                os.fsync(file.fileno())
                done = {"bytes": done["bytes"] + used, "tokens": done["tokens"] + len(found), "whole": False}
                _write(told, done)
        begun.replace(whole)
        _write(told, done | {"whole": True})
    return np.memmap(whole, coder.dtype, "r") if done["tokens"] else np.empty(0, coder.dtype)


def _boundary(files: list[Path], at: int) -> int:
    """The last place at or before `at` where a character of UTF-8 begins."""
    before = b"".join(pieces(files, max(0, at - 3), at + 1))
    back = next((i for i, byte in enumerate(reversed(before)) if byte & 0xC0 != 0x80), 0)
    return at - back


def _is_utf8(path: Path) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for piece in pieces([path]):
            decoder.decode(piece)
        decoder.decode(b"", True)
    except (UnicodeDecodeError, OSError):
        return False
    return True


def _state(files: list[Path]) -> list[list[Any]]:
    return [[str(p), p.stat().st_size, p.stat().st_mtime_ns] for p in files]


def _read(path: Path, *keys: str) -> Any:
    """The content of a JSON file, an object of just these keys; None where it is anything else."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and set(content) == set(keys) else None


def _write(path: Path, content: Any) -> None:
    _write_bytes(path, json.dumps(content).encode())


def _write_bytes(path: Path, content: bytes) -> None:
    """Writes a file that is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(content)
    part.replace(path)


@contextmanager
def _readable(path: str | None) -> Iterator[None]:
    """Raises what the file system has against a corpus or the cache as a ValueError."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"path={path}: {error.filename} cannot be used ({error.strerror})") from None


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Waits until no other process holds a lock on this file; not where the cache can be neither written nor locked."""
    with ExitStack() as held:
        with suppress(OSError):
            file = held.enter_context(path.open("a"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                log.warning("waiting for another process, which tokenizes this corpus")
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _unchanged(files: list[Path], state: list[list[Any]], folder: Path, name: str) -> Iterator[None]:
    """Raises ValueError where files leave this state meanwhile, and removes what was made of them."""
    try:
        yield
    finally:
        if _state(files) != state:
            for made in (path for pattern in (".*", "-*") for path in folder.glob(name + pattern)):
                made.unlink()
            raise ValueError(f"{files[0]}: the corpus changed while it was read") from None
