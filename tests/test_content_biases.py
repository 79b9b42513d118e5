"""Scores from content: sizes and extreme gates. Their formulas are in test_oracles.py."""

import torch
from sums import DIMS, LAYER, H, K, learned


def test_inklings_extent_is_the_training_length_by_default():
    assert learned("inkling").tables[LAYER].shape == (16, DIMS.max_len)
    half = learned("inkling", "position.extent=0.5")
    assert half.tables[LAYER].shape == (16, DIMS.max_len // 2)


def test_wall_is_finite_when_gates_are_nearly_closed():
    """Sums of logarithms reach −10,000; exponents stay at most 0."""
    scheme = learned("wall")
    log_gates = torch.full((1, H, 64, K), -200.0, requires_grad=True)
    heads = torch.randn(1, 64, 3, H, K)
    o_BTHK = scheme.attention(heads, (log_gates,), None, None)
    o_BTHK.square().sum().backward()
    assert o_BTHK.isfinite().all()
    assert log_gates.grad.isfinite().all()
