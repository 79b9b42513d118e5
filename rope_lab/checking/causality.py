"""Check that no logit depends on a later token, or on another row of its batch.

Shape letters: B batch, T time, V vocabulary.
"""

from contextlib import suppress

import torch
from torch import Tensor

from rope_lab.checking import demand
from rope_lab.model.transformer import Transformer

# Rounding errors, relative to the largest logit, that are allowed in each precision.
ALLOWED = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 1e-2}


def causality(model: Transformer, tokens_BT: Tensor, low: bool = False) -> None:
    """Changing later tokens, or every second row, leaves the other logits as they are.

    As in training and as in evaluation.

    low: in bfloat16, by autocast; otherwise in the precision of the model
    """
    B, T = tokens_BT.shape
    other_BT = (tokens_BT + 1) % model.embedding.num_embeddings
    begin_B = torch.linspace(1, T - 1, B).long()
    later_BT = torch.arange(T) >= begin_B[:, None]
    odd_B1 = torch.arange(B)[:, None] % 2 == 1
    for training in (True, False):
        logits_BTV = _logits(model, tokens_BT, low, training)
        demand(logits_BTV.isfinite().all(), "the logits are not finite")
        repeats = "two passes over the same tokens differ: random numbers belong in draw"
        demand(torch.equal(_logits(model, tokens_BT, low, training), logits_BTV), repeats)
        for what, changed in (("another row of the batch", odd_B1), ("a later token", later_BT)):
            mixed_BT = torch.where(changed, other_BT, tokens_BT)
            off_BTV = (_logits(model, mixed_BT, low, training) - logits_BTV).abs()
            precision = torch.bfloat16 if low else logits_BTV.dtype
            too_far_BT = off_BTV.amax(-1) > ALLOWED[precision] * logits_BTV.abs().max()
            wrong = (too_far_BT & ~changed).nonzero()
            if len(wrong):
                gradients = "with" if training else "without"
                batch = f"{B} rows of {T} tokens in {precision} {gradients} gradients"
                said = f"the logits at position {int(wrong[0, 1])} depend on {what}"
                demand(False, f"{batch}: {said}")


def causality_in_training(model: Transformer, rows: int, T: int) -> None:
    """`causality` of a training batch, and of texts of twice its length if the scheme serves them.

    model: in float32
    rows, T: the size of a training batch
    """
    random = torch.Generator().manual_seed(5)

    def check(B: int, length: int) -> None:
        model.position.draw(0, length)
        tokens_BT = torch.randint(model.embedding.num_embeddings, (B, length), generator=random)
        for low in (False, True):
            causality(model, tokens_BT, low)

    check(rows, T)
    with suppress(ValueError):  # the check of length says so
        check(2, 2 * T)


def _logits(model: Transformer, tokens_BT: Tensor, low: bool, training: bool) -> Tensor:
    """The logits as in training, or as in evaluation, [B, T, V]."""
    model.train(training)
    with (
        torch.inference_mode(not training),
        torch.autocast("cpu", torch.bfloat16, enabled=low),
    ):
        return model(tokens_BT).detach()
