"""Checks that no logit depends on a later token, or on another row of its batch.

Shape letters: B batch, T time, V vocabulary.
"""

from contextlib import suppress

import torch
from torch import Tensor

from rope_lab.checking import demand
from rope_lab.model.transformer import Transformer

# Rounding errors, relative to the largest logit, that are allowed in each precision.
PRECISIONS = {torch.float32: 1e-5, torch.bfloat16: 1e-2}


def causality(model: Transformer, tokens_BT: Tensor) -> str | None:
    """By gradients, so that the smallest effect counts. Tokens without effect are noted."""
    seen, T = [], tokens_BT.shape[1]
    handle = model.embedding.register_forward_hook(
        lambda module, given, output: seen.append(output)
    )
    logits = model(tokens_BT)
    handle.remove()
    demand(logits.isfinite().all(), "the logits are not finite")
    for token in (0, T // 2, T - 1):
        (gradient,) = torch.autograd.grad(
            logits[0, token].square().sum(), seen[0], retain_graph=True
        )
        reach_BT = gradient.abs().sum(-1)
        later = reach_BT[0, token + 1 :].any()
        demand(not later, f"the logits at position {token} depend on a later token")
        demand(not reach_BT[1].any(), "the rows of a batch depend on one another")
    unseen = int((reach_BT[0] <= 1e-9).sum())
    return f"the last of {T} tokens does not see {unseen} of those before it" if unseen else None


def causality_in_training(model: Transformer, rows: int, T: int) -> None:
    """By changing tokens: a training batch, and texts of twice its length or up to `max_len`.

    Each with and without gradients, in float32 and bfloat16.

    model: in float32
    rows, T: the size of a training batch
    """
    vocabulary = model.embedding.num_embeddings
    tokens_1T = torch.arange(T)[None] % vocabulary
    twice = [_logits(model, tokens_1T, torch.float32, training=False) for _ in range(2)]
    repeats = "two passes over the same tokens differ: random numbers belong in draw"
    demand(torch.equal(*twice), repeats)
    for length, batch in ((T, rows), (_longest(model, T), 2)):
        random = torch.Generator().manual_seed(5)
        tokens_BT = torch.randint(vocabulary, (batch, length), generator=random)
        shift_BT = torch.randint(1, vocabulary, (batch, length), generator=random)
        other_BT = (tokens_BT + shift_BT) % vocabulary
        begin_B = torch.randint(1, length, (batch,), generator=random)
        changed_BT = {
            "on another row of the batch": (torch.arange(batch) % 2 == 1)[:, None],
            "on a later token": torch.arange(length) >= begin_B[:, None],
        }
        for what, changed in changed_BT.items():
            pair = tokens_BT, torch.where(changed, other_BT, tokens_BT)
            for dtype in PRECISIONS:
                for training in (True, False):
                    _same_where_unchanged(model, pair, changed, what, dtype, training)


def _longest(model: Transformer, T: int) -> int:
    """Twice `T`, or the number of positions that the scheme has; random ones are drawn."""
    for length in (2 * T, model.position.max_len or T, T):
        with suppress(ValueError):
            model.position.draw(0, length)
            return length
    return T


def _same_where_unchanged(
    model: Transformer,
    pair: tuple[Tensor, Tensor],
    changed: Tensor,
    what: str,
    dtype: torch.dtype,
    training: bool,
) -> None:
    """Raises Wrong if the logits of two batches of tokens differ at a token before the change."""
    first, second = (_logits(model, tokens_BT, dtype, training) for tokens_BT in pair)
    off_BT = (first - second).abs().amax(-1).masked_fill(changed, 0)
    allowed = PRECISIONS[dtype] * first.abs().max()
    wrong = (off_BT > allowed).nonzero()
    if len(wrong):
        B, T = off_BT.shape
        gradients = "with" if training else "without"
        precision = str(dtype).removeprefix("torch.")
        batch = f"{B} rows of {T} tokens in {precision} {gradients} gradients"
        demand(False, f"{batch}: the logits at position {int(wrong[0, 1])} depend {what}")


def _logits(model: Transformer, tokens_BT: Tensor, dtype: torch.dtype, training: bool) -> Tensor:
    """The logits as in training, or as in evaluation: float32, [B, T, V]."""
    model.train(training)
    low = torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16)
    with torch.inference_mode(not training), low:
        return model(tokens_BT).float().detach()
