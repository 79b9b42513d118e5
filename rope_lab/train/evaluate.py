"""The metrics of a model: loss on held-out text, and problems completed and graded.

Greedy decoding gets a whole completion right if and only if every arg-max under teacher forcing is
right: one forward pass grades a problem. Only if the task has other grades (a right sum after wrong
steps), the wrong ones are generated.
Shape letters: B batch, T time, V vocabulary, N counted tokens.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_lab.model.device import MOST, NEAR, room, send
from rope_lab.model.transformer import Transformer
from rope_lab.tasks.task import Problem, Task
from rope_lab.text import show
from rope_lab.train import data
from rope_lab.train.config import Config
from rope_lab.train.data import HeldOutText
from rope_lab.train.generate import chooser, generate

SCORED = 128  # problems, of which the write-up counts the right ones


class Diverged(Exception):
    """A number is not finite; raised before the step that would have used it."""


# By an attribute, and by each of its values: how many problems or tokens, and their mean.
Slices = dict[str, dict[str, list[float]]]


class Evaluation(NamedTuple):
    """The result of an evaluation.

    metrics: every `eval/…` metric
    slices:  by each attribute of the problems, for each of its values [number of problems,
             accuracy]; and by `answer_position` [number of tokens, mean loss in nats]
    """

    metrics: dict[str, float]
    slices: Slices


def autocast(cfg: Config, device: torch.device) -> torch.autocast:
    """A context in which the device computes in the precision of a resolved `cfg`."""
    # Within a caller's own autocast, torch would keep the casts of earlier steps' weights.
    torch.clear_autocast_cache()
    return torch.autocast(device.type, torch.bfloat16, enabled=cfg.train.precision == "bfloat16")


@contextmanager
def as_evaluated(model: Transformer, cfg: Config, length: int = 0) -> Iterator[None]:
    """A context in which the model is ready for evaluation: no dropout, its precision, fixed random
    positions.

    length: the most tokens that it will read, if more than train.seq_len

    Raises Diverged if a weight is not finite.
    """
    weights = nn.utils.get_total_norm(model.parameters()).item()
    if not math.isfinite(weights):
        raise Diverged(f"the norm of the weights is {weights:g}")
    seed = data.torch_seed(data.EVALUATION_SEED, data.EVALUATION_POSITIONS)
    model.position.draw(seed, max(length, cfg.train.seq_len))
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode(), autocast(cfg, model.embedding.weight.device):
            yield
    finally:
        model.train(was_training)


def evaluate(
    model: Transformer, task: Task, text: HeldOutText, problems: list[Problem], max_len: int
) -> Evaluation:
    """Evaluate a model within `as_evaluated`; max_len: the most tokens that it reads to
    generate.
    """
    nats_N, right_N, position_N = text_losses(model, text)
    metrics = {"loss": nats_N.mean().item(), "token_accuracy": right_N.double().mean().item()}
    if task.token_bytes is not None:
        targets_BT = text.batch.targets_BT
        targets_N = targets_BT[targets_BT != data.IGNORED].cpu()
        metrics["bits_per_byte"] = (
            metrics["loss"] / math.log(2) / float(task.token_bytes[targets_N].mean())
        )
    grades = grade(model, task, problems, max_len) if task.grades else []
    for name in task.grades:
        metrics[name] = float(np.mean([g[name] for g in grades]))
    if len(grades) >= SCORED:
        metrics["score"] = sum(g[task.score] for g in grades[:SCORED])
    slices = {"answer_position": _means(position_N.tolist(), nats_N.tolist())}
    if grades:
        accuracy = [float(each["accuracy"]) for each in grades]
        for name in problems[0].attributes:
            slices[name] = _means([each.attributes[name] for each in problems], accuracy)
    return Evaluation({f"eval/{name}": value for name, value in metrics.items()}, slices)


def floor(text: HeldOutText) -> dict[str, Any]:
    """The Bayes-optimal loss of the text in nats per counted token, in all and by answer
    position.
    """
    counted = text.answer_position_BT > 0
    nats_N, position_N = text.floor_BT[counted], text.answer_position_BT[counted]
    return {
        "loss": nats_N.mean().item(),
        "answer_position": _means(position_N.tolist(), nats_N.tolist()),
    }


def text_losses(model: Transformer, text: HeldOutText) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of each counted token in nats (float64), whether it ranks first, and its answer
    position: [N], CPU.
    """
    nats, right = [], []
    rows = max(1, most_tokens(model) // text.batch.inputs_BT.shape[1])
    for begin in range(0, len(text.batch.inputs_BT), rows):
        some = text.batch.rows(begin, begin + rows)
        counted = some.targets_BT != data.IGNORED
        logits_BTV = model(some.inputs_BT, **some.given)
        logits_NV = logits_BTV[counted].float()
        targets_N = some.targets_BT[counted]
        nats.append(F.cross_entropy(logits_NV, targets_N, reduction="none").cpu().double())
        right.append((logits_NV.argmax(-1) == targets_N).cpu())
    return torch.cat(nats), torch.cat(right), text.answer_position_BT[text.answer_position_BT > 0]


def grade(
    model: Transformer, task: Task, problems: list[Problem], max_len: int
) -> list[dict[str, bool]]:
    """The grades of greedy decoding of each problem."""
    grades = [dict.fromkeys(task.grades, right) for right in exact_matches(model, problems)]
    if len(task.grades) > 1:  # a wrong completion may get another grade
        wrong = [i for i, each in enumerate(grades) if not each["accuracy"]]
        written = _written(model, task, [problems[i] for i in wrong], problems, max_len)
        for index, completion in zip(wrong, written, strict=True):
            grades[index] = task.grade(problems[index], completion)
    return grades


def by_length(model: Transformer, task: Task, cfg: Config, longer: data.Longer) -> Slices:
    """Accuracy and loss at eval.lengths, as slices.

    length:      for each length [number of problems, accuracy], if problems are graded
    depth_at_64: the same of problems of length 64 for each depth, if that is the attribute that the
                 task crosses
    length_loss: for each length [number of tokens between the length before and this one, their
                 mean loss in nats above the Bayes-optimal one], if there is text of such a length

    Raises Diverged if the model's outputs are not finite.
    """
    slices: Slices = {}
    if any(longer.problems.values()):
        slices |= _accuracy_by_length(model, task, cfg, longer.problems)
    if longer.text is not None:
        slices["length_loss"] = _loss_by_length(model, cfg, longer.text, [*longer.problems])
    return slices


def _accuracy_by_length(
    model: Transformer, task: Task, cfg: Config, problems: dict[int, list[Problem]]
) -> Slices:
    """The slices `length` and, if the task crosses an attribute with it, `depth_at_64`."""
    slices: Slices = {"length": {}}
    for length, those in problems.items():
        with as_evaluated(model, cfg, max(each.length - 1 for each in those)):
            right = [float(each) for each in exact_matches(model, those)]
        slices["length"][str(length)] = [len(those), float(np.mean(right))]
        if task.crossed:
            crossed = [each.attributes[task.crossed] for each in those]
            slices[f"{task.crossed}_at_{length}"] = _means(crossed, right)
    return slices


def _loss_by_length(
    model: Transformer, cfg: Config, text: HeldOutText, lengths: list[int]
) -> dict[str, list[float]]:
    """The slice `length_loss`: each counted token belongs to the first length beyond its place."""
    with as_evaluated(model, cfg, text.batch.inputs_BT.shape[1]):
        nats_N, _, _ = text_losses(model, text)
    if not bool(nats_N.isfinite().all()):
        raise Diverged(f"the loss at eval.lengths={show(cfg.eval.lengths)} is not finite")
    counted_BT = text.answer_position_BT > 0
    above_N = nats_N - text.floor_BT[counted_BT]
    place_N = torch.nonzero(counted_BT)[:, 1].numpy()
    first_N = np.searchsorted(lengths, place_N, side="right")
    length_N = np.array(lengths)[first_N]
    return _means(length_N.tolist(), above_N.tolist())


def samples(
    model: Transformer, task: Task, problems: list[Problem], max_len: int
) -> list[dict[str, Any]]:
    """Each problem's prompt and completion, the model's own completion, and its grades."""
    written = _written(model, task, problems, problems, max_len)
    found = []
    for problem, completion in zip(problems, written, strict=True):
        sample = {"prompt": problem.prompt, "completion": problem.completion, "written": completion}
        found.append(sample | task.grade(problem, completion))
    return found


def exact_matches(model: Transformer, problems: list[Problem]) -> list[bool]:
    """For each problem, whether every token of its completion ranks first, given the prompt and
    those before it. Raises Diverged if a logit is not finite.
    """
    device = model.embedding.weight.device
    right: dict[int, bool] = {}  # by the number of the problem
    for batch in data.batches_by_length([p.length for p in problems], most_tokens(model)):
        tokens_BT = data.pad([problems[i].tokens for i in batch]).to(device)
        begin_B1 = torch.tensor([[problems[i].prompt_length] for i in batch], device=device)
        end_B1 = torch.tensor([[problems[i].length] for i in batch], device=device)
        place_T = torch.arange(1, tokens_BT.shape[1], device=device)
        pos = data.pad_positions([problems[i].positions for i in batch])
        given = {} if pos is None else {"pos": send(pos[:, :-1], device)}
        logits_BTV = model(tokens_BT[:, :-1], **given)
        if not bool((logits_BTV.isfinite().all(-1) | (place_T >= end_B1)).all()):
            raise Diverged(
                f"logits of problems of up to {tokens_BT.shape[1]} tokens are not finite"
            )
        hit_BT = logits_BTV.argmax(-1) == tokens_BT[:, 1:]
        hit_BT |= (place_T < begin_B1) | (place_T >= end_B1)
        for number, is_right in zip(batch, hit_BT.all(dim=1).tolist(), strict=True):
            right[number] = is_right
    return [right[i] for i in range(len(problems))]


def most_tokens(model: Transformer) -> int:
    """The most tokens of one pass; each needs its logits twice, and in a layer 16 numbers per
    feature.
    """
    (V, D), device = model.embedding.weight.shape, model.embedding.weight.device
    each = 8 * V + 64 * D  # bytes
    return min(MOST, room(device, NEAR * each) // each)


def _written(
    model: Transformer, task: Task, some: list[Problem], every: list[Problem], max_len: int
) -> list[str]:
    """Completions of `some`: greedy, up to the longest right one of `every`; sampled if nothing is
    graded.
    """
    longest = max(p.length - p.prompt_length for p in every) if task.grades else max_len
    choose = chooser(task)
    prompts = [p.tokens[: p.prompt_length] for p in some]
    completions = generate(model, task, prompts, longest, max_len, choose)
    return [task.decode(tokens) for tokens in completions]


def _means(keys: list[int], values: list[float]) -> dict[str, list[float]]:
    """For each key, as text, the number of its values and their mean."""
    slices = defaultdict(list)
    for key, value in zip(keys, values, strict=True):
        slices[key].append(value)
    return {str(key): [len(slices[key]), float(np.mean(slices[key]))] for key in sorted(slices)}
