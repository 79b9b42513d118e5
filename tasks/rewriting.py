"""A string to be copied, reversed or sorted: `?dbca=dbca#`, `?dbca=acbd#`, `?dbca=abcd#`."""

from collections.abc import Callable
from string import ascii_lowercase

import numpy as np

from rope_lab.text import ConfigError

from .base import PackedTask, check_letters, join, spell
from .task import LossOn

ORDERS: dict[
    str, Callable[[np.ndarray], np.ndarray]
] = {  # of letters, −1 beyond the end of a string or before it
    "copy": lambda strings: strings,
    "reverse": lambda strings: strings[:, ::-1],
    "sort": lambda strings: np.sort(strings, axis=1),
}


class Rewriting(PackedTask):
    """Write a string again, in an order.

    order:         copy, reverse or sort (as the letters stand in `letters`)
    string_length: letters in a string, at most
    shortest:      letters in the shortest strings; None: all strings have string_length
    letters:       a string's letters are drawn from these, uniformly
    loss_on:       the tokens that the training loss counts: `all`, or the `answer` (the letters and
                   the `#` after them)

    Lengths are drawn equally often. Rows of training text cut their last problem: the shortest are
    whole 1.28 times as often as the longest (scale=quick).
    Most strings of one or two letters are in training: evaluation has few of them.
    """

    def __init__(
        self,
        order: str = "copy",
        string_length: int = 16,
        shortest: int | None = 1,
        letters: str = ascii_lowercase,
        loss_on: LossOn = "answer",
    ):
        super().__init__(loss_on)
        if order not in ORDERS:
            raise ConfigError(f"order={order}: must be one of {', '.join(ORDERS)}")
        self.set_lengths(shortest, string_length=string_length)
        check_letters(letters, reserved="?=#", least=2)
        self.order, self.letters, self.alphabet = order, letters, "?=#" + letters

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Letters, −1 beyond the string's end: [n, width]."""
        return self.draw_strings(rng, n)[0]

    def write(self, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        answer = spell(self.letters, ORDERS[self.order](drawn))
        return join("?", spell(self.letters, drawn), "="), join(answer, "#")

    def attributes(self, drawn: np.ndarray) -> dict[str, np.ndarray]:
        return {"string_length": (drawn >= 0).sum(axis=1)}
