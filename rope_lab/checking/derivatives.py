"""Check that gradients are those of finite differences."""

import torch
from torch import Tensor

from rope_lab.checking import demand
from rope_lab.model.transformer import Transformer

STEP, WITHIN = 1e-7, 1e-2  # so small a step meets hardly any kink of ReLU


def derivatives(model: Transformer, tokens_BT: Tensor) -> None:
    """Of each parameter, in a random direction: not cut, and not changed in place.

    model: in float64
    """
    random = torch.Generator().manual_seed(6)
    logits = model(tokens_BT)
    weights = torch.randn(logits.shape, generator=random, dtype=logits.dtype)
    model.zero_grad()
    (logits * weights).sum().backward()
    for name, parameter in model.named_parameters():
        grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        direction = torch.randn(parameter.shape, generator=random, dtype=parameter.dtype)
        found = float((grad * direction).sum())
        expected = _difference(model, tokens_BT, weights, parameter, direction)
        off, size = abs(found - expected), max(float(grad.norm()), abs(expected))
        said = f"the gradient of {name} is {found:.3g} in a direction of slope {expected:.3g}"
        remedy = "must not be cut (detach, no_grad, .data) or changed in place"
        demand(off <= WITHIN * size + 1e-5, f"{said}: {remedy}")


@torch.no_grad()
def _difference(
    model: Transformer, tokens_BT: Tensor, weights: Tensor, parameter: Tensor, direction: Tensor
) -> float:
    """The slope of the weighted logits along `direction`, by two evaluations."""
    values = []
    before = parameter.clone()
    for step in (STEP, -STEP):
        parameter.copy_(before + step * direction)
        values.append(float((model(tokens_BT) * weights).sum()))
    parameter.copy_(before)
    return (values[0] - values[1]) / (2 * STEP)
