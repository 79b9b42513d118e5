"""Random positions: another scheme at positions that are sampled again for each step.

Random positions are integers or float64.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rope_lab.model.axes import whole
from rope_lab.model.device import send
from rope_lab.model.hooks import Dims, PositionScheme, TooLong, Wrapper
from rope_lab.text import ConfigError


class Randomized(Wrapper):
    """Another scheme on random positions: sorted, without repeats, of 0 … longest − 1 (Ruoss et
    al., 2023).

    All hooks and all rows of a batch share the positions. Positions that a task gives number them:
    they must be whole, and of their axes the first counts. They are sampled again for each training
    step from the run's own random numbers. All evaluations of all runs use one fixed draw, so
    intervals do not include the variance between draws.

    longest: positions are below it
    floats: positions are uniform real numbers from 0 to `longest` (Shimizu et al., 2026, arXiv
        2602.14050)
    """

    max_len: int | None = None  # the tokens for which positions were drawn

    def __init__(
        self,
        dims: Dims,
        scheme: Callable[[Dims], PositionScheme],
        longest: int = 2048,
        floats: bool = False,
    ):
        if not dims.max_len <= longest <= 10**7:
            allowed = f"from train.seq_len={dims.max_len} to 10,000,000"
            raise ConfigError(f"position.longest={longest}: must be {allowed}")
        super().__init__(scheme(replace(dims, max_len=longest, keys=dims.max_len)))
        self.longest, self.floats, self.several_axes = longest, floats, False
        self.drawn = torch.empty(0, dtype=torch.float64 if floats else torch.int64)
        self.draw(0, dims.max_len)

    def draw(self, seed: int, length: int) -> None:
        if length > self.longest:
            needed = f"must be at least {length}, the tokens of the text"
            raise TooLong(f"position.longest={self.longest}: {needed}")
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
        drawn = self.drawn.to(pos.device)
        return self.scheme.prepare(drawn[whole(pos, self)], dtype)
