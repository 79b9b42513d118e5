"""Rotary: RoPE, RoPER and other choices of rotated tensors.

RoPER is `Rotary(dims, q=1, k=1, v=1, o=-1)`: RoPE whose values are rotated too, and whose output is
rotated back.

Shape letters: B batch, T time, H heads, K head width, C pairs of a head's features; 3 stands for
queries, keys and values side by side. Where positions are [B, T], shapes begin with B too.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.model.rotation import Pairs, Scaling, angles, count, rotate, scaled, unit, wide
from rope_lab.text import ConfigError


class Rotary(PositionScheme):
    """Rotates each pair of a head's features by an angle proportional to the position.

    A pair is a complex number; rotating it by α multiplies it by e^(iα), written R(α). Pair j has
    frequency θⱼ = base^(−2j/r), j < r/2. Queries, keys and values at position m are rotated by
    R(mθ), `q`, `k` and `v` times. The attention output at position n is rotated by R(nθ), `o`
    times.

    - RoPE (Su et al., 2021): q = k = 1. The score qₙᵀ R(nθ)ᵀ R(iθ) kᵢ = qₙᵀ R((i−n)θ) kᵢ depends
      on i − n alone.
    - RoPER (Harik and Jayasiri, 2022): q = k = v = 1, o = −1. Now the output depends on i − n
      alone too: R(−nθ) Σᵢ aₙᵢ R(iθ) vᵢ = Σᵢ aₙᵢ R((i−n)θ) vᵢ.
    - The double rotation of RoPER's first public code: q = k = 1, v = 2, o = −1. The output is
      Σᵢ aₙᵢ R((2i−n)θ) vᵢ, which depends on the absolute position.

    base: wavelengths go from 2π to 2π · base^(1 − 2/r) positions
    fraction: the first r = fraction · d_head features of each head are rotated
    value_fraction: share of the r/2 pairs that are rotated in values and output, the highest
        frequencies first
    value_base: the base of values and output; None: `base`
    pairs: `neighbours` is the interleaved layout of RoFormer and GPT-J: pair j is features 2j and
        2j + 1. `halves` is the rotate-half layout of GPT-NeoX and Llama: j and j + r/2. Permute
        the features of each head to convert weights from one to the other.
    scaling: how frequencies change for longer texts, see `rotation.scaled`. yarn also multiplies
        rotated queries and keys by 0.1 ln factor + 1 each; in linear attention the numerator.
    factor: texts are `factor` times as long as in training
    original: the number of tokens trained on; None: the training length
    window: a query sees so many last tokens, its own included; None: all

    Raises ConfigError if a share is not a positive whole number of pairs, or a base is not finite
    and above 1.
    """

    def __init__(
        self,
        dims: Dims,
        q: int = 0,
        k: int = 0,
        v: int = 0,
        o: int = 0,
        base: float = 10_000.0,
        fraction: float = 1.0,
        value_fraction: float = 1.0,
        value_base: float | None = None,
        pairs: Pairs = "neighbours",
        scaling: Scaling = "none",
        factor: float = 1.0,
        original: int | None = None,
        window: int | None = None,
    ):
        super().__init__(dims)
        if window is not None:
            self.window = window
        if not (v or o) and (value_fraction, value_base) != (1, None):
            base_text = value_base or "null"
            given = f"position.value_fraction={value_fraction}, position.value_base={base_text}"
            raise ConfigError(f"{given}: must be 1.0 and null if position.v and position.o are 0")
        if dims.d_head % 2:
            sizes = f"model.d_model={dims.d_model}, model.n_heads={dims.n_heads}"
            raise ConfigError(f"{sizes}: a head has {dims.d_head} features: must be an even number")
        r = 2 * count("fraction", fraction, dims.d_head // 2)
        if scaling == "none" and (factor, original) != (1, None):
            given = f"position.factor={factor}, position.original={original or 'null'}"
            raise ConfigError(f"{given}: do nothing without position.scaling=linear or another")
        length = dims.max_len if original is None else original
        scores_C = scaled(r, base, scaling, factor, length)
        values_C = scaled(
            r, base if value_base is None else value_base, scaling, factor, length, "value_base"
        )
        values_C[count("value_fraction", value_fraction, r // 2) :] = 0
        times = {"q": (q, scores_C), "k": (k, scores_C), "v": (v, values_C), "o": (o, values_C)}
        unrotated = 0 if pairs == "halves" else (dims.d_head - r) // 2
        self.theta = {
            part: F.pad(n * theta_C, (0, unrotated)) for part, (n, theta_C) in times.items() if n
        }
        self.pairs, self.rotated = pairs, r
        scales = bool(q) + bool(k) if scaling == "yarn" else 0  # one for each rotated factor
        self.sharpness = (0.1 * math.log(factor) + 1) ** scales

    def phases(self, parts: str, pos: Tensor, dtype: torch.dtype) -> Tensor | None:
        """e^(i · pos · θ) for each of `parts`, cosine and sine: [T, parts, C,
        2].

        parts: letters of `qkvo`. Returns None if none of them is rotated.
        """
        if not self.theta.keys() & set(parts):
            return None
        none_C = torch.zeros_like(next(iter(self.theta.values())))
        theta_PC = torch.stack([self.theta.get(part, none_C) for part in parts])
        return unit(self.angles_of(pos, theta_PC)).to(pos.device, wide(dtype))

    def angles_of(self, pos: Tensor, theta_PC: Tensor) -> Tensor:
        """The angles of positions, [T, parts, C]."""
        return angles(pos.unsqueeze(-1), theta_PC)

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
        """The phases of queries, keys and values, [T, 3, 1, C, 2], and of the output, [T, 1, C, 2].

        Subclasses may put more between them: `heads` reads the first, `output` the last.
        """
        heads = self.phases("qkv", pos, dtype)
        return None if heads is None else heads.unsqueeze(-3), self.phases("o", pos, dtype)

    def heads(self, qkv_BT3HK: Tensor, at: tuple) -> Tensor:
        rotated_BT3HK = rotate(qkv_BT3HK, at[0], self.pairs)
        if self.sharpness == 1:
            return rotated_BT3HK
        q_BT1HK, kv_BT2HK = rotated_BT3HK.split((1, 2), dim=2)
        scaled_q = self.sharpness * q_BT1HK[..., : self.rotated]
        q_BT1HK = torch.cat([scaled_q, q_BT1HK[..., self.rotated :]], dim=-1)
        return torch.cat([q_BT1HK, kv_BT2HK], dim=2)

    def output(self, o_BTHK: Tensor, at: tuple) -> Tensor:
        return rotate(o_BTHK, at[-1], self.pairs)
