"""The arithmetic of rotary schemes: frequencies, angles, and pairs of features multiplied by
e^(iα).

Shape letters: T time, K head width, C pairs of a head's features.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from rope_lab.model.device import has_float64
from rope_lab.text import ConfigError

# Which features of a head make a pair: `neighbours` is interleaved (2j, 2j + 1), `halves` is
# rotate-half (j, j + C).
Pairs = Literal["neighbours", "halves"]
# How frequencies are made for longer texts, see `scaled`.
Scaling = Literal["none", "linear", "ntk", "ntk_by_parts", "yarn"]


def rotate(x: Tensor, e: Tensor | None, pairs: Pairs = "neighbours") -> Tensor:
    """Each pair of features of `x` [..., K], as a complex number, times its `e` [..., C, 2], in the
    precision of `e`.

    Returns `x` if `e` is None. torch.compile knows no complex numbers, so there the product is
    written out.
    """
    if e is None:
        return x
    x = x.to(e.dtype)
    C = e.shape[-2]
    cos, sin = e.unbind(-1)
    if pairs == "halves":
        a, b, rest = x.tensor_split((C, 2 * C), dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], dim=-1)
    x = x.unflatten(-1, (-1, 2))
    if not torch.compiler.is_compiling():
        return torch.view_as_real(torch.view_as_complex(x) * torch.view_as_complex(e)).flatten(-2)
    a, b = x.unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)


def unit(angle: Tensor) -> Tensor:
    """e^(i · angle), as cosine and sine in a last dimension of 2."""
    return torch.stack([angle.cos(), angle.sin()], dim=-1)


def frequencies(width: int, base: float, name: str = "base") -> Tensor:
    """θᵢ = base^(−2i/width) for i = 0 … width/2 − 1, in radians a position: float64 [width/2]."""
    if not 1 < base < float("inf"):
        raise ConfigError(f"position.{name}={base}: must be a finite number above 1")
    return base ** (-2 * torch.arange(width // 2, dtype=torch.float64) / width)


def scaled(
    width: int, base: float, scaling: str, factor: float, length: int, name: str = "base"
) -> Tensor:
    """`frequencies` for texts `factor` times as long as the `length` tokens trained on, float64
    [width/2].

    - linear (Chen et al., 2023): θ / factor, position interpolation.
    - ntk (bloc97, 2023): base · factor^(width/(width−2)); only the lowest frequency is divided by
      the whole factor.
    - ntk_by_parts (Peng et al., 2023, definition 1): (1 − γ) θ / factor + γ θ, γ = (r − 1) / 31
      between 0 and 1, r the pair's rotations in `length` tokens.
    - yarn (Peng et al., 2023): θ for pairs with 32 rotations or more in `length` tokens, θ / factor
      for pairs with 1 or fewer, and a mean that is linear in the pair's number in between.
    """
    if not 1 <= factor < float("inf") or length < 1:
        raise ConfigError(
            f"position.factor={factor}, position.original={length}: must be numbers of at least 1"
        )
    if scaling == "ntk" and width > 2:
        return frequencies(width, base * factor ** (width / (width - 2)), name)
    theta_C = frequencies(width, base, name)
    if scaling == "ntk_by_parts":
        rotations_C = length * theta_C / (2 * math.pi)
        kept_C = ((rotations_C - 1) / 31).clamp(0, 1)
        return theta_C * (kept_C + (1 - kept_C) / factor)
    if scaling == "yarn":
        pair_of = [
            width * math.log(length / (rotations * 2 * math.pi)) / (2 * math.log(base))
            for rotations in (32, 1)
        ]
        first = max(math.floor(pair_of[0]), 0)
        last = min(math.ceil(pair_of[1]), width - 1)
        share_C = (
            (torch.arange(width // 2, dtype=torch.float64) - first) / max(last - first, 0.001)
        ).clamp(0, 1)
        return theta_C * (1 - share_C + share_C / factor)
    return theta_C / factor


def angles(pos: Tensor, theta_C: Tensor) -> Tensor:
    """pos · θ in radians: float64 [..., C] for positions [...].

    In float64, because at position 100,000 a float32 angle is off by 4e-3.
    """
    exact = precise(pos)
    return exact.unsqueeze(-1) * theta_C.to(exact.device)


def precise(pos: Tensor) -> Tensor:
    """Positions in float64; on the CPU if their device has none."""
    return pos.to(pos.device if has_float64(pos.device) else "cpu", torch.float64)


def wide(dtype: torch.dtype) -> torch.dtype:
    """float32, or `dtype` if that is wider."""
    return torch.promote_types(dtype, torch.float32)


def count(name: str, share: float, pairs: int) -> int:
    """The number of pairs in a share of a head's pairs.

    Raises ConfigError unless it is a whole number of at least 1.
    """
    return share_of(name, share, pairs, "pairs of a head are rotated")


def share_of(
    name: str, share: float, whole: int, what: str = "features of a head are meant"
) -> int:
    """A share of a whole number of things. Raises ConfigError unless it is a whole number of at
    least 1.
    """
    part = round(share * whole, 6)
    if part % 1 or not 1 <= part <= whole:
        raise ConfigError(
            f"position.{name}={share}: {part:g} of the {whole} {what}: "
            f"must be a whole number from 1 to {whole}"
        )
    return int(part)
