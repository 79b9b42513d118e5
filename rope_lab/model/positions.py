"""Position schemes, each a few lines beside its formula: how a transformer is told where its tokens
stand.

RoPER is `Rotary(dims, q=1, k=1, v=1, o=-1)`: RoPE whose values are rotated too, and whose output is
rotated back.

The hooks and their arguments are in `hooks.PositionScheme`. Shape letters: B batch, T time
(queries), S time (keys and values), D model width, H heads, K head width, C pairs of a head's
features; 3 stands for queries, keys and values side by side. Positions are integers, [T].
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_lab.model.biases import Alibi, Fire, T5Bias  # noqa: F401  records of runs name them here
from rope_lab.model.device import send
from rope_lab.model.hooks import Dims, PositionScheme, TooLong, Wrapper
from rope_lab.model.rotation import (
    Pairs,
    Scaling,
    angles,
    count,
    frequencies,
    precise,
    rotate,
    scaled,
    unit,
    wide,
)
from rope_lab.text import ConfigError


class Sinusoidal(PositionScheme):
    """Adds sines and cosines of the position to the embeddings (Vaswani et al., 2017, section 3.5).

    PE(pos, 2i) = sin(pos / 10000^(2i/d)),  PE(pos, 2i+1) = cos(pos / 10000^(2i/d))
    """

    def __init__(self, dims: Dims, base: float = 10_000.0):
        super().__init__(dims)
        if dims.d_model % 2:
            raise ConfigError(
                f"model.d_model={dims.d_model}: sinusoidal encodings need an even width"
            )
        self.theta_C = frequencies(dims.d_model, base)

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> Tensor:
        angle = angles(pos, self.theta_C)
        return (
            torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2).to(pos.device, wide(dtype))
        )

    def embed(self, x_BTD: Tensor, at: Tensor) -> Tensor:
        return (x_BTD + at).to(x_BTD.dtype)


class SinusoidalProduct(Sinusoidal):
    """Multiplies the embeddings by the encodings, as some descriptions of RoPE have it, though that
    rotates nothing.
    """

    def embed(self, x_BTD: Tensor, at: Tensor) -> Tensor:
        return (x_BTD * at).to(x_BTD.dtype)


class Learned(PositionScheme):
    """Adds a learned vector for each position up to the training length (Gehring et al., 2017;
    GPT).
    """

    decays = True  # as in GPT

    def __init__(self, dims: Dims):
        super().__init__(dims)
        self.table = nn.Embedding(dims.max_len, dims.d_model)
        self.max_len = dims.max_len

    def embed(self, x_BTD: Tensor, at: Tensor) -> Tensor:
        return x_BTD + self.table(at)


class Rotary(PositionScheme):
    """Rotates each pair of a head's features by an angle in proportion to the position. θⱼ =
    base^(−2j/r), j < r/2.

    A pair is a complex number; to rotate it by α is to multiply it by e^(iα), written R(α).
    Queries, keys and values at position m are rotated `q`, `k` and `v` times by R(mθ), the
    attention output at position n `o` times by R(nθ):

    - RoPE (Su et al., 2021): q = k = 1. The score qₙᵀ R(nθ)ᵀ R(iθ) kᵢ = qₙᵀ R((i−n)θ) kᵢ depends on
      i − n alone.
    - RoPER (Harik and Jayasiri, 2022): q = k = v = 1, o = −1. The output too then depends on i − n
      alone: R(−nθ) Σᵢ aₙᵢ R(iθ) vᵢ = Σᵢ aₙᵢ R((i−n)θ) vᵢ.
    - The double rotation of RoPER's first public code: q = k = 1, v = 2, o = −1. The output is then
      Σᵢ aₙᵢ R((2i−n)θ) vᵢ, which tells the absolute position.

    base: the longest wavelength is 2π · base positions (nearly)
    fraction: the first r = fraction · d_head features of each head are rotated
    value_fraction: the share of the r/2 pairs, those of the largest θⱼ, that are rotated in values
                    and output
    value_base: the base of values and output; None: `base`
    pairs: pair j is features 2j and 2j + 1 (`neighbours`: RoFormer, GPT-J) or j and j + r/2
        (`halves`: GPT-NeoX, Llama in transformers); weights of one serve the other once each head's
        features are put in its order
    scaling, factor, original: the frequencies for texts `factor` times as long as the `original`
    tokens trained on,
        None: the training length; see `rotation.scaled`. yarn multiplies scores too, by (0.1 ln
              factor + 1)²; of
        linear attention the numerator

    Raises ConfigError if a share is not a whole number of pairs above 0, or a base not finite and
    above 1.
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
    ):
        super().__init__(dims)
        if not (v or o) and (value_fraction, value_base) != (1, None):
            given = f"position.value_fraction={value_fraction}, position.value_base={value_base or 'null'}"
            raise ConfigError(f"{given}: must be 1.0 and null if position.v and position.o are 0")
        if dims.d_head % 2:
            sizes = f"model.d_model={dims.d_model}, model.n_heads={dims.n_heads}"
            raise ConfigError(f"{sizes}: a head has {dims.d_head} features: must be an even number")
        r = 2 * count("fraction", fraction, dims.d_head // 2)
        if scaling == "none" and (factor, original) != (1, None):
            given = f"position.factor={factor}, position.original={original or 'null'}"
            raise ConfigError(f"{given}: do nothing without position.scaling=linear, ntk or yarn")
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
        self.pairs = pairs
        self.sharpness = (0.1 * math.log(factor) + 1) ** 2 if scaling == "yarn" else 1.0

    def phases(self, parts: str, pos: Tensor, dtype: torch.dtype) -> Tensor | None:
        """e^(i · pos · θ) for each of `parts`, cosine and sine: [T, parts, C, 2]; None if none is
        rotated.
        """
        if not self.theta.keys() & set(parts):
            return None
        none_C = torch.zeros_like(next(iter(self.theta.values())))
        theta_PC = torch.stack([self.theta.get(part, none_C) for part in parts])
        return unit(angles(pos.unsqueeze(-1), theta_PC)).to(pos.device, wide(dtype))

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
        """The phases of queries, keys and values, [T, 3, 1, C, 2], and of the output, [T, 1, C, 2].

        Subclasses may put more between them: `heads` reads the first, `output` the last.
        """
        heads = self.phases("qkv", pos, dtype)
        return None if heads is None else heads.unsqueeze(2), self.phases("o", pos, dtype)

    def heads(self, qkv_BT3HK: Tensor, at: tuple) -> Tensor:
        rotated_BT3HK = rotate(qkv_BT3HK, at[0], self.pairs)
        if self.sharpness == 1:
            return rotated_BT3HK
        return torch.cat([self.sharpness * rotated_BT3HK[:, :, :1], rotated_BT3HK[:, :, 1:]], dim=2)

    def output(self, o_BTHK: Tensor, at: tuple) -> Tensor:
        return rotate(o_BTHK, at[-1], self.pairs)


class PRope(Rotary):
    """RoPE without its lowest frequencies: of the angles θⱼ the largest are kept, a share p; the
    others are 0.

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
    ζᵢ^((n−m)/s).
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
                f"position.scale_base={scale_base}: must be a number of positions above 0 and below 10⁹"
            )
        self.zeta_C = (
            torch.arange(0, dims.d_head, 2, dtype=torch.float64) / dims.d_head + 0.4
        ) / 1.4
        self.scale_base = scale_base
        self.max_len = int(
            -30 / self.zeta_C[0].log10() * scale_base
        )  # beyond it float32 cannot hold the factors

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> tuple[Tensor, None]:
        e_T31C2, _ = super().prepare(pos, dtype)
        exact_T = precise(pos)
        zeta_TC = self.zeta_C.to(exact_T.device) ** (exact_T / self.scale_base).unsqueeze(-1)
        factor_T3C = torch.stack([zeta_TC, 1 / zeta_TC, torch.ones_like(zeta_TC)], dim=-2)
        return e_T31C2 * factor_T3C[:, :, None, :, None].to(e_T31C2), None


class PoPE(Rotary):
    """Scores by magnitudes from content and phases from position alone (Gopalakrishnan et al.,
    2025, arXiv 2509.10534).

    A feature c = 0 … d − 1 of a head has magnitude μ = softplus of what it was; its phase is nθ_c
    in a query at n and iθ_c + δ_c in a key at i, θ_c = base^(−c/d). Written as cosine and sine
    queries and keys are 2d wide, values stay d, and a score is Σ_c μ(q_c) μ(k_c) cos((i−n)θ_c +
    δ_c) / √d.

    δ is learned for each head and feature, and shared by all layers. Its authors keep it in [−2π,
    0]; here it is free.

    v, o: how many times values and output are rotated, as in Rotary: 1 and −1 are the values of
          RoPER
    delta_init: δ is drawn from [−delta_init, 0] at first; its authors take 2π for indirect
                indexing, 0 for text

    Raises ConfigError if a head's width is odd, `base` is not finite and above 1, or `delta_init`
    not 0 to 2π.
    """

    def __init__(
        self, dims: Dims, v: int = 0, o: int = 0, base: float = 10_000.0, delta_init: float = 0.0
    ):
        super().__init__(dims, v=v, o=o, base=base)
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
            self.phases("qk", pos, dtype).unsqueeze(2),
            self.phases("v", pos, dtype),
            self.phases("o", pos, dtype),
        )

    def heads(self, qkv_BT3HK: Tensor, at: tuple) -> tuple[Tensor, Tensor, Tensor]:
        q_T1K2, k_T1K2 = at[0].unbind(1)
        shift_HK2 = unit(self.delta.to(k_T1K2.dtype))
        k_THK2 = rotate(shift_HK2.flatten(-2), k_T1K2).unflatten(-1, (-1, 2))
        q, k, v_BTHK = qkv_BT3HK.to(k_T1K2.dtype).unbind(2)
        q, k = (
            (F.softplus(x).unsqueeze(-1) * e).flatten(-2) for x, e in ((q, q_T1K2), (k, k_THK2))
        )
        return q, k, rotate(v_BTHK, at[1])


class Randomized(Wrapper):
    """Another scheme on random positions: sorted, without repeats, of 0 … longest − 1 (Ruoss et
    al., 2023).

    The same positions serve all hooks and all rows of a batch. They are drawn for each training
    step from the run's own random numbers. Every evaluation of every run has the same ones: no
    interval includes how results vary between draws.

    floats: positions are any numbers from 0 to `longest`, drawn evenly (Shimizu et al., 2026, arXiv
            2602.14050)
    """

    def __init__(
        self,
        dims: Dims,
        scheme: Callable[[Dims], PositionScheme],
        longest: int = 2048,
        floats: bool = False,
    ):
        if not dims.max_len <= longest <= 10**7:
            raise ConfigError(
                f"position.longest={longest}: must be from train.seq_len={dims.max_len} to 10,000,000"
            )
        super().__init__(scheme(replace(dims, max_len=longest, keys=dims.max_len)))
        self.longest, self.floats = longest, floats
        self.drawn = torch.empty(0, dtype=torch.float64 if floats else torch.int64)
        self.draw(0, dims.max_len)

    def draw(self, seed: int, length: int) -> None:
        if length > self.longest:
            raise TooLong(
                f"position.longest={self.longest}: must be at least {length}, the positions to be drawn"
            )
        self.scheme.draw(seed, self.longest)
        random = torch.Generator("cpu").manual_seed(seed)
        if self.floats:
            drawn = self.longest * torch.rand(
                length, generator=random, dtype=torch.float64, device="cpu"
            )
        else:
            drawn = torch.randperm(self.longest, generator=random, device="cpu")[:length]
        self.drawn = send(drawn.sort().values, self.drawn.device)
        self.max_len = length

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> Any:
        return self.scheme.prepare(self.drawn.to(pos.device)[pos], dtype)
