"""Substring by prefix (Harik and Jayasiri, 2022): `[random]>[substring][random]>[substring]…`.

After each `>` stands a copy of earlier text. Its first letter cannot be known; from the second on,
the letters copied so far must be found in the earlier text, and the next letter there is the
answer.
"""

from collections.abc import Iterator

import numpy as np

from rope_lab.text import ConfigError

from .base import MOST, check_between, check_letters
from .split import draw_side
from .task import LossOn, Problem, Task, Text, different


class SubstringByPrefix(Task):
    """Complete copies of earlier text.

    letters:      random text is drawn from these, uniformly
    first_length: random letters at the start of a row
    copy_length:  letters in a copy, taken at a uniform offset of all letters before it (without the
                  `>`)
    gap_min, gap_max: random letters between a copy and the next `>`, their number uniform
    context:      tokens that a problem (prompt and completion) has at most
    loss_on:      the tokens that the training loss counts: `all`, or the `answer`: a copy's letters
                  after its first

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
        check_between(2, MOST, copy_length=copy_length)
        check_between(1, MOST, first_length=first_length, gap_min=gap_min)
        check_between(gap_min, MOST, gap_max=gap_max)
        if first_length + gap_min < copy_length:
            most = f"first_length + gap_min = {first_length + gap_min}"
            raise ConfigError(
                f"copy_length={copy_length}: must be at most {most}, the text before the first copy"
            )
        check_between(first_length + gap_max + 1 + copy_length, MOST, context=context)
        self.letters = letters
        self.alphabet = letters + ">"
        self.arrow = len(letters)
        self.first_length = first_length
        self.copy_length = copy_length
        self.gap_min = gap_min
        self.gap_max = gap_max
        self.context = self.max_length = context
        self.last_copy = False  # whether problems ask for the last copy of a text, or for any

    def of_length(self, n: int) -> "SubstringByPrefix":
        """Copies that end within the last few tokens of a context of `n`: the last ones that
        fit.
        """
        sizes = (self.letters, self.first_length, self.copy_length, self.gap_min, self.gap_max)
        task = SubstringByPrefix(*sizes, n, self.loss_on)
        task.last_copy = True
        return task

    def text(
        self, rng: np.random.Generator, rows: int, length: int, held_out: bool = False
    ) -> Text:
        shortest_round = self.gap_min + 1 + self.copy_length
        rounds = max(1, -(-(length - self.first_length) // shortest_round))
        gaps = rng.integers(self.gap_min, self.gap_max + 1, size=(rows, rounds))
        begin = self.first_length + np.cumsum(gaps, axis=1) + self.copy_length * np.arange(rounds)
        source = rng.integers(begin - self.copy_length + 1)
        width = self.first_length + rounds * (self.gap_max + self.copy_length)
        letters = rng.integers(len(self.letters), size=(rows, width), dtype=np.uint8)
        at_once = rows * (32 if held_out else 2), self.first_length
        first = draw_side(
            held_out,
            rows,
            lambda _: rng.integers(len(self.letters), size=at_once),
            lambda drawn: drawn,
        )
        letters[:, : self.first_length] = first[:rows]
        row = np.arange(rows)[:, None]
        copy = np.arange(self.copy_length)
        for number in range(rounds):  # in turn, since a copy may be copied again
            letters[row, begin[:, number, None] + copy] = letters[
                row, source[:, number, None] + copy
            ]

        arrows = np.zeros(letters.shape, dtype=np.int64)
        arrows[row, begin] = 1  # each copy has a `>` before it
        column = np.arange(width) + np.cumsum(arrows, axis=1)  # the token of each letter
        tokens = np.full((rows, width + rounds), self.arrow, dtype=np.uint8)
        tokens[row, column] = letters
        position = np.zeros(tokens.shape, dtype=np.int16)
        for number in range(rounds):
            position[row, column[row, begin[:, number, None]] + copy] = copy
        return Text(tokens[:, :length], position[:, :length])

    def problems(self, rng: np.random.Generator, n: int) -> list[Problem]:
        """Rows up to the end of one of their copies; see `_problem`."""

        def batch() -> Iterator[Problem]:
            rows = self.text(rng, 64, self.context, held_out=True).tokens
            copies = (rows[:, : self.context - self.copy_length] == self.arrow).sum(axis=1)
            asked = copies - 1 if self.last_copy else rng.integers(copies)
            every = map(self._problem, rows, asked.tolist())
            yield from filter(None, every)

        return different(batch, n)

    def _problem(self, tokens: np.ndarray, copy: int) -> Problem | None:
        """The problem that asks for copy number `copy` of a row: its prompt ends where only one
        possible source of the copy begins with the letters so far.

        None if that never is so, because the source was copied whole before, or if the letters so
        far also stand too near the end of the text to be a source: so every problem is unambiguous.

        Attributes: `copy` (how many copies stand before it), `known` (its letters in the prompt),
        `distance` (tokens from the first unknown letter back to its source).
        """
        columns = np.flatnonzero(tokens != self.arrow)  # the token of each letter
        first = int(np.flatnonzero(tokens == self.arrow)[copy]) + 1
        before = tokens[columns[: first - 1 - copy]]
        copied = tokens[first : first + self.copy_length]
        known = 1 + int(np.argmax(self._matching(before, copied) == 1))  # 1 if there is none
        text, part = before.tobytes(), copied[:known].tobytes()
        source = text.find(part)
        if known == self.copy_length or source != text.rfind(part):
            return None
        unknown = first + known
        distance = unknown - int(columns[source + known])
        attributes = {"copy": copy, "known": known, "distance": distance}
        return Problem(tokens[: first + self.copy_length], unknown, attributes, self.decode)

    def floor(self, tokens: np.ndarray) -> np.ndarray:
        """The Bayes-optimal loss: a predictor cannot know where a copy is taken from until it is
        unique.

        Given j letters of a copy, it is uniform over all offsets whose first j letters match, so it
        gives the next letter the probability (offsets that match j + 1 letters) / (offsets that
        match j).
        """
        nats = np.zeros(tokens.shape)
        for row, text in enumerate(tokens):
            letters = text[text != self.arrow]
            for number, arrow in enumerate(np.flatnonzero(text == self.arrow)):
                copied = text[arrow + 1 : arrow + 1 + self.copy_length]
                matching = self._matching(letters[: arrow - number], copied)
                nats[row, arrow + 2 : arrow + 1 + len(copied)] = np.log(
                    matching[:-1] / matching[1:]
                )
        return nats

    def _matching(self, before: np.ndarray, copied: np.ndarray) -> np.ndarray:
        """The number of sources in the letters before a copy that match its first 1, 2, … letters,
        [len(copied)].
        """
        sources = np.lib.stride_tricks.sliding_window_view(before, self.copy_length)[
            :, : len(copied)
        ]
        return np.logical_and.accumulate(sources == copied, axis=1).sum(axis=0)
