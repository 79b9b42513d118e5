"""What a position scheme is: the hooks where position can enter a transformer, and what they are given.

A scheme overrides those that it uses; the model calls them and knows no scheme. The schemes are in `positions`.

Shape letters: B batch, T time (queries), S time (keys and values), D model width, H heads, K head width; 3 stands for
queries, keys and values side by side. Positions are integers, [T].
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rope_lab.model.attention import Heads, softmax_attention
from rope_lab.model.cache import KVCache, LayerCache
from rope_lab.model.device import has_float64

HOOKS = ("embed", "heads", "output", "bias", "read", "attention", "in_layer", "with_keys")


@dataclass(frozen=True)
class Dims:
    """The sizes of the model that a scheme serves."""

    d_model: int
    n_heads: int
    max_len: int  # positions to tell apart: tokens of the longest training sequence, or what random ones are drawn from
    keys: int | None = None  # the most keys that a query sees in training; None: max_len
    n_layers: int = 1  # for parameters that each layer has of its own

    @property
    def d_head(self) -> int:
        return self.d_model // self.n_heads


class TooLong(ValueError):
    """A text is longer than a scheme has positions."""


class PositionScheme(nn.Module):
    """No position at all (`none`), and the base of every scheme: hooks that change nothing.

    A causal transformer can learn where it is even so: the first token sees one token, the last sees all (Haviv et al.,
    2022).
    """

    max_len: int | None = None  # positions from here on are an error; None: there is no end
    decays: bool = False  # whether weight decay falls on its matrices too
    window: int | None = None  # the last tokens that a query sees, itself among them; None: all
    projects_values: bool = True  # False: the model has no value projection, and `heads` is given [B, T, 2, H, K]

    def __init__(self, dims: Dims):
        super().__init__()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "PositionScheme":
        """Tensors that are attributes follow the parameters to their device, as precise as they are.

        A step would have to copy them otherwise, and a GPU waits for that.
        """
        super()._apply(fn, recurse)
        device = fn(torch.empty(0)).device

        def moved(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: moved(each) for key, each in value.items()}
            there = isinstance(value, Tensor) and (value.dtype != torch.float64 or has_float64(device))
            return value.to(device) if there else value

        for name, value in vars(self).items():
            if not name.startswith("_"):
                setattr(self, name, moved(value))
        return self

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> Any:
        """What the hooks need to know of the positions `pos`, worked out once per forward pass and handed to each.

        `dtype` is the model's own; whatever is computed from angles stays in float32 or wider (see `rotation.wide`).
        """
        return pos

    def with_keys(self, at: Any, keys_T: Tensor) -> Any:
        """`at` of queries, once it is known how many keys each of them sees, int64 [T]: the same for most schemes."""
        return at

    def draw(self, seed: int, length: int) -> None:
        """Draws random positions, if the scheme has any, for texts of up to `length` tokens.

        Called before each training step, and with one and the same seed before every evaluation. Raises TooLong where
        the scheme cannot serve texts that long.
        """
        if self.max_len is not None and length > self.max_len:
            raise TooLong(
                f"{length} positions are more than the {self.max_len} that the position scheme has: "
                "take shorter texts or another scheme"
            )

    def in_layer(self, number: int) -> "PositionScheme":
        """The scheme that serves layer `number`, 0 …, with what this one prepared: all but embedding and score bias."""
        return self

    def embed(self, x_BTD: Tensor, at: Any) -> Tensor:
        """Embedding hook: token embeddings on their way into the first layer."""
        return x_BTD

    def read(self, x_BTD: Tensor, at: Any, layer: int, cache: LayerCache | None) -> tuple[Any, Tensor | None]:
        """Content hook, in every layer before the others: of the layer's input, positions and scores that depend on it.

        layer: its number, 0 …
        cache: of the tokens before; numbers of one's own are kept there by `cache.so_far`, `running_sum`, `with_before`

        Returns `at` as this layer's other hooks are given it, and what is added to its scores, [B, H, T, S], any of
        them 1, or None.
        """
        return at, None

    def heads(self, qkv_BT3HK: Tensor, at: Any) -> Tensor | tuple[Tensor, Tensor, Tensor]:
        """Query/key/value hook, in every layer.

        Returns them packed as they came, or, where queries and keys get a width of their own, as three tensors
        [B, T, H, width].
        """
        return qkv_BT3HK

    def bias(self, at_T: Any, at_S: Any) -> Tensor | None:
        """Score bias hook: what is added to the attention scores of every layer, [H, T, S], or None."""
        return None

    def attention(self, heads: Heads, at: Any, bias: Tensor | None, cache: KVCache | None) -> Tensor:
        """Attention hook, in every layer of softmax attention: each head's weighted sum of values, [B, T, H, K].

        heads: as `heads` returns them
        bias: that of `bias` and of `read` together, or None
        """
        return softmax_attention(heads, bias, cache, self.window)

    def output(self, o_BTHK: Tensor, at: Any) -> Tensor:
        """Output hook: each head's weighted sum of values, in every layer, before the heads are mixed."""
        return o_BTHK


def overridden(scheme: PositionScheme | type[PositionScheme]) -> set[str]:
    """The names of the hooks that a scheme overrides."""
    cls = scheme if isinstance(scheme, type) else type(scheme)
    return {name for name in HOOKS if getattr(cls, name) is not getattr(PositionScheme, name)}


class Wrapper(PositionScheme):
    """Another scheme, whose layers are its own; a subclass changes what it needs to."""

    def __init__(self, scheme: PositionScheme):
        nn.Module.__init__(self)
        self.scheme, self.decays = scheme, scheme.decays
        self.projects_values = scheme.projects_values

    def draw(self, seed: int, length: int) -> None:
        self.scheme.draw(seed, length)

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> Any:
        return self.scheme.prepare(pos, dtype)

    def with_keys(self, at: Any, keys_T: Tensor) -> Any:
        return self.scheme.with_keys(at, keys_T)

    def in_layer(self, number: int) -> PositionScheme:
        return self.scheme.in_layer(number)

    def embed(self, x_BTD: Tensor, at: Any) -> Tensor:
        return self.scheme.embed(x_BTD, at)

    def bias(self, at_T: Any, at_S: Any) -> Tensor | None:
        return self.scheme.bias(at_T, at_S)
