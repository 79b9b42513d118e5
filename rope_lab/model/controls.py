"""Controls: parts of a model that imitate what a position scheme does, so that its lead can be
separated from theirs.

All are off by default. Their weights are drawn last: all others are those of a model without them.

Shape letters: B batch, T time, D model width, X features that are convolved, N taps.
"""

import inspect
from typing import Literal

import torch
from torch import Tensor, nn

from rope_lab.model.cache import LayerCache, convolved, with_before
from rope_lab.model.hooks import PositionScheme, overridden
from rope_lab.text import ConfigError

Conv = Literal["k", "kv", "canon"]
Gate = Literal["head", "feature"]
TAPS = 4
SEEN = 12  # features of a token that the gate of `Smear` reads


class CausalConv(nn.Module):
    """x + conv(x) on some features, a causal depthwise convolution of 4 taps without bias or
    activation.

    first, last: the features that are convolved
    """

    def __init__(self, name: str, first: int, last: int):
        super().__init__()
        self.name, self.first, self.last = name, first, last
        bound = TAPS**-0.5  # torch's rule for convolutions
        # Of three dimensions, as in nn.Conv1d: Muon takes matrices alone.
        self.taps_N1X = nn.Parameter(torch.empty(TAPS, 1, last - first).uniform_(-bound, bound))

    def forward(self, x_BTX: Tensor, cache: LayerCache | None) -> Tensor:
        before, x, after = x_BTX.tensor_split((self.first, self.last), dim=-1)
        mixed = x + convolved(self.name, x, self.taps_N1X.squeeze(1), cache)
        return torch.cat([before, mixed.to(x.dtype), after], dim=-1)


class Smear(nn.Module):
    """eₜ + λ σ(w eₜ[:12]) eₜ₋₁ of token embeddings e (modded-nanogpt, September 2025).

    λ and w are learned, 0 at first; before the first token there is 0.
    """

    def __init__(self, d_model: int):
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(min(SEEN, d_model)))
        self.scale = nn.Parameter(torch.zeros(()))

    def forward(self, x_BTD: Tensor, cache: LayerCache | None) -> Tensor:
        seen_BTX = x_BTD[..., : len(self.gate)]
        weight_BT1 = self.scale * (seen_BTX * self.gate).sum(-1, keepdim=True).sigmoid()
        previous_BTD = with_before("model.smear", x_BTD, 1, cache)[:, :-1]
        return x_BTD + weight_BT1 * previous_BTD


def check_linear(scheme: PositionScheme, has_bias: bool, has_widths: bool) -> None:
    """Raise ConfigError if linear attention does not support a layer's scheme.

    has_bias:   whether it adds a bias to the scores
    has_widths: whether its keys and values are as wide as a head
    """
    lacks = ""
    if not has_widths:
        lacks = "gives queries and keys another width than values, which linear attention does not "
        lacks += "support"
    elif has_bias or scheme.window or "attention" in overridden(type(scheme)):
        lacks = "needs attention scores, which linear attention does not have"
    if lacks:
        remedy = "take model.attention=softmax or another position scheme"
        raise ConfigError(f"model.attention=linear: {type(scheme).__name__} {lacks}: {remedy}")


def check_controls(
    scheme: PositionScheme, attention: str, qk_norm: bool, conv: Conv | None, sink: bool
) -> None:
    """Raise ConfigError if a layer cannot have norms, convolutions or sinks."""
    if scheme.projects_queries and (qk_norm or conv == "canon"):
        control = "model.qk_norm=true" if qk_norm else "model.conv=canon"
        raise ConfigError(
            f"{control}: would leave out queries that {type(scheme).__name__} projects itself; "
            "leave it out, or take another scheme"
        )
    if not sink:
        return
    if attention == "linear":
        raise ConfigError("model.sink=true: linear attention has no softmax; set model.sink=false")
    if "sink" not in inspect.signature(scheme.attention).parameters:
        raise ConfigError(
            f"model.sink=true: {type(scheme).__name__}.attention has no argument `sink`, which "
            "softmax_attention takes; add it, or set model.sink=false"
        )
