"""Probes: one change of how a trained model uses positions.

A probe is one of
  shift=N         all positions are N further on, on each axis
  window=N        attention sees the last N tokens only, itself among them
  ablate=PARTS    PARTS (of q, k, v and o, the output) are not rotated: ablate=vo
  ablate=PARTS:P  the same for pair P of each head's features alone, or for pairs P-P: ablate=vo:4-7
Shape letters: B batch, T time (queries), S time (keys and values), H heads, K head width, C pairs.
"""

import copy
import math
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rope_lab.model.attention import Heads, unpacked
from rope_lab.model.hooks import PositionScheme, Wrapper, prepared
from rope_lab.model.schemes.longer import Remapped
from rope_lab.model.schemes.random_positions import Randomized
from rope_lab.model.transformer import Transformer
from rope_lab.text import ConfigError

FORM = (
    "must be shift=N or window=N with N below 10⁹, ablate=PARTS or ablate=PARTS:PAIRS "
    "(ablate=vo:4-7)"
)
CELLS = 32  # most cells along a side of a map of attention
BANDS = 8  # a head with more pairs is probed in so many bands of neighbouring pairs


class Shifted(Wrapper):
    """A scheme whose positions are `by` further on."""

    def __init__(self, scheme: PositionScheme, by: int):
        super().__init__(scheme)
        self.by = by

    def draw(self, seed: int, length: int) -> None:
        self.scheme.draw(seed, length + self.by)

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> Any:
        return prepared(self.scheme, pos + self.by, dtype)


class Windowed(Wrapper):
    """A scheme under which every layer sees the last `window` tokens only."""

    def __init__(self, scheme: PositionScheme, window: int):
        super().__init__(scheme)
        self.window = window

    def in_layer(self, number: int) -> PositionScheme:
        layer = copy.copy(self.scheme.in_layer(number))
        layer.window = min(self.window, layer.window or self.window)
        return layer


class Watched(Wrapper):
    """A scheme that keeps the attention weights of each layer in `weights`, [B, H, T, S]."""

    def __init__(self, scheme: PositionScheme):
        super().__init__(scheme)
        self.weights: list[Tensor] = []

    def in_layer(self, number: int) -> PositionScheme:
        trained = self.scheme.in_layer(number)
        layer = copy.copy(trained)

        def attention(
            heads: Heads, at: Any, bias: Tensor | None, cache: None, **sink: Tensor
        ) -> Tensor:
            self.weights.append(attention_weights(trained, heads, at, bias, **sink))
            return trained.attention(heads, at, bias, cache, **sink)

        layer.attention = attention
        return layer


def attention_weights(
    scheme: PositionScheme, heads: Heads, at: Any, bias: Tensor | None, **sink: Tensor
) -> Tensor:
    """A layer's attention weights, [B, H, T, S]: its outputs for one-hot values, K tokens at a
    time. sink: of a model with sinks.
    """
    if isinstance(scheme, Remapped):  # its attention rotates values and output, too
        scheme = copy.copy(scheme)
        scheme.theta = {part: theta_C for part, theta_C in scheme.theta.items() if part in "qk"}
    q, k, v_BTHK = unpacked(heads)
    T, K = v_BTHK.shape[1], v_BTHK.shape[3]
    one_hot = torch.eye(T, math.ceil(T / K) * K, dtype=v_BTHK.dtype, device=v_BTHK.device)
    parts = []
    for values_TK in one_hot.split(K, dim=1):
        values = q, k, values_TK[:, None].expand_as(v_BTHK)
        parts.append(scheme.attention(values, at, bias, None, **sink).float())
    return torch.cat(parts, dim=-1)[..., :T].transpose(1, 2)


def changed(probe: str, model: Transformer) -> PositionScheme:
    """A copy of the model's scheme, changed as `probe` says. Raises ConfigError if the model has
    no such part.
    """
    scheme = copy.deepcopy(model.position)
    kind, _, value = probe.partition("=")
    if kind == "ablate":
        ablate(probe, scheme)
        return scheme
    size = number(probe, value)
    if kind == "shift":
        if not isinstance(scheme, Randomized):
            return Shifted(scheme, size)
        scheme.scheme = Shifted(scheme.scheme, size)  # after positions are drawn
        return scheme
    if kind != "window" or size == 0:
        raise ConfigError(f"{probe}: {FORM}")
    if model.layers[0].attention.linear:
        raise ConfigError(f"{probe}: linear attention has no scores that could be masked")
    return Windowed(scheme, size)


def number(probe: str, text: str) -> int:
    """The number that a probe gives. Raises ConfigError."""
    if not text.isdecimal() or len(text) > 9:
        raise ConfigError(f"{probe}: {FORM}")
    return int(text)


def ablate(probe: str, scheme: PositionScheme) -> tuple[float, float]:
    """Stop the rotations that a probe names, `ablate=vo:4-7`; their shortest and longest
    wavelength, in positions.

    Raises ConfigError if the scheme does not have them.
    """
    parts, _, pairs = probe.removeprefix("ablate=").partition(":")
    theta, rotated = frequencies(scheme), rotated_pairs(scheme)
    if not parts or not set(parts) <= rotated.keys():
        has = ", ".join(rotated) or "nothing"
        raise ConfigError(f"{probe}: rotated are only {has} in this scheme; a probe {FORM}")
    first, _, last = pairs.partition("-")
    most = max(len(rotated[part]) for part in parts) - 1
    begin = number(probe, first or "0")
    end = number(probe, last or first or str(most))
    if not begin <= end <= most:
        where = f"the pairs of a head that are rotated in {parts}"
        raise ConfigError(f"{probe}: {where} are 0-{most}")
    stopped = []
    for part in parts:
        pairs_C = rotated[part][begin : end + 1]
        stopped += theta[part][pairs_C].abs().tolist()
        theta[part][pairs_C] = 0
    return 2 * math.pi / max(stopped), 2 * math.pi / min(stopped)


def frequencies(scheme: PositionScheme) -> dict[str, Tensor]:
    """Of q, k, v and o (the output), the angles per position by which a scheme rotates the pairs of
    a head's features; empty if it rotates none.
    """
    inner = getattr(scheme, "scheme", scheme)  # of random positions
    theta = getattr(inner, "theta", None)
    return theta if isinstance(theta, dict) else {}  # a scheme of one's own may mean another thing


def rotated_pairs(scheme: PositionScheme) -> dict[str, Tensor]:
    """The numbers of the pairs that are rotated, of each of q, k, v and o that is."""
    theta = frequencies(scheme).items()
    return {part: theta_C.nonzero().flatten() for part, theta_C in theta if theta_C.any()}


def all_probes(model: Transformer, seq_len: int) -> list[str]:
    """Every probe that the model has a part for, at a few sizes."""
    probes = [f"shift={n}" for n in (1, 10, 100, 1000)]
    if not model.layers[0].attention.linear:
        probes += [f"window={2**n}" for n in range(1, seq_len.bit_length()) if 2**n < seq_len]
    pairs = rotated_pairs(model.position)
    scores = "".join(part for part in "qk" if part in pairs)
    values = "".join(part for part in "vo" if part in pairs)
    probes += [f"ablate={parts}" for parts in dict.fromkeys([scores, *values, values]) if parts]
    for parts in filter(None, (scores, values)):
        rotated = max(len(pairs[part]) for part in parts)
        bands = min(BANDS, rotated)
        edges = [round(band * rotated / bands) for band in range(bands + 1)]
        for begin, end in pairwise(edges):
            last = f"-{end - 1}" if end - begin > 1 else ""
            probes.append(f"ablate={parts}:{begin}{last}")
    return probes


def attention_maps(model: Transformer, tokens_BT: Tensor, **given: Tensor) -> dict[str, Any]:
    """A model's attention on these tokens, by layer and head; empty of linear attention, which has
    no weights.

    given: positions and documents, as arguments of the model

    by_distance: the mean weight of the token so many tokens back
    maps:  of the first row, down-sampled: the share of attention that `every` neighbouring queries
           give to as many keys
    """
    model.position = watched = Watched(model.position)
    try:
        model(tokens_BT, **given)
    finally:
        model.position = watched.scheme
    T = tokens_BT.shape[1]
    every = math.ceil(T / CELLS)  # an incomplete last cell is left out
    by_distance, maps = [], []
    for weights_BHTS in watched.weights:
        mean_DH = torch.stack([weights_BHTS.diagonal(-d, 2, 3).mean((0, 2)) for d in range(T)])
        cells_HTS = F.avg_pool2d(weights_BHTS[0], every, divisor_override=every)
        by_distance.append(_short(mean_DH.T))
        maps.append(_short(cells_HTS))
    return {"by_distance": by_distance, "maps": maps, "every": every} if maps else {}


def _short(values: Tensor) -> list[Any]:
    """Nested lists of numbers with four decimals."""
    return values.double().cpu().round(decimals=4).tolist()
