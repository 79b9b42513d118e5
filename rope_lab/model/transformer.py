"""The causal transformer. It calls the hooks of a position scheme and knows no scheme by name.

Shape letters: B batch, T time (queries), S time (keys and values), D model width, H heads, K head
width, V vocabulary.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import get_args

import torch
from torch import Tensor, nn

from rope_lab.model.attention import unpacked
from rope_lab.model.cache import KVCache, LayerCache, LinearAttentionState, so_far
from rope_lab.model.controls import Conv, Gate, Smear, check_controls, check_linear
from rope_lab.model.cpu_linear import Linear
from rope_lab.model.hooks import PositionScheme, TooLong, prepared, within_window
from rope_lab.model.layer import Layer
from rope_lab.text import ConfigError

Cache = list[LayerCache]  # one per layer; all batch rows have the same number of tokens
CHOICES = {
    "attention": ("softmax", "linear"),
    "norm": ("pre", "post"),
    "init": ("pytorch", "xavier"),
    "conv": (None, *get_args(Conv)),
    "gate": (None, *get_args(Gate)),
}


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
          nn.Linear's rule; `xavier`: every matrix by the rule of Glorot and Bengio (2010), but for
          those of `gate`, embeddings multiplied by √d_model (Vaswani et al., 2017)
    conv: causal convolutions of 4 taps, each beside a residual: of keys (`k`) or keys and values
          (`kv`) after their projection, or at the four places of `canon` (Allen-Zhu, 2025): inputs
          of attention and of the feed-forward network, queries, keys and values, hidden features
    smear: each token's embedding is mixed with the one before, see `controls.Smear`
    gate: outputs of heads times σ of a linear function of the layer's input, one number for each
          `head` or `feature` (Qiu et al., 2025)
    sink: a learned logit for each head in the denominator of its softmax, 0 at first (gpt-oss)
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
        conv: Conv | None = None,
        smear: bool = False,
        gate: Gate | None = None,
        sink: bool = False,
    ):
        super().__init__()
        check_choices(attention=attention, norm=norm, init=init, conv=conv, gate=gate)
        self.embedding = nn.Embedding(vocabulary, d_model)
        self.layers = nn.ModuleList(
            Layer(attention, d_model, n_heads, norm, dropout) for _ in range(n_layers)
        )
        self.norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.unembedding = Linear(d_model, vocabulary)
        self.dropout = nn.Dropout(dropout)
        self.scale = 1.0
        bound = d_model**-0.5
        if init == "xavier":
            self.scale = d_model**0.5
            bound = (3 / d_model) ** 0.5
            for matrix in (p for p in self.parameters() if p.dim() == 2):
                nn.init.xavier_uniform_(matrix)
        self.position = position
        # Cut afterwards, so that all other weights are those of any scheme.
        for number, layer in enumerate(self.layers):
            scheme = position.in_layer(number)
            layer.attention.cut(kv_heads or n_heads, scheme.projects_values)
            if scheme.output_heads > 1:
                layer.attention.widen_output(scheme.output_heads, bound)
            if qk_norm:
                layer.attention.qk_norm = nn.ModuleList(
                    nn.RMSNorm(d_model // n_heads) for _ in "qk"
                )
        for number, layer in enumerate(self.layers):
            check_controls(position.in_layer(number), attention, qk_norm, conv, sink)
            layer.add_controls(conv, gate, sink, position.in_layer(number).output_heads)
        self.smear = Smear(d_model) if smear else None
        self.widths = self._try_hooks(d_model, n_heads, attention)

    @torch.no_grad()
    def _try_hooks(self, d_model: int, n_heads: int, attention: str) -> list[tuple[int, int]]:
        """The widths of a head's keys and values in each layer.

        Raises ConfigError if linear attention does not support the scheme.
        """
        at = self.position.prepare(torch.arange(2), torch.float32)
        widths = []
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
            if attention == "linear":
                has_bias = bias is not None or own_bias is not None
                has_widths = widths[-1] == (d_model // n_heads,) * 2
                check_linear(scheme, has_bias, has_widths)
        return widths

    def forward(
        self,
        tokens_BT: Tensor,
        pos: Tensor | None = None,
        cache: Cache | None = None,
        documents_BT: Tensor | None = None,
    ) -> Tensor:
        """Logits of each next token, [B, T, V].

        pos: positions, [T], [B, T] or [B, T, axes]; None: 0 … T − 1, or what follows the cache
        cache: of earlier tokens, which these join; they all have a `pos`, or none has
        documents_BT: the number of each token's document; it sees tokens of the same number alone
        """
        pos_T, pos_S = positions(tokens_BT, pos, cache)
        self._check_length(pos, len(pos_S))
        dtype = self.embedding.weight.dtype
        with torch.autocast(pos_T.device.type, enabled=False):  # positions in full precision
            at_T = prepared(self.position, pos_T, dtype)
            at_S = at_T if pos_S is pos_T else prepared(self.position, pos_S, dtype)
            bias = self.position.bias(at_T, at_S)
            keys_T, apart = self._keys(tokens_BT, documents_BT, cache)
            at_T = self.position.with_keys(at_T, within_window(keys_T, self.position.window))

        x_BTD = self.scale * self.embedding(tokens_BT)
        if self.smear is not None:
            x_BTD = self.smear(x_BTD, None if cache is None else cache[0])
        x_BTD = self.dropout(self.position.embed(x_BTD, at_T))
        for number, layer in enumerate(self.layers):
            own_number, own_at_T, own_bias = self.position.for_layer(number, at_T, bias)
            if apart is not None:
                own_bias = apart if own_bias is None else own_bias + apart
            x_BTD = layer(
                x_BTD,
                self.position.in_layer(number),
                own_at_T,
                own_bias,
                None if cache is None else cache[number],
                own_number,
            )
        return self.unembedding(self.norm(x_BTD))

    def _check_length(self, given: Tensor | None, tokens: int) -> None:
        """Raise TooLong if a position is beyond the scheme's limit."""
        limit = self.position.max_len
        end = tokens
        if limit is not None and given is not None:
            first = given[..., 0] if given.dim() == 3 else given
            end = int(first.max()) + 1
        if limit is not None and end > limit:
            raise TooLong(
                f"{end} positions are more than the {limit} that the position scheme was made for"
            )

    def _keys(
        self, tokens_BT: Tensor, documents_BT: Tensor | None, cache: Cache | None
    ) -> tuple[Tensor, Tensor | None]:
        """The number of keys that each query sees, [T] or [B, T]; and −∞ for keys of other
        documents, [B, 1, T, S], or None.
        """
        begin = 0 if cache is None else cache[0].length
        T = tokens_BT.shape[1]
        if documents_BT is None:
            return torch.arange(begin + 1, begin + T + 1, device=tokens_BT.device), None
        if self.layers[0].attention.linear:
            raise ConfigError(
                "model.attention=linear: has no scores, by which attention could stay within a "
                "document; take model.attention=softmax"
            )
        documents_BS = so_far("model.documents", documents_BT, None if cache is None else cache[0])
        apart_BTS = documents_BT.unsqueeze(2) != documents_BS.unsqueeze(1)
        keys_BT = (~apart_BTS).tril(begin).sum(-1)
        zero = self.embedding.weight.new_zeros(())
        return keys_BT, torch.where(apart_BTS, -torch.inf, zero).unsqueeze(1)

    def new_cache(self, rows: int, slots: int) -> Cache:
        """An empty cache with room for `slots` tokens in each of `rows` batch rows."""
        weight = self.unembedding.weight
        attention = self.layers[0].attention
        size = (rows, attention.n_heads)
        kind = weight.device.type
        dtype = weight.dtype
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
        first, second = map(sum, self._sizes_of_layers(slots, attrgetter("nbytes")))
        return (first + (slots - 1) * (second - first)) / slots

    def numbers_needed(self, tokens: int) -> float:
        """Numbers per batch row that a cache of `tokens` tokens has to hold. A layer with a window
        needs its last tokens alone; keys that are the values are needed once.
        """
        first, second = self._sizes_of_layers(tokens, attrgetter("numbers"))
        if self.layers[0].attention.linear:
            return sum(first)
        needed = 0.0
        for number, (keys, values) in enumerate(self.widths):
            scheme = self.position.in_layer(number)
            heads = self.layers[number].attention.kv_heads
            width = keys + values if scheme.projects_values else max(keys, values)
            own = second[number] - first[number]
            needed += min(scheme.window or tokens, tokens) * (heads * width + own)
        return needed

    def _sizes_of_layers(self, slots: int, size: Callable[[LayerCache], int]) -> list[list[int]]:
        """The size of each layer's cache, with room for `slots` tokens, after one and after two."""
        cache = self.new_cache(1, max(slots, 2))
        token_11 = self.embedding.weight.new_zeros(1, 1, dtype=torch.long)
        sizes = []
        for _ in range(2):
            self(token_11, cache=cache)
            sizes.append(list(map(size, cache)))
        return sizes


def positions(
    tokens_BT: Tensor, given: Tensor | None, cache: Cache | None
) -> tuple[Tensor, Tensor]:
    """The positions of new tokens, and of all tokens so far; one tensor if these are the first."""
    begin = 0
    end = tokens_BT.shape[1]
    if cache is not None:
        begin = cache[0].length
        end = cache[0].length + end
    if given is None:
        pos_T = torch.arange(begin, end, device=tokens_BT.device)
        pos_S = torch.arange(end, device=tokens_BT.device) if begin else pos_T
        return pos_T, pos_S
    if cache is None:
        return given, given
    pos_T = given.expand(len(tokens_BT), -1) if given.dim() == 1 else given
    return pos_T, so_far("model.positions", pos_T, cache[0])


def check_choices(**given: str | None) -> None:
    """Raise ConfigError for an argument of `Transformer` that is none of its CHOICES."""
    for name, value in given.items():
        if value not in CHOICES[name]:
            possible = ", ".join(map(str, CHOICES[name]))
            raise ConfigError(f"model.{name}={value}: must be one of {possible}")
