"""Different between layers: RoPE in some layers, no position in the others.

Shape letters: B batch, T time, H heads, K head width, C pairs of a head's features; 3 stands for
queries, keys and values side by side. Positions are integers, [T].
"""

import math

import torch
from torch import Tensor

from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.model.rotation import Pairs, precise, wide
from rope_lab.model.schemes.rotary import Rotary
from rope_lab.text import ConfigError


class RNoPE(Rotary):
    """RoPE, but no position at all in the last of `every` layers (Yang et al., 2025, RNoPE).

    Its authors find that layers without it retrieve from far away, and that those with it favour
    what is near.

    window: the last tokens that a query sees in layers with RoPE (RNoPE-SWA); below 1 a share of
        the training length; None: all
    temperature: c in 1 + c ln(1 + ⌊(n+1) / window⌋), by which layers without RoPE multiply the
        scores of position n, as Llama 4's iRoPE with 0.1, there in chunks of 8,192 tokens
    """

    def __init__(
        self,
        dims: Dims,
        every: int = 2,
        base: float = 10_000.0,
        pairs: Pairs = "neighbours",
        window: int | float | None = None,
        temperature: float = 0.0,
    ):
        super().__init__(dims, q=1, k=1, base=base, pairs=pairs)
        if every < 2:
            raise ConfigError(f"position.every={every}: must be at least 2")
        window_text = "null" if window is None else f"{window:g}"
        given = f"position.window={window_text}, position.temperature={temperature}"
        if window is not None and 0 < window < 1:
            window = math.ceil(window * (dims.keys or dims.max_len))
        if (window is not None and (window < 1 or window % 1)) or (temperature and not window):
            raise ConfigError(
                f"{given}: must be a window of at least 1 token, in whole tokens, or no temperature"
            )
        self.every, self.none, self.temperature = every, Tempered(dims), temperature
        self.window = None if window is None else int(window)

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> tuple:
        """The phases of layers with RoPE, and the factor of queries in the others, [T, 1, 1], or
        None.
        """
        at, factor = super().prepare(pos, dtype), None
        if self.temperature:
            chunk_T = ((precise(pos) + 1) / self.window).floor()
            factor_T = (1 + self.temperature * chunk_T.log1p()).to(pos.device, wide(dtype))
            factor = factor_T[:, None, None]
        return at[0], factor, at[1]

    def in_layer(self, number: int) -> PositionScheme:
        return self.none if number % self.every == self.every - 1 else self


class Tempered(PositionScheme):
    """No position; scores are multiplied by the second of the prepared values unless that is
    None.
    """

    def heads(self, qkv_BT3HK: Tensor, at: tuple) -> Tensor:
        if at[1] is None:
            return qkv_BT3HK
        q_BT1HK, kv_BT2HK = qkv_BT3HK.split((1, 2), dim=2)
        return torch.cat([at[1].unsqueeze(1) * q_BT1HK, kv_BT2HK], dim=2)
