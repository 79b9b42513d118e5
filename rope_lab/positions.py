"""Position schemes: how a transformer is told where its tokens stand. Each is a few lines beside its formula.

Position can enter at four doors. A scheme overrides those that it uses; the model calls them all and knows no scheme.

Shape letters: B batch, T time (queries), S time (keys and values), D model width, H heads, K head width.
Positions are integers, [T], or [B, T] where the rows of a batch stand at different places.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
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

    def heads(self, q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor, at: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Door 2: queries, keys and values of every layer, before they meet."""
        return q_BHTK, k_BHTK, v_BHTK

    def bias(self, at_T: Any, at_S: Any) -> Tensor | None:
        """Door 3: what is added to the attention scores of every layer, [H, T, S] or [B, H, T, S], or None."""
        return None

    def output(self, o_BHTK: Tensor, at: Any) -> Tensor:
        """Door 4: each head's output in every layer, the weighted sum of values, before the heads are mixed."""
        return o_BHTK


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

    With R(α) the rotation by α, a query, key or value at position m is turned `q`, `k` or `v` times by R(mθ), and the
    attention output at position n is turned `o` times by R(nθ):

    - RoPE (Su et al., 2021): q = k = 1. The score qₙᵀ R(nθ)ᵀ R(iθ) kᵢ = qₙᵀ R((i−n)θ) kᵢ depends on i − n alone.
    - RoPER (Harik and Jayasiri, 2022): q = k = v = 1, o = −1. The output too then depends on i − n alone:
      R(−nθ) Σᵢ aₙᵢ R(iθ) vᵢ = Σᵢ aₙᵢ R((i−n)θ) vᵢ.
    - The double rotation of RoPER's first public code: q = k = 1, v = 2, o = −1. The output is then
      Σᵢ aₙᵢ R((2i−n)θ) vᵢ, which tells the absolute position.

    pairs:    `half` pairs feature i with i + r/2, `interleaved` pairs 2i with 2i + 1: the same up to a permutation
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
        pairs: Literal["half", "interleaved"] = "half",
        base: float = 10_000.0,
        fraction: float = 1.0,
    ):
        super().__init__(dims)
        if pairs not in ("half", "interleaved"):
            raise ValueError(f"position.pairs={pairs}: must be half or interleaved")
        check_base(base)
        if not 0 < fraction <= 1:
            raise ValueError(f"position.fraction={fraction}: must be above 0 and at most 1")
        width = fraction * dims.d_head
        if round(width, 6) % 2:
            raise ValueError(
                f"model.d_model={dims.d_model} over model.n_heads={dims.n_heads} and position.fraction={fraction} "
                f"make {width:g} features of a head turn: rotary schemes need an even number of them"
            )
        self.q, self.k, self.v, self.o = q, k, v, o
        self.pairs, self.base, self.width = pairs, base, round(width)

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> dict[int, tuple[Tensor, Tensor]]:
        """Cosine and sine, [T, r/2] or [B, 1, T, r/2], of every number of turns that is in use."""
        angle = angles(pos, self.width, self.base)
        if angle.dim() == 3:
            angle = angle.unsqueeze(1)
        turns = {self.q, self.k, self.v, self.o} - {0}
        return {n: tuple(t.to(pos.device, wide(dtype)) for t in ((n * angle).cos(), (n * angle).sin())) for n in turns}

    def heads(self, q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor, at: dict) -> tuple[Tensor, Tensor, Tensor]:
        return self._turn(q_BHTK, self.q, at), self._turn(k_BHTK, self.k, at), self._turn(v_BHTK, self.v, at)

    def output(self, o_BHTK: Tensor, at: dict) -> Tensor:
        return self._turn(o_BHTK, self.o, at)

    def _turn(self, x_BHTK: Tensor, times: int, at: dict) -> Tensor:
        if times == 0:
            return x_BHTK
        cos, sin = at[times]
        turned, rest = x_BHTK[..., : self.width], x_BHTK[..., self.width :]
        if self.pairs == "half":
            a, b = turned.chunk(2, dim=-1)
            turned = torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
        else:
            a, b = turned[..., ::2], turned[..., 1::2]
            turned = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)
        return torch.cat([turned.to(x_BHTK.dtype), rest], dim=-1)


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
