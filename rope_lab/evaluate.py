"""How good a model is: loss on held-out text, and problems completed and graded.

Where the whole completion is graded, greedy decoding is right if and only if every arg-max under teacher forcing is
right, so one forward pass grades a problem. Only what teacher forcing finds wrong has to be generated, and only where
the task grades more than the whole (a right sum after wrong steps).

Shape letters: B batch, T time, V vocabulary.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rope_lab.data import IGNORED, HeldOutText, Longer, pad
from rope_lab.model import Transformer
from tasks.base import Problem, Task

SCORED = 128  # the write-up counts how many of so many problems are right
READ = 2**14  # tokens that one pass reads at most: what it works out on the way should stay near the processor
CACHED = 2**30  # bytes of keys and values that completions written side by side take at most


@dataclass(frozen=True)
class Evaluation:
    """How good a model was found to be.

    metrics: every `eval/…` metric
    slices:  for each fact of the problems, and each value it takes, [how many problems have it, their accuracy]; and
             for `place`, [how many tokens stand at that place in their answer, their mean loss in nats]
    """

    metrics: dict[str, float]
    slices: dict[str, dict[str, list[float]]]


@contextmanager
def evaluating(model: Transformer) -> Iterator[None]:
    """Within it the model neither drops anything out nor records gradients."""
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(was_training)


def evaluate(model: Transformer, task: Task, text: HeldOutText, problems: list[Problem], max_len: int) -> Evaluation:
    """Evaluates the model, within `evaluating`; `max_len`: tokens that it reads at most where it generates."""
    nats_N, right_N, place_N = text_losses(model, text)
    metrics = {"loss": nats_N.mean().item(), "token_accuracy": right_N.double().mean().item()}
    grades = grade(model, task, problems, max_len)
    for name in task.grades:
        metrics[name] = float(np.mean([g[name] for g in grades]))
    if len(grades) >= SCORED:
        metrics["score"] = sum(g[task.score] for g in grades[:SCORED])
    slices = {"place": _means(place_N.tolist(), nats_N.tolist())}
    for fact in problems[0].facts:
        slices[fact] = _means([p.facts[fact] for p in problems], [float(g["accuracy"]) for g in grades])
    return Evaluation({f"eval/{name}": value for name, value in metrics.items()}, slices)


def floor(text: HeldOutText) -> dict[str, Any]:
    """What the ideal predictor loses on the text, in nats per counted token: in all (`loss`) and by `place`."""
    counted = text.targets_BT.cpu() != IGNORED
    nats_N, place_N = text.floor_BT[counted], text.place_BT[counted]
    return {"loss": nats_N.mean().item(), "place": _means(place_N.tolist(), nats_N.tolist())}


def text_losses(model: Transformer, text: HeldOutText) -> tuple[Tensor, Tensor, Tensor]:
    """Of each of the N counted tokens: its loss in nats (float64), whether it ranks first, and its place.

    [N] each, on the CPU.
    """
    rows = max(1, READ // text.inputs_BT.shape[1])
    nats, right = [], []
    for inputs_BT, targets_BT in zip(text.inputs_BT.split(rows), text.targets_BT.split(rows), strict=True):
        counted = targets_BT != IGNORED
        logits_NV, targets_N = model(inputs_BT)[counted].float(), targets_BT[counted]
        nats.append(F.cross_entropy(logits_NV, targets_N, reduction="none").cpu().double())
        right.append((logits_NV.argmax(-1) == targets_N).cpu())
    return torch.cat(nats), torch.cat(right), text.place_BT[text.targets_BT.cpu() != IGNORED]


def grade(model: Transformer, task: Task, problems: list[Problem], max_len: int) -> list[dict[str, bool]]:
    """What greedy decoding gets right of each problem."""
    whole = exact_matches(model, task, problems)
    completions = [p.completion if right else "" for p, right in zip(problems, whole, strict=True)]
    if len(task.grades) > 1:
        wrong = [i for i, right in enumerate(whole) if not right]
        longest = max(len(p.completion) for p in problems)
        written = generate(model, task, [problems[i].prompt for i in wrong], longest, max_len)
        for i, completion in zip(wrong, written, strict=True):
            completions[i] = completion
    return [task.grade(p, c) for p, c in zip(problems, completions, strict=True)]


def by_length(
    model: Transformer, task: Task, longer: Longer, reading: Callable[[int], AbstractContextManager]
) -> dict[str, dict[str, list[float]]]:
    """Slices, each measured within `reading(n)`, where n is how many tokens are read for it.

    length:      for each length, [how many problems, the share that are right]
    length_loss: where text is made that long, [how many tokens stand between the length before and this, their mean
                 loss in nats above the ideal predictor's]
    """
    slices: dict[str, dict[str, list[float]]] = {"length": {}}
    for n, problems in longer.problems.items():
        with reading(max(p.length - 1 for p in problems)):
            slices["length"][str(n)] = [len(problems), float(np.mean(exact_matches(model, task, problems)))]
    if longer.text is not None:
        counted = longer.text.targets_BT.cpu() != IGNORED
        with reading(longer.text.inputs_BT.shape[1]):
            nats_N, _, _ = text_losses(model, longer.text)
        above_N = (nats_N - longer.text.floor_BT[counted]).tolist()
        length_N = np.searchsorted(list(longer.problems), torch.nonzero(counted)[:, 1].numpy(), side="right")
        slices["length_loss"] = _means(np.array(list(longer.problems))[length_N].tolist(), above_N)
    return slices


def samples(model: Transformer, task: Task, problems: list[Problem], max_len: int) -> list[dict[str, Any]]:
    """Each problem's prompt and completion, what the model writes there (within `evaluating`), and its grades."""
    longest = max(len(p.completion) for p in problems)
    written = generate(model, task, [p.prompt for p in problems], longest, max_len)
    return [
        {"prompt": p.prompt, "completion": p.completion, "written": w, **task.grade(p, w)}
        for p, w in zip(problems, written, strict=True)
    ]


def exact_matches(model: Transformer, task: Task, problems: list[Problem]) -> list[bool]:
    """For each problem, whether every token of the completion ranks first, given the prompt and those before it."""
    right = [False] * len(problems)
    for chunk in _chunks([p.length for p in problems], READ):
        tokens_BT = pad([task.encode(problems[i].prompt + problems[i].completion) for i in chunk])
        tokens_BT = tokens_BT.to(model.embedding.weight.device)
        place = torch.arange(1, tokens_BT.shape[1], device=tokens_BT.device)
        begin, end = (
            torch.tensor(lengths, device=tokens_BT.device)[:, None]
            for lengths in zip(*((len(problems[i].prompt), problems[i].length) for i in chunk), strict=True)
        )
        asked_BT = (begin <= place) & (place < end)
        hit_BT = model(tokens_BT[:, :-1]).argmax(-1) == tokens_BT[:, 1:]
        for i, hit in zip(chunk, (hit_BT | ~asked_BT).all(dim=1).tolist(), strict=True):
            right[i] = hit
    return right


def generate(model: Transformer, task: Task, prompts: list[str], longest: int, max_len: int) -> list[str]:
    """Greedy completions of prompts of 1 to `max_len` tokens, each up to the task's stop character or `longest` tokens.

    The model reads no more than `max_len` tokens, so the token after the last it can read is the last it writes.
    """
    written = [""] * len(prompts)
    slots = max(map(len, prompts), default=0) + longest
    bytes_of_token = sum(memory.nbytes for memory in model.new_cache(1, slots)) / slots
    for chunk in _chunks([len(p) for p in prompts], CACHED / bytes_of_token, room=longest, spread=longest):
        for i, tokens in zip(chunk, _generate(model, task, [prompts[i] for i in chunk], longest, max_len), strict=True):
            written[i] = task.decode(tokens)
    return written


def _generate(model: Transformer, task: Task, prompts: list[str], longest: int, max_len: int) -> list[np.ndarray]:
    """One batch, all rows one token after the other at the same place: of its prompt while that lasts, then its own.

    What the prompts have in common in length is read at once. Rows that have ended are dropped when half of them have,
    so that few long ones do not hold up the many.
    """
    device = model.embedding.weight.device
    stop = task.alphabet.index(task.stop) if task.stop else -1
    end_B = torch.tensor([len(p) for p in prompts], device=device)
    text_BT = F.pad(pad([task.encode(p) for p in prompts]), (0, longest)).to(device)
    text_BT[torch.arange(text_BT.shape[1], device=device) >= end_B[:, None]] = -1
    begin, slots = int(end_B.min()), min(int(end_B.max()) + longest, max_len)
    cache = model.new_cache(len(prompts), slots)

    row_B, prompt_B = torch.arange(len(prompts), device=device), end_B  # rows that have not been dropped
    logits_BV = model(text_BT[:, :begin], cache=cache)[:, -1]
    going_B = torch.ones_like(row_B, dtype=torch.bool)
    for t in range(begin, slots + 1):
        own_B = prompt_B <= t
        next_B = torch.where(own_B, logits_BV.argmax(-1), text_BT[row_B, t])
        text_BT[row_B, t] = torch.where(going_B, next_B, -1)
        going_B &= ~own_B | ((next_B != stop) & (t + 1 < prompt_B + longest))
        left = int(going_B.sum())
        if left == 0 or t == slots:
            break
        if left <= len(row_B) // 2:
            cache = [memory.rows(going_B) for memory in cache]
            row_B, prompt_B, next_B, going_B = (x[going_B] for x in (row_B, prompt_B, next_B, going_B))
        logits_BV = model(next_B[:, None], cache=cache)[:, 0]
    written = [row[end:] for row, end in zip(text_BT.cpu().numpy(), end_B.tolist(), strict=True)]
    return [row[: np.argmax(np.append(row, -1) < 0)] for row in written]


def _means(keys: list[int], values: list[float]) -> dict[str, list[float]]:
    """For each key, as JSON wants it, how many values there are and their mean."""
    slices = defaultdict(list)
    for key, value in zip(keys, values, strict=True):
        slices[key].append(value)
    return {str(key): [len(slices[key]), float(np.mean(slices[key]))] for key in sorted(slices)}


def _chunks(lengths: list[int], most: float, room: int = 0, spread: float = math.inf) -> list[list[int]]:
    """Indices in order of length, cut into batches of at most `most` tokens after padding, `room` at each row's end.

    No length in a batch is `spread` more than another.
    """
    chunks: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        full = not chunks or (lengths[i] + room) * (len(chunks[-1]) + 1) > most
        if full or lengths[i] - lengths[chunks[-1][0]] >= spread:
            chunks.append([])
        chunks[-1].append(i)
    return chunks
