"""Variants of RoPE: other frequencies, bases, magnitudes or score scales.

RoPE and RoPER are in rotary.py.

Shape letters: B batch, T time, H heads, K head width, C pairs of a head's features; 3 stands for
queries, keys and values side by side. Where positions are [B, T], shapes begin with B too.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_lab.model.hooks import Dims
from rope_lab.model.rotation import Pairs, angles, count, frequencies, precise, rotate, unit, wide
from rope_lab.model.schemes.rotary import Rotary
from rope_lab.text import ConfigError


class PRope(Rotary):
    """RoPE without its lowest frequencies: a share p of the θⱼ, the largest, is kept; others are 0.

    Barbero et al. (2024): the pairs of the lowest frequencies carry content, and rotating them
    slowly only blurs it.
    """

    def __init__(
        self, dims: Dims, p: float = 0.75, base: float = 10_000.0, pairs: Pairs = "neighbours"
    ):
        super().__init__(dims, q=1, k=1, base=base, pairs=pairs)
        kept = count("p", p, dims.d_head // 2)
        for theta_C in self.theta.values():
            theta_C[kept:] = 0


class XPos(Rotary):
    """RoPE whose scores also decay with distance, faster in pairs of higher frequency (Sun et al.,
    2022).

    ζᵢ = (2i/d + γ) / (1 + γ), γ = 0.4. With s = scale_base positions, queries at n are multiplied
    by ζᵢ^(n/s) and keys at m by ζᵢ^(−m/s), so that pair i of the score is multiplied by
    ζᵢ^((n−m)/s). Texts have at most about 55 s positions, 28,231 by default: beyond them float32
    cannot hold the factors.
    """

    def __init__(
        self,
        dims: Dims,
        base: float = 10_000.0,
        scale_base: float = 512.0,
        pairs: Pairs = "neighbours",
    ):
        super().__init__(dims, q=1, k=1, base=base, pairs=pairs)
        if not 0 < scale_base < 1e9:
            raise ConfigError(
                f"position.scale_base={scale_base}: must be above 0 and below 10⁹ positions"
            )
        self.zeta_C = (
            torch.arange(0, dims.d_head, 2, dtype=torch.float64) / dims.d_head + 0.4
        ) / 1.4
        self.scale_base = scale_base
        # Beyond this length float32 cannot hold the factors.
        self.max_len = int(-30 / self.zeta_C[0].log10() * scale_base)

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> tuple[Tensor, None]:
        e_T31C2, _ = super().prepare(pos, dtype)
        exact_T = precise(pos)
        zeta_TC = self.zeta_C.to(exact_T.device) ** (exact_T / self.scale_base).unsqueeze(-1)
        factor_T3C = torch.stack([zeta_TC, 1 / zeta_TC, torch.ones_like(zeta_TC)], dim=-2)
        return e_T31C2 * factor_T3C[..., None, :, None].to(e_T31C2), None


class OwnFrequencies(Rotary):
    """RoPE whose queries and keys are rotated by frequencies of its own: `own_theta`, float64, [H,
    C] or [1, C].
    """

    own_theta: Tensor

    def __init__(self, dims: Dims, base: float, pairs: Pairs):
        super().__init__(dims, q=1, k=1, base=base, pairs=pairs)
        self.theta = {}

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> tuple[Tensor, None]:
        """The phases of queries and keys, and of values, which are not rotated: [T, 3, H or 1, C,
        2].
        """
        theta_HC = self.own_theta
        theta_3HC = torch.stack([theta_HC, theta_HC, torch.zeros_like(theta_HC)])
        return unit(angles(pos[..., None, None], theta_3HC)).to(pos.device, wide(dtype)), None


class LeRoPE(OwnFrequencies):
    """RoPE whose frequencies are learned (Karypis et al., 2026, section 3.1).

    θ̂ⱼ = e^(αⱼ) θⱼ, θⱼ those of RoPE; α is 0 at first and shared by all heads and layers. Its
    authors clip the gradients of α apart from the others; here they are clipped together.
    """

    def __init__(self, dims: Dims, base: float = 10_000.0, pairs: Pairs = "neighbours"):
        super().__init__(dims, base, pairs)
        self.theta_C = frequencies(dims.d_head, base)
        self.alpha_C = nn.Parameter(torch.zeros(dims.d_head // 2))

    @property
    def own_theta(self) -> Tensor:
        return (self.alpha_C.to(self.theta_C).exp() * self.theta_C).unsqueeze(0)


class HeadBases(OwnFrequencies):
    """RoPE with a base for each head, from `base` for the first to `last_base` for the last in
    equal ratios.

    θₕⱼ = bₕ^(−2j/K), bₕ = base^(1−s) last_base^s, s = h/(H−1). AdaRoPE (2026, arXiv 2607.19363)
    learns frequencies per head and finds that they differ; fixed bases in equal ratios are ours.
    """

    def __init__(
        self,
        dims: Dims,
        base: float = 100.0,
        last_base: float = 1_000_000.0,
        pairs: Pairs = "neighbours",
    ):
        super().__init__(dims, base, pairs)
        frequencies(dims.d_head, last_base, "last_base")
        share_H = torch.linspace(0, 1, dims.n_heads, dtype=torch.float64)
        self.own_theta = torch.stack(
            [
                frequencies(dims.d_head, base ** (1 - share) * last_base**share)
                for share in share_H.tolist()
            ]
        )


class CayleyString(Rotary):
    """RoPE in a learned basis of each head (Schenck et al., 2025, Cayley-STRING).

    Queries and keys z at position n become R(nθ) P z, P = (I − S)(I + S)⁻¹ (equation 10), S
    antisymmetric. P is orthogonal, so that scores depend on i − n alone; it is shared by queries
    and keys, and here by all layers. S = A − Aᵀ with A learned; it is 0 at first, which is RoPE.
    """

    def __init__(self, dims: Dims, base: float = 10_000.0, pairs: Pairs = "neighbours"):
        super().__init__(dims, q=1, k=1, base=base, pairs=pairs)
        self.a_HKK = nn.Parameter(torch.zeros(dims.n_heads, dims.d_head, dims.d_head))

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, None]:
        """The phases of queries, keys and values, [T, 3, 1, C, 2], and P, [H, K, K]."""
        phases, _ = super().prepare(pos, dtype)
        a_HKK = self.a_HKK.to(wide(dtype))
        s_HKK = a_HKK - a_HKK.mT
        one_KK = torch.eye(a_HKK.shape[-1], dtype=a_HKK.dtype, device=a_HKK.device)
        p_HKK = torch.linalg.solve(one_KK + s_HKK, one_KK - s_HKK)  # the two factors commute
        return phases, p_HKK, None

    def heads(self, qkv_BT3HK: Tensor, at: tuple) -> Tensor:
        qk_BT2HK, v_BT1HK = qkv_BT3HK.to(at[1].dtype).split((2, 1), dim=2)
        qk_BT2HK = torch.einsum("btphk,hjk->btphj", qk_BT2HK, at[1])
        return super().heads(torch.cat([qk_BT2HK, v_BT1HK], dim=2), at)


class SSMax(Rotary):
    """RoPE whose scores are multiplied by s ln n, n the keys that a query sees (Nakanishi, 2025,
    equation 11).

    Attention over many keys then stays as sharp as over few. s is learned for each head, here
    shared by all layers. It begins at 1 over the mean of ln n in training, as its author's 0.168
    for 1,024 tokens, so that scores begin as in RoPE on average. n counts keys, wherever positions
    are. Linear attention has no scores: its numerator is multiplied.
    """

    def __init__(self, dims: Dims, base: float = 10_000.0, pairs: Pairs = "neighbours"):
        super().__init__(dims, q=1, k=1, base=base, pairs=pairs)
        longest = max(dims.keys or dims.max_len, 2)
        mean = math.lgamma(longest + 1) / longest  # of ln n for n = 1 … longest
        self.s_H = nn.Parameter(torch.full((dims.n_heads,), 1 / mean))

    def with_keys(self, at: tuple[Tensor, None], keys_T: Tensor) -> tuple[Tensor, None]:
        """The phases of queries, times s ln n, and of keys and values: [T, 3, H, C, 2]."""
        phases, _ = at
        s_TH = precise(keys_T).log().to(phases).unsqueeze(-1) * self.s_H.to(phases)
        factor_T3H = torch.stack([s_TH, torch.ones_like(s_TH), torch.ones_like(s_TH)], dim=-2)
        return phases * factor_T3H[..., None, None], None


class PoPE(Rotary):
    """Scores by magnitudes from content and phases from position alone (Gopalakrishnan et al.,
    2025, arXiv 2509.10534).

    Feature c = 0 … d − 1 of a head gets the magnitude μ(x) = softplus(x). Its phase is nθ_c in a
    query at n and iθ_c + δ_c in a key at i, θ_c = base^(−c/d). The score is
    Σ_c μ(q_c) μ(k_c) cos((i−n)θ_c + δ_c) / √d. As cosines and sines, queries and keys are 2d wide;
    values stay d wide. So the KV cache is 1.5 times that of RoPE.

    δ is learned for each head and feature, and shared by all layers. Its authors keep it in [−2π,
    0]; here it is free.

    v, o: how many times values and output are rotated, as in Rotary; 1 and −1 as in RoPER
    delta_init: δ is initialised uniformly in [−delta_init, 0]; its authors take 2π for indirect
        indexing, 0 for text
    window: a query sees so many last tokens, its own included; None: all

    Raises ConfigError if a head's width is odd, `base` is not finite and above 1, or `delta_init`
    not 0 to 2π.
    """

    def __init__(
        self,
        dims: Dims,
        v: int = 0,
        o: int = 0,
        base: float = 10_000.0,
        delta_init: float = 0.0,
        window: int | None = None,
    ):
        super().__init__(dims, v=v, o=o, base=base, window=window)
        if not 0 <= delta_init <= 6.2832:
            raise ConfigError(f"position.delta_init={delta_init}: must be from 0 to 2π, 6.2832")
        self.delta = nn.Parameter(torch.empty(dims.n_heads, dims.d_head).uniform_(-delta_init, 0))
        self.theta = {part: frequencies(2 * dims.d_head, base) for part in "qk"} | self.theta

    def prepare(
        self, pos: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The phases of queries and keys, [T, 2, 1, K, 2], of values and of the output, [T, 1, K/2,
        2].
        """
        return (
            self.phases("qk", pos, dtype).unsqueeze(-3),
            self.phases("v", pos, dtype),
            self.phases("o", pos, dtype),
        )

    def heads(self, qkv_BT3HK: Tensor, at: tuple) -> tuple[Tensor, Tensor, Tensor]:
        q_T1K2, k_T1K2 = at[0].unbind(-4)
        shift_HK2 = unit(self.delta.to(k_T1K2.dtype))
        k_THK2 = rotate(shift_HK2.flatten(-2), k_T1K2).unflatten(-1, (-1, 2))
        q, k, v_BTHK = qkv_BT3HK.to(k_T1K2.dtype).unbind(2)
        q = (F.softplus(q).unsqueeze(-1) * q_T1K2).flatten(-2)
        k = (F.softplus(k).unsqueeze(-1) * k_THK2).flatten(-2)
        return q, k, rotate(v_BTHK, at[1])
