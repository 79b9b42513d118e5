"""Causal attention: both ways to compute it agree with each other, forward and backward."""

import pytest
import torch

from rope_lab.attention import BLOCK, blockwise, causal_attention, fused

B, H, K = 2, 3, 4


def make_bias(kind: str, length: int) -> torch.Tensor | None:
    shape = {"none": None, "heads": (H, length, length), "rows": (B, H, length, length)}[kind]
    return None if shape is None else torch.randn(shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("kind", ["none", "heads", "rows"])
@pytest.mark.parametrize("length", [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 17])
def test_blocks_change_nothing(length, kind):
    torch.manual_seed(length)
    qkv = torch.randn(B, length, 3, H, K, dtype=torch.float64, requires_grad=True)
    before = qkv.detach().clone()
    bias, weights = make_bias(kind, length), torch.randn(B, length, H, K, dtype=torch.float64)
    leaves = [qkv] if bias is None else [qkv, bias]
    (o, *gradients), expected = (
        (o, *torch.autograd.grad((o * weights).sum(), leaves)) for o in (blockwise(qkv, bias), fused(qkv, bias))
    )
    for ours, theirs in zip((o, *gradients), expected, strict=True):
        assert ours.shape == theirs.shape
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    assert torch.equal(qkv, before)


def test_a_bias_that_needs_no_gradient():
    qkv, bias = torch.randn(B, 70, 3, H, K, requires_grad=True), torch.randn(H, 70, 70)
    torch.testing.assert_close(blockwise(qkv, bias), fused(qkv, bias), rtol=1e-4, atol=1e-5)
    blockwise(qkv, bias).sum().backward()
    assert qkv.grad is not None


@pytest.mark.parametrize("shape", [(H, 70, 1), (H, 1, 70), (H, 1, 1), (1, 70, 70), (B, 1, 70, 70)])
def test_a_bias_that_is_the_same_along_the_way_is_spread_out(shape):
    """And lets nobody see the future."""
    qkv = torch.randn(B, 70, 3, H, K, dtype=torch.float64)
    bias = torch.randn(shape, dtype=torch.float64)
    whole = bias.expand(*shape[:-2], 70, 70).clone()
    torch.testing.assert_close(causal_attention(qkv, bias), fused(qkv, whole), rtol=0, atol=1e-12)


def test_under_autocast_the_scores_stay_in_float32():
    """Scores near 300 that differ by 0.5, which bfloat16 would round away."""
    qkv = torch.zeros(1, 2, 3, 1, K)
    qkv[0, 1, 0, 0, 0], qkv[0, :, 1, 0, 0] = 20.0, torch.tensor([30.0, 30.05])
    qkv[0, :, 2, 0, 0] = torch.tensor([0.0, 1.0])
    with torch.autocast("cpu", torch.bfloat16):
        o = blockwise(qkv, None)
    assert o.dtype == torch.bfloat16
    assert o[0, 1, 0, 0].item() == pytest.approx(torch.tensor(0.5).sigmoid().item(), rel=0.01)


def test_under_autocast_gradients_are_those_of_float32_up_to_rounding():
    torch.manual_seed(0)
    qkv = torch.randn(B, 100, 3, H, 8, requires_grad=True)
    (exact,) = torch.autograd.grad(blockwise(qkv, None).square().sum(), qkv)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = blockwise(qkv, None).float().square().sum()
    (gradient,) = torch.autograd.grad(rounded, qkv)
    assert (gradient - exact).norm() < 0.01 * exact.norm()
