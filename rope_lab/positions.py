"""Position schemes: how a transformer is told where its tokens stand. Each is a few lines beside its formula.

Position can enter at four doors. A scheme overrides those that it uses; the model calls them all and knows no scheme.

Shape letters: B batch, T time (queries), S time (keys and values), D model width, H heads, K head width; 3 stands for
queries, keys and values side by side. Positions are integers, [T].
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LONGEST = 10**7  # positions that random ones are drawn from, anew at each step: at most so many
WIDEST = 10_000  # features of the network that makes a bias of each pair of positions: at most so many


@dataclass(frozen=True)
class Dims:
    """The sizes of the model that a scheme serves."""

    d_model: int
    n_heads: int
    max_len: int  # the longest sequence it is trained on, in tokens

    @property
    def d_head(self) -> int:
        return self.d_model // self.n_heads


class TooLong(ValueError):
    """A text is longer than a scheme has positions."""


class PositionScheme(nn.Module):
    """No position at all (`none`), and the base of every scheme: four doors that leave everything as it is.

    A causal transformer can still learn where it is, since the first token sees one token and the last sees all
    (Haviv et al., 2022).
    """

    max_len: int | None = None  # positions from here on are an error; None: there is no end

    def __init__(self, dims: Dims):
        super().__init__()
        self.rotated: dict[
            str, int
        ] = {}  # those of q, k, v and o (the output) → in how many pairs, a head's first ones

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> Any:
        """What the doors need to know of the positions `pos`, worked out once per forward pass and handed to each.

        `dtype` is the model's own; whatever is computed from angles stays in float32 or wider (see `wide`).
        """
        return pos

    def draw(self, seed: int, length: int) -> None:
        """Draws what a scheme leaves to chance, for texts of up to `length` tokens: before each training step, and the
        same for every evaluation. Raises TooLong where the scheme cannot serve texts that long."""
        if self.max_len is not None and length > self.max_len:
            raise TooLong(
                f"{length} positions are more than the {self.max_len} that the position scheme has: "
                "take shorter texts or another scheme"
            )

    def embed(self, x_BTD: Tensor, at: Any) -> Tensor:
        """Door 1: token embeddings on their way into the first layer."""
        return x_BTD

    def heads(self, qkv_BT3HK: Tensor, at: Any) -> Tensor | tuple[Tensor, Tensor, Tensor]:
        """Door 2: queries, keys and values of every layer, before they meet.

        Packed as they came; or, where queries and keys get a width of their own, each alone: [B, T, H, that width].
        """
        return qkv_BT3HK

    def bias(self, at_T: Any, at_S: Any) -> Tensor | None:
        """Door 3: what is added to the attention scores of every layer, [H, T, S], or None."""
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
        self.theta_C = frequencies(dims.d_model, base)

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> Tensor:
        angle = angles(pos, self.theta_C)
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2).to(pos.device, wide(dtype))

    def embed(self, x_BTD: Tensor, at: Tensor) -> Tensor:
        return (x_BTD + at).to(x_BTD.dtype)


class SinusoidalProduct(Sinusoidal):
    """Multiplies the embeddings by the waves, as some descriptions of RoPE have it, though that turns nothing."""

    def embed(self, x_BTD: Tensor, at: Tensor) -> Tensor:
        return (x_BTD * at).to(x_BTD.dtype)


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
    value_fraction: values and output are rotated in this share of the r/2 pairs alone, those of the largest θᵢ
    value_base: of their θᵢ; None: `base`

    Raises ValueError where a share is not a whole number of pairs above 0, or a base not finite and above 1.
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
    ):
        super().__init__(dims)
        if not (v or o) and (value_fraction != 1 or value_base is not None):
            other_base = "null" if value_base is None else value_base
            raise ValueError(
                f"position.value_fraction={value_fraction}, position.value_base={other_base}: must be 1.0 and null "
                "where position.v and position.o are 0 and nothing of values and output is rotated"
            )
        value_base = base if value_base is None else value_base
        check_base(base)
        check_base(value_base, "value_base")
        check_share("fraction", fraction)
        width = round(fraction * dims.d_head, 6)
        if width % 2 or dims.d_head % 2 or width < 2:
            share = "" if fraction == 1 else f" and position.fraction={fraction}"
            raise ValueError(
                f"model.d_model={dims.d_model} over model.n_heads={dims.n_heads}{share} make {width:g} of "
                f"{dims.d_head} features of a head turn: rotary schemes need even numbers above 0"
            )
        pairs = int(width) // 2
        value_pairs = share_of("value_fraction", value_fraction, pairs)
        counts = {"q": pairs, "k": pairs, "v": value_pairs, "o": value_pairs}
        self.rotated = {part: counts[part] for part, n in zip("qkvo", (q, k, v, o), strict=True) if n}
        self.turns_41 = torch.tensor([[q], [k], [v], [o]])
        scores_C, values_C = frequencies(2 * pairs, base), frequencies(2 * pairs, value_base)[:value_pairs]
        scores_C, values_C = (F.pad(theta_C, (0, dims.d_head // 2 - len(theta_C))) for theta_C in (scores_C, values_C))
        self.theta_4C = torch.stack([scores_C, scores_C, values_C, values_C])  # 0 where a pair is left alone

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
        """e^(i · turns · pos · θ) for q, k and v, [T, 3, 1, K/2, 2], and for the output, [T, 1, K/2, 2].

        The last dimension holds cosine and sine. None where nothing turns.
        """
        angle_T4C = angles(pos.unsqueeze(-1), self.theta_4C)
        angle_T4C = angle_T4C * self.turns_41.to(angle_T4C.device)
        heads = unit(angle_T4C[..., :3, :].unsqueeze(-2)) if self.rotated.keys() & set("qkv") else None
        output = unit(angle_T4C[..., 3:, :]) if "o" in self.rotated else None
        return tuple(None if e is None else e.to(pos.device, wide(dtype)) for e in (heads, output))

    def waves(self, part: str) -> list[float]:
        """Of each pair that is rotated in q, k, v or o, its wavelength 2π/θᵢ in positions."""
        return (2 * math.pi / self.theta_4C["qkvo".index(part), : self.rotated[part]]).tolist()

    def heads(self, qkv_BT3HK: Tensor, at: tuple) -> Tensor:
        return turn(qkv_BT3HK, at[0])

    def output(self, o_BTHK: Tensor, at: tuple) -> Tensor:
        return turn(o_BTHK, at[1])

    def still(self, at: tuple, parts: str, pairs: slice) -> tuple:
        """What `prepare` gave, but that in each of `parts` some pairs do not turn: of e only its length is left."""
        at = tuple(None if e is None else e.clone() for e in at)
        for part in parts:
            e = self.of_part(at, part)
            e[..., pairs, 0], e[..., pairs, 1] = torch.hypot(*e[..., pairs, :].unbind(-1)), 0.0
        return at

    def of_part(self, at: tuple, part: str) -> Tensor:
        """Of what `prepare` gave, a view of the e of q, k, v or o: [T, 1, K/2, 2]."""
        return at[1] if part == "o" else at[0][:, "qkv".index(part)]


class PRope(Rotary):
    """RoPE without its slowest waves: of the angles θᵢ the largest are kept, a share p; the others are 0.

    Barbero et al. (2024): the pairs that nearly stand still carry content, and turning them slowly only blurs it.
    """

    def __init__(self, dims: Dims, p: float = 0.75, base: float = 10_000.0):
        super().__init__(dims, q=1, k=1, base=base)
        self.rotated = dict.fromkeys("qk", share_of("p", p, dims.d_head // 2))
        self.theta_4C[:, self.rotated["q"] :] = 0


class XPos(Rotary):
    """RoPE whose scores also fade with distance, faster in the features that turn faster (Sun et al., 2022).

    ζᵢ = (2i/d + γ) / (1 + γ), γ = 0.4. Queries at n are multiplied by ζᵢ^(n/reach) and keys at m by ζᵢ^(−m/reach), so
    that pair i of the score is multiplied by ζᵢ^((n−m)/reach).
    """

    def __init__(self, dims: Dims, base: float = 10_000.0, reach: float = 512.0):
        super().__init__(dims, q=1, k=1, base=base)
        if not 0 < reach < 1e9:
            raise ValueError(f"position.reach={reach}: must be a number of positions above 0 and below 10⁹")
        self.zeta = (torch.arange(0, dims.d_head, 2, dtype=torch.float64) / dims.d_head + 0.4) / 1.4
        self.reach = reach
        self.max_len = int(-30 / self.zeta[0].log10() * reach)  # beyond it float32 cannot hold the factors

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> tuple[Tensor, None]:
        turned, _ = super().prepare(pos, dtype)
        power_T1 = (pos.double() / self.reach).unsqueeze(-1)
        zeta_TC = self.zeta.to(pos.device) ** power_T1
        factor_T3C = torch.stack([zeta_TC, 1 / zeta_TC, torch.ones_like(zeta_TC)], dim=-2)
        return turned * factor_T3C.unsqueeze(-2).unsqueeze(-1).to(turned.dtype), None


class PoPE(Rotary):
    """Scores by magnitudes from content and phases from position alone (Gopalakrishnan et al., 2025, arXiv 2509.10534).

    A feature c = 0 … d − 1 of a head has magnitude μ = softplus of what it was; its phase is nθ_c in a query at n and
    iθ_c + δ_c in a key at i, θ_c = base^(−c/d). Written as cosine and sine queries and keys are 2d wide, values stay d,
    and a score is Σ_c μ(q_c) μ(k_c) cos((i−n)θ_c + δ_c) / √d.

    δ is learned for each head and feature, 0 at first, and shared by all layers. Its authors keep it in [−2π, 0]; here
    it is left free, since cosine is periodic and they begin it at a bound.

    v, o: times that values and output are rotated, as Rotary does: 1 and −1 are the values of RoPER

    Raises ValueError where a head's width is odd, as Rotary does, or `base` is not finite and above 1.
    """

    def __init__(self, dims: Dims, v: int = 0, o: int = 0, base: float = 10_000.0):
        super().__init__(dims, v=v, o=o, base=base)
        self.delta = nn.Parameter(torch.zeros(dims.n_heads, dims.d_head))
        self.phase_K = frequencies(2 * dims.d_head, base)
        self.rotated = {"q": dims.d_head, "k": dims.d_head, **self.rotated}  # of queries and keys, features

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None, Tensor]:
        """What Rotary prepares for values and output; and e^(i · pos · θ) for queries and keys, [T, 2, 1, K, 2]."""
        e_TK2 = unit(angles(pos, self.phase_K)).to(pos.device, wide(dtype))
        return *super().prepare(pos, dtype), torch.stack([e_TK2, e_TK2], dim=1).unsqueeze(2)

    def waves(self, part: str) -> list[float]:
        return (2 * math.pi / self.phase_K).tolist() if part in "qk" else super().waves(part)

    def heads(self, qkv_BT3HK: Tensor, at: tuple) -> tuple[Tensor, Tensor, Tensor]:
        values, _, phases_T21K2 = at
        q_T1K2, k_T1K2 = phases_T21K2.unbind(1)
        shift_HK2 = unit(self.delta.to(k_T1K2.dtype))
        k_THK2 = turn(shift_HK2.flatten(-2), k_T1K2).unflatten(-1, (-1, 2))
        q, k, v_BTHK = qkv_BT3HK.to(k_T1K2.dtype).unbind(2)
        q, k = ((F.softplus(x).unsqueeze(-1) * e).flatten(-2) for x, e in ((q, q_T1K2), (k, k_THK2)))
        return q, k, turn(v_BTHK, None if values is None else values[:, 2])

    def of_part(self, at: tuple, part: str) -> Tensor:
        return at[2][:, "qk".index(part)] if part in "qk" else super().of_part(at, part)


class Alibi(PositionScheme):
    """Scores fall with distance, in each head by a slope of its own (Press et al., 2022).

    Slopes are 2^(−8i/n), i = 1 … n, for n heads, n a power of 2; other numbers of heads take the rest from 2n.
    """

    def __init__(self, dims: Dims):
        super().__init__(dims)
        n = 2 ** (dims.n_heads.bit_length() - 1)
        exponents = [-8 * i / n for i in range(1, n + 1)] + [-4 * i / n for i in range(1, 2 * n, 2)]
        self.slopes_H11 = 2 ** torch.tensor(exponents[: dims.n_heads]).view(-1, 1, 1)

    def bias(self, at_T: Tensor, at_S: Tensor) -> Tensor:
        return -self.slopes_H11.to(at_T.device) * (at_T[:, None] - at_S)


class T5Bias(PositionScheme):
    """Adds a learned number to each score, by head and distance, in buckets that widen (Raffel et al., 2020).

    Distances below buckets/2 have a bucket each, those from there to `furthest` share the other half in proportion to
    their logarithm, and all beyond are in the last.
    """

    def __init__(self, dims: Dims, buckets: int = 32, furthest: int = 128):
        super().__init__(dims)
        if not 2 <= buckets < 2 * furthest:
            raise ValueError(
                f"position.buckets={buckets}: must be 2 or more, and position.furthest={furthest} above half"
            )
        self.buckets, self.furthest = buckets, furthest
        self.table = nn.Embedding(buckets, dims.n_heads)
        nn.init.normal_(self.table.weight, std=dims.d_model**-0.5)

    def bias(self, at_T: Tensor, at_S: Tensor) -> Tensor:
        distance = (at_T[:, None] - at_S).clamp(min=0)
        own = self.buckets // 2
        share = (distance.clamp(min=1) / own).log() / math.log(self.furthest / own)
        shared = (own + (share * (self.buckets - own)).long()).clamp(max=self.buckets - 1)
        return self.table(torch.where(distance < own, distance, shared)).movedim(-1, -3)


class Fire(PositionScheme):
    """Adds what a small network makes of the distance as a share of the position (Li et al., 2024, FIRE).

    bias = f(ψ(n−m) / ψ(max(L, n))), ψ(x) = ln(cx + 1), with c, L and the network f: 1 → hidden → heads learned.
    """

    def __init__(self, dims: Dims, hidden: int = 32, c: float = 0.1, threshold: float = 512.0):
        super().__init__(dims)
        if not 0 < c < float("inf") or not 0 < threshold < float("inf"):
            raise ValueError(f"position.c={c}, position.threshold={threshold}: must be numbers above 0")
        if not 1 <= hidden <= WIDEST:
            raise ValueError(f"position.hidden={hidden}: must be at least 1 and at most {WIDEST:,}")
        self.network = nn.Sequential(nn.Linear(1, hidden), nn.ReLU(), nn.Linear(hidden, dims.n_heads))
        self.c, self.share = nn.Parameter(torch.tensor(c)), nn.Parameter(torch.tensor(1.0))
        self.threshold = threshold

    def bias(self, at_T: Tensor, at_S: Tensor) -> Tensor:
        distance = (at_T[:, None] - at_S).clamp(min=0)
        furthest = torch.maximum(at_T, (self.share * self.threshold).abs())[:, None]
        share = (self.c.abs() * distance).log1p() / (self.c.abs() * furthest).log1p()
        return self.network(share.unsqueeze(-1)).movedim(-1, -3)


class Randomized(PositionScheme):
    """Another scheme on random positions, a sorted draw from 0 … longest − 1 for 0, 1, 2, … (Ruoss et al., 2023).

    One draw serves all doors of a text; there is a new one for each training step, from the run's own random numbers,
    and one that is always the same for evaluation.
    """

    def __init__(self, dims: Dims, scheme: Callable[[Dims], PositionScheme], longest: int = 2048):
        super().__init__(dims)
        if not dims.max_len <= longest <= LONGEST:
            raise ValueError(
                f"position.longest={longest}: must be at least train.seq_len={dims.max_len} and at most {LONGEST:,}"
            )
        self.dims, self.longest = dims, longest
        self.scheme = scheme(replace(dims, max_len=longest))
        self.draw(0, dims.max_len)

    def around(self, scheme: PositionScheme) -> "Randomized":
        """The same draws for `scheme`, which is made already."""
        return Randomized(self.dims, lambda dims: scheme, self.longest)

    def draw(self, seed: int, length: int) -> None:
        if length > self.longest:
            raise TooLong(f"position.longest={self.longest}: must be at least {length}, the positions to be drawn")
        self.scheme.draw(seed, self.longest)
        random = torch.Generator("cpu").manual_seed(seed)
        self.drawn = torch.randperm(self.longest, generator=random, device="cpu")[:length].sort().values
        self.max_len = length

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> Any:
        return self.scheme.prepare(self.drawn.to(pos.device)[pos], dtype)

    def embed(self, x_BTD: Tensor, at: Any) -> Tensor:
        return self.scheme.embed(x_BTD, at)

    def heads(self, qkv_BT3HK: Tensor, at: Any) -> Tensor:
        return self.scheme.heads(qkv_BT3HK, at)

    def bias(self, at_T: Any, at_S: Any) -> Tensor | None:
        return self.scheme.bias(at_T, at_S)

    def output(self, o_BTHK: Tensor, at: Any) -> Tensor:
        return self.scheme.output(o_BTHK, at)


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


def check_share(name: str, share: float) -> None:
    """Raises ValueError unless `share` is one."""
    if not 0 < share <= 1:
        raise ValueError(f"position.{name}={share}: must be above 0 and at most 1")


def share_of(name: str, share: float, pairs: int) -> int:
    """How many `share` of a head's `pairs` are. Raises ValueError unless they are a whole number above 0."""
    check_share(name, share)
    rotated = round(share * pairs, 6)
    if rotated % 1 or rotated < 1:
        raise ValueError(
            f"position.{name}={share}: of the {pairs} pairs of a head {rotated:g} would be rotated: must be a whole "
            "number above 0"
        )
    return int(rotated)


def check_base(base: float, name: str = "base") -> None:
    """Raises ValueError unless waves of that base grow longer and end."""
    if not 1 < base < float("inf"):
        raise ValueError(f"position.{name}={base}: must be a finite number above 1")


def frequencies(width: int, base: float) -> Tensor:
    """θᵢ = base^(−2i/width) for i = 0 … width/2 − 1, in radians a position: float64 [width/2]."""
    return base ** (-2 * torch.arange(width // 2, dtype=torch.float64) / width)


def angles(pos: Tensor, theta_C: Tensor) -> Tensor:
    """pos · θ in radians: float64 [..., C] for positions [...].

    In float64, because at position 100,000 a float32 angle is off by 4e-3; on the CPU where the device has no float64.
    """
    where = torch.device("cpu") if pos.device.type == "mps" else pos.device
    return pos.to(where, torch.float64).unsqueeze(-1) * theta_C.to(where)


def wide(dtype: torch.dtype) -> torch.dtype:
    """float32, or `dtype` where that is wider."""
    return torch.promote_types(dtype, torch.float32)
