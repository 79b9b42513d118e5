"""The optimizers, which weights decay, and the learning rate of each step."""

import math
from typing import Any

import torch
from torch import nn

from rope_lab.model.transformer import Transformer
from rope_lab.train.settings import Train


def make(model: Transformer, train: Train) -> dict[str, torch.optim.Optimizer]:
    """By name: AdamW or, for the matrices of the layers, Muon (Jordan et al., 2024), with AdamW for
    all else.

    Muon's updates are scaled to the root mean square of AdamW's (Liu et al., 2025, 2502.16982), so
    lr is of the same order.
    """
    for_muon: list[nn.Parameter] = []
    decaying: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if train.optimizer == "muon" and name.startswith("layers.") and parameter.dim() == 2:
            for_muon.append(parameter)
        elif train.weight_decay_on == "all" or _is_decaying_matrix(model, name, parameter):
            decaying.append(parameter)
        else:
            others.append(parameter)
    groups: list[dict[str, Any]] = [{"params": decaying}]
    if others:
        groups.append({"params": others, "weight_decay": 0.0})
    adamw = torch.optim.AdamW(
        groups, betas=(train.beta1, train.beta2), weight_decay=train.weight_decay, fused=True
    )
    if train.optimizer == "adamw":
        return {"optimizer": adamw}
    muon = torch.optim.Muon(
        for_muon, weight_decay=train.weight_decay, adjust_lr_fn="match_rms_adamw"
    )
    return {"muon": muon, "optimizer": adamw}


def _is_decaying_matrix(model: Transformer, name: str, parameter: nn.Parameter) -> bool:
    """Whether a parameter is a matrix, and of the model or a scheme whose matrices decay."""
    if parameter.dim() < 2 or not name.startswith("position."):
        return parameter.dim() >= 2
    module: nn.Module = model
    for part in name.split(".")[:-1]:  # a scheme of some layers decides for its own matrices
        module = getattr(module, part)
        if getattr(module, "decays", False):
            return True
    return False


def learning_rate(train: Train, step: int) -> float:
    """The learning rate of step 0 … steps − 1: a linear warm-up to `lr`, then the decay to
    `min_lr`.
    """
    if step < train.warmup:
        return train.lr * (step + 1) / train.warmup
    if train.decay == "none":
        return train.lr
    done = (step - train.warmup) / (train.steps - train.warmup)
    remaining = {"linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}
    return train.min_lr + (train.lr - train.min_lr) * remaining[train.decay]
