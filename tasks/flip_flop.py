"""Flip-flop language modeling (Liu et al., 2023, arXiv 2306.00946): `w1i0i1r1w0i1r0`.

An instruction and a bit in turn: `w` writes a bit, `i` is ignored with its bit, `r` reads the bit
last written. The answers are the bits after `r`. As in the paper the first instruction writes and
the last one reads, 80% of the others are ignored, and models trained so are also graded on texts
with 98% (sparse) and 10% (dense): few or many writes.
"""

import copy

import numpy as np

from .base import PackedTask, check_between
from .task import LossOn, Problem

WRITE, IGNORE, READ = (ord(letter) for letter in "wir")


class FlipFlop(PackedTask):
    """Answer each read with the bit that was written last.

    instructions: of a problem
    ignored:      percent of the instructions that are ignored
    sparse, dense: percents of further held-out problems: as many of each, in turn, as of `ignored`
    loss_on:      the tokens that the training loss counts: `all`, or the `answer`: the bits that
                  are read
    """

    alphabet = "wir01"
    stop = None

    def __init__(
        self,
        instructions: int = 256,
        ignored: int = 80,
        sparse: int = 98,
        dense: int = 10,
        loss_on: LossOn = "answer",
    ):
        super().__init__(loss_on)
        self.set_lengths(None, 2, instructions=instructions)
        check_between(0, 99, ignored=ignored, sparse=sparse, dense=dense)
        self.ignored = ignored
        self.kinds = (ignored, sparse, dense)

    def problems(self, rng: np.random.Generator, n: int) -> list[Problem]:
        """In distribution, sparse and dense in turn."""
        lists = []
        for percent, own in zip(self.kinds, rng.spawn(len(self.kinds)), strict=True):
            task = copy.copy(self)
            task.ignored = percent
            lists.append(super(FlipFlop, task).problems(own, -(-n // len(self.kinds))))
        return [problem for in_turn in zip(*lists, strict=True) for problem in in_turn][:n]

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Instructions, then their bits: [n, 2 · instructions]."""
        size = n, self.lengths[1]
        other = np.where(rng.integers(2, size=size) == 1, WRITE, READ)
        instructions = np.where(rng.integers(100, size=size) < self.ignored, IGNORE, other)
        instructions[:, 0], instructions[:, -1] = WRITE, READ
        bits = rng.integers(2, size=size)
        written = np.maximum.accumulate(
            np.where(instructions == WRITE, np.arange(size[1]), 0), axis=1
        )
        read = np.take_along_axis(bits, written, axis=1)
        return np.concatenate([instructions, np.where(instructions == READ, read, bits)], axis=1)

    def write(self, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        instructions, bits = np.split(drawn, 2, axis=1)
        codes = np.stack([instructions, bits + ord("0")], axis=2).reshape(len(drawn), -1)
        return codes[:, :-1], codes[:, -1:]

    def answers_within(self, drawn: np.ndarray) -> np.ndarray:
        reads = np.split(drawn, 2, axis=1)[0] == READ
        return np.stack([np.zeros_like(reads), reads], axis=2).reshape(len(drawn), -1)[:, :-1]

    def attributes(self, drawn: np.ndarray) -> dict[str, np.ndarray]:
        writes = np.split(drawn, 2, axis=1)[0] == WRITE
        return {
            "ignored": np.full(len(drawn), self.ignored),
            "distance": 2 * np.argmax(writes[:, ::-1], axis=1),
        }
