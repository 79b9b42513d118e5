"""PoPE (Gopalakrishnan et al., 2025)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_lab.exporting.parts.base import Heads, Position, angles, frequencies


class PoPEPosition(Position):
    """Scores Σ softplus(q_c) softplus(k_c) cos((i−n)θ_c + δ_c) / √K, θ_c = base^(−c/K), δ learned.

    Keys in the cache are 2K wide. Each layer has its own δ; in rope_lab all layers share one.
    """

    def __init__(self, d_model: int, n_heads: int, kv_heads: int, width: int, base: float):
        super().__init__(d_model, n_heads, kv_heads, width, base)
        self.delta = nn.Parameter(torch.zeros(n_heads, width))

    def reset(self) -> None:
        nn.init.zeros_(self.delta)

    def before_cache(
        self, x_BTD: Tensor, q_BTHK: Tensor, k_BTGK: Tensor, v_BTGK: Tensor, pos_BT: Tensor
    ) -> Heads:
        theta_K = frequencies(2 * self.width, self.base, q_BTHK.device)
        angle_BT1K = angles(pos_BT, theta_K)
        q_BTHX = polar(q_BTHK, angle_BT1K - self.delta.to(angle_BT1K))
        return q_BTHX, polar(k_BTGK, angle_BT1K), v_BTGK


def polar(x: Tensor, angle: Tensor) -> Tensor:
    """softplus(x) times cosine and sine of the angles, twice as wide."""
    magnitude = F.softplus(x.to(torch.promote_types(x.dtype, torch.float32)))
    cos, sin = angle.cos().to(magnitude), angle.sin().to(magnitude)
    return torch.cat([magnitude * cos, magnitude * sin], dim=-1).to(x.dtype)
