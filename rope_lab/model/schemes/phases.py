"""Other phases of RoPE: from content, at random, or rotated by 90°.

Shape letters: B batch, T time, D model width, H heads, K head width, C pairs of a head's features;
3 stands for queries, keys and values side by side. Where positions are [B, T], shapes begin with B
too.
"""

import math
from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_lab.model.attention import Heads, softmax_attention, unpacked
from rope_lab.model.axes import whole
from rope_lab.model.cache import KVCache, LayerCache
from rope_lab.model.hooks import Dims
from rope_lab.model.rotation import Pairs, rotate, unit, wide
from rope_lab.model.schemes.rotary import Rotary
from rope_lab.text import ConfigError


class RePo(Rotary):
    """RoPE at positions that each head computes from content (Li et al., 2025, RePo, arXiv
    2512.14391).

    z = W_z (SiLU(W_g x) ∘ W_c x), a real number for each token and head, W_g and W_c to D/8
    features, which the heads share; queries and keys are rotated by R(zθ). Causality stays; the
    token's own position has no effect. Layers before `first` have RoPE. In its authors' models x is
    not normalised, and training continues from a model with RoPE; here x is the input of the
    layer's projections.

    first: the first layer, 0 …, with computed positions; None: a third of the layers, rounded up
        (its authors have 5 of 16)
    """

    def __init__(self, dims: Dims, base: float = 500_000.0, first: int | None = None):
        super().__init__(dims, q=1, k=1, base=base)
        L, D, R = dims.n_layers, dims.d_model, max(dims.d_model // 8, 1)
        self.first = min(math.ceil(L / 3), L - 1) if first is None else first
        if not 0 <= self.first < L:
            raise ConfigError(f"position.first={first}: must be a layer, from 0 to {L - 1}")
        own = range(self.first, L)
        self.gates = nn.ModuleList(nn.Linear(D, R, bias=False) for _ in own)
        self.contents = nn.ModuleList(nn.Linear(D, R, bias=False) for _ in own)
        self.positions = nn.ModuleList(nn.Linear(R, dims.n_heads, bias=False) for _ in own)
        for weight in self.parameters():
            nn.init.trunc_normal_(weight, std=0.02, a=-0.06, b=0.06)

    def read(
        self, x_BTD: Tensor, at: tuple, layer: int, cache: LayerCache | None
    ) -> tuple[tuple, None]:
        """The phases of queries, keys and values, [T, 3, 1, C, 2] or [B, T, 3, H, C, 2]."""
        if layer < self.first:
            return at, None
        own = layer - self.first
        hidden_BTR = F.silu(self.gates[own](x_BTD)) * self.contents[own](x_BTD)
        z_BTH = self.positions[own](hidden_BTR).to(wide(x_BTD.dtype))
        q_C, k_C = self.theta["q"].to(z_BTH), self.theta["k"].to(z_BTH)
        theta_31C = torch.stack([q_C, k_C, torch.zeros_like(q_C)]).unsqueeze(1)
        return (unit(z_BTH[:, :, None, :, None] * theta_31C), None), None


class RandomRotations(Rotary):
    """RoPE whose angle changes by a random step at each position (a control of Godavarti, 2026,
    arXiv 2606.24975: accumulated random rotations alone help in long texts).

    Position n is rotated by θⱼ Σ ξₜⱼ over t ≤ n, ξ drawn once from N(0, 1), the same for all runs,
    layers and heads. That distribution is ours: we know only the paper's abstract. The angle is a
    random walk, so scores depend on both positions, not on their distance alone.

    v, o: how many times values and output are rotated, as in Rotary; 1 and −1 as in RoPER
    positions: the number of positions that have a step
    seed: of the steps
    """

    def __init__(
        self,
        dims: Dims,
        v: int = 0,
        o: int = 0,
        base: float = 10_000.0,
        positions: int = 16_384,
        seed: int = 0,
    ):
        super().__init__(dims, q=1, k=1, v=v, o=o, base=base)
        if positions < dims.max_len:
            raise ConfigError(
                f"position.positions={positions}: must be at least train.seq_len={dims.max_len}"
            )
        random = torch.Generator("cpu").manual_seed(seed)
        step_NC = torch.randn(
            positions, dims.d_head // 2, generator=random, dtype=torch.float64, device="cpu"
        )
        self.sum_NC = step_NC.cumsum(0)
        self.max_len = positions

    def angles_of(self, pos: Tensor, theta_PC: Tensor) -> Tensor:
        sum_TC = self.sum_NC[whole(pos, self, len(self.sum_NC)).to(self.sum_NC.device)]
        return sum_TC.unsqueeze(-2) * theta_PC.to(sum_TC.device)


class RoPEPlusPlus(Rotary):
    """RoPE with a second head for each, whose query is rotated by −π/2 more (Liu et al., 2025,
    RoPE++, arXiv 2512.07525, equal cache).

    The scores are (Rₙ qₙ)ᵀ Rᵢ kᵢ and (Rₙ R(−π/2) qₙ)ᵀ Rᵢ kᵢ, the real and the negated imaginary
    part of one complex product; both heads have the same keys and values. So H heads have 2H
    outputs, real and imaginary next to each other, and the output matrix has 2HK inputs.

    queries: `shared`, or `own`: the second head's queries are projected by a matrix of their own
        and rotated as in RoPE. That is RoPE with 2H heads, two for each head of keys and values
    """

    output_heads = 2

    def __init__(
        self,
        dims: Dims,
        queries: Literal["shared", "own"] = "shared",
        base: float = 10_000.0,
        pairs: Pairs = "neighbours",
    ):
        super().__init__(dims, q=1, k=1, base=base, pairs=pairs)
        D = dims.d_model
        own = range(dims.n_layers) if queries == "own" else ()
        self.queries = nn.ModuleList(nn.Linear(D, D) for _ in own)
        self.n_heads = dims.n_heads
        self.projects_queries = queries == "own"

    def read(
        self, x_BTD: Tensor, at: tuple, layer: int, cache: LayerCache | None
    ) -> tuple[tuple, None]:
        """The phases, and the second head's own queries, [B, T, H, K], or None."""
        second = None
        if self.queries:
            q_BTHK = self.queries[layer](x_BTD).unflatten(-1, (self.n_heads, -1))
            second = rotate(q_BTHK, at[0].select(-4, 0), self.pairs)
        return (at[0], second, None), None

    def attention(
        self,
        heads: Heads,
        at: tuple,
        bias: Tensor | None,
        cache: KVCache | None,
        sink: Tensor | None = None,
    ) -> Tensor:
        q_BTHK, k_BTHK, v_BTHK = unpacked(heads)
        second_BTHK = at[1]
        if second_BTHK is None:
            quarter_2 = torch.tensor([0.0, -1.0], dtype=q_BTHK.dtype, device=q_BTHK.device)
            second_BTHK = rotate(q_BTHK, quarter_2.expand(q_BTHK.shape[-1] // 2, 2), self.pairs)
        # The second head writes the same keys and values into the same slots.
        again = None if cache is None else replace(cache)
        outputs = (
            softmax_attention((q_BTHK, k_BTHK, v_BTHK), bias, cache, self.window, sink),
            softmax_attention((second_BTHK, k_BTHK, v_BTHK), bias, again, self.window, sink),
        )
        return torch.stack(outputs, dim=3).flatten(2, 3)
