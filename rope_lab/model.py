"""The causal transformer. It calls the four doors of a position scheme and knows no scheme by name.

Shape letters: B batch, T time (queries), S time (keys and values), D model width, H heads, K head width, V vocabulary,
L layers.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_lab.attention import causal_attention
from rope_lab.positions import PositionScheme


class Transformer(nn.Module):
    """A decoder with ReLU feed-forward layers of 4 · d_model, biases everywhere and an output matrix of its own.

    norm: where layer norms stand: `pre`, x + f(LN(x)) with one more before the output, or `post`, LN(x + f(x))
    init: `pytorch`, its own: embeddings are drawn from N(0, 1) and not scaled, the rest by nn.Linear's rule; `xavier`:
          every matrix by the rule of Glorot and Bengio (2010), embeddings multiplied by √d_model (Vaswani et al., 2017)
    """

    def __init__(
        self,
        vocabulary: int,
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
        self.layers = nn.ModuleList(Layer(d_model, n_heads, norm, dropout) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.unembedding = nn.Linear(d_model, vocabulary)
        self.dropout = nn.Dropout(dropout)
        self.scale = 1.0
        if init == "xavier":
            self.scale = d_model**0.5
            for matrix in (p for p in self.parameters() if p.dim() == 2):
                nn.init.xavier_uniform_(matrix)
        self.position = position

    def forward(self, tokens_BT: Tensor, pos: Tensor | None = None, cache: "Cache | None" = None) -> Tensor:
        """Logits of each next token, [B, T, V].

        Without `pos` the tokens stand at 0 … T − 1. `pos` [T] puts them elsewhere. With a `cache`, `pos` is [B, T]: the
        tokens join those already in the cache, each row at its own places, and attend to everything up to themselves.
        """
        if pos is None:
            pos, end = torch.arange(tokens_BT.shape[1], device=tokens_BT.device), tokens_BT.shape[1]
        else:
            end = int(pos.max()) + 1
        limit = self.position.max_len
        if limit is not None and end > limit:
            raise ValueError(f"{end} positions are more than the {limit} that the position scheme was made for")

        dtype = self.embedding.weight.dtype
        with torch.autocast(pos.device.type, enabled=False):  # positions are told apart in full precision
            at = self.position.prepare(pos, dtype)
            if cache is None:
                mask = self.position.bias(at, at)
            else:
                slots = torch.arange(end, device=pos.device)
                seen_B1TS = (slots <= pos[..., None]).unsqueeze(1)
                bias = self.position.bias(at, self.position.prepare(slots, dtype))
                mask = seen_B1TS if bias is None else torch.where(seen_B1TS, bias, -torch.inf)

        x_BTD = self.dropout(self.position.embed(self.scale * self.embedding(tokens_BT), at))
        for number, layer in enumerate(self.layers):
            memory = None if cache is None else Memory(cache, number, pos, end)
            x_BTD = layer(x_BTD, self.position, at, mask, memory)
        return self.unembedding(self.norm(x_BTD))


class Layer(nn.Module):
    """Attention, then a feed-forward network, each beside a residual connection."""

    def __init__(self, d_model: int, n_heads: int, norm: str, dropout: float):
        super().__init__()
        self.pre = norm == "pre"
        self.norm1, self.attention = nn.LayerNorm(d_model), Attention(d_model, n_heads)
        self.norm2, self.up, self.down = (
            nn.LayerNorm(d_model),
            nn.Linear(d_model, 4 * d_model),
            nn.Linear(4 * d_model, d_model),
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BTD: Tensor, position: PositionScheme, at: Any, mask: Tensor | None, memory: "Memory | None"):
        if self.pre:
            x_BTD = x_BTD + self.dropout(self.attention(self.norm1(x_BTD), position, at, mask, memory))
            return x_BTD + self.dropout(self.feed_forward(self.norm2(x_BTD)))
        x_BTD = self.norm1(x_BTD + self.dropout(self.attention(x_BTD, position, at, mask, memory)))
        return self.norm2(x_BTD + self.dropout(self.feed_forward(x_BTD)))

    def feed_forward(self, x_BTD: Tensor) -> Tensor:
        return self.down(F.relu(self.up(x_BTD)))


class Attention(nn.Module):
    """Causal multi-head attention with the scheme's doors around it."""

    def __init__(self, d_model: int, n_heads: int):
        super().__init__()
        self.n_heads = n_heads
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x_BTD: Tensor, position: PositionScheme, at: Any, mask: Tensor | None, memory: "Memory | None"):
        qkv_BT3HK = self.qkv(x_BTD).unflatten(-1, (3, self.n_heads, -1))
        qkv_BT3HK = position.heads(qkv_BT3HK, at)
        o_BTHK = causal_attention(qkv_BT3HK, mask) if memory is None else memory.attention(qkv_BT3HK, mask)
        o_BTHK = position.output(o_BTHK, at)
        return self.out(o_BTHK.flatten(2).to(x_BTD.dtype))


@dataclass(frozen=True)
class Cache:
    """Keys and values of everything read so far, [L, B, H, S, K] each: what stands at position p lies in slot p.

    A row may be shorter than the others: slots beyond a token's own position are never looked at, and whatever a longer
    row's padding left there is written over when the row gets so far.
    """

    k_LBHSK: Tensor
    v_LBHSK: Tensor

    @classmethod
    def empty(cls, model: Transformer, rows: int, slots: int) -> "Cache":
        """Room for `slots` tokens in each of `rows` rows."""
        heads, weight = model.layers[0].attention.n_heads, model.embedding.weight
        shape = (len(model.layers), rows, heads, slots, weight.shape[1] // heads)
        kind, dtype = weight.device.type, weight.dtype
        if kind != "cpu" and torch.is_autocast_enabled(kind):  # on a CPU one query at a time is faster in float32
            dtype = torch.get_autocast_dtype(kind)
        return cls(*(torch.zeros(shape, dtype=dtype, device=weight.device) for _ in "kv"))

    def rows(self, chosen_B: Tensor) -> "Cache":
        """The cache of some of its rows, bool [B]."""
        return Cache(self.k_LBHSK[:, chosen_B], self.v_LBHSK[:, chosen_B])


@dataclass(frozen=True)
class Memory:
    """One layer's part of a cache, at the places where the present tokens stand."""

    cache: Cache
    layer: int
    pos_BT: Tensor
    end: int

    def attention(self, qkv_BT3HK: Tensor, mask: Tensor) -> Tensor:
        """Puts keys and values into their slots; what the queries find among all slots so far, [B, T, H, K]."""
        q_BHTK, k_BHTK, v_BHTK = qkv_BT3HK.permute(2, 0, 3, 1, 4)
        rows = torch.arange(len(self.pos_BT), device=self.pos_BT.device)[:, None]
        k_BHSK, v_BHSK = self.cache.k_LBHSK[self.layer], self.cache.v_LBHSK[self.layer]
        k_BHSK[rows, :, self.pos_BT] = k_BHTK.transpose(1, 2).to(k_BHSK.dtype)
        v_BHSK[rows, :, self.pos_BT] = v_BHTK.transpose(1, 2).to(v_BHSK.dtype)
        q_BHTK, bias = q_BHTK.to(k_BHSK.dtype), mask if mask.dtype == torch.bool else mask.to(k_BHSK.dtype)
        k_BHSK, v_BHSK = k_BHSK[:, :, : self.end], v_BHSK[:, :, : self.end]
        with torch.autocast(q_BHTK.device.type, enabled=False):
            return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, attn_mask=bias).transpose(1, 2)
