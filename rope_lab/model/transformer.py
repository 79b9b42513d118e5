"""The causal transformer. It calls the hooks of a position scheme and knows no scheme by name.

Shape letters: B batch, T time (queries), S time (keys and values), D model width, H heads, K head
width, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor, nn

from rope_lab.model.attention import linear_attention, positive, relative, unpacked
from rope_lab.model.cache import KVCache, LayerCache, LinearAttentionState
from rope_lab.model.cpu_linear import Linear
from rope_lab.model.hooks import PositionScheme, TooLong, overridden
from rope_lab.model.rotation import wide
from rope_lab.text import ConfigError

Cache = list[LayerCache]  # one per layer; all batch rows have the same number of tokens


class Transformer(nn.Module):
    """A decoder with ReLU feed-forward layers of 4 · d_model, biases everywhere and an untied
    output matrix.

    attention: `softmax` or `linear`
    norm: where layer norms stand: `pre`, x + f(LN(x)) with one more before the output, or `post`,
          LN(x + f(x))
    kv_heads: number of key/value heads (GQA, Ainslie et al., 2023); None: n_heads. Our cache holds
          them repeated
    qk_norm: queries and keys of each head are divided by their root mean square and multiplied by
          learned gains, before the scheme's hooks (Henry et al., 2020)
    init: `pytorch`, its own: embeddings are drawn from N(0, 1) and not scaled, the rest by
          nn.Linear's rule; `xavier`: every matrix by the rule of Glorot and Bengio (2010),
          embeddings multiplied by √d_model (Vaswani et al., 2017)
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
        kv_heads: int | None = None,
        qk_norm: bool = False,
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, d_model)
        self.layers = nn.ModuleList(
            Layer(attention, d_model, n_heads, norm, dropout) for _ in range(n_layers)
        )
        self.norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.unembedding = Linear(d_model, vocabulary)
        self.dropout = nn.Dropout(dropout)
        self.scale = 1.0
        if init == "xavier":
            self.scale = d_model**0.5
            for matrix in (p for p in self.parameters() if p.dim() == 2):
                nn.init.xavier_uniform_(matrix)
        self.position = position
        # Cut afterwards, so that all other weights are those of any scheme.
        for number, layer in enumerate(self.layers):
            scheme = position.in_layer(number)
            layer.attention.cut(kv_heads or n_heads, scheme.projects_values)
            if scheme.output_heads > 1:
                layer.attention.widen_output(scheme.output_heads)
            if qk_norm:
                layer.attention.qk_norm = nn.ModuleList(
                    nn.RMSNorm(d_model // n_heads) for _ in "qk"
                )
        self.widths = self._try_hooks(d_model, n_heads, attention)

    @torch.no_grad()
    def _try_hooks(self, d_model: int, n_heads: int, attention: str) -> list[tuple[int, int]]:
        """The widths of a head's keys and values in each layer.

        Raises ConfigError if linear attention does not support the scheme.
        """
        at, widths, lacks = self.position.prepare(torch.arange(2), torch.float32), [], ""
        bias_of_all = self.position.bias(at, at)
        at_queries = self.position.with_keys(at, torch.arange(1, 3))
        x = torch.zeros(1, 2, d_model)
        for number, layer in enumerate(self.layers):
            scheme = self.position.in_layer(number)
            own, own_at, bias = self.position.for_layer(number, at_queries, bias_of_all)
            own_at, own_bias = scheme.read(x, own_at, own, None)
            qkv = torch.zeros(1, 2, layer.attention.projections, n_heads, d_model // n_heads)
            if scheme.window is not None and scheme.window < 1:
                given = f"{type(scheme).__name__}: window={scheme.window}"
                raise ConfigError(f"{given}: must be at least 1 token, or None")
            _, k, v = unpacked(scheme.heads(qkv, own_at))
            widths.append((k.shape[-1], v.shape[-1]))
            if widths[-1] != (d_model // n_heads,) * 2:
                lacks = (
                    "gives queries and keys another width than values, "
                    "which linear attention does not support"
                )
            elif (
                bias is not None
                or own_bias is not None
                or scheme.window
                or "attention" in overridden(type(scheme))
            ):
                lacks = "needs attention scores, which linear attention does not have"
        if lacks and attention == "linear":
            remedy = "take model.attention=softmax or another position scheme"
            raise ConfigError(
                f"model.attention=linear: {type(self.position).__name__} {lacks}: {remedy}"
            )
        return widths

    def forward(
        self, tokens_BT: Tensor, pos: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Logits of each next token, [B, T, V].

        The tokens stand at 0 … T − 1, or at `pos` [T]; with a `cache`, after the tokens already in
        it, which they join.
        """
        begin = 0 if cache is None else cache[0].length
        end = begin + tokens_BT.shape[1]
        if pos is None:
            pos = torch.arange(begin, end, device=tokens_BT.device)
        else:
            end = int(pos.max()) + 1
        limit = self.position.max_len
        if limit is not None and end > limit:
            raise TooLong(
                f"{end} positions are more than the {limit} that the position scheme was made for"
            )

        dtype = self.embedding.weight.dtype
        with torch.autocast(pos.device.type, enabled=False):  # positions in full precision
            at_T = self.position.prepare(pos, dtype)
            at_S = (
                self.position.prepare(torch.arange(end, device=pos.device), dtype)
                if begin
                else at_T
            )
            bias = self.position.bias(at_T, at_S)
            keys_T = torch.arange(begin + 1, begin + len(pos) + 1, device=pos.device)
            at_T = self.position.with_keys(at_T, keys_T)

        x_BTD = self.dropout(self.position.embed(self.scale * self.embedding(tokens_BT), at_T))
        for number, layer in enumerate(self.layers):
            own_number, own_at_T, own_bias = self.position.for_layer(number, at_T, bias)
            x_BTD = layer(
                x_BTD,
                self.position.in_layer(number),
                own_at_T,
                own_bias,
                None if cache is None else cache[number],
                own_number,
            )
        return self.unembedding(self.norm(x_BTD))

    def new_cache(self, rows: int, slots: int) -> Cache:
        """An empty cache with room for `slots` tokens in each of `rows` batch rows."""
        weight, attention = self.unembedding.weight, self.layers[0].attention
        size, kind, dtype = (rows, attention.n_heads), weight.device.type, weight.dtype
        cache = []
        if attention.linear:
            for k, v in self.widths:
                sums = weight.new_zeros(*size, k, v), weight.new_zeros(*size, k)
                cache.append(LinearAttentionState(*sums))
            return cache
        # On a CPU one query at a time is faster in float32.
        if kind != "cpu" and torch.is_autocast_enabled(kind):
            dtype = torch.get_autocast_dtype(kind)
        for k, v in self.widths:
            keys = weight.new_zeros(*size, slots, k, dtype=dtype)
            values = weight.new_zeros(*size, slots, v, dtype=dtype)
            cache.append(KVCache(keys, values))
        return cache

    def bytes_of_token(self, slots: int) -> float:
        """Bytes per token and batch row of a cache with room for `slots` tokens."""
        cache = self.new_cache(1, max(slots, 2))
        token_11 = self.embedding.weight.new_zeros(1, 1, dtype=torch.long)
        sizes = []
        for _ in range(2):
            self(token_11, cache=cache)
            sizes.append(sum(layer.nbytes for layer in cache))
        return (sizes[0] + (slots - 1) * (sizes[1] - sizes[0])) / slots


class Layer(nn.Module):
    """Attention, then a feed-forward network, each beside a residual connection."""

    def __init__(self, attention: str, d_model: int, n_heads: int, norm: str, dropout: float):
        super().__init__()
        self.pre = norm == "pre"
        self.norm1, self.attention = (
            nn.LayerNorm(d_model),
            Attention(attention, d_model, n_heads),
        )
        self.norm2 = nn.LayerNorm(d_model)
        self.up, self.down = Linear(d_model, 4 * d_model), Linear(4 * d_model, d_model)
        self.dropout = nn.Dropout(dropout)

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
            o_BTD = self.attention(self.norm1(x_BTD), position, at, bias, cache, number)
            x_BTD = x_BTD + self.dropout(o_BTD)
            return x_BTD + self.dropout(self.feed_forward(self.norm2(x_BTD)))
        o_BTD = self.attention(x_BTD, position, at, bias, cache, number)
        x_BTD = self.norm1(x_BTD + self.dropout(o_BTD))
        return self.norm2(x_BTD + self.dropout(self.feed_forward(x_BTD)))

    def feed_forward(self, x_BTD: Tensor) -> Tensor:
        # In bfloat16 and three dimensions torch.compile makes a scalar loop on CPUs.
        x_ND = x_BTD.flatten(0, 1)
        return self.down(self.up(x_ND, relu=True)).unflatten(0, x_BTD.shape[:2])


class Attention(nn.Module):
    """Causal multi-head attention, `softmax` or `linear`, with the scheme's hooks around it."""

    def __init__(self, kind: str, d_model: int, n_heads: int):
        super().__init__()
        self.linear, self.n_heads = kind == "linear", n_heads
        self.kv_heads, self.projections, self.qk_norm = n_heads, 3, None
        self.qkv, self.out = Linear(d_model, 3 * d_model), Linear(d_model, d_model)

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
        qkv_BT3HK = self.project(x_BTD)
        if self.qk_norm is not None:
            q, k, *v = qkv_BT3HK.to(wide(qkv_BT3HK.dtype)).unbind(2)  # or torch warns of bfloat16
            qkv_BT3HK = torch.stack([self.qk_norm[0](q), self.qk_norm[1](k), *v], dim=2)
        if self.linear:
            qkv_BT3HK = positive(qkv_BT3HK)
            rotated_BT3HK = torch.stack(unpacked(position.heads(qkv_BT3HK, at)), dim=2)
            o_BTHK = linear_attention(rotated_BT3HK, qkv_BT3HK, cache)
        else:
            o_BTHK = position.attention(position.heads(qkv_BT3HK, at), at, bias, cache)
        o_BTHK = position.output(o_BTHK, at)
        return self.out(o_BTHK.flatten(2).to(x_BTD.dtype))

    def project(self, x_BTD: Tensor) -> Tensor:
        """Queries, keys and, if projected, values, [B, T, 2 or 3, H, K].

        With fewer key/value heads (GQA) these are repeated.
        """
        if self.kv_heads == self.n_heads:
            return self.qkv(x_BTD).unflatten(-1, (self.projections, self.n_heads, -1))
        q, kv = self.qkv(x_BTD).split(
            [x_BTD.shape[-1], self.qkv.out_features - x_BTD.shape[-1]], dim=-1
        )
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

    def widen_output(self, times: int) -> None:
        """Give the output matrix inputs of so many times the heads; a head's first ones keep their
        weights.
        """
        D, H = self.out.out_features, self.n_heads
        weight_DHK = self.out.weight.detach().unflatten(1, (H, -1))
        bound = D**-0.5
        others = [torch.empty_like(weight_DHK).uniform_(-bound, bound) for _ in range(times - 1)]
        wide_DHNK = torch.stack([weight_DHK, *others], dim=2)
        self.out.weight = nn.Parameter(wide_DHNK.flatten(1))
        self.out.in_features = times * D
