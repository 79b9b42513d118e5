"""Values that are keys: RoPE in models that project queries and keys alone.

Without a value projection a layer has a quarter fewer attention weights; the others begin as in
other schemes. Compare with `rope`; and with `rope model.kv_heads=` half of the heads, which has as
many weights and as many numbers in its cache.

Shape letters: B batch, T time, H heads, K head width, C pairs of a head's features; 2 stands for
queries and keys.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_lab.model.cache import LayerCache
from rope_lab.model.hooks import Dims
from rope_lab.model.rotation import count, rotate, wide
from rope_lab.model.schemes.rotary import Rotary


class SharedKV(Rotary):
    """RoPE whose values are its keys; the last `fraction` of each head's features are rotated.

    - values = rotated: oₙ = Σᵢ aₙᵢ R(iθ) kᵢ, which depends on absolute positions.
    - values = back: oₙ = R(−nθ) Σᵢ aₙᵢ R(iθ) kᵢ = Σᵢ aₙᵢ R((i−n)θ) kᵢ, as in RoPER (DeepSeek-V4,
      2026, equation 26).
    - values = unrotated: oₙ = Σᵢ aₙᵢ kᵢ.
    """

    projects_values = False

    def __init__(
        self,
        dims: Dims,
        values: Literal["rotated", "back", "unrotated"] = "rotated",
        base: float = 10_000.0,
        fraction: float = 1.0,
    ):
        super().__init__(
            dims, q=1, k=1, o=-1 if values == "back" else 0, base=base, fraction=fraction
        )
        C = dims.d_head // 2
        rotated = round(fraction * dims.d_head) // 2
        self.theta = {
            part: F.pad(theta_C[:rotated], (C - rotated, 0)) for part, theta_C in self.theta.items()
        }
        self.values = values

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
        """The phases of queries and keys, [T, 2, 1, C, 2], and of the output, [T, 1, C, 2]."""
        return self.phases("qk", pos, dtype).unsqueeze(-3), self.phases("o", pos, dtype)

    def heads(self, qk_BT2HK: Tensor, at: tuple) -> tuple[Tensor, Tensor, Tensor]:
        q_BTHK, k_BTHK = rotate(qk_BT2HK, at[0]).unbind(2)
        if self.values == "unrotated":
            return q_BTHK, k_BTHK, qk_BT2HK[:, :, 1].to(k_BTHK)
        v_BTHK = k_BTHK.view_as(k_BTHK)  # torch.compile does not take one tensor twice
        return q_BTHK, k_BTHK, v_BTHK


class SharedKVDeepSeek(SharedKV):
    """`values = back` with the norms of DeepSeek-V4: queries and keys at root mean square 1, keys
    times learned gains, then rotated; values are the rotated keys, and the output is rotated back.

    DeepSeek-V4 rotates the last 64 of 512 features, a `fraction` of 0.125.
    """

    def __init__(self, dims: Dims, base: float = 10_000.0, fraction: float = 1.0):
        super().__init__(dims, "back", base, fraction)
        self.gains = nn.ParameterList(torch.ones(dims.d_head) for _ in range(dims.n_layers))

    def read(
        self, x_BTD: Tensor, at: tuple, layer: int, cache: LayerCache | None
    ) -> tuple[tuple, None]:
        return (at[0], self.gains[layer], at[1]), None

    def heads(self, qk_BT2HK: Tensor, at: tuple) -> tuple[Tensor, Tensor, Tensor]:
        q_BTHK, k_BTHK = normalised(qk_BT2HK).unbind(2)
        return super().heads(torch.stack([q_BTHK, at[1] * k_BTHK], dim=2), at)


class SharedKVGemma(SharedKV):
    """`values = unrotated` with the norms of Gemma 4: values are keys at root mean square 1;
    queries and keys are normalised alike, multiplied by learned gains, then
    rotated. Scores are not divided by √K.

    Gemma 4 shares them in the full layers of its large models alone, which rotate a `p` of 0.25 at
    base 1e6.

    p: the share of pairs that are rotated, those of the highest frequencies, as in `PRope`
    """

    def __init__(self, dims: Dims, base: float = 10_000.0, p: float = 1.0):
        super().__init__(dims, "unrotated", base)
        rotated = count("p", p, dims.d_head // 2)
        for theta_C in self.theta.values():
            theta_C[rotated:] = 0
        self.gains = nn.ParameterList(torch.ones(2, dims.d_head) for _ in range(dims.n_layers))

    def read(
        self, x_BTD: Tensor, at: tuple, layer: int, cache: LayerCache | None
    ) -> tuple[tuple, None]:
        return (at[0], self.gains[layer], at[1]), None

    def heads(self, qk_BT2HK: Tensor, at: tuple) -> tuple[Tensor, Tensor, Tensor]:
        unit_BT2HK = normalised(qk_BT2HK)
        q_BTHK, k_BTHK = rotate(at[1].unsqueeze(1) * unit_BT2HK, at[0]).unbind(2)
        return q_BTHK * q_BTHK.shape[-1] ** 0.5, k_BTHK, unit_BT2HK[:, :, 1].to(k_BTHK)


def normalised(x: Tensor) -> Tensor:
    """`x` [..., K] at root mean square 1."""
    return F.rms_norm(x.to(wide(x.dtype)), x.shape[-1:], eps=1e-6)
