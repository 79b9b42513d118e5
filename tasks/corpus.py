"""A corpus of text as files of tokens (bytes, characters or byte pairs), made once and mapped into
memory.

A corpus is known by a digest of its bytes. A copy of it and its tokens lie in a folder of that name
in the user's cache (`$XDG_CACHE_HOME/rope_lab`, `~/.cache/rope_lab` by default), out of reach of
later changes of its files.
"""

import codecs
import glob
import hashlib
import logging
import os
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Literal

import numpy as np
from filelock import FileLock

from rope_lab.text import ConfigError

log = logging.getLogger(__name__)

Kind = Literal["bytes", "characters", "bpe"]
LONGEST = 256  # characters of a word of byte pairs; longer ones are cut, or each pair would take a pass over them
BLOCK = 2**16  # bytes that are read at once
HELD_OUT_SHARE, MOST_HELD_OUT = 10, 2**18  # the last tenth is held out, at most so many bytes
LEARNED = 2**28  # bytes from which byte pairs are learned, at most


class Coder:
    """Tokens and text. A coder is made from the result of `learn` on the training part.

    learned:     that result
    alphabet:    the text of each token, for display
    token_bytes: bytes of each token
    """

    def __init__(self, learned: str, alphabet: list[str], token_bytes: list[int]):
        self.learned, self.alphabet, self.token_bytes = learned, alphabet, np.array(token_bytes)
        self.dtype = np.min_scalar_type(len(alphabet) - 1)

    def decode(self, tokens: np.ndarray) -> str:
        return "".join(self.alphabet[t] for t in tokens)


class Bytes(Coder):
    """Tokens are bytes."""

    def __init__(self, learned: str):
        super().__init__(learned, [chr(i) for i in range(256)], [1] * 256)

    @staticmethod
    def learn(blocks: Iterable[bytes], vocabulary: int) -> Iterator[bytes]:
        yield b""

    def encode(self, text: bytes) -> np.ndarray:
        return np.frombuffer(text, np.uint8)

    def decode(self, tokens: np.ndarray) -> str:
        return bytes(int(t) for t in tokens).decode(errors="replace")


class Characters(Coder):
    """Tokens are the characters of the training part."""

    def __init__(self, learned: str):
        super().__init__(learned, list(learned), [len(character.encode()) for character in learned])
        self.token_of = np.full(0x110000, -1)
        self.token_of[[ord(character) for character in learned]] = np.arange(len(learned))

    @staticmethod
    def learn(blocks: Iterable[bytes], vocabulary: int) -> Iterator[bytes]:
        yield "".join(sorted(set().union(*(block.decode() for block in blocks)))).encode()

    def encode(self, text: bytes) -> np.ndarray:
        codes = np.frombuffer(text.decode().encode("utf-32-le"), np.uint32)
        tokens = self.token_of[codes]
        if (tokens < 0).any():
            unknown = "".join(map(chr, np.unique(codes[tokens < 0])[:20]))
            raise ConfigError(
                f"tokens=characters: {unknown!r} not in the training part; tokens=bytes reads any text"
            )
        return tokens.astype(self.dtype)


class Pairs(Coder):
    """Tokens are learned by byte-pair encoding (Sennrich et al., 2016) over bytes, line by line."""

    def __init__(self, learned: str):
        self.pairs = _tokenizers().Tokenizer.from_str(learned)
        alphabet = [self.pairs.id_to_token(i) for i in range(self.pairs.get_vocab_size())]
        super().__init__(learned, alphabet, [len(token) for token in alphabet])

    @staticmethod
    def learn(blocks: Iterable[bytes], vocabulary: int) -> Iterator[bytes]:
        t = _tokenizers()
        if vocabulary < 257:
            raise ConfigError(f"vocabulary={vocabulary}: must be more than the 256 bytes")
        log.warning("learning %d byte pairs of the corpus, once", vocabulary)
        pairs, in_bytes = (
            t.Tokenizer(t.models.BPE()),
            t.pre_tokenizers.ByteLevel(add_prefix_space=False),
        )
        cut = t.pre_tokenizers.Split(t.Regex(rf"\S{{{LONGEST}}}"), "isolated")
        pairs.pre_tokenizer, pairs.decoder = (
            t.pre_tokenizers.Sequence([cut, in_bytes]),
            t.decoders.ByteLevel(),
        )
        bytes_ = sorted(in_bytes.alphabet())
        trainer = t.trainers.BpeTrainer(
            vocab_size=vocabulary, initial_alphabet=bytes_, show_progress=False
        )
        lines = (line for block in blocks for line in block.decode().splitlines(keepends=True))
        pairs.train_from_iterator(lines, trainer)
        yield pairs.to_str().encode()

    def encode(self, text: bytes) -> np.ndarray:
        lines = self.pairs.encode_batch_fast(text.decode().splitlines(keepends=True))
        return np.fromiter(chain.from_iterable(line.ids for line in lines), self.dtype)

    def decode(self, tokens: np.ndarray) -> str:
        return self.pairs.decode([int(t) for t in tokens])


CODERS: dict[Kind, type[Coder]] = {"bytes": Bytes, "characters": Characters, "bpe": Pairs}


def _tokenizers() -> ModuleType:
    try:
        import tokenizers
    except ImportError:
        raise ConfigError(
            "tokens=bpe: needs the package tokenizers: pip install -e '.[text]'"
        ) from None
    return tokenizers


def cache() -> Path:
    """The folder of copies and tokens of corpora. Raises RuntimeError if there is no home
    folder.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "rope_lab"


def locate(path: str) -> list[Path]:
    """The files of a corpus, each once: a file, all in a folder but hidden ones and runs, or those
    of a pattern.

    Raises ConfigError if there are none, or empty ones.
    """
    given = Path(path).expanduser()
    found = [given, *map(Path, glob.glob(str(given), recursive=True))]
    if path and given.is_dir():
        found = [
            p
            for p in given.rglob("*")
            if not any(part.startswith(".") for part in p.relative_to(given).parts)
        ]
        runs = {
            folder for p in found if p.name == "run.json" for folder in (p.parent, p.parent.parent)
        } - {given}
        found = [p for p in found if runs.isdisjoint(p.parents)]
    files = sorted({p.resolve() for p in found if p.is_file()})
    if not any(p.stat().st_size for p in files):
        hint = (
            "name a file, a folder or a pattern; the files of conf/corpus say where texts are from"
        )
        raise ConfigError(f"path={path}: there is no text; {hint}")
    return files


def register(path: str | None) -> str:
    """The digest of a corpus, 16 hexadecimal digits; copies it into the cache. Raises ConfigError if
    that fails.

    path: None: the sources of Python's standard library
    """
    try:
        files = _library() if path is None else locate(path)
        digest = hashlib.sha256()
        for piece in _pieces(files):
            digest.update(piece)
        folder = cache() / digest.hexdigest()[:16]
        if (
            path
            and not (folder / "text").exists()
            and (odd := next((p for p in files if not _is_utf8(p)), None))
        ):
            log.warning(
                "%s is not UTF-8 text, and is read as bytes all the same: convert or unpack it", odd
            )
        _once(folder / "text", _pieces(files))
        with suppress(OSError):  # a read-only cache may have all that is needed
            name = os.path.basename(os.path.abspath(path)) if path else "Python's standard library"
            (folder / "name").write_text(name, "utf-8")
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"path={path}: {error}") from None
    return folder.name


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

    Raises ConfigError if the corpus is not known here, too small for windows of `context` tokens, or
    of other text.
    """
    folder, stem = cache() / corpus, f"bpe-{vocabulary}" if kind == "bpe" else kind
    source = folder / "text"
    if not source.exists():
        hint = (
            f"run its training command again with task.path=…/{name}" if name else "set task.path"
        )
        raise ConfigError(f"corpus={corpus}: there is no copy of its text in {cache()}; {hint}")
    text = np.memmap(source, np.uint8, "r")
    split = _character(text, len(text) - min(len(text) // HELD_OUT_SHARE, MOST_HELD_OUT))
    learned_from = _character(text, min(split, LEARNED)) if kind == "bpe" else split
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
                has = f"its {side} part has no more than {len(part):,} tokens, context={context} needs {least:,}"
                raise ConfigError(f"path={name}: the corpus is too small: {has}")
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
        p
        for p in root.rglob("*.py")
        if not elsewhere & set(p.relative_to(root).parts) and _is_utf8(p)
    ]
    return sorted(found, key=lambda p: hashlib.sha256(str(p.relative_to(root)).encode()).digest())
