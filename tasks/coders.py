"""Text as tokens: bytes, characters, or byte pairs."""

import logging
import subprocess
import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Literal

import numpy as np

log = logging.getLogger(__name__)

Kind = Literal["bytes", "characters", "bpe"]


class Coder:
    """Tokens and text. A coder is made of what `learn` returns for the training part.

    learned:     the text of which it was made
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

    def __init__(self, learned: str = ""):
        super().__init__(learned, [chr(i) for i in range(256)], [1] * 256)

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
    def learn(blocks: Iterable[bytes], vocabulary: int) -> str:
        seen = np.zeros(0x110000, bool)
        for block in blocks:
            seen[_code_points(block)] = True
        return "".join(map(chr, np.flatnonzero(seen)))

    def encode(self, text: bytes) -> np.ndarray:
        codes = _code_points(text)
        tokens = self.token_of[codes]
        if (tokens < 0).any():
            unknown = "".join(map(chr, np.unique(codes[tokens < 0])[:20]))
            raise ValueError(
                f"tokens=characters: {unknown!r} not in the training part; task.tokens=bytes reads any text"
            )
        return tokens.astype(self.dtype)


class Pairs(Coder):
    """Tokens are learned by byte-pair encoding (Sennrich et al., 2016) over bytes, line by line."""

    def __init__(self, learned: str):
        self.pairs = _tokenizers().Tokenizer.from_str(learned)
        alphabet = [self.pairs.id_to_token(i) for i in range(self.pairs.get_vocab_size())]
        super().__init__(learned, alphabet, [len(token) for token in alphabet])

    @staticmethod
    def learn(blocks: Iterable[bytes], vocabulary: int) -> str:
        """Runs tasks/pairs.py, because a signal ends a process but not the package's Rust."""
        _tokenizers()
        if vocabulary < 257:
            raise ValueError(f"vocabulary={vocabulary}: must be more than the 256 bytes")
        log.warning("learning %d byte pairs of the corpus, once", vocabulary)
        command = [sys.executable, "-P", Path(__file__).with_name("pairs.py"), str(vocabulary)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, **pipes, start_new_session=True) as child:
            try:
                for block in blocks:
                    block.decode()  # raises UnicodeDecodeError here
                    child.stdin.write(block)
                learned, _ = child.communicate()
            finally:
                child.kill()
                child.wait()
        if child.returncode:
            raise ValueError(f"tokens=bpe: the process that learns byte pairs ended with status {child.returncode}")
        return learned.decode()

    def encode(self, text: bytes) -> np.ndarray:
        lines = self.pairs.encode_batch_fast(text.decode().splitlines(keepends=True))
        return np.fromiter(chain.from_iterable(line.ids for line in lines), self.dtype)

    def decode(self, tokens: np.ndarray) -> str:
        return self.pairs.decode([int(t) for t in tokens])


CODERS: dict[Kind, type[Coder]] = {"bytes": Bytes, "characters": Characters, "bpe": Pairs}


def _code_points(text: bytes) -> np.ndarray:
    return np.frombuffer(text.decode().encode("utf-32-le"), np.uint32)


def _tokenizers() -> ModuleType:
    try:
        import tokenizers
    except ImportError:
        raise ValueError("tokens=bpe: needs the package tokenizers: pip install -e '.[text]'") from None
    return tokenizers
