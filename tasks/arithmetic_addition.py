"""Arithmetic addition with its steps (Harik and Jayasiri, 2022).

`?d=66623+401; 3e0+1e0+0e0==4e0 and 2e1+0e1+0e1==2e1 and … and 6e4+0e4+0e4==6e4 and d==67024#`: a
step for each place, lowest first, adds a digit of each number and the carry, as long as either
number or the carry has something left.
"""

import numpy as np

from .base import BLANK, PackedTask, decimal, join
from .task import LossOn, Problem


class ArithmeticAddition(PackedTask):
    """Add two numbers step by step.

    digits:   the most digits of a number; their count is uniform, and the first digit is not 0
    shortest: the fewest digits it has; None: 1
    loss_on:  the tokens that the training loss counts: `all`, or the `answer` (everything after `;
              `)

    A pair of numbers belongs, in either order, wholly to training or wholly to evaluation. Rows of
    training text cut their last problem: the shortest are whole 1.56 times as often as the longest
    (scale=quick), relative to how often they are drawn.
    """

    alphabet = "?d=+; ean#0123456789"
    grades = ("accuracy", "sum_accuracy")
    score = "sum_accuracy"

    def __init__(self, digits: int = 8, loss_on: LossOn = "answer", shortest: int | None = None):
        super().__init__(loss_on)
        # Answers of more are too long.
        self.set_lengths(1 if shortest is None else shortest, most=999, digits=digits)

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Both numbers' digits, lowest place first, 0 beyond the highest: [n, 2 · width]."""
        lengths = rng.integers(self.lengths[0], self.lengths[1] + 1, size=(n, 2, 1))
        place = np.arange(self.width)
        lowest = np.where(place == lengths - 1, 1, 0)
        drawn = rng.integers(lowest, 10, size=(n, 2, self.width))
        return np.where(place < lengths, drawn, 0).reshape(n, -1)

    def split_key(self, drawn: np.ndarray) -> np.ndarray:
        first, second = np.split(drawn, 2, axis=1)
        # Place by place, and the same in either order.
        return np.concatenate([first + second, first * second], axis=1)

    def write(self, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        first, second, total, carry = self._added(drawn)
        n, places = first.shape
        exponent = decimal(np.arange(places), len(str(places - 1)))
        form = join("0e", exponent, "+0e", exponent, "+0e", exponent, "==00e", exponent, " and ")
        steps = np.broadcast_to(form, (n, *form.shape)).copy()
        term = 3 + exponent.shape[1]  # characters from one term's digit to the next one's
        terms = [(0, first), (term, second), (2 * term, carry), (3 * term + 2, total % 10)]
        for column, digits in terms:
            steps[:, :, column] = digits + ord("0")
        steps[:, :, 3 * term + 1] = np.where(total > 9, ord("1"), BLANK)
        highest_first = (first + second)[:, ::-1] > 0
        left = np.logical_or.accumulate(highest_first, axis=1)[:, ::-1] | (carry > 0)
        steps[~left] = BLANK
        prompts = join("?d=", _text(first[:, :-1]), "+", _text(second[:, :-1]), "; ")
        return prompts, join(steps.reshape(n, -1), "d==", _text(total % 10), "#")

    def attributes(self, drawn: np.ndarray) -> dict[str, np.ndarray]:
        first, second, _, carry = self._added(drawn)
        length, other_length = _count_digits(first), _count_digits(second)
        return {
            "digits_a": length,
            "digits_b": other_length,
            "digits": np.maximum(length, other_length),
            "carries": carry.sum(axis=1),
        }

    def grade(self, problem: Problem, completion: str) -> dict[str, bool]:
        """`accuracy`: every step and the sum are right; `sum_accuracy`: the sum is, whatever stands
        before it.
        """
        written = completion.split("#")[0].rpartition("d==")
        right = problem.completion.rpartition("d==")[2].removesuffix("#")
        total = "#" in completion and written[1] == "d==" and written[2] == right
        return {"accuracy": completion.startswith(problem.completion), "sum_accuracy": total}

    def _added(self, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Both numbers with a place for the last carry, each place's total, and the carry into it,
        [n, places] each.
        """
        first, second = (np.pad(number, ((0, 0), (0, 1))) for number in np.split(drawn, 2, axis=1))
        total = first + second
        carry = np.zeros_like(first)
        for place in range(1, first.shape[1]):
            carry[:, place] = total[:, place - 1] // 10
            total[:, place] += carry[:, place]
        return first, second, total, carry


def _count_digits(number: np.ndarray) -> np.ndarray:
    return number.shape[1] - np.argmax(number[:, ::-1] > 0, axis=1)


def _text(number: np.ndarray) -> np.ndarray:
    """Digits [n, places], lowest first, as characters, highest first, without leading zeros."""
    highest_first = number[:, ::-1]
    begun = np.logical_or.accumulate(highest_first > 0, axis=1)
    return np.where(begun, highest_first + ord("0"), BLANK)
