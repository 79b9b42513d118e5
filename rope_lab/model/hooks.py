"""The hooks by which position enters a transformer: the base class of position schemes.

A scheme overrides the hooks that it uses; the model calls them and knows no scheme. Ours are in
`schemes`.

Shape letters: B batch, T time (queries), S time (keys and values), D model width, H heads, K head
width, A axes; 3 stands for queries, keys and values side by side. Positions are integers 0 … T − 1,
[T], or those that a task gives: integers or real numbers, [T], [B, T] or [B, T, A].
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rope_lab.model.attention import Heads, softmax_attention
from rope_lab.model.cache import KVCache, LayerCache
from rope_lab.model.device import has_float64
from rope_lab.text import ConfigError

HOOKS = ("embed", "heads", "output", "bias", "read", "attention", "in_layer", "with_keys")


@dataclass(frozen=True)
class Dims:
    """The sizes of the model around a scheme."""

    d_model: int
    n_heads: int
    max_len: int  # number of positions: the training length, or the range of random positions
    keys: int | None = None  # the most keys that a query sees in training; None: max_len
    n_layers: int = 1  # for schemes with parameters in each layer

    @property
    def d_head(self) -> int:
        return self.d_model // self.n_heads


def within_window(keys_T: Tensor, window: int | None) -> Tensor:
    """How many of so many keys, [T] or [B, T], queries see within a window; None: all."""
    return keys_T if window is None else keys_T.clamp(max=window)


class TooLong(ConfigError):
    """The text is longer than the scheme can serve."""


class PositionScheme(nn.Module):
    """No position at all (`none`), and the base class of all schemes: hooks that change nothing.

    Even so a causal transformer can learn positions: the first token sees one token, the last sees
    all (Haviv et al., 2022).
    """

    max_len: int | None = None  # positions from here on are an error; None: no limit
    decays: bool = False  # whether weight decay applies to its matrices
    window: int | None = None  # a query sees so many last tokens, its own included; None: all
    output_heads: int = 1  # heads that `attention` returns for each head of queries
    projects_values: bool = True  # False: no value projection; `heads` is given [B, T, 2, H, K]
    projects_queries: bool = False  # also: queries that the model neither normalises nor convolves
    several_axes: bool = False  # `prepare` gets all axes of positions; False: the first, as [B, T]

    def __init__(self, dims: Dims):
        super().__init__()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "PositionScheme":
        """Move attributes that are tensors with the parameters, but keep their precision.

        Otherwise every step would copy them to the device, and a GPU waits for a copy.
        """
        super()._apply(fn, recurse)
        device = fn(torch.empty(0)).device

        def moved(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: moved(each) for key, each in value.items()}
            if type(value) in (list, tuple):
                return type(value)(map(moved, value))
            there = isinstance(value, Tensor) and (
                value.dtype != torch.float64 or has_float64(device)
            )
            return value.to(device) if there else value

        for name, value in vars(self).items():
            if not name.startswith("_"):
                setattr(self, name, moved(value))
        return self

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> Any:
        """Prepare positions for the hooks, once per forward pass; each hook gets the result as
        `at`.

        pos: [T], or [B, T] if the task gives positions, or [B, T, A] with `several_axes`

        `dtype` is the model's; results computed from angles stay in float32 or wider (see
        `rotation.wide`).
        """
        return pos

    def with_keys(self, at: Any, keys_T: Tensor) -> Any:
        """`at` for queries that each see so many keys, int64 [T], or [B, T] within documents; most
        schemes return it unchanged.
        """
        return at

    def draw(self, seed: int, length: int) -> None:
        """Draw random positions, if the scheme has any, for texts of up to `length` tokens.

        Called before each training step, and with one fixed seed before every evaluation. Raises
        TooLong.
        """
        if self.max_len is not None and length > self.max_len:
            raise TooLong(
                f"{length} positions are more than the {self.max_len} of the position scheme: "
                "take shorter texts or another scheme"
            )

    def in_layer(self, number: int) -> "PositionScheme":
        """The scheme for `read`, `heads`, `attention`, `output` in layer `number`, 0 …, given `at`
        of `for_layer`; its `window` and `projects_values` hold there.
        """
        return self

    def for_layer(
        self, number: int, at: Any, bias: Tensor | None
    ) -> tuple[int, Any, Tensor | None]:
        """The number of layer `number` within its own scheme, and that scheme's `at` and bias: by
        default those of the whole scheme.
        """
        return number, at, bias

    def embed(self, x_BTD: Tensor, at: Any) -> Tensor:
        """Embedding hook: token embeddings before the first layer."""
        return x_BTD

    def read(
        self, x_BTD: Tensor, at: Any, layer: int, cache: LayerCache | None
    ) -> tuple[Any, Tensor | None]:
        """Content hook, before the layer's other hooks: positions and scores that depend on the
        layer's input.

        x_BTD: the input of the layer's projections
        layer: its number, 0 …
        cache: of earlier tokens; a scheme keeps its own numbers there by `cache.so_far`,
            `running_sum`, `with_before`

        Returns `at` for this layer's other hooks, and a bias added to its scores, broadcastable to
        [B, H, T, S], or None.
        """
        return at, None

    def heads(self, qkv_BT3HK: Tensor, at: Any) -> Tensor | tuple[Tensor, Tensor, Tensor]:
        """Query/key/value hook, in every layer.

        Returns them packed, or as three tensors [B, T, H, width] if queries and keys get a width of
        their own.
        """
        return qkv_BT3HK

    def bias(self, at_T: Any, at_S: Any) -> Tensor | None:
        """Score bias hook: added to the attention scores of every layer.

        Returns a tensor broadcastable to [H, T, S] or [B, H, T, S], or None.
        """
        return None

    def attention(
        self,
        heads: Heads,
        at: Any,
        bias: Tensor | None,
        cache: KVCache | None,
        sink: Tensor | None = None,
    ) -> Tensor:
        """Attention hook, in every layer of softmax attention: each head's weighted sum of values,
        [B, T, H, K].

        heads: as `heads` returns them
        bias: the sum of those of `bias` and `read`, or None
        sink: [H], of softmax_attention, with model.sink
        """
        return softmax_attention(heads, bias, cache, self.window, sink)

    def output(self, o_BTHK: Tensor, at: Any) -> Tensor:
        """Output hook, in every layer: each head's weighted sum of values, before the heads are
        mixed.
        """
        return o_BTHK


def overridden(cls: type[PositionScheme]) -> set[str]:
    """The names of the hooks that a class of schemes overrides."""
    return {name for name in HOOKS if getattr(cls, name) is not getattr(PositionScheme, name)}


def prepared(scheme: PositionScheme, pos: Tensor, dtype: torch.dtype) -> Any:
    """`at` of positions [T], [B, T] or [B, T, A], of which most schemes take the first axis."""
    if pos.dim() == 3 and not scheme.several_axes:
        pos = pos[..., 0]
    return scheme.prepare(pos, dtype)


class Wrapper(PositionScheme):
    """Base class of schemes that change another scheme, whose hooks it has.

    `in_layer` returns that scheme, so its own hooks serve in a layer. To change `read`, `heads`,
    `attention` or `output`, let `in_layer` return another one.
    """

    _own_max_len: int | None = None

    def __init__(self, scheme: PositionScheme):
        nn.Module.__init__(self)
        self.scheme, self.decays = scheme, scheme.decays
        self.projects_values, self.several_axes = scheme.projects_values, scheme.several_axes
        self.output_heads, self.projects_queries = scheme.output_heads, scheme.projects_queries

    @property
    def max_len(self) -> int | None:
        """That of the other scheme, unless a subclass sets its own."""
        return self.scheme.max_len if self._own_max_len is None else self._own_max_len

    @max_len.setter
    def max_len(self, tokens: int | None) -> None:
        self._own_max_len = tokens

    def draw(self, seed: int, length: int) -> None:
        self.scheme.draw(seed, length)

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> Any:
        return prepared(self.scheme, pos, dtype)

    def with_keys(self, at: Any, keys_T: Tensor) -> Any:
        return self.scheme.with_keys(at, keys_T)

    def in_layer(self, number: int) -> PositionScheme:
        return self.scheme.in_layer(number)

    def for_layer(
        self, number: int, at: Any, bias: Tensor | None
    ) -> tuple[int, Any, Tensor | None]:
        return self.scheme.for_layer(number, at, bias)

    def embed(self, x_BTD: Tensor, at: Any) -> Tensor:
        return self.scheme.embed(x_BTD, at)

    def bias(self, at_T: Any, at_S: Any) -> Tensor | None:
        return self.scheme.bias(at_T, at_S)
