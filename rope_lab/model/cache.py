"""Caches of a layer for incremental decoding: keys and values, or their sums, and a scheme's own
numbers.

Shape letters: B batch, T time (new tokens), S time (all tokens so far), H heads, K head width,
X features that are convolved, N taps.
"""

from dataclasses import dataclass, field, replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from rope_lab.model.rotation import wide


@dataclass(kw_only=True)
class LayerCache:
    """The cache of one layer after `length` tokens; `own` belongs to the position scheme, [B, …]
    each.
    """

    length: int = 0
    own: dict[str, Tensor] = field(default_factory=dict)

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for x in (*self.tensors.values(), *self.own.values()))

    @property
    def numbers(self) -> int:
        return sum(x.numel() for x in (*self.tensors.values(), *self.own.values()))

    def rows(self, chosen_B: Tensor) -> Self:
        """The cache of some rows of the batch; chosen: bool [B]."""
        kept = {name: x[chosen_B] for name, x in self.tensors.items()}
        own = {name: x[chosen_B] for name, x in self.own.items()}
        return replace(self, own=own, **kept)


@dataclass
class KVCache(LayerCache):
    """The cache of softmax attention: `length` keys and values, in buffers with room for more, [B,
    H, slots, K].

    Keys are cached rotated, in the width that the position scheme gives them.
    """

    k_BHSK: Tensor
    v_BHSK: Tensor

    def add(self, k_BTHK: Tensor, v_BTHK: Tensor) -> tuple[Tensor, Tensor]:
        """Add T tokens; returns all keys and values so far, [B, H, S, K] each."""
        begin = self.length
        self.length = self.length + k_BTHK.shape[1]
        self.k_BHSK[:, :, begin : self.length] = k_BTHK.transpose(1, 2)
        self.v_BHSK[:, :, begin : self.length] = v_BTHK.transpose(1, 2)
        return self.k_BHSK[:, :, : self.length], self.v_BHSK[:, :, : self.length]


@dataclass
class LinearAttentionState(LayerCache):
    """The cache of linear attention: Σᵢ k̃ᵢ ṽᵢᵀ, [B, H, K, K], and Σᵢ φ(kᵢ), [B, H, K]; it does not
    grow.
    """

    kv_BHKK: Tensor
    k_BHK: Tensor


def so_far(name: str, x_BT: Tensor, cache: LayerCache | None) -> Tensor:
    """`x` [B, T, …] of the new tokens, after that of all before them: [B, S, …]; kept in the cache
    under `name`.
    """
    if cache is None:
        return x_BT
    x_BS = cache.own[name] = (
        torch.cat([cache.own[name], x_BT], dim=1) if name in cache.own else x_BT
    )
    return x_BS


def running_sum(name: str, x_BT: Tensor, cache: LayerCache | None) -> Tensor:
    """Σ of `x` [B, T, …] over each token and all before it, the same shape; the last sum is kept
    under `name`.
    """
    sum_BT = x_BT.cumsum(1)
    if cache is not None:
        sum_BT = sum_BT + cache.own.get(name, 0)
        cache.own[name] = sum_BT[:, -1:]
    return sum_BT


def with_before(name: str, x_BTD: Tensor, n: int, cache: LayerCache | None) -> Tensor:
    """`x` of the `n` tokens before the new ones (zeros at the start) and these, [B, n + T, D]; the
    last n are kept.
    """
    if cache is None or name not in cache.own:
        x_BTD = F.pad(x_BTD, (0, 0, n, 0))
    else:
        x_BTD = torch.cat([cache.own[name], x_BTD], dim=1)
    if cache is not None:
        cache.own[name] = x_BTD[:, x_BTD.shape[1] - n :]
    return x_BTD


def before(name: str, x_BTHK: Tensor, cache: LayerCache | None) -> Tensor:
    """`x` of the token before each of the new ones, the same shape; the first token's own at the
    start. The last one is kept under `name`.
    """
    at_start = cache is None or name not in cache.own
    x_BTX = x_BTHK.flatten(2)
    previous_BTX = with_before(name, x_BTX, 1, cache)[:, :-1]
    if at_start:
        previous_BTX = torch.cat([x_BTX[:, :1], previous_BTX[:, 1:]], dim=1)
    return previous_BTX.unflatten(-1, x_BTHK.shape[2:])


def convolved(name: str, x_BTX: Tensor, taps_NX: Tensor, cache: LayerCache | None) -> Tensor:
    """Each feature's causal convolution over time, in float32 or wider; the last tap is of the
    token itself.
    """
    n = len(taps_NX)
    T = x_BTX.shape[1]
    x_BTX = with_before(name, x_BTX.to(wide(x_BTX.dtype)), n - 1, cache)
    return sum(taps_NX[i] * x_BTX[:, i : i + T] for i in range(n))
