"""Coordinates: rotations and learned vectors for positions with several axes.

A task gives the axes, as docs/extending.md explains. In a task without them, such as text, the
token's position stands for each axis.

Shape letters: B batch, T time, D model width, H heads, C pairs of a head's features, A axes; 3
stands for queries, keys and values. Where positions are [T], shapes lack B.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from rope_lab.model.axes import axis, whole
from rope_lab.model.cache import LayerCache
from rope_lab.model.hooks import Dims, PositionScheme, Wrapper
from rope_lab.model.rotation import frequencies, precise, unit, wide
from rope_lab.model.schemes.rotary import Rotary
from rope_lab.text import ConfigError

ROW, COLUMN = -2, -1  # the axes of a grid are a position's last two


class Directions(Rotary):
    """Base class: pair j of head h is rotated by θⱼ Σₐ uₐₕⱼ pₐ at position p, u its direction.

    v, o: how many times values and output are rotated, as in Rotary; 1 and −1 as in RoPER
    theta_C: θ
    direction_AHC: u, [A, H or 1, C]
    axes: the numbers of the A axes among those of positions; −1 is the last
    """

    several_axes = True

    def __init__(
        self,
        dims: Dims,
        v: int,
        o: int,
        theta_C: Tensor,
        direction_AHC: Tensor,
        axes: Sequence[int],
    ):
        super().__init__(dims, q=1, k=1, v=v, o=o)
        times = {"q": 1, "k": 1, "v": v, "o": o}
        self.theta = {part: n * theta_C for part, n in times.items() if n}
        self.direction_AHC, self.axes = direction_AHC, axes

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """The phases of queries, keys and values, [B, T, 3, H, C, 2], and of the output, [B, T, H,
        C, 2].
        """
        output = self.phases("o", pos, dtype)
        return self.phases("qkv", pos, dtype), None if output is None else output.squeeze(-4)

    def angles_of(self, pos: Tensor, theta_PC: Tensor) -> Tensor:
        """The angles of positions, [B, T, parts, H, C]."""
        pos_TA = chosen_axes(pos, self.axes, self)
        along_THC = torch.einsum("...a,ahc->...hc", pos_TA, self.direction_AHC.to(pos_TA))
        return along_THC.unsqueeze(-3) * theta_PC.to(pos_TA).unsqueeze(-2)


def chosen_axes(pos: Tensor, axes: Sequence[int], scheme: PositionScheme) -> Tensor:
    """Some axes of positions, float64 [B, T, A]."""
    return torch.stack([precise(axis(pos, number, scheme)) for number in axes], dim=-1)


def check_quarters(dims: Dims) -> None:
    """Raise ConfigError unless half of a head's pairs is a whole number."""
    if dims.d_head % 4:
        sizes = f"model.d_model={dims.d_model}, model.n_heads={dims.n_heads}"
        raise ConfigError(f"{sizes}: a head has {dims.d_head} features: must be a multiple of 4")


class AxialRope(Directions):
    """RoPE with two axes: half of the pairs are rotated by the column, half by the row (Heo et al.,
    2024, axial, arXiv 2403.13298).

    Pairs j and K/4 + j have frequency base^(−4j/K), j < K/4.
    """

    def __init__(self, dims: Dims, v: int = 0, o: int = 0, base: float = 100.0):
        check_quarters(dims)
        theta_C = frequencies(dims.d_head // 2, base).repeat(2)
        direction_AHC = torch.eye(2, dtype=torch.float64).repeat_interleave(dims.d_head // 4, 1)
        super().__init__(dims, v, o, theta_C, direction_AHC.unsqueeze(1), (COLUMN, ROW))


class GoldenGateRope(Directions):
    """RoPE along a direction of its own in each pair of each head (Xiong, 2025,
    jerryxio.ng/posts/nd-rope, uniform variant).

    The direction of pair f of head h has the angle (hC + f) π(1 − √5)/2, so that directions are
    spread evenly. Frequencies fall from `fastest` to `slowest` in equal ratios. Its author's
    coordinates run from −1 to 1 over a square image, at frequencies from 1 to 100; here a cell is
    one unit, and the range is that of axial RoPE.
    """

    def __init__(
        self, dims: Dims, v: int = 0, o: int = 0, fastest: float = 1.0, slowest: float = 0.01
    ):
        if not 0 < slowest <= fastest < math.inf:
            given = f"position.fastest={fastest}, position.slowest={slowest}"
            raise ConfigError(f"{given}: must be above 0, and the first no less than the second")
        H, C = dims.n_heads, dims.d_head // 2
        ends = math.log(fastest), math.log(slowest)
        theta_C = torch.linspace(*ends, C, dtype=torch.float64).exp()
        number_HC = torch.arange(H * C, dtype=torch.float64).view(H, C)
        angle_HC = number_HC * math.pi * (1 - math.sqrt(5)) / 2
        direction_AHC = torch.stack([angle_HC.cos(), angle_HC.sin()])
        super().__init__(dims, v, o, theta_C, direction_AHC, (COLUMN, ROW))


class MRope(Directions):
    """RoPE whose pairs are divided among three axes: time, row and column (Qwen2-VL, 2024, M-RoPE).

    They are the first three axes of positions. If all three are equal, as in text, it is RoPE.

    layout: `chunked`: the first pairs belong to time, the next to rows, the last to columns.
        `interleaved` (Huang et al., 2025, arXiv 2510.23095; Qwen3-VL): time, row and column in
        turn, so that each has all frequencies; the last pairs are time's
    sections: the pairs of each axis; None: in proportion to those of Qwen2-VL, 16, 24 and 24, or of
        Qwen3-VL, 24, 20 and 20
    """

    def __init__(
        self,
        dims: Dims,
        v: int = 0,
        o: int = 0,
        base: float = 10_000.0,
        layout: Literal["chunked", "interleaved"] = "chunked",
        sections: list[int] | None = None,
    ):
        C = dims.d_head // 2
        sections = usual_sections(layout, C) if sections is None else sections
        if len(sections) != 3 or sum(sections) != C or min(sections) < 0:
            raise ConfigError(f"position.sections={sections}: must be 3 numbers whose sum is {C}")
        of_pair = [0] * sections[0] + [1] * sections[1] + [2] * sections[2]
        if layout == "interleaved":
            of_pair = [number % 3 for number in range(C)]
            of_pair = [
                each if number < 3 * sections[each] else 0 for number, each in enumerate(of_pair)
            ]
            if list(map(of_pair.count, range(3))) != list(sections):
                given = f"position.sections={sections}"
                turns = f"with layout=interleaved {C} pairs cannot be shared like this"
                raise ConfigError(f"{given}: {turns}; row and column get a third each at most")
        direction_AC = torch.eye(3, dtype=torch.float64)[:, of_pair]
        theta_C = frequencies(dims.d_head, base)
        super().__init__(dims, v, o, theta_C, direction_AC.unsqueeze(1), (0, 1, 2))


def usual_sections(layout: str, pairs: int) -> list[int]:
    """The pairs of time, row and column in proportion to the published ones."""
    each = pairs * (24 if layout == "chunked" else 20) // 64
    return [pairs - 2 * each, each, each]


class RopeMixed(Rotary):
    """RoPE whose pairs have learned frequencies for two axes each (Heo et al., 2024, RoPE-Mixed,
    arXiv 2403.13298).

    The angle is f^x x + f^y y, with f of each layer, head and pair. At first pairs j and K/4 + j
    have magnitude base^(−4j/K); the first points in a random direction of its head, the second 90°
    further.

    v, o: how many times values and output are rotated, as in Rotary; 1 and −1 as in RoPER
    """

    several_axes = True

    def __init__(self, dims: Dims, v: int = 0, o: int = 0, base: float = 10.0):
        super().__init__(dims, q=1, k=1)
        check_quarters(dims)
        magnitude_C = frequencies(dims.d_head // 2, base, "base").float().repeat(2)
        later_C = (torch.arange(dims.d_head // 2) >= dims.d_head // 4) * math.pi / 2
        self.vectors = nn.ParameterList()
        for _ in range(dims.n_layers):
            angle_HC = 2 * math.pi * torch.rand(dims.n_heads, 1) + later_C
            f_AHC = magnitude_C * torch.stack([angle_HC.cos(), angle_HC.sin()])
            self.vectors.append(nn.Parameter(f_AHC))
        self.theta, self.v, self.o = {}, v, o

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> Tensor:
        """Column and row, float64 [B, T, 2]."""
        return chosen_axes(pos, (COLUMN, ROW), self)

    def read(
        self, x_BTD: Tensor, at: Tensor, layer: int, cache: LayerCache | None
    ) -> tuple[tuple[Tensor, Tensor | None], None]:
        """The phases of queries, keys and values, [B, T, 3, H, C, 2], and of the output, [B, T, H,
        C, 2].
        """
        angle_THC = torch.einsum("...a,ahc->...hc", at, self.vectors[layer].to(at))
        angle_T3HC = torch.stack([angle_THC, angle_THC, self.v * angle_THC], dim=-3)
        output = unit(self.o * angle_THC).to(x_BTD.device, wide(x_BTD.dtype)) if self.o else None
        return (unit(angle_T3HC).to(x_BTD.device, wide(x_BTD.dtype)), output), None


class LearnedAxis(PositionScheme):
    """Adds a learned vector for one axis of positions: a place, which several tokens may share.

    - Abacus (McLeish et al., 2024, arXiv 2405.17399): a digit's place within its number, 1 for the
      first, which should be the lowest; 0 for other characters.
    - Position coupling (Cho et al., 2024, arXiv 2405.20671): digits of equal significance in both
      numbers and in the sum share a place.

    In training all places but 0 are moved on by a random number, 0 … `offset`, one for each step;
    in evaluation by none. So places of longer numbers have trained vectors.

    axis: the number of the axis; −1 is the last
    places: entries of the table; None: the training length and `offset`
    """

    several_axes = True

    def __init__(self, dims: Dims, axis: int = 1, offset: int = 99, places: int | None = None):
        super().__init__(dims)
        if offset < 0:
            raise ConfigError(f"position.offset={offset}: must be at least 0")
        self.axis, self.offset = axis, offset
        self.drawn = torch.tensor(0)  # compiled once; a number is compiled at each value
        self.places = dims.max_len + offset + 1 if places is None else places
        self.table = nn.Embedding(self.places, dims.d_model)

    def draw(self, seed: int, length: int) -> None:
        random = torch.Generator("cpu").manual_seed(seed)
        self.drawn = torch.randint(self.offset + 1, (), generator=random, device="cpu")

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> Tensor:
        """The rows of the table, [B, T]."""
        place = axis(pos, self.axis, self)
        if self.training:
            place = torch.where(place > 0, place + self.drawn, place)
        return whole(place, self, self.places)

    def embed(self, x_BTD: Tensor, at: Tensor) -> Tensor:
        return x_BTD + self.table(at)


class OnAxis(Wrapper):
    """Another scheme at one axis of positions: RoPE at times, or ALiBi between columns.

    RoPER at times is the encoder of POYO (Azabou et al., 2023, arXiv 2310.16046), with other
    frequencies and all features rotated.

    axis: the number of the axis; −1 is the last
    """

    max_len = None  # the other scheme's limit holds for the axis, not for the number of tokens

    def __init__(self, dims: Dims, scheme: Callable[[Dims], PositionScheme], axis: int = 1):
        super().__init__(scheme(dims))
        self.axis, self.several_axes = axis, True

    def prepare(self, pos: Tensor, dtype: torch.dtype):
        return self.scheme.prepare(axis(pos, self.axis, self), dtype)
