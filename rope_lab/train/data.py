"""A task's text as batches. Batch k of a run is a function of (seed, stream, k) alone, whatever
happened before it.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rope_lab.model.device import pinned, send
from rope_lab.tasks.task import Problem, Task, Text

# Streams, the uses of random numbers. A stream's number is part of every recorded run: never reuse
# one.
INITIAL_WEIGHTS, SCHEME_WEIGHTS, TRAINING_TEXT, DROPOUT, POSITIONS = range(5)
# One for all runs: every scheme and seed meets the same problems and the same text.
EVALUATION_SEED = 20_220_622
EVALUATION_TEXT, EVALUATION_PROBLEMS, EVALUATION_POSITIONS = range(3)

IGNORED = -100  # a target that no loss counts


class Batch(NamedTuple):
    """Tokens and the next ones, int64 [B, T] each; targets that the loss does not count are
    `IGNORED`. Positions and documents of the inputs, as in `Text`.
    """

    inputs_BT: Tensor
    targets_BT: Tensor
    pos: Tensor | None = None
    documents_BT: Tensor | None = None

    def pinned(self, device: torch.device) -> "Batch":
        return Batch(*(None if x is None else pinned(x, device) for x in self))

    def to(self, device: torch.device) -> "Batch":
        return Batch(*(None if x is None else send(x, device) for x in self))

    def rows(self, begin: int, end: int) -> "Batch":
        """Some of its rows; positions [T], which all rows share, stay."""
        shared = None if self.pos is None or self.pos.dim() > 1 else self.pos
        some = Batch(*(None if x is None else x[begin:end] for x in self))
        return some if shared is None else some._replace(pos=shared)

    @property
    def given(self) -> dict[str, Tensor]:
        """Arguments of the model beside the inputs: those of them that the task gives."""
        both = {"pos": self.pos, "documents_BT": self.documents_BT}
        return {name: x for name, x in both.items() if x is not None}


class HeldOutText(NamedTuple):
    """A batch of held-out text; the fields for statistics stay on the CPU (MPS has no float64).

    answer_position_BT: int64, the position of a target in its answer: 1, 2, …, or 0 outside of
                        answers
    floor_BT:           float64, the Bayes-optimal loss there, in nats
    """

    batch: Batch
    answer_position_BT: Tensor
    floor_BT: Tensor

    def to(self, device: torch.device) -> "HeldOutText":
        return self._replace(batch=self.batch.to(device))


class Longer(NamedTuple):
    """Held-out problems of given lengths and, if a row of text is one document, text of the
    greatest length.
    """

    problems: dict[int, list[Problem]]
    text: HeldOutText | None

    @property
    def tokens(self) -> int:
        """The most tokens that a model reads of them."""
        read = [p.length - 1 for problems in self.problems.values() for p in problems]
        of_text = 0 if self.text is None else self.text.batch.inputs_BT.shape[1]
        return max([of_text, *read])


def generator(seed: int, stream: int, step: int = 0) -> np.random.Generator:
    """The random numbers of step `k` of a stream."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream, step)))


def torch_seed(seed: int, stream: int, step: int = 0) -> int:
    """A seed for torch's generator, for step `k` of a stream."""
    return int(generator(seed, stream, step).integers(2**63))


def training_batch(task: Task, seed: int, step: int, batch_size: int, seq_len: int) -> Batch:
    """Batch `k` of a run; its targets are the tokens that the task's `loss_on` counts."""
    text = task.text(generator(seed, TRAINING_TEXT, step), batch_size, seq_len + 1)
    return _batch(
        text,
        text.answer_position > 0 if task.loss_on == "answer" else np.full(text.tokens.shape, True),
    )


def evaluation_text(task: Task, rows: int, seq_len: int) -> HeldOutText:
    """Held-out text, the same for every run; its targets are the answers, whatever training
    counts.
    """
    text = task.text(generator(EVALUATION_SEED, EVALUATION_TEXT), rows, seq_len + 1, held_out=True)
    position = torch.from_numpy(text.answer_position[:, 1:].astype(np.int64))
    floor = torch.from_numpy(task.floor(text.tokens)[:, 1:].copy())
    batch = _batch(text, text.answer_position > 0)
    return HeldOutText(batch, position, floor)


def evaluation_problems(task: Task, n: int) -> list[Problem]:
    """The first `n` of one list of held-out problems, the same for every run."""
    return task.problems(generator(EVALUATION_SEED, EVALUATION_PROBLEMS), n)


def longer(
    task: Task, lengths: list[int], problems: int, rows: int, device: torch.device
) -> Longer:
    """`problems` held-out problems of each length, if graded, and `rows` rows of text. Raises
    ValueError if too few.
    """
    tasks = {n: task.of_length(n) for n in lengths}
    text = (
        evaluation_text(tasks[lengths[-1]], rows, lengths[-1]).to(device)
        if lengths and task.one_document
        else None
    )
    return Longer(
        {n: evaluation_problems(tasks[n], problems) if task.grades else [] for n in lengths}, text
    )


def pad(rows: list[np.ndarray]) -> Tensor:
    """Token arrays of different lengths as one int64 [B, longest], zeros at the right."""
    return nn.utils.rnn.pad_sequence(
        [torch.from_numpy(row.astype(np.int64)) for row in rows], batch_first=True
    )


def batches_by_length(
    lengths: list[int], most: float, room: int = 0, spread: float = math.inf
) -> list[list[int]]:
    """Indices by length, in batches of at most `most` tokens with padding and `room` a row, lengths
    within `spread`.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        full = not batches or (lengths[index] + room) * (len(batches[-1]) + 1) > most
        if full or lengths[index] - lengths[batches[-1][0]] >= spread:
            batches.append([])
        batches[-1].append(index)
    return batches


def pad_positions(rows: list[np.ndarray | None]) -> Tensor | None:
    """Positions of rows of different lengths, [B, longest] or [B, longest, axes], zeros at the
    right; None if the task gives none.
    """
    if not rows or rows[0] is None:
        return None
    tensors = [_as_positions(row) for row in rows]
    return nn.utils.rnn.pad_sequence(tensors, batch_first=True)


def _as_positions(values: np.ndarray) -> Tensor:
    """Positions as the model reads them, int64 or float64."""
    real = np.issubdtype(values.dtype, np.floating)
    return torch.from_numpy(values.astype(np.float64 if real else np.int64))


def _batch(text: Text, counted: np.ndarray) -> Batch:
    tokens = text.tokens.astype(np.int64)
    targets = np.where(counted, tokens, IGNORED)
    pos, documents = text.positions, text.documents
    if pos is not None:
        pos = _as_positions(pos[:-1] if pos.ndim == 1 else pos[:, :-1])
    if documents is not None:
        documents = torch.from_numpy(documents[:, :-1].astype(np.int64))
    inputs = tokens[:, :-1].copy()
    targets = targets[:, 1:].copy()
    return Batch(torch.from_numpy(inputs), torch.from_numpy(targets), pos, documents)
