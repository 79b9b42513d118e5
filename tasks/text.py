"""Real text: the next token of a corpus, after the tokens before it in a window.

The last tenth of the corpus, at most 262,144 bytes, is held out, a window apart from what is trained on. All of it is
evaluated, in windows side by side, each token once.
"""

from typing import Any

import numpy as np

from tasks import coders
from tasks import corpus as corpora
from tasks.base import LONGEST_ANSWER, Problem, Task, Text, check_between


class RealText(Task):
    """The next token of a corpus.

    path:       a file, a folder or a pattern such as data/*.txt; null: the sources of Python's standard library
    corpus:     instead of a path, the digest of a corpus that was used before
    tokens:     bytes, characters, or bpe (byte pairs learned on the training part)
    vocabulary: how many tokens, of bpe
    context:    tokens of a window
    """

    stop = None
    grades = ()
    one_document = True

    def __init__(
        self,
        path: str | None = None,
        corpus: str | None = None,
        tokens: coders.Kind = "bytes",
        vocabulary: int = 4096,
        context: int = 256,
    ):
        super().__init__("all")
        check_between(2, LONGEST_ANSWER, context=context)
        check_between(1, 2**20, vocabulary=vocabulary)
        self.settings = {"corpus": corpus or corpora.register(path), "tokens": tokens, "vocabulary": vocabulary}
        self.context = self.max_length = context
        self.tokens = corpora.tokens(self.settings["corpus"], tokens, vocabulary)
        self.alphabet = self.tokens.alphabet
        self.bytes_per_token = self.tokens.held_out_bytes / max(1, len(self.tokens.held_out))
        for part in ("training", "held_out"):
            there, least = len(getattr(self.tokens, part)), context + 1 + (context if part == "training" else 0)
            if there < least:
                what = f"its {part.replace('_', '-')} part has {there:,} tokens, and context={context} needs {least:,}"
                raise ValueError(f"path={corpora.place(self.settings['corpus'])}: the corpus is too small: {what}")

    @classmethod
    def resolve(cls, settings: dict[str, Any]) -> dict[str, Any]:
        path, corpus = settings.get("path"), settings.get("corpus")
        if path is None and corpus is not None:
            return settings
        found = corpora.register(path)
        if corpus not in (None, found):
            raise ValueError(f"corpus={corpus}: path={path} is corpus {found}; give one of the two")
        return settings | {"path": None, "corpus": found}

    def of_length(self, n: int) -> "RealText":
        """The same corpus in windows of `n` tokens."""
        return RealText(**self.settings, context=n)

    def text(self, rng: np.random.Generator, rows: int, length: int, held_out: bool = False) -> Text:
        """Random windows of the training part; of the held-out part `rows` windows at even distances, or all."""
        if held_out:
            there = (len(self.tokens.held_out) - 1) // (length - 1)
            begins = (length - 1) * np.unique(np.linspace(0, there - 1, min(rows, there)).astype(int))
        else:
            begins = rng.integers(len(self.tokens.training) - self.context - length + 1, size=rows)
        windows = (self.tokens.held_out if held_out else self.tokens.training)[begins[:, None] + np.arange(length)]
        position = np.broadcast_to(np.arange(length, dtype=np.int16), windows.shape)
        return self._text(windows, position)

    def problems(self, rng: np.random.Generator, n: int) -> list[Problem]:
        """Windows of the held-out part to be written on from their first half; nothing about it is right or wrong."""
        windows = self.text(rng, n, self.context, held_out=True).tokens
        return [Problem(window, self.context // 2, {}, self.decode) for window in windows]

    def encode(self, text: str) -> np.ndarray:
        kind = self.settings["tokens"]
        if kind == "bytes":
            return np.frombuffer(text.encode(), np.uint8)
        if kind == "bpe":
            return coders.pairs(self._pairs(), text)
        token_of = {character: token for token, character in enumerate(self.alphabet)}
        if unknown := sorted(set(text) - set(token_of)):
            raise ValueError(f"characters {''.join(unknown)!r} are not in the corpus' training part")
        return np.array([token_of[c] for c in text], np.uint32)

    def decode(self, tokens: np.ndarray) -> str:
        kind = self.settings["tokens"]
        if kind == "bytes":
            return bytes(int(t) for t in tokens).decode(errors="replace")
        if kind == "bpe":
            return self._pairs().decode([int(t) for t in tokens])
        return super().decode(tokens)

    def _pairs(self) -> Any:
        return corpora.learned_pairs(self.settings["corpus"], self.settings["vocabulary"])


if __name__ == "__main__":
    from tasks.base import show

    show(RealText())
