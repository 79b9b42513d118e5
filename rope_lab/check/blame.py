"""What the hooks of a scheme are given and return on small inputs, and which of them is to blame.

Shape letters: B batch, T time, D model width, H heads, K head width.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from rope_lab.model.hooks import Dims
from rope_lab.model.transformer import Transformer


def dims_of(model: Transformer) -> Dims:
    return Dims(model.embedding.embedding_dim, model.layers[0].attention.n_heads, 0)


def inputs(dims: Dims, T: int, dtype: torch.dtype, seed: int = 0) -> dict[str, Tensor]:
    """What each hook is given besides positions: random numbers [2, T, …]."""
    H, K = dims.n_heads, dims.d_head
    sizes = {"embed": (2, T, dims.d_model), "heads": (2, T, 3, H, K), "output": (2, T, H, K)}
    random = torch.Generator().manual_seed(seed)
    return {hook: torch.randn(size, generator=random, dtype=dtype) for hook, size in sizes.items()}


def parts(y: Tensor | tuple[Tensor, ...]) -> list[Tensor]:
    """What a hook returns, as a list."""
    return [y] if isinstance(y, Tensor) else list(y)


def joined(y: Tensor | tuple[Tensor, ...]) -> Tensor:
    """What a hook returns as one tensor, [B, T, …]."""
    return torch.cat([part.flatten(2) for part in parts(y)], dim=-1)


@torch.enable_grad()
def mixing(model: Transformer) -> Callable | None:
    """The hook that mixes positions or rows, which attention alone may."""
    scheme, at = model.position, model.position.prepare(torch.arange(5), torch.float64)
    for hook, x in inputs(dims_of(model), 5, torch.float64).items():
        x.requires_grad_()
        y = joined(getattr(scheme, hook)(x, at))
        (gradient,) = torch.autograd.grad(y[0, 2].square().sum(), x)
        if gradient[1].any() or gradient[0, [0, 1, 3, 4]].any():
            return getattr(scheme, hook)
    return None


@torch.no_grad()
def alone(model: Transformer, begin: int = 5, end: int = 8) -> Callable | None:
    """The hook that gives the last tokens something else alone than among all: it does not go by `at`."""
    scheme, H = model.position, dims_of(model).n_heads
    among, by_itself = (scheme.prepare(torch.arange(first, end), torch.float64) for first in (0, begin))
    for hook, x in inputs(dims_of(model), end, torch.float64).items():
        method = getattr(scheme, hook)
        y, z = joined(method(x, among))[:, begin:], joined(method(x[:, begin:], by_itself))
        if y.shape != z.shape or not torch.allclose(y, z):
            return method
    biases = scheme.bias(among, among), scheme.bias(by_itself, among)
    if None not in biases:
        y, z = (bias.expand(H, -1, end).expand(H, n, end) for bias, n in zip(biases, (end, end - begin), strict=True))
        if not torch.allclose(y[:, begin:].tril(begin), z.tril(begin)):
            return scheme.bias
    return None
