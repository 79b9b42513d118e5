"""Indirect indexing: `?gkqzbnwe; q-2=g#` (after Gopalakrishnan et al., 2025, arXiv 2509.10534).

The answer is the character at a signed distance from a source character, which has to be found in
the string first: a match by content, then a step by position. The format is ours. The sizes of the
paper, strings of 20 to 40 different letters and shifts of up to 15: `shortest=20 string_length=40
max_distance=15 distinct=true`, with 52 letters.
"""

from string import ascii_lowercase

import numpy as np

from .base import MOST, PackedTask, check_between, check_letters, decimal, join, spell
from .task import LossOn


class IndirectIndexing(PackedTask):
    """Write the character that stands `shift` characters after the source (before it, if `shift` is
    negative).

    string_length: letters in a string, at most
    letters:       a string's letters are drawn from these: the source uniformly, the rest uniformly
                   from the others
    loss_on:       the tokens that the training loss counts: `all`, or the `answer` (the character
                   and the `#` after it)
    shortest:      letters in the shortest strings; None: all strings have string_length
    max_distance:  the largest absolute shift; less than the number of letters of the shortest
                   string
    distinct:      no letter of a string repeats; else the source alone is sure to occur once

    The shift is uniform over −max_distance … −1, 1 … max_distance. The source's index is uniform
    over those that keep the answer within the string. A string is wholly in training or in
    evaluation.

    Lengths are drawn equally often. Rows of training text cut their last problem: the shortest are
    whole 1.19 times as often as the longest (scale=quick).
    """

    def __init__(
        self,
        string_length: int = 30,
        letters: str = ascii_lowercase,
        loss_on: LossOn = "answer",
        shortest: int | None = 10,
        max_distance: int = 9,
        distinct: bool = False,
    ):
        super().__init__(loss_on)
        check_letters(letters, reserved="?; +-=#0123456789", least=3)
        most = len(letters) if distinct else MOST
        self.set_lengths(shortest, 2, most, string_length=string_length)
        check_between(1, self.lengths[0] - 1, max_distance=max_distance)
        self.possible_lengths = (max_distance + 1, most)
        self.letters, self.max_distance, self.distinct = letters, max_distance, distinct
        self.alphabet = "?; +-=#0123456789" + letters

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Letters, −1 beyond the string's end, the source's index and the shift: [n, width + 2]."""
        length = rng.integers(self.lengths[0], self.lengths[1] + 1, size=(n, 1))
        shift = rng.integers(-self.max_distance, self.max_distance, size=(n, 1))
        shift += shift >= 0
        index = rng.integers(length - abs(shift)) + np.maximum(-shift, 0)
        source = rng.integers(len(self.letters), size=(n, 1))
        others = rng.integers(len(self.letters) - 1, size=(n, self.width))
        others += others >= source
        if self.distinct:
            others = rng.random((n, len(self.letters))).argsort(axis=1)[:, : self.width]
            source = np.take_along_axis(others, index, axis=1)
        column = np.arange(self.width)
        strings = np.where(column == index, source, np.where(column < length, others, -1))
        return np.concatenate([strings, index, shift], axis=1)

    def split_key(self, drawn: np.ndarray) -> np.ndarray:
        return drawn[:, :-2]

    def write(self, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        string = spell(self.letters, drawn[:, :-2])
        index = drawn[:, -2:-1]
        shift = drawn[:, -1:]
        source, answer = (np.take_along_axis(string, at, axis=1) for at in (index, index + shift))
        sign = np.where(shift < 0, ord("-"), ord("+"))
        distance = decimal(abs(shift[:, 0]), width=len(str(self.max_distance)))
        return join("?", string, "; ", source, sign, distance, "="), join(answer, "#")

    def attributes(self, drawn: np.ndarray) -> dict[str, np.ndarray]:
        return {"shift": drawn[:, -1], "string_length": (drawn[:, :-2] >= 0).sum(axis=1)}
