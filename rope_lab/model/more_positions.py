"""Further position schemes, each a few lines beside its formula; the most common ones are in
`positions`.

Shape letters: B batch, T time (queries), S time (keys and values), H heads, K head width, C pairs
of a head's features; 3 stands for queries, keys and values side by side. Positions are integers,
[T].
"""

import math

import torch
from torch import Tensor, nn

from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.model.positions import Rotary
from rope_lab.model.rotation import Pairs, angles, frequencies, precise, unit, wide
from rope_lab.text import ConfigError


class KerpleLog(PositionScheme):
    """Scores fall with the logarithm of the distance (Chi et al., 2022, KERPLE, logarithmic
    variant).

    bias = −r₁ ln(1 + r₂ |n − m|), r₁ and r₂ above 0 and learned for each head. As in its authors'
    code r₁ is drawn from [0, 2) and r₂ from [0, 1). They clamp both to at least 0.01 at each step;
    here their magnitudes are taken.
    """

    def __init__(self, dims: Dims):
        super().__init__(dims)
        self.r1_H11, self.r2_H11 = (
            nn.Parameter(most * torch.rand(dims.n_heads, 1, 1)) for most in (2, 1)
        )

    def bias(self, at_T: Tensor, at_S: Tensor) -> Tensor:
        distance_TS = (at_T[:, None] - at_S).clamp(min=0)
        return -self.r1_H11.abs() * (self.r2_H11.abs() * distance_TS).log1p()


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
        return unit(angles(pos[:, None, None], theta_3HC)).to(pos.device, wide(dtype)), None


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

    θₕⱼ = bₕ^(−2j/K), bₕ = base^(1−s) last_base^s, s = h/(H−1). That heads want frequencies of their
    own is found where these are learned (AdaRoPE, 2026, arXiv 2607.19363); fixed bases in equal
    ratios are ours.
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
        s_HKK, one_KK = (
            a_HKK - a_HKK.mT,
            torch.eye(a_HKK.shape[-1], dtype=a_HKK.dtype, device=a_HKK.device),
        )
        return (
            phases,
            torch.linalg.solve(one_KK + s_HKK, one_KK - s_HKK),
            None,
        )  # the two factors commute

    def heads(self, qkv_BT3HK: Tensor, at: tuple) -> Tensor:
        qk_BT2HK, v_BT1HK = qkv_BT3HK.to(at[1].dtype).split((2, 1), dim=2)
        return super().heads(
            torch.cat([torch.einsum("btphk,hjk->btphj", qk_BT2HK, at[1]), v_BT1HK], dim=2), at
        )


class RNoPE(Rotary):
    """RoPE, but no position at all in the last of `every` layers (Yang et al., 2025, RNoPE).

    Its authors find that layers without it retrieve from far away, and that those with it favour
    what is near.

    window: the last tokens that a query sees in layers with RoPE (RNoPE-SWA); below 1 a share of
        the training length; None: all
    temperature: c in 1 + c ln(1 + ⌊(n+1) / window⌋), by which layers without RoPE multiply the
        scores of position n, as Llama 4's iRoPE with 0.1, there in chunks of 8,192 tokens
    """

    def __init__(
        self,
        dims: Dims,
        every: int = 2,
        base: float = 10_000.0,
        pairs: Pairs = "neighbours",
        window: int | float | None = None,
        temperature: float = 0.0,
    ):
        super().__init__(dims, q=1, k=1, base=base, pairs=pairs)
        if every < 2:
            raise ConfigError(f"position.every={every}: must be at least 2")
        given = f"position.window={'null' if window is None else f'{window:g}'}, position.temperature={temperature}"
        if window is not None and 0 < window < 1:
            window = math.ceil(window * (dims.keys or dims.max_len))
        if (window is not None and (window < 1 or window % 1)) or (temperature and not window):
            raise ConfigError(
                f"{given}: must be a window of at least 1 token, in whole tokens, or no temperature"
            )
        self.every, self.none, self.temperature = every, Tempered(dims), temperature
        self.window = None if window is None else int(window)

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> tuple:
        """The phases of layers with RoPE, and the factor of queries in the others, [T, 1, 1], or
        None.
        """
        at, factor = super().prepare(pos, dtype), None
        if self.temperature:
            chunk_T = ((precise(pos) + 1) / self.window).floor()
            factor = (1 + self.temperature * chunk_T.log1p()).to(pos.device, wide(dtype))[
                :, None, None
            ]
        return at[0], factor, at[1]

    def in_layer(self, number: int) -> PositionScheme:
        return self.none if number % self.every == self.every - 1 else self


class Tempered(PositionScheme):
    """No position; scores are multiplied by the second of the prepared values unless that is
    None.
    """

    def heads(self, qkv_BT3HK: Tensor, at: tuple) -> Tensor:
        if at[1] is None:
            return qkv_BT3HK
        q_BT1HK, kv_BT2HK = qkv_BT3HK.split((1, 2), dim=2)
        return torch.cat([at[1].unsqueeze(1) * q_BT1HK, kv_BT2HK], dim=2)


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
        factor_T3H = torch.stack([s_TH, torch.ones_like(s_TH), torch.ones_like(s_TH)], dim=1)
        return phases * factor_T3H[..., None, None], None
