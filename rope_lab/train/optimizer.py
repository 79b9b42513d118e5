"""The optimizers, which weights decay, and the learning rate of each step."""

import math

import torch
from torch import nn

from rope_lab.model.transformer import Transformer
from rope_lab.train.settings import Train


def make(model: Transformer, t: Train) -> dict[str, torch.optim.Optimizer]:
    """By name: AdamW or, for the matrices of the layers, Muon (Jordan et al., 2024), with AdamW for
    all else.

    Muon's updates are scaled to the root mean square of AdamW's (Liu et al., 2025, 2502.16982), so
    lr is of the same order.
    """
    matrices, decays, rest = list[nn.Parameter](), list[nn.Parameter](), list[nn.Parameter]()
    for name, p in model.named_parameters():
        matrix = p.dim() >= 2 and (model.position.decays or not name.startswith("position."))
        if t.optimizer == "muon" and name.startswith("layers.") and p.dim() == 2:
            matrices.append(p)
        else:
            (decays if matrix or t.weight_decay_on == "all" else rest).append(p)
    groups = [{"params": decays}, *([{"params": rest, "weight_decay": 0.0}] if rest else [])]
    adamw = torch.optim.AdamW(
        groups, betas=(t.beta1, t.beta2), weight_decay=t.weight_decay, fused=True
    )
    if t.optimizer == "adamw":
        return {"optimizer": adamw}
    muon = torch.optim.Muon(matrices, weight_decay=t.weight_decay, adjust_lr_fn="match_rms_adamw")
    return {"muon": muon, "optimizer": adamw}


def learning_rate(t: Train, step: int) -> float:
    """The learning rate of step 0 … t.steps − 1: a linear warm-up to t.lr, then the decay to
    t.min_lr.
    """
    if step < t.warmup:
        return t.lr * (step + 1) / t.warmup
    done = (step - t.warmup) / (t.steps - t.warmup)
    if t.decay == "none":
        return t.lr
    return t.min_lr + (t.lr - t.min_lr) * (
        1 - done if t.decay == "linear" else (1 + math.cos(math.pi * done)) / 2
    )
