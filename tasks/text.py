"""Real text: the next token of a corpus, after the tokens before it in a window.

The last tenth of the corpus, at most 262,144 bytes, is held out, a window apart from the training
part. Evaluation reads it in windows side by side: each token once, except the first one and a last
part that is shorter than a window.
"""

import functools
from typing import Any

import numpy as np

from rope_lab.text import ConfigError

from . import corpus as corpora
from .base import MOST, check_between
from .coders import CODERS, Coder, Kind
from .task import Problem, Task, Text


class RealText(Task):
    """The next token of a corpus.

    path:       a file, a folder or a pattern such as data/*.txt; null: the sources of Python's
                standard library
    corpus:     instead of a path, the digest of a corpus that was used before
    tokens:     bytes, characters (of the corpus), or bpe (byte pairs learned on the training part)
    vocabulary: number of tokens, for bpe
    context:    tokens per window
    """

    stop = None
    grades = ()
    one_document = True

    def __init__(
        self,
        path: str | None = None,
        corpus: str | None = None,
        tokens: Kind = "bytes",
        vocabulary: int = 4096,
        context: int = 256,
    ):
        super().__init__("all")
        check_between(2, MOST, context=context)
        check_between(1, 2**20, vocabulary=vocabulary)
        self.corpus = corpus or corpora.register(path)
        self.kind = tokens
        self.vocabulary = vocabulary
        self.context = self.max_length = context
        self.name = corpora.name(self.corpus)
        self.restored = None

    @classmethod
    def resolve(cls, settings: dict[str, Any]) -> dict[str, Any]:
        path, named = settings.get("path"), settings.get("corpus")
        if path is None and named is not None:
            return settings
        corpus = corpora.register(path)
        if named not in (None, corpus):
            raise ConfigError(f"task.corpus={named}: task.path is another one; leave one out")
        return settings | {"path": None, "corpus": corpus}

    @functools.cached_property
    def parts(self) -> tuple[np.ndarray, np.ndarray, Coder]:
        """Training and held-out tokens, and their coder. Raises ConfigError if they cannot be
        read.
        """
        return corpora.read(self.corpus, self.kind, self.vocabulary, self.context, self.name)

    @property
    def coder(self) -> Coder:
        return self.restored or self.parts[2]

    @property
    def kept(self) -> str:
        return f"{self.name}\n{self.coder.learned}"

    @kept.setter
    def kept(self, kept: str) -> None:
        self.name, _, learned = kept.partition("\n")
        self.restored = CODERS[self.kind](learned)

    @property
    def alphabet(self) -> list[str]:
        return self.coder.alphabet

    @property
    def token_bytes(self) -> np.ndarray:
        return self.coder.token_bytes

    def of_length(self, n: int) -> "RealText":
        """The same corpus in windows of `n` tokens."""
        return RealText(None, self.corpus, self.kind, self.vocabulary, n)

    def text(
        self, rng: np.random.Generator, rows: int, length: int, held_out: bool = False
    ) -> Text:
        """Random windows of the training part; of the held-out part `rows` windows at even
        distances, or all.
        """
        part = self.parts[1 if held_out else 0]
        if held_out:
            there = (len(part) - 1) // (length - 1)
            if there < 1:
                raise ConfigError(
                    f"{length} tokens in a row are more than the {len(part)} of the held-out part"
                )
            begins = (length - 1) * np.unique(
                np.linspace(0, there - 1, min(rows, there)).astype(int)
            )
        else:
            begins = rng.integers(len(part) - self.context - length + 1, size=rows)
        windows = part[begins[:, None] + np.arange(length)]
        return Text(windows, np.broadcast_to(np.arange(length, dtype=np.int32), windows.shape))

    def problems(self, rng: np.random.Generator, n: int) -> list[Problem]:
        """Windows of the held-out part to continue from their first half; no continuation is right
        or wrong.
        """
        windows = RealText.text(self, rng, n, self.context, held_out=True).tokens
        return [Problem(window, self.context // 2, {}, self.decode) for window in windows]

    def encode(self, text: str) -> np.ndarray:
        return self.coder.encode(text.encode())

    def decode(self, tokens: np.ndarray) -> str:
        return self.coder.decode(tokens)
