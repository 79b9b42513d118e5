"""Linear layers on a CPU agree with torch's own, forward and backward, in every precision."""

import pytest
import torch
import torch.nn.functional as F

from rope_lab.model import cpu_linear
from rope_lab.model.cpu_linear import Linear


@pytest.fixture(autouse=True)
def on_any_processor(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(cpu_linear, "ONEDNN", True)


def gradients(y: torch.Tensor, *leaves: torch.Tensor) -> tuple[torch.Tensor, ...]:
    weights = torch.linspace(-1, 2, y.numel()).view_as(y).to(y.dtype)
    return torch.autograd.grad((y * weights).sum(), leaves)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("outputs", [3, 7])
@pytest.mark.parametrize("shape", [(4,), (1, 4), (3, 5, 4), (2, 1, 1, 4)], ids=str)
def test_products_and_their_gradients_are_those_of_float64(shape, outputs, relu):
    layer, x = Linear(4, outputs), torch.randn(shape, requires_grad=True)
    wide = [leaf.detach().double().requires_grad_() for leaf in (x, layer.weight, layer.bias)]
    y, expected = layer(x, relu), F.linear(*wide)
    expected = expected.relu() if relu else expected
    assert (y.dtype, y.shape) == (torch.float32, expected.shape)
    torch.testing.assert_close(y.double(), expected, rtol=0, atol=1e-6)
    for ours, theirs in zip(
        gradients(y, x, layer.weight, layer.bias), gradients(expected, *wide), strict=True
    ):
        assert ours.shape == theirs.shape
        torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=1e-5)


def test_rows_that_are_not_contiguous_give_the_same():
    layer, x = Linear(6, 7), torch.randn(6, 5, 2)
    apart, beside = (
        y.requires_grad_() for y in (x.transpose(0, 2), x.transpose(0, 2).contiguous())
    )
    assert torch.equal(layer(apart), layer(beside))
    assert torch.equal(*(gradients(layer(y).transpose(0, 1), y)[0] for y in (apart, beside)))


def test_a_layer_without_bias_and_one_whose_weights_are_frozen():
    without, x = Linear(4, 7, bias=False), torch.randn(3, 4, requires_grad=True)
    dx, dw = gradients(without(x), x, without.weight)
    expected = gradients(F.linear(x, without.weight), x, without.weight)
    torch.testing.assert_close((dx, dw), expected)
    frozen = Linear(4, 7).requires_grad_(False)
    torch.testing.assert_close(
        gradients(frozen(x), x), gradients(F.linear(x, frozen.weight, frozen.bias), x)
    )


def test_other_precisions_and_processors_take_torchs_own(monkeypatch):
    x, layer = torch.randn(3, 4), Linear(4, 7)
    torch_s = F.linear(x, layer.weight, layer.bias)
    monkeypatch.setattr(cpu_linear, "product", None)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
        assert torch.equal(layer(x, relu=True), layer(x).relu())
    assert torch.equal(layer.double()(x.double()), F.linear(x.double(), layer.weight, layer.bias))
    monkeypatch.setattr(cpu_linear, "ONEDNN", False)
    assert torch.equal(layer.float()(x), torch_s)
