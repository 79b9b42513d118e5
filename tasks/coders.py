"""Coders of real text: bytes, characters and byte pairs, as tokens and back."""

import logging
from collections.abc import Iterable, Iterator
from itertools import chain
from types import ModuleType
from typing import Literal

import numpy as np

from rope_lab.text import ConfigError

log = logging.getLogger(__name__)

Kind = Literal["bytes", "characters", "bpe"]
LONGEST = 256  # characters of a word of byte pairs; longer ones are cut, each pair passes over them


class Coder:
    """Tokens and text. A coder is made from the result of `learn` on blocks of the corpus.

    learned:     that result
    alphabet:    the text of each token, for display
    token_bytes: bytes of each token
    """

    def __init__(self, learned: str, alphabet: list[str], token_bytes: list[int]):
        self.learned = learned
        self.alphabet = alphabet
        self.token_bytes = np.array(token_bytes)
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
    """Tokens are the characters of the whole corpus, as in nanoGPT.

    A character of the held-out part alone has a token that training never shows.
    """

    def __init__(self, learned: str):
        super().__init__(learned, list(learned), [len(character.encode()) for character in learned])
        self.token_of = np.full(0x110000, -1)
        self.token_of[[ord(character) for character in learned]] = np.arange(len(learned))

    @staticmethod
    def learn(blocks: Iterable[bytes], vocabulary: int) -> Iterator[bytes]:
        characters: set[str] = set()
        for block in blocks:
            characters.update(block.decode())
        yield "".join(sorted(characters)).encode()

    def encode(self, text: bytes) -> np.ndarray:
        codes = np.frombuffer(text.decode().encode("utf-32-le"), np.uint32)
        tokens = self.token_of[codes]
        if (tokens < 0).any():
            unknown = "".join(map(chr, np.unique(codes[tokens < 0])[:20]))
            remedy = "train with task.tokens=bytes for any text"
            raise ConfigError(f"tokens=characters: {unknown!r} not in the corpus; {remedy}")
        return tokens.astype(self.dtype)


class Pairs(Coder):
    """Tokens are learned by byte-pair encoding (Sennrich et al., 2016) over bytes, line by line."""

    def __init__(self, learned: str):
        self.pairs = _tokenizers().Tokenizer.from_str(learned)
        alphabet = [self.pairs.id_to_token(i) for i in range(self.pairs.get_vocab_size())]
        super().__init__(learned, alphabet, [len(token) for token in alphabet])

    @staticmethod
    def learn(blocks: Iterable[bytes], vocabulary: int) -> Iterator[bytes]:
        tokenizers = _tokenizers()
        if vocabulary < 257:
            raise ConfigError(f"vocabulary={vocabulary}: must be more than the 256 bytes")
        log.warning("learning %d byte pairs of the corpus, once", vocabulary)
        pairs = tokenizers.Tokenizer(tokenizers.models.BPE())
        in_bytes = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        cut = tokenizers.pre_tokenizers.Split(tokenizers.Regex(rf"\S{{{LONGEST}}}"), "isolated")
        pairs.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([cut, in_bytes])
        pairs.decoder = tokenizers.decoders.ByteLevel()
        bytes_ = sorted(in_bytes.alphabet())
        trainer = tokenizers.trainers.BpeTrainer(
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
