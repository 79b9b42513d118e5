"""The token before: keys, or keys and values, that are in part those of the previous token.

A key that knows its predecessor allows induction in one layer. Texts of a batch row are one
sequence: across the borders of packed documents a key also sees the token before.

Shape letters: B batch, T time, D model width, H heads, K head width; 3 stands for queries, keys and
values side by side.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from rope_lab.model.attention import Heads
from rope_lab.model.cache import LayerCache, before, with_before
from rope_lab.model.hooks import Dims, PositionScheme, Wrapper
from rope_lab.model.rotation import share_of
from rope_lab.text import ConfigError


class Around(Wrapper):
    """Base class: another scheme's hooks in every layer, with other arguments.

    `at` is a tuple, whose first part is that of the other scheme.
    """

    def __init__(self, dims: Dims, scheme: Callable[[Dims], PositionScheme]):
        super().__init__(scheme(dims))
        if self.scheme.in_layer(0) is not self.scheme or not self.projects_values:
            raise ConfigError(
                f"position.scheme: {type(self.scheme).__name__} differs between layers or projects "
                "no values: take another scheme, or write this one into position.pattern"
            )

    @property
    def window(self) -> int | None:
        return self.scheme.window

    @window.setter
    def window(self, tokens: int | None) -> None:
        self.scheme.window = tokens

    def in_layer(self, number: int) -> PositionScheme:
        return self

    def heads(self, qkv_BT3HK: Tensor, at: tuple) -> Heads:
        return self.scheme.heads(qkv_BT3HK, at[0])

    def attention(
        self,
        heads: Heads,
        at: tuple,
        bias: Tensor | None,
        cache: LayerCache | None,
        sink: Tensor | None = None,
    ) -> Tensor:
        return self.scheme.attention(heads, at[0], bias, cache, sink)

    def output(self, o_BTHK: Tensor, at: tuple) -> Tensor:
        return self.scheme.output(o_BTHK, at[0])


class PartialKeyOffset(Around):
    """The last features of each key are those of the token before (modded-nanogpt, record 49,
    December 2025).

    kₜ[U] ← kₜ₋₁[U], U the last `share` of each head's features; the first token keeps its own. The
    other features of keys, queries and values stay. In modded-nanogpt half RoPE rotates the other
    features at frequencies from 1 to 1/1024, position.scheme.base = 1024^(C/(C−2)) for C pairs of a
    head; the default here is 10,000. It also normalises queries and keys (model.qk_norm), and only
    2 of its 11 layers have the offset. In packed documents the first key of a document takes
    features of the document before.

    scheme: of all other hooks; in modded-nanogpt it does not rotate the features U
    """

    def __init__(self, dims: Dims, scheme: Callable[[Dims], PositionScheme], share: float = 0.5):
        super().__init__(dims, scheme)
        self.moved = share_of("share", share, dims.d_head)

    def read(
        self, x_BTD: Tensor, at: Any, layer: int, cache: LayerCache | None
    ) -> tuple[tuple, Tensor | None]:
        """Returns the other scheme's `at`, and the cache."""
        own_at, bias = self.scheme.read(x_BTD, at, layer, cache)
        return (own_at, cache), bias

    def heads(self, qkv_BT3HK: Tensor, at: tuple) -> Heads:
        q_BTHK, k_BTHK, v_BTHK = qkv_BT3HK.unbind(2)
        moved_BTHK = before("key", k_BTHK[..., -self.moved :], at[1])
        k_BTHK = torch.cat([k_BTHK[..., : -self.moved], moved_BTHK], dim=-1)
        return super().heads(torch.stack([q_BTHK, k_BTHK, v_BTHK], dim=2), at)


class KVShift(Around):
    """Keys and values are mixed with those of the token before, by gates that depend on content
    (Xu et al., 2024, arXiv 2411.19574; gates as in Lin et al., 2025, FoX).

    kₜ′ = αₜ kₜ₋₁ + (1 − αₜ) kₜ before the other hooks, α = σ(w xₜ) for each head; values likewise
    with an α of their own. Before the first token there is 0.
    """

    def __init__(self, dims: Dims, scheme: Callable[[Dims], PositionScheme]):
        super().__init__(dims, scheme)
        self.gates = nn.ModuleList(
            nn.Linear(dims.d_model, 2 * dims.n_heads, bias=False) for _ in range(dims.n_layers)
        )

    def read(
        self, x_BTD: Tensor, at: Any, layer: int, cache: LayerCache | None
    ) -> tuple[tuple, Tensor | None]:
        """Returns the other scheme's `at`, the gates of keys and values, [B, T, 2, H, 1], and the
        cache.
        """
        own_at, bias = self.scheme.read(x_BTD, at, layer, cache)
        alpha_BT2H1 = self.gates[layer](x_BTD).sigmoid().unflatten(-1, (2, -1, 1))
        return (own_at, alpha_BT2H1, cache), bias

    def heads(self, qkv_BT3HK: Tensor, at: tuple) -> Heads:
        _, alpha, cache = at
        q_BT1HK, kv_BT2HK = qkv_BT3HK.split((1, 2), dim=2)
        flat_BTX = with_before("kv", kv_BT2HK.flatten(2), 1, cache)[:, :-1]
        previous_BT2HK = flat_BTX.view_as(kv_BT2HK)
        mixed_BT2HK = alpha * previous_BT2HK + (1 - alpha) * kv_BT2HK
        return super().heads(torch.cat([q_BT1HK, mixed_BT2HK.to(q_BT1HK.dtype)], dim=2), at)
