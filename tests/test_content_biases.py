"""Scores from content, in float64, as explicit sums from the formulas."""

import math

import pytest
import torch
from sums import DIMS, LAYER, POS, H, K, X, assert_output, learned

from rope_lab.model.schemes import content_biases

SLOPES = [2.0**-4, 2.0**-8, 2.0**-2]


@pytest.mark.parametrize("extent", [3, 64])
def test_inklings_bias_is_its_formula(extent):
    """bias = Σ_m rₙₘ P(m, n−i), 0 from distance `extent` on."""
    scheme = learned("inkling", "position.modes=5", f"position.extent={extent}")
    w = scheme.mixes[LAYER].weight.detach().unflatten(0, (H, 5))
    table = scheme.tables[LAYER].detach()

    def score(b, h, n, i, q, k):
        distance = POS[n] - POS[i]
        bias = (w[h] @ X[b, n]) @ table[:, distance] if distance < extent else 0.0
        return q @ k + K**0.5 * bias

    assert_output(scheme, score, within=1e-10)


def test_inklings_extent_is_the_training_length_by_default():
    assert learned("inkling").tables[LAYER].shape == (16, DIMS.max_len)
    half = learned("inkling", "position.extent=0.5")
    assert half.tables[LAYER].shape == (16, DIMS.max_len // 2)


def test_grape_ap_is_its_formula():
    """bias(n, i) = Σ m ln σ(pₙ · R(l) p̄ₗ / 8) over i < l ≤ n; halves of a path make its pairs."""
    scheme = learned("grape_ap")
    w = scheme.paths[LAYER].weight.detach().unflatten(0, (H, 8))

    def turned(b, h, token):
        p = w[h] @ X[b, token]
        first, second = (p / p.square().mean().sqrt()).chunk(2)
        cos, sin = math.cos(POS[token]), math.sin(POS[token])
        return torch.cat([first * cos - second * sin, first * sin + second * cos])

    def score(b, h, n, i, q, k):
        p = w[h] @ X[b, n]
        gates = [torch.sigmoid(p @ turned(b, h, token) / 8) for token in range(i + 1, n + 1)]
        return q @ k + K**0.5 * SLOPES[h] * sum(gate.log() for gate in gates)

    assert_output(scheme, score, within=1e-10)


@pytest.mark.parametrize("block", [2, 16])
def test_wall_is_its_formula(block, monkeypatch):
    """Each feature's product times the gates after the key, up to the query."""
    monkeypatch.setattr(content_biases, "BLOCK", block)
    scheme = learned("wall")
    gate = scheme.gates[LAYER]

    def gates(b, h, token):
        return torch.sigmoid(gate.weight @ X[b, token] + gate.bias).view(H, K)[h]

    def score(b, h, n, i, q, k):
        decay = torch.ones(K)
        for token in range(i + 1, n + 1):
            decay = decay * gates(b, h, token)
        return (q * k * decay).sum()

    assert_output(scheme, score, within=1e-10)


def test_wall_is_finite_when_gates_are_nearly_closed():
    """Sums of logarithms reach −10,000; exponents stay at most 0."""
    scheme = learned("wall")
    log_gates = torch.full((1, H, 64, K), -200.0, requires_grad=True)
    heads = torch.randn(1, 64, 3, H, K)
    o_BTHK = scheme.attention(heads, log_gates, None, None)
    o_BTHK.square().sum().backward()
    assert o_BTHK.isfinite().all()
    assert log_gates.grad.isfinite().all()
