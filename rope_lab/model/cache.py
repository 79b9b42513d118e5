"""What a layer keeps of the tokens that it has read: keys and values, or their sums, and a scheme's own numbers.

Shape letters: B batch, T time (tokens at hand), S time (all tokens so far), H heads, K head width.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass
class KVCache:
    """The cache of softmax attention: `length` keys and values, in buffers with room for more, [B, H, slots, K].

    Keys are cached rotated, in the width that the position scheme gives them. `own` is the scheme's, [B, …] each.
    """

    k_BHSK: Tensor
    v_BHSK: Tensor
    length: int = 0
    own: dict[str, Tensor] = field(default_factory=dict)

    def add(self, k_BTHK: Tensor, v_BTHK: Tensor) -> tuple[Tensor, Tensor]:
        """Stores T more; returns all so far, [B, H, S, K] each."""
        begin, self.length = self.length, self.length + k_BTHK.shape[1]
        self.k_BHSK[:, :, begin : self.length] = k_BTHK.transpose(1, 2)
        self.v_BHSK[:, :, begin : self.length] = v_BTHK.transpose(1, 2)
        return self.k_BHSK[:, :, : self.length], self.v_BHSK[:, :, : self.length]

    def rows(self, chosen_B: Tensor) -> "KVCache":
        """The cache of the chosen batch rows alone, bool [B]."""
        own = {name: value[chosen_B] for name, value in self.own.items()}
        return KVCache(self.k_BHSK[chosen_B], self.v_BHSK[chosen_B], self.length, own)

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for x in (self.k_BHSK, self.v_BHSK, *self.own.values()))


@dataclass
class LinearAttentionState:
    """The cache of linear attention: Σᵢ k̃ᵢ ṽᵢᵀ, [B, H, K, K], and Σᵢ φ(kᵢ), [B, H, K]; it does not grow."""

    kv_BHKK: Tensor
    k_BHK: Tensor
    length: int = 0
    own: dict[str, Tensor] = field(default_factory=dict)

    def rows(self, chosen_B: Tensor) -> "LinearAttentionState":
        own = {name: value[chosen_B] for name, value in self.own.items()}
        return LinearAttentionState(self.kv_BHKK[chosen_B], self.k_BHK[chosen_B], self.length, own)

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for x in (self.kv_BHKK, self.k_BHK, *self.own.values()))


LayerCache = KVCache | LinearAttentionState  # of the `length` tokens that a layer has read


def so_far(name: str, x_BT: Tensor, cache: LayerCache | None) -> Tensor:
    """`x` [B, T, …] of the tokens at hand and of all before them, [B, S, …]; kept in the cache under `name`."""
    if cache is None:
        return x_BT
    x_BS = cache.own[name] = torch.cat([cache.own[name], x_BT], dim=1) if name in cache.own else x_BT
    return x_BS


def running_sum(name: str, x_BT: Tensor, cache: LayerCache | None) -> Tensor:
    """Σ of `x` [B, T, …] over each token and all before it, the same shape; the last is kept under `name`."""
    sum_BT = x_BT.cumsum(1)
    if cache is not None:
        sum_BT = sum_BT + cache.own.get(name, 0)
        cache.own[name] = sum_BT[:, -1:]
    return sum_BT


def with_before(name: str, x_BTD: Tensor, n: int, cache: LayerCache | None) -> Tensor:
    """The `n` tokens before those at hand, zeros before the first, and they: [B, n + T, D]; the last n are kept."""
    if cache is None or name not in cache.own:
        x_BTD = F.pad(x_BTD, (0, 0, n, 0))
    else:
        x_BTD = torch.cat([cache.own[name], x_BTD], dim=1)
    if cache is not None:
        cache.own[name] = x_BTD[:, x_BTD.shape[1] - n :]
    return x_BTD
