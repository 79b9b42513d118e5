"""Biases: a number added to each attention score, by distance alone.

A key at a later position than the query, as some tasks have, counts as at distance 0.

Shape letters: B batch, T time (queries), S time (keys), H heads.
"""

import math

import torch
from torch import Tensor, nn

from rope_lab.model.axes import distances
from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.text import ConfigError


class Alibi(PositionScheme):
    """Scores fall linearly with distance, at a fixed slope in each head (Press et al., 2022).

    Slopes are 2^(−8i/n), i = 1 … n, for n heads, n a power of 2. For other numbers of
    heads n is the next lower power of 2, and the remaining heads take every other slope of 2n.
    """

    def __init__(self, dims: Dims):
        super().__init__(dims)
        n = 2 ** (dims.n_heads.bit_length() - 1)
        exponents = [-8 * i / n for i in range(1, n + 1)] + [-4 * i / n for i in range(1, 2 * n, 2)]
        self.slopes_H11 = 2 ** torch.tensor(exponents[: dims.n_heads]).view(-1, 1, 1)

    def bias(self, at_T: Tensor, at_S: Tensor) -> Tensor:
        distance_1TS = distances(at_T, at_S).clamp(min=0).unsqueeze(-3)
        return -self.slopes_H11.to(at_T.device) * distance_1TS


class KerpleLog(PositionScheme):
    """Scores fall with the logarithm of the distance (Chi et al., 2022, KERPLE, logarithmic
    variant).

    bias = −r₁ ln(1 + r₂ |n − m|), r₁ and r₂ above 0 and learned for each head. As in its authors'
    code r₁ is drawn from [0, 2) and r₂ from [0, 1). They clamp both to at least 0.01 at each step;
    we take absolute values instead. All layers share these numbers.
    """

    def __init__(self, dims: Dims):
        super().__init__(dims)
        self.r1_H11 = nn.Parameter(2 * torch.rand(dims.n_heads, 1, 1))
        self.r2_H11 = nn.Parameter(torch.rand(dims.n_heads, 1, 1))

    def bias(self, at_T: Tensor, at_S: Tensor) -> Tensor:
        distance_1TS = distances(at_T, at_S).clamp(min=0).unsqueeze(-3)
        return -self.r1_H11.abs() * (self.r2_H11.abs() * distance_1TS).log1p()


class T5Bias(PositionScheme):
    """Adds a learned number to each score, by head and bucket of distances (Raffel et al., 2020).

    Distances below buckets/2 have a bucket each. Those up to `max_distance` share the other half,
    on a logarithmic scale. The last bucket also takes all longer distances. All layers share these
    numbers.
    """

    def __init__(self, dims: Dims, buckets: int = 32, max_distance: int = 128):
        super().__init__(dims)
        if not 2 <= buckets < 2 * max_distance:
            half = f"position.max_distance={max_distance} above half"
            raise ConfigError(f"position.buckets={buckets}: must be 2 or more, and {half}")
        self.buckets, self.max_distance = buckets, max_distance
        self.table = nn.Embedding(buckets, dims.n_heads)
        nn.init.normal_(self.table.weight, std=dims.d_model**-0.5)

    def bias(self, at_T: Tensor, at_S: Tensor) -> Tensor:
        distance = distances(at_T, at_S).clamp(min=0)
        own = self.buckets // 2
        log_share = (distance.clamp(min=1) / own).log() / math.log(self.max_distance / own)
        shared = (own + (log_share * (self.buckets - own)).long()).clamp(max=self.buckets - 1)
        return self.table(torch.where(distance < own, distance.long(), shared)).movedim(-1, -3)


class Fire(PositionScheme):
    """Adds a learned function of the distance relative to the position, a small network (Li et al.,
    2024, FIRE).

    bias = f(ψ(n−m) / ψ(max(L, n))), ψ(x) = ln(cx + 1), with c, L and the network f: 1 → hidden →
    heads learned. L = |share · threshold| with a learned `share`, 1 at first. `threshold` None is
    the training length, so that distances in longer texts are scaled to those of training; its
    authors' code has 512, and trains on 2,048 tokens. All layers share the network.
    """

    def __init__(
        self, dims: Dims, hidden: int = 32, c: float = 0.1, threshold: float | None = None
    ):
        super().__init__(dims)
        threshold = float(dims.max_len) if threshold is None else threshold
        if not (0 < c < float("inf") and 0 < threshold < float("inf") and hidden >= 1):
            raise ConfigError(
                f"position.{c=}, position.{threshold=}, position.{hidden=}: must be numbers above 0"
            )
        self.network = nn.Sequential(
            nn.Linear(1, hidden), nn.ReLU(), nn.Linear(hidden, dims.n_heads)
        )
        self.c = nn.Parameter(torch.tensor(c))
        self.share = nn.Parameter(torch.tensor(1.0))
        self.threshold = threshold

    def bias(self, at_T: Tensor, at_S: Tensor) -> Tensor:
        distance = distances(at_T, at_S).clamp(min=0)
        longest = torch.maximum(at_T, (self.share * self.threshold).abs()).unsqueeze(-1)
        relative = (self.c.abs() * distance).log1p() / (self.c.abs() * longest).log1p()
        return self.network(relative.to(self.c.dtype).unsqueeze(-1)).movedim(-1, -3)
