"""Different between layers: layers composed of any schemes, and the layouts of published models.

Shape letters: B batch, T time, H heads, K head width; 3 stands for queries, keys and values side by
side. Where positions are [B, T], shapes begin with B too.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rope_lab.model.hooks import (
    Dims,
    PositionScheme,
    Wrapper,
    overridden,
    prepared,
    within_window,
)
from rope_lab.model.rotation import Pairs, precise, wide
from rope_lab.model.schemes.rotary import Rotary
from rope_lab.text import ConfigError


class Part(NamedTuple):
    """Some layers of a pattern, one after another, that share a scheme."""

    make: Callable[[Dims], PositionScheme]
    count: int = 1
    window: int | float | None = None  # see `tokens_of`; None: that of the scheme


# In yaml files and on the command line: `rope window:64 base:1e4 *3 | none`.
Pattern = Sequence[Part]


class Layers(PositionScheme):
    """Each layer has the scheme that `pattern` says. `|` separates its parts; a part is a scheme,
    its settings, and `*N` for N layers: `rope window:64 *3 | none` is three layers of RoPE in a
    window of 64 tokens, then one without positions. Formulas are those of the schemes.

    pattern: repeated over all layers, counted from the first
    from_last: count from the last layer: it then has the last scheme of `pattern`
    first: a pattern for the first layers; None: they follow `pattern`
    last: a pattern for the last layers; None: they follow `pattern`

    The layers of a part share one scheme, whose layers are numbered 0, 1, … . `window` of a part is
    a number of tokens, or below 1 a share of the training length. Raises ConfigError for schemes
    that change embeddings or differ between layers themselves.
    """

    several_axes = True  # each part takes its own

    def __init__(
        self,
        dims: Dims,
        pattern: Pattern,
        first: Pattern | None = None,
        last: Pattern | None = None,
        from_last: bool = False,
    ):
        super().__init__(dims)
        used = layout(dims.n_layers, pattern, first or (), last or (), from_last)
        distinct = list(dict.fromkeys(used))
        self.parts = nn.ModuleList(
            built(part, replace(dims, n_layers=used.count(part))) for part in distinct
        )
        self.part_of = [distinct.index(part) for part in used]

    @property
    def max_len(self) -> int | None:
        limits = [part.max_len for part in self.parts if part.max_len is not None]
        return min(limits) if limits else None

    def draw(self, seed: int, length: int) -> None:
        for part in self.parts:
            part.draw(seed, length)

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> list[Any]:
        """What each part prepares."""
        return [prepared(part, pos, dtype) for part in self.parts]

    def bias(self, at_T: list[Any], at_S: list[Any]) -> list[Tensor | None]:
        """The bias of each part."""
        both = zip(self.parts, at_T, at_S, strict=True)
        return [part.bias(own_T, own_S) for part, own_T, own_S in both]

    def with_keys(self, at: list[Any], keys_T: Tensor) -> list[Any]:
        both = zip(self.parts, at, strict=True)
        return [part.with_keys(own, within_window(keys_T, part.window)) for part, own in both]

    def in_layer(self, number: int) -> PositionScheme:
        return self.parts[self.part_of[number % len(self.part_of)]]

    def for_layer(
        self, number: int, at: list[Any], bias: list[Tensor | None]
    ) -> tuple[int, Any, Tensor | None]:
        index = self.part_of[number % len(self.part_of)]
        return self.part_of[:number].count(index), at[index], bias[index]


def layout(
    n_layers: int, pattern: Pattern, first: Pattern, last: Pattern, from_last: bool
) -> list[Part]:
    """The part of each layer."""
    period = one_by_one(pattern)
    counted_from = n_layers if from_last else 0
    parts = [period[(number - counted_from) % len(period)] for number in range(n_layers)]
    for number, part in enumerate(one_by_one(first)[:n_layers]):
        parts[number] = part
    for number, part in enumerate(reversed(one_by_one(last)[-n_layers:]), start=1):
        parts[-number] = part
    return parts


def one_by_one(pattern: Pattern) -> list[Part]:
    """A part for each layer of a pattern."""
    return [part for part in pattern for _ in range(part.count)]


def built(part: Part, dims: Dims) -> PositionScheme:
    """The scheme of a part, with its window."""
    scheme = part.make(dims)
    if scheme.in_layer(0) is not scheme or changes_embeddings(scheme):
        raise ConfigError(
            f"position.pattern: {type(scheme).__name__} serves a whole model, not some of its "
            "layers; take another scheme"
        )
    if part.window is not None:
        scheme.window = tokens_of(part.window, dims, "position.pattern: window")
    return scheme


def changes_embeddings(scheme: PositionScheme) -> bool:
    if isinstance(scheme, Wrapper):
        return changes_embeddings(scheme.scheme)
    return "embed" in overridden(type(scheme))


def tokens_of(length: int | float, dims: Dims, name: str) -> int:
    """A number of tokens, given as such or, below 1, as a share of the training length."""
    if 0 < length < 1:
        return math.ceil(length * (dims.keys or dims.max_len))
    if length < 1 or length % 1:
        raise ConfigError(f"{name}={length:g}: must be a whole number of tokens, or below 1")
    return int(length)


class TemperatureTuning(PositionScheme):
    """No position; scores of position n are multiplied by 1 + c ln(1 + ⌊(n+1) / f⌋) (Llama 4).

    attn_scale: c
    floor_scale: f in tokens, in Llama 4 8,192; below 1 a share of the training length
    """

    def __init__(self, dims: Dims, attn_scale: float = 0.1, floor_scale: int | float = 0.25):
        super().__init__(dims)
        self.attn_scale = attn_scale
        self.floor_scale = tokens_of(floor_scale, dims, "position.floor_scale")

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> Tensor:
        """The factors of queries, [T, 1, 1, 1]."""
        chunk_T = ((precise(pos) + 1) / self.floor_scale).floor()
        factor_T = 1 + self.attn_scale * chunk_T.log1p()
        return factor_T.to(pos.device, wide(dtype))[..., None, None, None]

    def heads(self, qkv_BT3HK: Tensor, at: Tensor) -> Tensor:
        q_BT1HK, kv_BT2HK = qkv_BT3HK.split((1, 2), dim=2)
        return torch.cat([at * q_BT1HK, kv_BT2HK], dim=2)


class RNoPE(Layers):
    """RoPE, but no position at all in the last of `every` layers (Yang et al., 2025, RNoPE).

    Its authors find that layers without it retrieve from far away, and that those with it favour
    what is near. Shipped models with such layers leave out RoPE in every fourth; our default is
    every second.

    window: the last tokens that a query sees in layers with RoPE (RNoPE-SWA); below 1 a share of
        the training length; None: all
    temperature: c: in layers without RoPE scores of position n are multiplied by
        1 + c ln(1 + ⌊(n + 1) / window⌋), as in Llama 4; 0: they are not
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
        if every < 2:
            raise ConfigError(f"position.every={every}: must be at least 2")
        if temperature and window is None:
            raise ConfigError(
                f"position.window=null, position.temperature={temperature}: "
                "must be a window of at least 1 token, or no temperature"
            )
        rope = partial(Rotary, q=1, k=1, base=base, pairs=pairs)
        none: Callable[[Dims], PositionScheme] = PositionScheme
        if temperature:
            none = partial(TemperatureTuning, attn_scale=temperature, floor_scale=window)
        whole = replace(dims, n_layers=every * math.ceil(dims.n_layers / every))
        super().__init__(whole, [Part(rope, every - 1, window), Part(none)])
