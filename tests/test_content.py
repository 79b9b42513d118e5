"""Content-dependent schemes in float64, compared with their formulas as explicit sums."""

import math

import pytest
import torch
import torch.nn.functional as F
from conftest import SCHEMES
from sums import (
    DIMS,
    LAYER,
    QKV,
    D,
    H,
    K,
    T,
    X,
    as_trained,
    assert_output,
    learned,
    make_model,
    rope,
    rotation,
)
from trained import make_scheme

from rope_lab.checking.schemes import cached
from rope_lab.model import cpu_linear
from rope_lab.model.hooks import Dims
from rope_lab.model.schemes import PaTH

EYE = torch.eye(K, dtype=torch.float64)


def test_fox_is_its_formula():
    scheme = learned("fox")
    gate = scheme.gates[LAYER]

    def score(b, h, n, i, q, k):
        gates = [
            torch.sigmoid(X[b, j] @ gate.weight[h] + gate.bias[h]) for j in range(i + 1, n + 1)
        ]
        return q @ k + K**0.5 * sum(f.log() for f in gates)

    assert_output(scheme, score)


@torch.no_grad()
def test_fox_in_float32_is_exact_over_long_texts():
    """With gates near 0 the sums of logarithms reach 14,000; also with a cache, and in parts."""
    dims = Dims(d_model=8, n_heads=2, max_len=3000)
    model = make_model("fox", layers=1, dims=dims)
    model.position.gates[0].weight.zero_()
    model.position.gates[0].bias.copy_(torch.tensor([-5.0, -4.0]))
    tokens = torch.randint(11, (1, 3000), generator=torch.Generator().manual_seed(0))
    exact, single = model(tokens).float(), model.float()
    torch.testing.assert_close(single(tokens), exact, rtol=0, atol=2e-5)
    cache = single.new_cache(1, 3000)
    parts = [single(part, cache=cache) for part in tokens.split([2990, 9, 1], dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), exact, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", ["selective_rope", "selective_roper"])
def test_selective_rope_is_its_formula(name):
    """In RoPER's form, values are rotated by the same difference of phases as in the scores."""
    scheme = learned(name)
    w1, w2 = (linear.weight.detach() for linear in scheme.project[LAYER])
    taps, theta = scheme.taps[LAYER].detach(), torch.tensor(rope(500_000.0), dtype=torch.float64)

    def phi(b, t):
        """The sum over the token and the three before it."""
        units = (
            torch.cat([x / x.norm() for x in X[b, t - back].split(K)])
            for back in range(min(4, t + 1))
        )
        return sum(taps[3 - back] * (w2 @ (w1 @ unit)) for back, unit in enumerate(units))

    phases = torch.stack(
        [torch.stack([phi(b, t) for t in range(T)]).cumsum(0) for b in range(len(X))]
    )

    def difference(b, h, n, i):
        """R(Φᵢ − Φₙ)"""
        return rotation(theta * (phases[b, i] - phases[b, n]).view(H, -1)[h])

    value = (
        (lambda b, h, n, i, v: difference(b, h, n, i) @ v) if name == "selective_roper" else None
    )
    assert_output(scheme, lambda b, h, n, i, q, k: q @ (difference(b, h, n, i) @ k), value)


def test_grape_a_is_its_formula():
    scheme = learned("grape_a")
    v, omega = scheme.v[LAYER].detach(), scheme.omega[LAYER].detach()

    def score(b, h, n, i, q, k):
        gate = math.log(1 + math.exp(v[h] / v[h].norm() @ q / K**0.5))
        return (
            q @ k
            - K**0.5 * (n - i) * [2**-4, 2**-8, 2**-2][h] * math.log(1 + math.exp(omega[h])) * gate
        )

    assert_output(scheme, score, pos=[*range(T)])
    torch.testing.assert_close(F.softplus(make_scheme("grape_a", DIMS).omega[LAYER]), torch.ones(H))


def test_cope_is_its_formula():
    """Also if the count exceeds the number of positions."""
    scheme = learned("cope")
    e = scheme.tables[LAYER].data = scheme.tables[LAYER].detach()[:, :3]

    def score(b, h, n, i, q, k):
        keys = QKV[b, :, 1, h]
        p = min(sum(1 / (1 + math.exp(-(q @ keys[j]) / K**0.5)) for j in range(i, n + 1)), 2.0)
        below, above = math.floor(p), math.ceil(p)
        return q @ k + K**0.5 * (q @ ((1 - (p - below)) * e[:, below] + (p - below) * e[:, above]))

    assert_output(scheme, score)


@pytest.mark.parametrize("block", [2, 64])
def test_path_is_its_formula(block, monkeypatch):
    monkeypatch.setattr(PaTH, "block", block)
    scheme = learned("path")
    w1, w2 = (linear.weight for linear in scheme.project[LAYER])
    taps, beta = scheme.taps[LAYER].detach(), scheme.betas[LAYER]

    def transformation(b, h, t):
        """Hₜ = I − βₜ wₜ wₜᵀ"""
        w = F.silu(
            sum(taps[2 - back] * (w2 @ (w1 @ X[b, t - back])) for back in range(min(3, t + 1)))
        ).view(H, K)[h]
        w = w / w.norm()
        return EYE - 2 * torch.sigmoid(beta.weight[h] @ X[b, t] + beta.bias[h]) * torch.outer(w, w)

    def score(b, h, n, i, q, k):
        product = EYE
        for t in range(i + 1, n + 1):
            product = product @ transformation(b, h, t)
        return k @ product @ q

    assert_output(scheme, score)


@pytest.mark.parametrize("name", SCHEMES)
def test_cached_decoding_is_the_full_pass_beyond_the_trained_length(name):
    """16 tokens, twice the training length, with random parameters."""
    scheme = make_scheme(name, Dims(D, H, max_len=8, n_layers=2))
    if name == "learned":
        with pytest.raises(ValueError, match="16 positions are more than the 8"):
            scheme.draw(0, 16)
        return
    model = make_model(scheme)
    as_trained(scheme).draw(0, 16)
    cached(model)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # from torch.compile itself
@pytest.mark.parametrize(
    "name", ["fox", "kv_shared_back", "path", "pope", "roper", "selective_roper"]
)
def test_compiled_layers_are_the_same_forward_and_backward(name, monkeypatch):
    """Without a graph break, which would slow down every training step."""
    monkeypatch.setattr(cpu_linear, "ONEDNN", True)  # on any processor
    model, tokens = make_model(name, layers=1).float(), torch.arange(14).view(2, 7) % 11
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    # Some belong to a second layer.
    made, leaves = (
        (compiled(tokens), model(tokens)),
        [*model.parameters()],
    )
    results = [
        (y, *torch.autograd.grad(y.square().mean(), leaves, materialize_grads=True)) for y in made
    ]
    torch.testing.assert_close(*results, rtol=0, atol=1e-5)
