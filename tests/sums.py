"""Reference attention as an explicit sum in float64; it shares no code with the schemes."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from trained import make_scheme

from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.model.transformer import Transformer

B, T, H, K = 2, 7, 3, 8
D, LAYER = H * K, 1
DIMS = Dims(d_model=D, n_heads=H, max_len=64, n_layers=2)
POS = [0, 1, 2, 5, 100, 4096, 100_000]
# Of batch row, head, n, i, query [K] and key [K].
Score = Callable[[int, int, int, int, Tensor, Tensor], Tensor | float]


def numbers(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


X, QKV = numbers(B, T, D, seed=8), numbers(B, T, 3, H, K, seed=9)


def as_trained(scheme: PositionScheme) -> PositionScheme:
    """The scheme with random parameters, as after training."""
    with torch.no_grad():
        for number, parameter in enumerate(scheme.parameters()):
            parameter.copy_(numbers(*parameter.shape, seed=number))
    return scheme


def learned(name: str, *settings: str) -> PositionScheme:
    return as_trained(make_scheme(name, DIMS, *settings).double())


def make_model(
    name: str | PositionScheme, *settings: str, layers: int = 2, dims: Dims = DIMS, **more
) -> Transformer:
    """A float64 model with fixed random weights; more: other arguments of Transformer."""
    torch.manual_seed(0)
    scheme = make_scheme(name, dims, *settings) if isinstance(name, str) else name
    sizes = {
        "d_model": dims.d_model,
        "n_layers": layers,
        "n_heads": dims.n_heads,
        "position": scheme,
    }
    usual = {
        "vocabulary": 11,
        "attention": "softmax",
        "norm": "pre",
        "init": "pytorch",
        "dropout": 0.0,
    }
    return Transformer(**usual | sizes | more).double()


def rope(base: float = 10_000.0, width: int = K) -> list[float]:
    """The frequencies of a head, in radians per position."""
    return [base ** (-2 * j / width) for j in range(width // 2)]


def rotation(angles: list[float] | Tensor, first: int = 0) -> Tensor:
    """The rotation matrix R [K, K], one angle per pair of neighbours, acting on columns (RoFormer,
    equation 15).

    Features before `first` and after the last pair are unchanged.
    """
    matrix = torch.eye(K, dtype=torch.float64)
    for j, angle in enumerate(angles):
        cos, sin, a = math.cos(angle), math.sin(angle), first + 2 * j
        matrix[a : a + 2, a : a + 2] = torch.tensor([[cos, -sin], [sin, cos]], dtype=matrix.dtype)
    return matrix


def rotated(distance: int, theta: list[float] | None = None, first: int = 0) -> Tensor:
    return rotation([distance * frequency for frequency in theta or rope()], first)


def attended(scheme: PositionScheme, pos: list[int] = POS) -> Tensor:
    """The result of the output hook in layer LAYER, for input X and queries, keys and values
    QKV.
    """
    prepared = scheme.prepare(torch.tensor(pos), torch.float64)
    at = scheme.with_keys(prepared, torch.arange(1, len(pos) + 1))
    layer = scheme.in_layer(LAYER)
    number, at, bias = scheme.for_layer(LAYER, at, scheme.bias(prepared, prepared))
    at, own_bias = layer.read(X, at, number, None)
    bias = bias if own_bias is None else own_bias
    qkv = QKV if layer.projects_values else QKV[:, :, :2]
    return layer.output(layer.attention(layer.heads(qkv, at), at, bias, None), at)


def assert_output(
    scheme: PositionScheme,
    score: Score,
    value: Callable | None = None,
    pos: list[int] = POS,
    within: float = 1e-9,
) -> None:
    """Output n of each head is Σᵢ softmaxᵢ(score(b, h, n, i, q, k) / √K) value(b, h, n, i, v), i ≤
    n.
    """
    made = attended(scheme, pos)
    for b in range(B):
        for h in range(H):
            q, k, v = (x[:, h] for x in QKV[b].unbind(1))
            for n in range(T):
                scores = torch.stack(
                    [torch.as_tensor(score(b, h, n, i, q[n], k[i])) for i in range(n + 1)]
                )
                values = [v[i] if value is None else value(b, h, n, i, v[i]) for i in range(n + 1)]
                expected = (scores.double() / K**0.5).softmax(0) @ torch.stack(values)
                torch.testing.assert_close(made[b, n, h], expected, rtol=0, atol=within)
