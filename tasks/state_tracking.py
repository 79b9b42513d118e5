"""State tracking as the word problem of a group (Liu et al., 2023, arXiv 2210.10749): `?dbace=c#`.

Each letter is a permutation; the answer is their product, the first letter applied first.
S2 is parity. S3 is solvable; A5, of 60 permutations of five things, is not, so no constant-depth
circuit of threshold gates is known for it.
"""

from itertools import permutations, product
from string import ascii_letters, digits

import numpy as np

from rope_lab.text import ConfigError

from .base import PackedTask, join, spell
from .task import LossOn

SIZES = {"S2": 2, "S3": 3, "A5": 5}


class StateTracking(PackedTask):
    """Write the product of a word of permutations.

    group:       S2, S3 or A5
    word_length: letters of a word, at most
    shortest:    letters of the shortest words; None: all have word_length
    loss_on:     the tokens that the training loss counts: `all`, or the `answer` (the product and
                 the `#` after it)

    Lengths are drawn equally often. Rows of training text cut their last problem: the shortest are
    whole 1.04 times as often as the longest (scale=quick).
    Evaluation has each held-out word once: at scale=quick 0, 6, 13, 81, 167 and 245 of 1 to 6
    letters.
    """

    def __init__(
        self,
        group: str = "S3",
        word_length: int = 16,
        shortest: int | None = 1,
        loss_on: LossOn = "answer",
    ):
        super().__init__(loss_on)
        if group not in SIZES:
            raise ConfigError(f"group={group}: must be one of {', '.join(SIZES)}")
        self.set_lengths(shortest, word_length=word_length)
        every = list(permutations(range(SIZES[group])))
        if group[0] == "A":  # the even ones, whose matrices have the determinant 1
            every = [p for p in every if np.linalg.det(np.eye(len(p))[list(p)]) > 0]
        number = {permutation: index for index, permutation in enumerate(every)}
        self.group = group
        self.product = np.empty((len(every), len(every)), dtype=np.int64)
        for first, second in product(every, every):
            both = tuple(second[index] for index in first)
            self.product[number[first], number[second]] = number[both]
        self.letters = (ascii_letters + digits)[: len(every)]
        self.alphabet = "?=#" + self.letters

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Permutations, −1 beyond the word's end: [n, width]."""
        return self.draw_strings(rng, n)[0]

    def write(self, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        state = np.zeros(len(drawn), dtype=np.int64)  # permutation 0 is the identity
        for letter in drawn.T:
            state = np.where(letter >= 0, self.product[state, letter], state)
        return join("?", spell(self.letters, drawn), "="), join(
            spell(self.letters, state[:, None]), "#"
        )

    def attributes(self, drawn: np.ndarray) -> dict[str, np.ndarray]:
        return {"word_length": (drawn >= 0).sum(axis=1)}
