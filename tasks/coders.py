"""Text as tokens: bytes, characters, or byte pairs.

A coder learns on the training part of a corpus, gives what it has learned as text, and is made of that text.
"""

import json
import logging
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Literal

import numpy as np

log = logging.getLogger(__name__)

Kind = Literal["bytes", "characters", "bpe"]

BLOCK = 2**14  # bytes, and the rest of their line, that are decoded at once


class Bytes:
    """Tokens are bytes."""

    learns_from = 0

    def __init__(self, learned: str):
        self.alphabet, self.dtype = [chr(i) for i in range(256)], np.uint8

    @staticmethod
    def learn(training: Iterable[bytes], vocabulary: int) -> str:
        return ""

    def encode(self, piece: bytes, last: bool) -> tuple[np.ndarray, int]:
        """The tokens of a piece, and how many of its bytes they are; all of them in the `last` piece."""
        return np.frombuffer(piece, np.uint8), len(piece)


class Characters:
    """Tokens are the characters of the training part."""

    learns_from = np.inf  # bytes

    def __init__(self, learned: str):
        """Raises ValueError where that is not what `learn` gave."""
        try:
            self.alphabet = json.loads(learned)["alphabet"]
            codes = [ord(character) for character in self.alphabet]
        except (KeyError, TypeError) as error:
            raise ValueError(f"no alphabet: {error}") from None
        self.dtype = np.uint8 if len(self.alphabet) <= 256 else np.uint16 if len(self.alphabet) <= 65536 else np.uint32
        self.token_of = np.full(0x110000, -1, np.int32)
        self.token_of[codes] = np.arange(len(self.alphabet))

    @staticmethod
    def learn(training: Iterable[bytes], vocabulary: int) -> str:
        seen = np.zeros(0x110000, bool)
        for text in _texts(training):
            seen[_code_points(text)] = True
        return json.dumps({"alphabet": [chr(code) for code in np.flatnonzero(seen)]})

    def encode(self, piece: bytes, last: bool) -> tuple[np.ndarray, int]:
        used = _used(piece, last)
        parts = [self._tokens(_code_points(text)) for text in _blocks(piece[:used])]
        return np.concatenate([np.empty(0, self.dtype), *parts]), used

    def _tokens(self, codes: np.ndarray) -> np.ndarray:
        found = self.token_of[codes]
        if (found < 0).any():
            unknown = "".join(sorted({chr(code) for code in codes[found < 0][:100]}))
            raise ValueError(f"tokens=characters: {unknown!r} stand in the held-out part alone; use task.tokens=bytes")
        return found.astype(self.dtype)


class Pairs:
    """Tokens are learned on the training part by byte-pair encoding (Sennrich et al., 2016), over bytes."""

    learns_from = 2**28  # bytes

    def __init__(self, learned: str):
        """Raises ValueError where that is not what `learn` gave."""
        try:
            self.learned = _tokenizers().Tokenizer.from_str(learned)
        except Exception as error:  # the package raises no other
            raise ValueError(f"no byte pairs: {error}") from None
        size = self.learned.get_vocab_size()
        self.alphabet = [self.learned.id_to_token(i) for i in range(size)]
        self.dtype = np.uint16 if size <= 65536 else np.uint32

    @staticmethod
    def learn(training: Iterable[bytes], vocabulary: int) -> str:
        tokenizers = _tokenizers()
        if vocabulary < 257:
            raise ValueError(f"vocabulary={vocabulary}: must be more than the 256 bytes")
        log.warning("learning %d byte pairs of the corpus, once", vocabulary)
        learned = tokenizers.Tokenizer(tokenizers.models.BPE())
        learned.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        learned.decoder = tokenizers.decoders.ByteLevel()
        alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
        trainer = tokenizers.trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=alphabet, show_progress=False)
        lines = (line for text in _texts(training) for line in text.splitlines(keepends=True))
        learned.train_from_iterator(lines, trainer)
        return learned.to_str()

    def encode(self, piece: bytes, last: bool) -> tuple[np.ndarray, int]:
        used = _used(piece, last)
        parts = [pairs(self.learned, text).astype(self.dtype) for text in _blocks(piece[:used])]
        return np.concatenate([np.empty(0, self.dtype), *parts]), used


Coder = Bytes | Characters | Pairs
CODERS: dict[Kind, type[Coder]] = {"bytes": Bytes, "characters": Characters, "bpe": Pairs}


def pairs(learned: Any, text: str) -> np.ndarray:
    """The tokens of a text, uint32, by `learned`, a `tokenizers.Tokenizer`.

    Line by line, as byte pairs are learned: so they do not depend on the pieces in which a corpus is read.
    """
    found = learned.encode_batch_fast(text.splitlines(keepends=True))
    return np.fromiter(chain.from_iterable(line.ids for line in found), np.uint32)


def _tokenizers() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise ValueError("tokens=bpe: needs the package tokenizers: pip install -e '.[text]'") from None
    return tokenizers


def _texts(found: Iterable[bytes]) -> Iterator[str]:
    """The text of pieces, in blocks of whole lines. Raises UnicodeDecodeError."""
    rest = b""
    for piece in found:
        both = rest + piece
        used = _used(both, last=False)
        yield from _blocks(both[:used])
        rest = both[used:]
    yield from _blocks(rest)


def _used(piece: bytes, last: bool) -> int:
    """How many bytes of a piece to use before the next is read: whole lines, or, within one line, whole characters."""
    if last:
        return len(piece)
    last_character = next((i for i in range(1, min(4, len(piece)) + 1) if piece[-i] & 0xC0 != 0x80), 0)
    return piece.rfind(b"\n") + 1 or len(piece) - last_character


def _blocks(piece: bytes) -> Iterator[str]:
    """The text of a piece, in blocks of BLOCK bytes and the rest of a line: larger strings fragment the heap."""
    at = 0
    while at < len(piece):
        end = piece.find(b"\n", at + BLOCK) + 1 or len(piece)
        yield piece[at:end].decode()
        at = end


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)
