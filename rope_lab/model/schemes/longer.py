"""Longer texts: distances beyond those of training are replaced by trained ones.

Shape letters: B batch, T time (queries), S time (keys and values), H heads, K head width, C pairs
of a head's features. Positions are [T] and [S] or, if each row has its own, [B, T] and [B, S].
"""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from rope_lab.model.attention import Heads, weights
from rope_lab.model.axes import distances
from rope_lab.model.cache import KVCache, so_far
from rope_lab.model.hooks import Dims
from rope_lab.model.rotation import Pairs, precise, rotate
from rope_lab.model.schemes.content import gathered
from rope_lab.model.schemes.rotary import Rotary
from rope_lab.text import ConfigError

Method = Literal["rerope", "self_extend", "dual_chunk"]
# The default of `near`, as a share of the training length.
NEAR = {"rerope": 1 / 2, "self_extend": 1 / 4, "dual_chunk": 3 / 4}


class Zone(NamedTuple):
    """Pairs of a query and a key that meet at positions of their own.

    query_T, key_S: those positions; pairs_TS: bool, which pairs they are; each may begin with B
    """

    query_T: Tensor
    key_S: Tensor
    pairs_TS: Tensor


class Remapped(Rotary):
    """RoPE whose queries at n and keys at i meet at other positions if they are far apart, so that
    distances stay within those of training. L is `original`.

    - rerope (Su, 2023): from a distance of w = near on, the distance is w. Queries are multiplied
      by max(1, ln N / ln L), N the number of keys that they see.
    - self_extend (Jin et al., 2024, arXiv 2401.01325): from a distance of W = near on, the query is
      at ⌊n/G⌋ + W − ⌊W/G⌋ and the key at ⌊i/G⌋, G = group. Distances stay within those of
      training up to W + G(L − W) tokens, 3.25 L by default.
    - dual_chunk (An et al., 2024, arXiv 2402.17463): chunks of c = near tokens. Keys are at i mod
      c; the query is at n mod c for keys of its own chunk, at min(n mod c + c, L − 1) for those of
      the chunk before, at L − 1 for older ones.

    near: tokens; None: a half, a quarter, three quarters of L
    original: L, the number of tokens trained on; None: the training length
    q, k, v, o, base, fraction, value_fraction, value_base, pairs: as in Rotary. Values and outputs
        are rotated by the same positions as keys and queries

    Keys are cached unrotated.
    """

    def __init__(
        self,
        dims: Dims,
        method: Method = "rerope",
        near: int | None = None,
        group: int = 4,
        original: int | None = None,
        q: int = 1,
        k: int = 1,
        v: int = 0,
        o: int = 0,
        base: float = 10_000.0,
        fraction: float = 1.0,
        value_fraction: float = 1.0,
        value_base: float | None = None,
        pairs: Pairs = "neighbours",
    ):
        super().__init__(dims, q, k, v, o, base, fraction, value_fraction, value_base, pairs)
        self.original = dims.max_len if original is None else original
        self.method, self.group = method, group
        self.near = max(1, int(NEAR[method] * self.original)) if near is None else near
        if self.original < 2 or self.near < 1 or group < 1:
            given = f"position.original={self.original}, near={self.near}, group={group}"
            raise ConfigError(f"{given}: must be at least 2, 1 and 1")
        if method == "dual_chunk" and self.near >= self.original:
            given = f"position.near={self.near}"
            raise ConfigError(f"{given}: must be below position.original={self.original}")

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor | None, None]:
        """The positions; `attention` rotates."""
        return pos, None, None

    def with_keys(self, at: tuple, keys_T: Tensor) -> tuple[Tensor, Tensor | None, None]:
        """The positions, and ReRoPE's factors of queries: float64, [1, T, 1] or [B, 1, T, 1]."""
        if self.method != "rerope":
            return at
        ratio_T = precise(keys_T).log() / math.log(self.original)
        return at[0], ratio_T.clamp(min=1)[..., None, :, None], None

    def heads(self, qkv_BT3HK: Tensor, at: tuple) -> Tensor:
        return qkv_BT3HK

    def zones(self, n_T: Tensor, i_S: Tensor) -> list[Zone]:
        """The zones of queries at n and keys at i; each pair is in one of them."""
        if self.method == "dual_chunk":
            return self._chunks(n_T, i_S)
        is_near_TS = distances(n_T, i_S) < self.near
        if self.method == "rerope":
            far = torch.full_like(n_T, self.near), torch.zeros_like(i_S)
        else:
            shift = self.near - self.near // self.group
            far = n_T // self.group + shift, i_S // self.group
        return [Zone(n_T, i_S, is_near_TS), Zone(*far, ~is_near_TS)]

    def _chunks(self, n_T: Tensor, i_S: Tensor) -> list[Zone]:
        size = self.near
        last = self.original - 1
        within_T, key_S = n_T % size, i_S % size
        before_T = (within_T + size).clamp(max=last)
        older_T = torch.full_like(n_T, last)
        apart_TS = distances(n_T // size, i_S // size)
        return [
            Zone(within_T, key_S, apart_TS <= 0),
            Zone(before_T, key_S, apart_TS == 1),
            Zone(older_T, key_S, apart_TS > 1),
        ]

    def placed(self, part: str, x_BHTK: Tensor, pos_T: Tensor) -> Tensor:
        """Heads rotated as `part` of `qkvo` at positions."""
        phases = self.phases(part, pos_T, x_BHTK.dtype)  # [T, 1, C, 2] or [B, T, 1, C, 2]
        if phases is not None:
            phases = phases.transpose(-4, -3)
        return rotate(x_BHTK, phases, self.pairs)

    def attention(
        self,
        heads: Heads,
        at: tuple,
        bias: Tensor | None,
        cache: KVCache | None,
        sink: Tensor | None = None,
    ) -> Tensor:
        n_T, sharper_1T1, _ = at
        q_BHTK, k_BHSK, v_BHSK = gathered(heads, cache)
        i_BS = so_far("position", n_T.expand(len(q_BHTK), -1), cache)
        zones = self.zones(n_T, i_BS if n_T.dim() > 1 else i_BS[0])
        with torch.autocast(q_BHTK.device.type, enabled=False):
            if sharper_1T1 is not None:
                q_BHTK = sharper_1T1.to(q_BHTK) * q_BHTK
            scores_BHTS = q_BHTK.new_zeros(*q_BHTK.shape[:-1], i_BS.shape[1])
            for zone in zones:
                q = self.placed("q", q_BHTK, zone.query_T)
                k = self.placed("k", k_BHSK, zone.key_S)
                scores_BHTS = torch.where(zone.pairs_TS.unsqueeze(-3), q @ k.mT, scores_BHTS)
            weights_BHTS = weights(scores_BHTS / q_BHTK.shape[-1] ** 0.5, bias, self.window, sink)
            outputs = []
            for zone in zones:
                v = self.placed("v", v_BHSK, zone.key_S)
                o_BHTK = (weights_BHTS * zone.pairs_TS.unsqueeze(-3)) @ v
                outputs.append(self.placed("o", o_BHTK, zone.query_T))
            return sum(outputs).transpose(1, 2)
