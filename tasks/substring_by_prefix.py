"""Substring by prefix (Harik and Jayasiri, 2022): `[random]>[substring][random]>[substring]…`.

After each `>` stands a copy of something earlier. Its first letter cannot be known; from the second on, what has been
copied so far is searched for in the text before, and the letter that followed there is the answer.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tasks.base import LossOn, Problem, Task, Text, check_between, check_letters, different, is_held_out

MOST, MOST_COPIED = 10**9, 2**15 - 1  # tokens; answer positions are int16


class Documents(NamedTuple):
    """Rows of random letters with copies among them; as tokens, with a `>` before each copy."""

    letters: np.ndarray  # uint8 [rows, width]: everything but the `>`
    begin: np.ndarray  # int [rows, rounds]: the first letter of each copy
    source: np.ndarray  # int [rows, rounds]: the first letter of what it copies
    column: np.ndarray  # int [rows, width]: the token of each letter
    tokens: np.ndarray  # uint8 [rows, width + rounds]
    answer_position: np.ndarray  # int16 [rows, width + rounds]


class SubstringByPrefix(Task):
    """Complete copies of earlier text.

    letters:      what random text is drawn from, uniformly
    first_length: random letters at the start of a row
    copy_length:  letters in a copy, taken at a uniform offset of all letters before it (without the `>`)
    gap_min, gap_max: random letters between a copy and the next `>`, their number uniform
    context:      tokens that a problem (prompt and completion) has at most
    loss_on:      what training counts: `all` tokens, or the `answer`: a copy's letters after its first

    A row belongs to training or to evaluation by its first random letters.
    """

    stop = None
    one_document = True

    def __init__(
        self,
        letters: str = "abcd",
        first_length: int = 16,
        copy_length: int = 16,
        gap_min: int = 1,
        gap_max: int = 11,
        context: int = 512,
        loss_on: LossOn = "answer",
    ):
        super().__init__(loss_on)
        check_letters(letters, reserved=">", least=2)
        check_between(2, MOST_COPIED, copy_length=copy_length)
        check_between(1, MOST, first_length=first_length, gap_min=gap_min)
        check_between(gap_min, MOST, gap_max=gap_max)
        if first_length + gap_min < copy_length:
            most = f"first_length + gap_min = {first_length + gap_min}, or there is nothing to copy first"
            raise ValueError(f"copy_length={copy_length}: must be at most {most}")
        check_between(first_length + gap_max + 1 + copy_length, MOST, context=context)
        self.letters, self.alphabet = letters, letters + ">"
        self.first_length, self.copy_length, self.gap_min, self.gap_max = first_length, copy_length, gap_min, gap_max
        self.context = self.max_length = context
        self.last_copy = False  # whether problems ask for the last copy of a text, or for any

    def of_length(self, n: int) -> "SubstringByPrefix":
        """Copies that end within the last few tokens of a context of `n`: the last ones that fit."""
        sizes = (self.letters, self.first_length, self.copy_length, self.gap_min, self.gap_max)
        task = SubstringByPrefix(*sizes, n, self.loss_on)
        task.last_copy = True
        return task

    def text(self, rng: np.random.Generator, rows: int, length: int, held_out: bool = False) -> Text:
        d = self._documents(rng, rows, length, held_out)
        return Text(d.tokens[:, :length], d.answer_position[:, :length])

    def problems(self, rng: np.random.Generator, n: int) -> list[Problem]:
        """A problem's prompt ends where only one possible source of the last copy begins with the letters so far.

        Passed over are copies that never get there (their source was copied whole before), and those whose letters so
        far also stand too near the end of the text to be a source, so that every problem is plain to see.
        Attributes: `copy` (how many copies stand before it), `known` (its letters in the prompt), `distance` (tokens
        from the first unknown letter back to its source).
        """

        def batch() -> Iterator[Problem]:
            d = self._documents(rng, 64, self.context, held_out=True)
            copies = (d.begin + np.arange(1, d.begin.shape[1] + 1) + self.copy_length <= self.context).sum(axis=1)
            for row, copy in enumerate(copies - 1 if self.last_copy else rng.integers(copies)):
                if (problem := self._problem(d, row, copy)) is not None:
                    yield problem

        return different(batch, n)

    def floor(self, tokens: np.ndarray) -> np.ndarray:
        """The Bayes-optimal loss: a predictor cannot know where a copy is taken from until it is unique.

        Given j letters of a copy, it is uniform over all offsets whose first j letters match, so it gives the next
        letter the probability (offsets that match j + 1 letters) / (offsets that match j).
        """
        nats = np.zeros(tokens.shape)
        for row, text in enumerate(tokens):
            arrows = np.flatnonzero(text == len(self.letters))
            letters = np.delete(text, arrows)
            for number, arrow in enumerate(arrows):
                copied = text[arrow + 1 : arrow + 1 + self.copy_length]
                before = letters[: arrow - number]
                sources = np.lib.stride_tricks.sliding_window_view(before, self.copy_length)[:, : len(copied)]
                matching = np.logical_and.accumulate(sources == copied, axis=1).sum(axis=0)
                nats[row, arrow + 2 : arrow + 1 + len(copied)] = np.log(matching[:-1] / matching[1:])
        return nats

    def _documents(self, rng: np.random.Generator, rows: int, length: int, held_out: bool) -> Documents:
        """Rows of at least `length` tokens."""
        shortest_round = self.gap_min + 1 + self.copy_length
        rounds = max(1, -(-(length - self.first_length) // shortest_round))
        gaps = rng.integers(self.gap_min, self.gap_max + 1, size=(rows, rounds))
        begin = self.first_length + np.cumsum(gaps, axis=1) + self.copy_length * np.arange(rounds)
        source = rng.integers(begin - self.copy_length + 1)
        width = self.first_length + rounds * (self.gap_max + self.copy_length)
        letters = rng.integers(len(self.letters), size=(rows, width), dtype=np.uint8)
        letters[:, : self.first_length] = self._first_letters(rng, rows, held_out)
        row, copy = np.arange(rows)[:, None], np.arange(self.copy_length)
        for k in range(rounds):  # in turn, since a copy may be copied again
            letters[row, begin[:, k, None] + copy] = letters[row, source[:, k, None] + copy]

        arrows = np.zeros(letters.shape, dtype=np.int64)
        arrows[row, begin] = 1  # each copy has a `>` before it
        column = np.arange(width) + np.cumsum(arrows, axis=1)
        tokens = np.full((rows, width + rounds), len(self.letters), dtype=np.uint8)
        tokens[row, column] = letters
        position = np.zeros(tokens.shape, dtype=np.int16)
        for k in range(rounds):
            position[row, column[row, begin[:, k, None]] + copy] = copy
        return Documents(letters, begin, source, column, tokens, position)

    def _first_letters(self, rng: np.random.Generator, rows: int, held_out: bool) -> np.ndarray:
        kept = np.empty((0, self.first_length), dtype=np.uint8)
        for _ in range(100):
            drawn = rng.integers(len(self.letters), size=(rows * (32 if held_out else 2), self.first_length))
            kept = np.concatenate([kept, drawn[is_held_out(drawn) == held_out].astype(np.uint8)])
            if len(kept) >= rows:
                return kept[:rows]
        raise ValueError("the first letters are too few to split training from evaluation by: raise first_length")

    def _problem(self, d: Documents, row: int, copy: int) -> Problem | None:
        begin, source = int(d.begin[row, copy]), int(d.source[row, copy])
        before, copied = d.letters[row, :begin], d.letters[row, begin : begin + self.copy_length]
        sources = np.lib.stride_tricks.sliding_window_view(before, self.copy_length)
        matching = np.logical_and.accumulate(sources == copied, axis=1)
        known = 1 + int(np.argmax(matching.sum(axis=0) == 1))  # 1 where there is none
        text, part = before.tobytes(), copied[:known].tobytes()
        if known == self.copy_length or text.find(part) != text.rfind(part):
            return None
        first = int(d.column[row, begin])
        unknown, from_source = first + known, int(d.column[row, source + known])
        attributes = {"copy": int(copy), "known": known, "distance": unknown - from_source}
        return Problem(d.tokens[row, : first + self.copy_length], unknown, attributes, self.decode)
