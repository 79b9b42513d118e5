"""Addition in one step, by digits that have places: `653+049=2070#`.

The text of position coupling (Cho et al., 2024, arXiv 2405.20671): both numbers are padded with
zeros to the same length, and the sum, with one digit more, is written lowest digit first.

Positions have three axes: the token's number; the digit's place within its number as written, 1 for
the first and 0 for other characters, as in Abacus (McLeish et al., 2024); and the place that
digits of equal significance share: 2 for the lowest ones, 3 for the next, 1 for `+` and `=`, 0 for
others.
"""

from typing import Literal

import numpy as np

from .base import PackedTask, join, spell

DIGITS = "0123456789"


class Addition(PackedTask):
    """Add two numbers of as many digits.

    digits:   of a number at most, each count equally often; digits are uniform, the first too
    shortest: the fewest digits; None: all have `digits`
    operands: `highest`: numbers are written highest digit first; `lowest`: lowest first, as for
              Abacus

    A pair of numbers belongs, in either order, wholly to training or wholly to evaluation. A row of
    text is one problem.
    """

    alphabet = "+=#" + DIGITS
    packs = False

    def __init__(
        self,
        digits: int = 10,
        shortest: int | None = 1,
        operands: Literal["highest", "lowest"] = "highest",
    ):
        super().__init__()
        self.set_lengths(shortest, most=999, digits=digits)
        self.highest_first = operands == "highest"

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Digits of both numbers, lowest first, −1 beyond the highest: [n, 2 · width]."""
        count = rng.integers(self.lengths[0], self.lengths[1] + 1, size=(n, 1, 1))
        digits = rng.integers(10, size=(n, 2, self.width))
        return np.where(np.arange(self.width) < count, digits, -1).reshape(n, -1)

    def split_key(self, drawn: np.ndarray) -> np.ndarray:
        first, second = np.split(drawn, 2, axis=1)
        # Digit by digit, and the same in either order.
        return np.concatenate([first + second, first * second], axis=1)

    def write(self, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        first, second = np.split(drawn, 2, axis=1)
        written = [each[:, ::-1] if self.highest_first else each for each in (first, second)]
        prompts = join(spell(DIGITS, written[0]), "+", spell(DIGITS, written[1]), "=")
        return prompts, join(spell(DIGITS, _sum(first, second)), "#")

    def coordinates(self, prompts: np.ndarray) -> np.ndarray:
        """The place of each digit as written, and the place that it shares."""
        n = np.argmax(prompts == ord("+"), axis=1)[:, None]  # digits of a number
        number, place = np.divmod(np.arange(prompts.shape[1]), n + 1)
        in_sum = number >= 2
        place = np.where(in_sum, np.arange(prompts.shape[1]) - 2 * (n + 1), place)
        is_digit = place < np.where(in_sum, n + 1, n)
        significance = np.where(in_sum | (not self.highest_first), place, n - 1 - place)
        own = np.where(is_digit, place + 1, 0)
        sign = np.where(in_sum, 0, 1)
        return np.stack([own, np.where(is_digit, significance + 2, sign)], axis=2)

    def attributes(self, drawn: np.ndarray) -> dict[str, np.ndarray]:
        """`digits` of a number; `carries`: places that pass one on."""
        first, second = np.split(drawn, 2, axis=1)
        count = (first >= 0).sum(axis=1)
        return {"digits": count, "carries": _carries(first, second).sum(axis=1)}


def _carries(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """1 where a digit's sum passes a carry on, 0 elsewhere: [n, width]."""
    carries = np.zeros_like(first)
    carry = np.zeros(len(first), dtype=first.dtype)
    for place in range(first.shape[1]):
        total = first[:, place] + second[:, place] + carry
        carry = carries[:, place] = (total > 9).astype(first.dtype)
    return carries


def _sum(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Digits of the sum, lowest first, one more than of the numbers, then −1: [n, width + 1]."""
    count = (first >= 0).sum(axis=1, keepdims=True)
    digits = [np.pad(np.maximum(each, 0), ((0, 0), (0, 1))) for each in (first, second)]
    carry = np.pad(_carries(first, second), ((0, 0), (1, 0)))
    total = (digits[0] + digits[1] + carry) % 10
    return np.where(np.arange(total.shape[1]) <= count, total, -1)
