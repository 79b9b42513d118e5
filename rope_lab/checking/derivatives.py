"""Check that gradients are those of finite differences."""

from torch import Tensor
from torch.autograd import gradcheck
from torch.func import functional_call

from rope_lab.checking import demand
from rope_lab.model.transformer import Transformer


def derivatives(model: Transformer, tokens_BT: Tensor) -> None:
    """Of each parameter, in random directions: not cut, and not changed in place.

    model: in float64
    """
    for name, parameter in model.named_parameters():

        def logits(value: Tensor, name: str = name) -> Tensor:
            return functional_call(model, {name: value}, (tokens_BT,))

        right = gradcheck(
            logits,
            parameter,
            eps=1e-7,  # so small a step meets hardly any kink of ReLU
            rtol=1e-2,
            check_undefined_grad=False,
            fast_mode=True,
            raise_exception=False,
        )
        remedy = "must not be cut (detach, no_grad, .data) or changed in place"
        demand(right, f"the gradient of {name} is not that of finite differences: {remedy}")
