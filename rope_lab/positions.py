"""Position schemes: how a transformer is told where its tokens stand. Each is a few lines beside its formula.

Position can enter at four doors. A scheme overrides those that it uses; the model calls them all and knows no scheme.

Shape letters: B batch, T time (queries), S time (keys and values), D model width, H heads, K head width; 3 stands for
queries, keys and values side by side.
Positions are integers, [T], or [B, T] where the rows of a batch stand at different places.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Dims:
    """The sizes of the model that a scheme serves."""

    d_model: int
    n_heads: int
    max_len: int  # the longest sequence it is trained on, in tokens

    @property
    def d_head(self) -> int:
        return self.d_model // self.n_heads


class PositionScheme(nn.Module):
    """No position at all (`none`), and the base of every scheme: four doors that leave everything as it is.

    A causal transformer can still learn where it is, since the first token sees one token and the last sees all
    (Haviv et al., 2022).
    """

    max_len: int | None = None  # positions from here on are an error; None: there is no end

    def __init__(self, dims: Dims):
        super().__init__()

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> Any:
        """What the doors need to know of the positions `pos`, worked out once per forward pass and handed to each.

        `dtype` is the model's own; whatever is computed from angles stays in float32 or wider (see `wide`).
        """
        return pos

    def embed(self, x_BTD: Tensor, at: Any) -> Tensor:
        """Door 1: token embeddings on their way into the first layer."""
        return x_BTD

    def heads(self, qkv_BT3HK: Tensor, at: Any) -> Tensor:
        """Door 2: queries, keys and values of every layer, before they meet."""
        return qkv_BT3HK

    def bias(self, at_T: Any, at_S: Any) -> Tensor | None:
        """Door 3: what is added to the attention scores of every layer, [H, T, S] or [B, H, T, S], or None."""
        return None

    def output(self, o_BTHK: Tensor, at: Any) -> Tensor:
        """Door 4: each head's output in every layer, the weighted sum of values, before the heads are mixed."""
        return o_BTHK


class Sinusoidal(PositionScheme):
    """Adds fixed waves to the embeddings (Vaswani et al., 2017, section 3.5).

    PE(pos, 2i) = sin(pos / 10000^(2i/d)),  PE(pos, 2i+1) = cos(pos / 10000^(2i/d))
    """

    def __init__(self, dims: Dims, base: float = 10_000.0):
        super().__init__(dims)
        if dims.d_model % 2:
            raise ValueError(f"model.d_model={dims.d_model}: sinusoidal waves need an even width")
        check_base(base)
        self.d_model, self.base = dims.d_model, base

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> Tensor:
        angle = angles(pos, self.d_model, self.base)
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2).to(pos.device, wide(dtype))

    def embed(self, x_BTD: Tensor, at: Tensor) -> Tensor:
        return (x_BTD + at).to(x_BTD.dtype)


class Learned(PositionScheme):
    """Adds a learned vector for each position up to the training length (Gehring et al., 2017; GPT)."""

    def __init__(self, dims: Dims):
        super().__init__(dims)
        self.table = nn.Embedding(dims.max_len, dims.d_model)
        self.max_len = dims.max_len

    def embed(self, x_BTD: Tensor, at: Tensor) -> Tensor:
        return x_BTD + self.table(at)


class Rotary(PositionScheme):
    """Turns each pair of a head's features by an angle that grows with position. θᵢ = base^(−2i/r), i = 0 … r/2 − 1.

    A pair is a complex number, and turning it by α is multiplying it by e^(iα), written R(α). Queries, keys and values
    at position m are turned `q`, `k` and `v` times by R(mθ), the attention output at position n `o` times by R(nθ):

    - RoPE (Su et al., 2021): q = k = 1. The score qₙᵀ R(nθ)ᵀ R(iθ) kᵢ = qₙᵀ R((i−n)θ) kᵢ depends on i − n alone.
    - RoPER (Harik and Jayasiri, 2022): q = k = v = 1, o = −1. The output too then depends on i − n alone:
      R(−nθ) Σᵢ aₙᵢ R(iθ) vᵢ = Σᵢ aₙᵢ R((i−n)θ) vᵢ.
    - The double rotation of RoPER's first public code: q = k = 1, v = 2, o = −1. The output is then
      Σᵢ aₙᵢ R((2i−n)θ) vᵢ, which tells the absolute position.

    Pairs are neighbours, features 2i and 2i + 1, as in the RoFormer paper; the pairs (i, i + r/2) of other code are the
    same up to the order of features, which random weights know nothing of.

    base:     the longest wave is 2π · base positions long (nearly)
    fraction: the first r = fraction · d_head features of each head are turned, the rest are left alone
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
    ):
        super().__init__(dims)
        check_base(base)
        if not 0 < fraction <= 1:
            raise ValueError(f"position.fraction={fraction}: must be above 0 and at most 1")
        width = fraction * dims.d_head
        if round(width, 6) % 2 or dims.d_head % 2:
            raise ValueError(
                f"model.d_model={dims.d_model} over model.n_heads={dims.n_heads} and position.fraction={fraction} "
                f"make {width:g} of {dims.d_head} features of a head turn: rotary schemes need even numbers"
            )
        self.turns, self.o, self.base = (q, k, v), o, base
        self.width, self.rest = round(width), dims.d_head - round(width)

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
        """e^(i · turns · pos · θ) for q, k and v, [T, 3, 1, K/2, 2], and for the output, [T, 1, K/2, 2].

        The last dimension holds cosine and sine. None where nothing turns; [B, T, …] where `pos` is.
        """
        angle_TC = F.pad(angles(pos, self.width, self.base), (0, self.rest // 2))
        angle_T3C = angle_TC.unsqueeze(-2) * torch.tensor(self.turns, device=angle_TC.device).unsqueeze(-1)
        heads = unit(angle_T3C.unsqueeze(-2)) if any(self.turns) else None
        output = unit(self.o * angle_TC.unsqueeze(-2)) if self.o else None
        return tuple(None if e is None else e.to(pos.device, wide(dtype)) for e in (heads, output))

    def heads(self, qkv_BT3HK: Tensor, at: tuple) -> Tensor:
        return turn(qkv_BT3HK, at[0])

    def output(self, o_BTHK: Tensor, at: tuple) -> Tensor:
        return turn(o_BTHK, at[1])


def unit(angle: Tensor) -> Tensor:
    """e^(i · angle), as cosine and sine in a last dimension of 2."""
    return torch.stack([angle.cos(), angle.sin()], dim=-1)


def turn(x: Tensor, e: Tensor | None) -> Tensor:
    """Each pair of neighbouring features of `x` [..., K], seen as a complex number, times its `e` [..., K/2, 2].

    In the precision of `e`. torch.compile knows no complex numbers, so there it is written out.
    """
    if e is None:
        return x
    pairs = x.to(e.dtype).unflatten(-1, (-1, 2))
    if not torch.compiler.is_compiling():
        return torch.view_as_real(torch.view_as_complex(pairs) * torch.view_as_complex(e)).flatten(-2)
    (a, b), (cos, sin) = pairs.unbind(-1), e.unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)


def check_base(base: float) -> None:
    """Raises ValueError unless waves of that base grow longer and end."""
    if not 1 < base < float("inf"):
        raise ValueError(f"position.base={base}: must be a finite number above 1")


def angles(pos: Tensor, width: int, base: float) -> Tensor:
    """pos · base^(−2i/width) for i = 0 … width/2 − 1, in radians: float64 [..., T, width/2].

    In float64, because at position 100,000 a float32 angle is off by 4e-3; on the CPU where the device has no float64.
    """
    where = torch.device("cpu") if pos.device.type == "mps" else pos.device
    i = torch.arange(width // 2, device=where, dtype=torch.float64)
    return pos.to(where, torch.float64)[..., None] * base ** (-2 * i / width)


def wide(dtype: torch.dtype) -> torch.dtype:
    """float32, or `dtype` where that is wider."""
    return torch.promote_types(dtype, torch.float32)
