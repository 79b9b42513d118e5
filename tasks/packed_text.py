"""Packed documents: passages of a corpus, one after another in a window.

Models of text are trained so. Attention stays within a document or crosses their borders, and the
count of positions begins again at each or runs on.
"""

from typing import Any, Literal

import numpy as np

from rope_lab.text import ConfigError

from .base import check_between
from .coders import Kind
from .task import Text
from .text import RealText


class PackedText(RealText):
    """The next token of documents: random passages of a corpus, as RealText reads it.

    path, corpus, tokens, vocabulary, context: as in RealText
    shortest, longest: tokens of a document; each length equally often, the last one of a window is
                cut
    attention:  `within` a document, or `across` their borders
    count:      of positions: `restarted` at each document, or `running` on

    Nothing stands between two documents. The first token of a document cannot be predicted and
    counts neither in training nor in evaluation. Held-out documents may overlap.
    """

    one_document = False

    def __init__(
        self,
        path: str | None = None,
        corpus: str | None = None,
        tokens: Kind = "bytes",
        vocabulary: int = 4096,
        context: int = 256,
        shortest: int = 16,
        longest: int = 128,
        attention: Literal["within", "across"] = "within",
        count: Literal["restarted", "running"] = "restarted",
    ):
        super().__init__(path, corpus, tokens, vocabulary, context)
        check_between(2, 2**15, longest=longest)
        check_between(2, longest, shortest=shortest)
        self.loss_on = "answer"
        self.shortest, self.longest = shortest, longest
        self.within, self.restarted = attention == "within", count == "restarted"

    def of_length(self, n: int) -> Any:
        raise ConfigError("windows of documents have one length: set eval.lengths=[]")

    def text(
        self, rng: np.random.Generator, rows: int, length: int, held_out: bool = False
    ) -> Text:
        """Rows of random passages of the training or of the held-out part."""
        part = self.parts[1 if held_out else 0]
        apart = 0 if held_out else self.context  # as far the training part ends before the other
        last = len(part) - apart - self.longest
        if last < 0:
            raise ConfigError(
                f"longest={self.longest}: is more than the {len(part) - apart} tokens of a part "
                "of the corpus"
            )
        size = (rows, -(-length // self.shortest))
        lengths = rng.integers(self.shortest, self.longest + 1, size=size)
        passages = rng.integers(last + 1, size=size)
        begins = np.cumsum(lengths, axis=1) - lengths
        place = np.arange(length)
        document = (place >= begins[:, 1:, None]).sum(axis=1)
        within = place - np.take_along_axis(begins, document, axis=1)
        tokens = part[np.take_along_axis(passages, document, axis=1) + within]
        positions = within if self.restarted else None
        documents = document if self.within else None
        return Text(tokens, within.astype(np.int32), positions, documents)
