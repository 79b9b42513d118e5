"""Substring by index: `?s='dyjeofuxvejmg'; s[8:]=='vejmg'#` (Harik and Jayasiri, 2022)."""

from string import ascii_lowercase

import numpy as np

from tasks.base import BLANK, LossOn, PackedTask, check_at_least, check_characters, decimal, join, show


class SubstringByIndex(PackedTask):
    """Write the end of a string, from a given index on.

    string_length: letters in a string
    letters:       what a string is drawn from, uniformly
    loss_on:       what training counts: `all` tokens, or those of the `answer` (the suffix and the `'#` after it)

    The index is uniform over 0 … string_length − 1. A string belongs wholly to training or wholly to evaluation.
    """

    def __init__(self, string_length: int = 13, letters: str = ascii_lowercase, loss_on: LossOn = "answer"):
        super().__init__(loss_on)
        check_at_least(1, string_length=string_length)
        check_characters("letters", letters, reserved="?'; [:]=#0123456789", least=2)
        self.string_length = string_length
        self.letters = letters
        self.alphabet = "".join(dict.fromkeys("?s='; [:]=#0123456789" + letters))

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        strings = rng.integers(len(self.letters), size=(n, self.string_length))
        index = rng.integers(self.string_length, size=(n, 1))
        return np.concatenate([strings, index], axis=1)

    def identity(self, drawn: np.ndarray) -> np.ndarray:
        return drawn[:, :-1]

    def write(self, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        string = np.frombuffer(self.letters.encode("ascii"), dtype=np.uint8)[drawn[:, :-1]]
        index = drawn[:, -1]
        suffix = np.where(np.arange(self.string_length) >= index[:, None], string, BLANK)
        digits = decimal(index, width=len(str(self.string_length - 1)))
        return join("?s='", string, "'; s[", digits, ":]=='"), join(suffix, "'#")

    def facts(self, drawn: np.ndarray) -> dict[str, np.ndarray]:
        return {"index": drawn[:, -1], "suffix_length": self.string_length - drawn[:, -1]}


if __name__ == "__main__":
    show(SubstringByIndex())
