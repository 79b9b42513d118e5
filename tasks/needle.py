"""A needle in a haystack: `?kdjf>qpxlskd=qpx#`: the letters after `>`, at any depth of a string.

The format is ours, after Kamradt's test of long contexts (2023): one key, to be found by its
content, and as many letters after it as the needle has, which look like all others.
"""

from string import ascii_lowercase

import numpy as np

from .base import MOST, PackedTask, check_between, check_letters, join, spell
from .task import LossOn


class Needle(PackedTask):
    """Write the letters of the needle, which stands after `>`.

    string_length: letters of the haystack, those of the needle included, at most
    shortest:      letters of the shortest haystacks; None: all have string_length
    needle:        letters to be written
    letters:       all letters are drawn from these, uniformly
    loss_on:       the tokens that the training loss counts: `all`, or the `answer` (the needle and
                   the `#` after it)

    The needle's depth, the number of letters before it, is uniform. A haystack is wholly in
    training or in evaluation.

    Lengths are drawn equally often. Rows of training text cut their last problem: the shortest are
    whole 1.59 times as often as the longest (scale=quick).
    """

    crossed = "depth"

    def __init__(
        self,
        string_length: int = 64,
        shortest: int | None = 16,
        needle: int = 4,
        letters: str = ascii_lowercase,
        loss_on: LossOn = "answer",
    ):
        super().__init__(loss_on)
        self.set_lengths(shortest, string_length=string_length)
        check_between(1, self.lengths[0], needle=needle)
        check_letters(letters, reserved="?>=#", least=2)
        self.possible_lengths = (needle, MOST)
        self.needle, self.letters, self.alphabet = needle, letters, "?>=#" + letters

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Letters, −1 beyond the haystack's end, and the needle's depth: [n, width + 1]."""
        strings, length = self.draw_strings(rng, n)
        return np.concatenate([strings, rng.integers(length - self.needle + 1)], axis=1)

    def split_key(self, drawn: np.ndarray) -> np.ndarray:
        return drawn[:, :-1]

    def write(self, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        string = spell(self.letters, drawn[:, :-1])
        depth = drawn[:, -1:]
        needle = np.take_along_axis(string, depth + np.arange(self.needle), axis=1)
        before, after = (np.pad(string, ((0, 0), side)) for side in ((0, 1), (1, 0)))
        column = np.arange(self.width + 1)
        haystack = np.where(column < depth, before, np.where(column == depth, ord(">"), after))
        return join("?", haystack, "="), join(needle, "#")

    def attributes(self, drawn: np.ndarray) -> dict[str, np.ndarray]:
        """`depth`: tenths of the haystack before the needle."""
        length = (drawn[:, :-1] >= 0).sum(axis=1)
        return {"depth": 10 * drawn[:, -1] // length, "string_length": length}
