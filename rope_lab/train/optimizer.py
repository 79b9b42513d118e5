"""What moves the weights: AdamW, which of them decay, and the learning rate of each step."""

import math

import torch
from torch import nn

from rope_lab.model.transformer import Transformer
from rope_lab.train import config


def make(model: Transformer, t: config.Train) -> torch.optim.Optimizer:
    """AdamW, of all parameters in one group where all decay, else of those that do and those that do not."""
    decays, rest = list[nn.Parameter](), list[nn.Parameter]()
    for name, parameter in model.named_parameters():
        matrix = parameter.dim() >= 2 and (model.position.decays or not name.startswith("position."))
        (decays if matrix or t.weight_decay_on == "all" else rest).append(parameter)
    groups = [{"params": decays}, *([{"params": rest, "weight_decay": 0.0}] if rest else [])]
    return torch.optim.AdamW(groups, betas=(t.beta1, t.beta2), weight_decay=t.weight_decay, fused=True)


def learning_rate(t: config.Train, step: int) -> float:
    """The learning rate of step 0 … t.steps − 1: a linear warm-up to t.lr, then the decay to t.min_lr."""
    if step < t.warmup:
        return t.lr * (step + 1) / t.warmup
    done = (step - t.warmup) / (t.steps - t.warmup)
    if t.decay == "none":
        return t.lr
    return t.min_lr + (t.lr - t.min_lr) * (1 - done if t.decay == "linear" else (1 + math.cos(math.pi * done)) / 2)
