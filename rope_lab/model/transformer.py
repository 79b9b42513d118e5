"""The causal transformer. It calls the four hooks of a position scheme and knows no scheme by name.

Shape letters: B batch, T time (queries), S time (keys and values), D model width, H heads, K head width, V vocabulary.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_lab.model.attention import (
    KVCache,
    LayerCache,
    LinearAttentionState,
    linear_attention,
    packed,
    positive,
    softmax_attention,
    unpacked,
)
from rope_lab.model.cpu_linear import Linear
from rope_lab.model.hooks import PositionScheme, TooLong

Cache = list[LayerCache]  # one a layer; all batch rows have read equally many tokens


class Transformer(nn.Module):
    """A decoder with ReLU feed-forward layers of 4 · d_model, biases everywhere and an untied output matrix.

    attention: `softmax` or `linear`
    norm: where layer norms stand: `pre`, x + f(LN(x)) with one more before the output, or `post`, LN(x + f(x))
    init: `pytorch`, its own: embeddings are drawn from N(0, 1) and not scaled, the rest by nn.Linear's rule; `xavier`:
          every matrix by the rule of Glorot and Bengio (2010), embeddings multiplied by √d_model (Vaswani et al., 2017)
    """

    def __init__(
        self,
        vocabulary: int,
        attention: str,
        d_model: int,
        n_layers: int,
        n_heads: int,
        norm: str,
        init: str,
        dropout: float,
        position: PositionScheme,
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, d_model)
        self.layers = nn.ModuleList(Layer(attention, d_model, n_heads, norm, dropout) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.unembedding = Linear(d_model, vocabulary)
        self.dropout = nn.Dropout(dropout)
        self.scale = 1.0
        if init == "xavier":
            self.scale = d_model**0.5
            for matrix in (p for p in self.parameters() if p.dim() == 2):
                nn.init.xavier_uniform_(matrix)
        self.position = position
        at = position.prepare(torch.arange(2), torch.float32)
        _, k, v = unpacked(position.heads(torch.zeros(1, 2, 3, n_heads, d_model // n_heads), at))
        self.widths = k.shape[-1], v.shape[-1]  # of a head's keys and values, as they are cached
        if attention == "linear":
            lacks = "adds to attention scores, which it does not have" * (position.bias(at, at) is not None)
            if self.widths != (d_model // n_heads,) * 2:
                lacks = "gives queries and keys another width than values, and it takes one"
            if lacks:
                remedy = "take model.attention=softmax or another position scheme"
                raise ValueError(f"model.attention=linear: {type(position).__name__} {lacks}: {remedy}")

    def forward(self, tokens_BT: Tensor, pos: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """Logits of each next token, [B, T, V].

        The tokens stand at 0 … T − 1, or at `pos` [T]; with a `cache`, after the tokens already in it, which they join.
        """
        begin = 0 if cache is None else cache[0].length
        end = begin + tokens_BT.shape[1]
        if pos is None:
            pos = torch.arange(begin, end, device=tokens_BT.device)
        else:
            end = int(pos.max()) + 1
        limit = self.position.max_len
        if limit is not None and end > limit:
            raise TooLong(f"{end} positions are more than the {limit} that the position scheme was made for")

        dtype = self.embedding.weight.dtype
        with torch.autocast(pos.device.type, enabled=False):  # positions are told apart in full precision
            at_T = self.position.prepare(pos, dtype)
            at_S = self.position.prepare(torch.arange(end, device=pos.device), dtype) if begin else at_T
            bias = self.position.bias(at_T, at_S)
            keys_T = torch.arange(begin + 1, begin + len(pos) + 1, device=pos.device)
            at_T = self.position.with_keys(at_T, keys_T)

        x_BTD = self.dropout(self.position.embed(self.scale * self.embedding(tokens_BT), at_T))
        for number, layer in enumerate(self.layers):
            x_BTD = layer(x_BTD, self.position.in_layer(number), at_T, bias, None if cache is None else cache[number])
        return self.unembedding(self.norm(x_BTD))

    def new_cache(self, rows: int, slots: int) -> Cache:
        """An empty cache with room for `slots` tokens in each of `rows` batch rows."""
        return [layer.attention.new_cache(rows, slots, *self.widths) for layer in self.layers]


class Layer(nn.Module):
    """Attention, then a feed-forward network, each beside a residual connection."""

    def __init__(self, attention: str, d_model: int, n_heads: int, norm: str, dropout: float):
        super().__init__()
        self.pre = norm == "pre"
        self.norm1, self.attention = nn.LayerNorm(d_model), Attention(attention, d_model, n_heads)
        self.norm2 = nn.LayerNorm(d_model)
        self.up, self.down = Linear(d_model, 4 * d_model), Linear(4 * d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x_BTD: Tensor, position: PositionScheme, at: Any, bias: Tensor | None, cache: LayerCache | None
    ) -> Tensor:
        if self.pre:
            x_BTD = x_BTD + self.dropout(self.attention(self.norm1(x_BTD), position, at, bias, cache))
            return x_BTD + self.dropout(self.feed_forward(self.norm2(x_BTD)))
        x_BTD = self.norm1(x_BTD + self.dropout(self.attention(x_BTD, position, at, bias, cache)))
        return self.norm2(x_BTD + self.dropout(self.feed_forward(x_BTD)))

    def feed_forward(self, x_BTD: Tensor) -> Tensor:
        x_ND = x_BTD.flatten(0, 1)  # of bfloat16 in three dimensions torch.compile makes a scalar loop on CPUs
        return self.down(F.relu(self.up(x_ND))).unflatten(0, x_BTD.shape[:2])


class Attention(nn.Module):
    """Causal multi-head attention, `softmax` or `linear`, with the scheme's hooks around it."""

    def __init__(self, kind: str, d_model: int, n_heads: int):
        super().__init__()
        self.linear, self.n_heads = kind == "linear", n_heads
        self.qkv, self.out = Linear(d_model, 3 * d_model), Linear(d_model, d_model)

    def forward(
        self, x_BTD: Tensor, position: PositionScheme, at: Any, bias: Tensor | None, cache: LayerCache | None
    ) -> Tensor:
        qkv_BT3HK = self.qkv(x_BTD).unflatten(-1, (3, self.n_heads, -1))
        if self.linear:
            qkv_BT3HK = positive(qkv_BT3HK)
            o_BTHK = linear_attention(packed(position.heads(qkv_BT3HK, at)), qkv_BT3HK, cache)
        else:
            o_BTHK = softmax_attention(position.heads(qkv_BT3HK, at), bias, cache)
        o_BTHK = position.output(o_BTHK, at)
        return self.out(o_BTHK.flatten(2).to(x_BTD.dtype))

    def new_cache(self, rows: int, slots: int, k_width: int, v_width: int) -> LayerCache:
        """An empty cache with room for `slots` tokens in each of `rows` batch rows, keys and values of these widths."""
        weight, H = self.out.weight, self.n_heads
        if self.linear:
            return LinearAttentionState(weight.new_zeros(rows, H, k_width, v_width), weight.new_zeros(rows, H, k_width))
        kind, dtype = weight.device.type, weight.dtype
        if kind != "cpu" and torch.is_autocast_enabled(kind):  # on a CPU one query at a time is faster in float32
            dtype = torch.get_autocast_dtype(kind)
        return KVCache(*(weight.new_zeros(rows, H, slots, width, dtype=dtype) for width in (k_width, v_width)))
