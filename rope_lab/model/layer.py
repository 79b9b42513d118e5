"""A layer of the transformer: attention with the hooks of a position scheme, and a feed-forward
network.

Shape letters: B batch, T time (queries), D model width, H heads, K head width, N rows.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_lab.model.attention import linear_attention, positive, relative, unpacked
from rope_lab.model.cache import LayerCache
from rope_lab.model.controls import CausalConv, Conv, Gate
from rope_lab.model.cpu_linear import Linear
from rope_lab.model.hooks import PositionScheme
from rope_lab.model.rotation import wide


class Layer(nn.Module):
    """Attention, then a feed-forward network, each beside a residual connection."""

    def __init__(self, attention: str, d_model: int, n_heads: int, norm: str, dropout: float):
        super().__init__()
        self.pre = norm == "pre"
        self.norm1 = nn.LayerNorm(d_model)
        self.attention = Attention(attention, d_model, n_heads)
        self.norm2 = nn.LayerNorm(d_model)
        self.up = Linear(d_model, 4 * d_model)
        self.down = Linear(4 * d_model, d_model)
        self.dropout = nn.Dropout(dropout)
        self.convs = nn.ModuleDict()

    def forward(
        self,
        x_BTD: Tensor,
        position: PositionScheme,
        at: Any,
        bias: Tensor | None,
        cache: LayerCache | None,
        number: int = 0,
    ) -> Tensor:
        if self.pre:
            y_BTD = self.convolved("before_attention", self.norm1(x_BTD), cache)
            o_BTD = self.attention(y_BTD, position, at, bias, cache, number)
            x_BTD = x_BTD + self.dropout(o_BTD)
            return x_BTD + self.dropout(self.feed_forward(self.norm2(x_BTD), cache))
        y_BTD = self.convolved("before_attention", x_BTD, cache)
        o_BTD = self.attention(y_BTD, position, at, bias, cache, number)
        x_BTD = self.norm1(x_BTD + self.dropout(o_BTD))
        return self.norm2(x_BTD + self.dropout(self.feed_forward(x_BTD, cache)))

    def feed_forward(self, x_BTD: Tensor, cache: LayerCache | None = None) -> Tensor:
        x_BTD = self.convolved("before_feed_forward", x_BTD, cache)
        # In bfloat16 and three dimensions torch.compile makes a scalar loop on CPUs.
        x_ND = x_BTD.flatten(0, 1)
        if not self.convs:
            return self.down(self.up(x_ND, relu=True)).unflatten(0, x_BTD.shape[:2])
        hidden_BTX = self.up(x_ND).unflatten(0, x_BTD.shape[:2])
        hidden_BTX = self.convolved("in_feed_forward", hidden_BTX, cache)
        return self.down(F.relu(hidden_BTX))

    def convolved(self, place: str, x_BTX: Tensor, cache: LayerCache | None) -> Tensor:
        """`x` after the convolution at a place, if there is one."""
        return self.convs[place](x_BTX, cache) if place in self.convs else x_BTX

    def add_controls(
        self, conv: Conv | None, gate: Gate | None, sink: bool, output_heads: int
    ) -> None:
        """Give the layer convolutions, an output gate and sinks; see `Transformer`."""
        if conv == "canon":
            D, hidden = self.up.in_features, self.up.out_features
            for place, width in (
                ("before_attention", D),
                ("before_feed_forward", D),
                ("in_feed_forward", hidden),
            ):
                self.convs[place] = CausalConv(f"conv {place}", 0, width)
        self.attention.add_controls(conv, gate, sink, output_heads)


class Attention(nn.Module):
    """Causal multi-head attention, `softmax` or `linear`, with the scheme's hooks around it."""

    def __init__(self, kind: str, d_model: int, n_heads: int):
        super().__init__()
        self.linear, self.n_heads = kind == "linear", n_heads
        self.kv_heads, self.projections, self.qk_norm = n_heads, 3, None
        self.conv: CausalConv | None = None
        self.gate: Linear | None = None
        self.sink_H: nn.Parameter | None = None
        self.qkv = Linear(d_model, 3 * d_model)
        self.out = Linear(d_model, d_model)

    def forward(
        self,
        x_BTD: Tensor,
        position: PositionScheme,
        at: Any,
        bias: Tensor | None,
        cache: LayerCache | None,
        number: int = 0,
    ) -> Tensor:
        at, own_bias = position.read(x_BTD, at, number, cache)
        if own_bias is not None:
            bias = own_bias if bias is None else bias + relative(own_bias, x_BTD.shape[1])
        qkv_BT3HK = self.project(x_BTD, cache)
        if self.qk_norm is not None:
            q, k, *v = qkv_BT3HK.to(wide(qkv_BT3HK.dtype)).unbind(2)  # or torch warns of bfloat16
            qkv_BT3HK = torch.stack([self.qk_norm[0](q), self.qk_norm[1](k), *v], dim=2)
        if self.linear:
            qkv_BT3HK = positive(qkv_BT3HK)
            rotated_BT3HK = torch.stack(unpacked(position.heads(qkv_BT3HK, at)), dim=2)
            o_BTHK = linear_attention(rotated_BT3HK, qkv_BT3HK, cache)
        else:
            sink = {} if self.sink_H is None else {"sink": self.sink_H}
            o_BTHK = position.attention(position.heads(qkv_BT3HK, at), at, bias, cache, **sink)
        o_BTHK = position.output(o_BTHK, at)
        if self.gate is not None:
            o_BTHK = o_BTHK * self.gate(x_BTD).sigmoid().unflatten(-1, (o_BTHK.shape[2], -1))
        return self.out(o_BTHK.flatten(2).to(x_BTD.dtype))

    def project(self, x_BTD: Tensor, cache: LayerCache | None) -> Tensor:
        """Queries, keys and, if projected, values, [B, T, 2 or 3, H, K].

        With fewer key/value heads (GQA) these are repeated.
        """
        qkv_BTX = self.qkv(x_BTD)
        if self.conv is not None:
            qkv_BTX = self.conv(qkv_BTX, cache)
        if self.kv_heads == self.n_heads:
            return qkv_BTX.unflatten(-1, (self.projections, self.n_heads, -1))
        D = self.qkv.in_features
        q, kv = qkv_BTX.tensor_split([D], dim=-1)
        kv = kv.unflatten(-1, (self.projections - 1, self.kv_heads, -1))
        kv = kv.repeat_interleave(self.n_heads // self.kv_heads, dim=3)
        return torch.cat([q.unflatten(-1, (1, self.n_heads, -1)), kv], dim=2)

    def cut(self, kv_heads: int, values: bool) -> None:
        """Keep `kv_heads` key/value heads, and the value projection only if `values`; all other
        weights stay.
        """
        D = self.qkv.in_features
        self.kv_heads, self.projections = kv_heads, 3 if values else 2
        widths = [D] + [D * kv_heads // self.n_heads] * (self.projections - 1)
        if sum(widths) < 3 * D:
            for name in ("weight", "bias"):
                parts = getattr(self.qkv, name).detach().split(D)
                kept = [part[:width] for part, width in zip(parts, widths, strict=False)]
                setattr(self.qkv, name, nn.Parameter(torch.cat(kept)))
            self.qkv.out_features = sum(widths)

    def widen_output(self, times: int, bound: float) -> None:
        """Give the output matrix inputs of so many times the heads; a head's first ones keep their
        weights, the others are uniform, −bound … bound.
        """
        D, H = self.out.out_features, self.n_heads
        weight_DHK = self.out.weight.detach().unflatten(1, (H, -1))
        others = [torch.empty_like(weight_DHK).uniform_(-bound, bound) for _ in range(times - 1)]
        wide_DHNK = torch.stack([weight_DHK, *others], dim=2)
        self.out.weight = nn.Parameter(wide_DHNK.flatten(1))
        self.out.in_features = times * D

    def add_controls(
        self, conv: Conv | None, gate: Gate | None, sink: bool, output_heads: int
    ) -> None:
        """Give it a convolution of queries, keys or values, an output gate, and sinks."""
        D, end = self.qkv.in_features, self.qkv.out_features
        ranges = {"k": (D, D + (end - D) // (self.projections - 1)), "kv": (D, end)}
        if conv is not None:
            first, last = ranges.get(conv, (0, end))
            self.conv = CausalConv("conv qkv", first, last)
        if gate is not None:
            each = 1 if gate == "head" else D // self.n_heads
            self.gate = Linear(D, output_heads * self.n_heads * each)
        if sink:
            self.sink_H = nn.Parameter(torch.zeros(self.n_heads))
