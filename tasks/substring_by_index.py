"""Substring by index: `?s='dyjeofuxvejmg'; s[8:]=='vejmg'#` (Harik and Jayasiri, 2022)."""

from string import ascii_lowercase

import numpy as np

from .base import BLANK, PackedTask, check_letters, decimal, join, spell
from .task import LossOn


class SubstringByIndex(PackedTask):
    """Write the end of a string, from a given index on.

    string_length: letters in a string, at most
    shortest:      letters in the shortest strings; None: all strings have string_length
    letters:       a string's letters are drawn from these, uniformly
    loss_on:       the tokens that the training loss counts: `all`, or the `answer` (the suffix and
                   the `'#` after it)

    The index is uniform over the string's letters. A string belongs wholly to training or wholly to
    evaluation.

    Lengths are drawn equally often. Rows of training text cut their last problem: the shortest are
    whole 1.13 times as often as the longest (scale=length).
    """

    def __init__(
        self,
        string_length: int = 13,
        letters: str = ascii_lowercase,
        loss_on: LossOn = "answer",
        shortest: int | None = None,
    ):
        super().__init__(loss_on)
        self.set_lengths(shortest, string_length=string_length)
        check_letters(letters, reserved="?'; [:]=#0123456789", least=2)
        self.letters = letters
        self.alphabet = "".join(dict.fromkeys("?s='; [:]=#0123456789" + letters))

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Letters, −1 beyond the string's end, and the index: [n, width + 1]."""
        strings, length = self.draw_strings(rng, n)
        return np.concatenate([strings, rng.integers(length)], axis=1)

    def split_key(self, drawn: np.ndarray) -> np.ndarray:
        return drawn[:, :-1]

    def write(self, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        string = spell(self.letters, drawn[:, :-1])
        index = drawn[:, -1]
        suffix = np.where(np.arange(self.width) >= index[:, None], string, BLANK)
        digits = decimal(index, width=len(str(self.width - 1)))
        return join("?s='", string, "'; s[", digits, ":]=='"), join(suffix, "'#")

    def attributes(self, drawn: np.ndarray) -> dict[str, np.ndarray]:
        return {
            "index": drawn[:, -1],
            "suffix_length": (drawn[:, :-1] >= 0).sum(axis=1) - drawn[:, -1],
        }
