"""Multi-query associative recall (Arora et al., 2023, arXiv 2312.04927): keys with values, then the
keys again.

`k1 v1 k2 v2 · · k2 v2 · · · · k1 v1`, a character each: the answers are the values after a key that
comes again. As in the paper, one half of the vocabulary are keys and the other values. What
differs: fillers (`·`) are any characters but the problem's keys, so none overwrites a pair; keys
come again at uniform places, of which the last is always one; values are drawn with replacement, so
two keys of a problem may have the same value (2.3% of problems with 4 pairs and 512 characters).

The recipes have the easiest of the paper's cells, 64 tokens and 4 pairs; harder ones are 128 with 8
and 256 with 16. The paper's attention has learned positions, and in later work of its authors none
but a convolution of 3 taps: "attention solves MQAR" was shown with one of the two.
"""

import copy

import numpy as np

from rope_lab.text import ConfigError

from .base import BLANK, MOST, PackedTask, check_between
from .task import LossOn, Problem

FIRST = 0x4E00  # the first of 20,000 letters in Unicode: CJK ideographs


class AssociativeRecall(PackedTask):
    """Answer each key that comes again with its value.

    tokens:     of a problem; an even number
    pairs:      of different keys with their values, at most
    fewest:     pairs of a problem at least, each number equally often; None: all have `pairs`
    vocabulary: number of characters; an even number
    loss_on:    the tokens that the training loss counts: `all`, or the `answer`: the values of keys
                that come again
    """

    stop = None

    def __init__(
        self,
        tokens: int = 64,
        pairs: int = 4,
        vocabulary: int = 8192,
        fewest: int | None = None,
        loss_on: LossOn = "answer",
    ):
        super().__init__(loss_on)
        check_between(4, 20_000, vocabulary=vocabulary)
        check_between(4, MOST, tokens=tokens)
        if vocabulary % 2 or tokens % 2:
            raise ConfigError(f"vocabulary={vocabulary}, tokens={tokens}: must be even numbers")
        check_between(1, min(tokens // 4, vocabulary // 2), pairs=pairs)  # a pair is written twice
        self.fewest = pairs if fewest is None else fewest
        check_between(1, pairs, fewest=self.fewest)
        self.set_lengths(None, 4 * pairs, tokens=tokens)
        self.pairs, self.vocabulary = pairs, vocabulary
        self.alphabet = "".join(map(chr, range(FIRST, FIRST + vocabulary)))
        # Whether problems end at any of the keys that come again, or at the last.
        self.ask_any = False

    def of_length(self, n: int) -> PackedTask:
        if n % 2:
            raise ConfigError(f"length={n}: must be an even number")
        return super().of_length(n)

    def problems(self, rng: np.random.Generator, n: int) -> list[Problem]:
        """Texts up to the answer of any key that comes again, each equally often."""
        task = copy.copy(self)
        task.ask_any = True
        return super(AssociativeRecall, task).problems(rng, n)

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """The number of pairs, the pair asked for last, its answer's place, characters: [n, 3 +
        tokens].
        """
        T = self.lengths[1]
        half = self.vocabulary // 2
        count = rng.integers(self.fewest, self.pairs + 1, size=n)
        keys = np.empty((n, 0), dtype=np.int64)
        for pair in range(self.pairs):
            key = _free(rng.integers(half - pair, size=(n, 1)), keys)
            keys = np.concatenate([keys, key], axis=1)
        values = half + rng.integers(half, size=keys.shape)
        characters = _free(rng.integers(self.vocabulary - self.pairs, size=(n, T)), keys)

        order = rng.random((n, T // 2))  # of places for a key and its value, counted from the end
        order[:, 0] = 0.0
        order[np.arange(T // 2) >= T // 2 - count[:, None]] = 1.0  # there stand the pairs
        places = T - 2 - 2 * order.argsort(axis=1)[:, : self.pairs]
        last = rng.integers(count)  # the pair asked for at the last place
        asked = rng.integers(count) if self.ask_any else last
        answer = np.empty(n, dtype=np.int64)
        for pair in range(self.pairs):
            of = np.flatnonzero(count > pair)
            place = places[of, (pair - last[of]) % count[of]]
            for begin in (2 * pair, place):
                characters[of, begin], characters[of, begin + 1] = keys[of, pair], values[of, pair]
            answer[of] = np.where(asked[of] == pair, place + 1, answer[of])
        return np.concatenate([np.stack([count, asked, answer], axis=1), characters], axis=1)

    def split_key(self, drawn: np.ndarray) -> np.ndarray:
        """The pairs."""
        return np.where(
            np.arange(2 * self.pairs) < 2 * drawn[:, :1], drawn[:, 3 : 3 + 2 * self.pairs], -1
        )

    def write(self, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        answer = drawn[:, 2:3]
        codes = FIRST + drawn[:, 3:]
        prompts = np.where(np.arange(codes.shape[1] - 1) < answer, codes[:, :-1], BLANK)
        return prompts, np.take_along_axis(codes, answer, axis=1)

    def answers_within(self, drawn: np.ndarray) -> np.ndarray:
        pairs = self.split_key(drawn)
        keys = pairs[:, ::2]
        characters = drawn[:, 3:-1]
        after_key = (np.pad(characters, ((0, 0), (1, 0)))[:, :-1, None] == keys[:, None]).any(
            axis=2
        )
        return after_key & (np.arange(characters.shape[1]) >= 2 * drawn[:, :1])

    def attributes(self, drawn: np.ndarray) -> dict[str, np.ndarray]:
        return {"distance": drawn[:, 2] - 2 * drawn[:, 1] - 1, "pairs": drawn[:, 0]}


def _free(numbers: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """The `numbers`-th natural numbers, from 0, that are not among those `taken` in a row: [n, m]
    and [n, k].
    """
    for one in np.sort(taken, axis=1).T:
        numbers = numbers + (numbers >= one[:, None])
    return numbers
