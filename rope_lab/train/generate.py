"""Decoding with a KV cache, many prompts side by side.

Shape letters: B batch, T time, V vocabulary.
"""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rope_lab.model.device import room, send
from rope_lab.model.transformer import Transformer
from rope_lab.tasks.task import Task
from rope_lab.text import ConfigError
from rope_lab.train.config import Config
from rope_lab.train.data import batches_by_length, evaluation_problems, pad, pad_positions
from rope_lab.train.instantiate import config_errors

# The most bytes of keys and values of completions written side by side, except on a GPU.
CACHED = 2**30

TEMPERATURE = 0.8  # of text

Choose = Callable[[Tensor], Tensor]  # logits [B, V] → tokens [B]


def likeliest(logits_BV: Tensor) -> Tensor:
    """The token that ranks first: greedy decoding."""
    return logits_BV.argmax(-1)


def sampled(temperature: float, top_k: int, seed: int) -> Choose:
    """Random tokens among the `top_k` first, by their probabilities with logits divided by
    `temperature`.
    """
    random = torch.Generator().manual_seed(seed % 2**64)

    def choose(logits_BV: Tensor) -> Tensor:
        best_BK, token_BK = logits_BV.float().cpu().topk(min(top_k, logits_BV.shape[-1]))
        # In float64, below the best one: a tiny temperature then gives the likeliest token.
        below_BK = (best_BK - best_BK[:, :1]).double() / temperature
        chosen_B1 = torch.multinomial(below_BK.softmax(-1).float(), 1, generator=random)
        return token_BK.gather(1, chosen_B1)[:, 0].to(logits_BV.device)

    return choose


def generate(
    model: Transformer,
    task: Task,
    prompts: list[np.ndarray],
    longest: int,
    max_len: int,
    choose: Choose = likeliest,
) -> list[np.ndarray]:
    """Completions of prompts of 1 to `max_len` tokens, each up to the task's stop character or
    `longest` tokens.

    The model reads no more than `max_len` tokens, so the token after the last it can read is the
    last it writes.
    """
    stop = task.alphabet.index(task.stop) if task.stop else None
    lengths = [len(prompt) for prompt in prompts]
    slots = max(lengths, default=0) + longest
    cached = room(model.embedding.weight.device, CACHED)
    written: dict[int, np.ndarray] = {}  # by the number of the prompt
    for batch in batches_by_length(
        lengths, cached / model.bytes_of_token(slots), room=longest, spread=longest
    ):
        some = [prompts[i] for i in batch]
        pos = pad_positions([task.positions(each, len(each) + longest) for each in some])
        made = _generate(model, some, pos, stop, longest, max_len, choose)
        for number, completion in zip(batch, made, strict=True):
            written[number] = completion
    return [written[i] for i in range(len(prompts))]


def _generate(
    model: Transformer,
    prompts: list[np.ndarray],
    pos: Tensor | None,
    stop: int | None,
    longest: int,
    max_len: int,
    choose: Choose,
) -> list[np.ndarray]:
    """Generate one batch. In step t every row's token t is fixed: its prompt's if it has one, else
    a chosen one.

    pos: positions of prompts and completions, [B, T] or [B, T, axes], or None
    """
    device = model.embedding.weight.device
    lengths = [len(prompt) for prompt in prompts]
    prompt_B = torch.tensor(lengths, device=device)
    tokens_BT = F.pad(pad(prompts), (0, longest)).to(device)
    slots = min(max(lengths) + longest, max_len)
    # Where each row ends, if no stop ends it before.
    end_B = (prompt_B + longest).clamp(max=slots + 1)
    cache = model.new_cache(len(prompts), slots)
    row_B = torch.arange(len(prompts), device=device)  # the rows in the cache
    pos = None if pos is None else send(pos, device)

    def given(begin: int, end: int) -> dict[str, Tensor]:
        return {} if pos is None else {"pos": pos[row_B, begin:end]}

    prefill = min(lengths)  # tokens that all prompts have are read at once
    logits_BV = model(tokens_BT[:, :prefill], cache=cache, **given(0, prefill))[:, -1]
    for place in range(prefill, slots + 1):
        own_B = place >= prompt_B[row_B]
        next_B = torch.where(own_B, choose(logits_BV), tokens_BT[row_B, place])
        tokens_BT[row_B, place] = next_B
        if stop is not None:
            before_B = end_B[row_B]
            stopped_B = before_B.clamp(max=place + 1)
            end_B[row_B] = torch.where(own_B & (next_B == stop), stopped_B, before_B)

        unfinished_B = end_B[row_B] > place + 1
        left = int(unfinished_B.sum())
        if left == 0:
            break
        if left <= len(row_B) // 2:  # finished rows would take time until the longest ends
            cache = [layer.rows(unfinished_B) for layer in cache]
            row_B, next_B = row_B[unfinished_B], next_B[unfinished_B]
        logits_BV = model(next_B[:, None], cache=cache, **given(place, place + 1))[:, 0]
    rows = zip(tokens_BT.cpu().numpy(), prompt_B.tolist(), end_B.tolist(), strict=True)
    return [row[prompt:end] for row, prompt, end in rows]


def complete(cfg: Config, task: Task, model: Transformer, prompt: str, choose: Choose) -> str:
    """The model's completion of `prompt`. Raises ConfigError if the prompt cannot be encoded."""
    with config_errors():
        tokens = task.encode(prompt)
    if not 0 < len(tokens) <= cfg.train.seq_len:
        raise ConfigError(f"a prompt of {len(tokens)} tokens: must have 1 to {cfg.train.seq_len}")
    longest = cfg.train.seq_len
    if task.grades and not task.stop:
        problems = evaluation_problems(task, min(8, cfg.eval.problems))
        longest = max(problem.length - problem.prompt_length for problem in problems)
    (written,) = generate(model, task, [tokens], longest, cfg.train.seq_len, choose)
    return task.decode(written)


def chooser(task: Task, temperature: float | None = None, top_k: int = 40, seed: int = 0) -> Choose:
    """How to choose tokens: sampled with a temperature, and without one if the task is text; else
    the likeliest. Raises ConfigError.
    """
    if top_k < 1:
        raise ConfigError(f"top_k={top_k}: must be 1 or more")
    if temperature is None and task.grades:
        return likeliest
    if temperature is None:
        temperature = TEMPERATURE
    if temperature <= 0:
        said = "must be above 0; top_k=1 takes the likeliest token"
        raise ConfigError(f"temperature={temperature:g}: {said}")
    return sampled(temperature, top_k, seed)
