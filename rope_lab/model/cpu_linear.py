"""Linear layers of float32 on a CPU that is not Intel's, by oneDNN: the numbers of `nn.Linear` to
rounding.

torch takes MKL there, which needs up to twice as long on AMD's processors; both are part of torch.
On Intel's MKL is as fast, and faster for the gradient of the weights, for which oneDNN's products
copy both matrices.

Shape letters: N rows, I features in, O features out.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, library, nn
from torch.autograd.function import once_differentiable

from rope_lab.model.device import cpu_name

ONEDNN = (
    torch.backends.mkl.is_available()
    and torch.backends.mkldnn.is_available()
    and not cpu_name().startswith("Intel")
)


class Linear(nn.Linear):
    """`nn.Linear`, then a ReLU if asked for; in float32 on a CPU by oneDNN if torch would take MKL
    and that is slow.

    There it has no second derivative, and torch.func does not support it.
    """

    def forward(self, x: Tensor, relu: bool = False) -> Tensor:
        float32 = x.dtype == self.weight.dtype == torch.float32 and not torch.is_autocast_enabled(
            "cpu"
        )
        fits = x.numel() and x.shape[-1:] == self.weight.shape[1:]
        if ONEDNN and float32 and fits and x.device.type == "cpu":
            return OneDNNLinear.apply(x, self.weight, self.bias, relu)
        y = super().forward(x)
        return F.relu(y) if relu else y


class OneDNNLinear(torch.autograd.Function):
    """y = x Wᵀ + b, or its ReLU. Backward, from dy through the ReLU: dx = dy W, dW = dyᵀ x, db = Σ
    dy over rows.
    """

    @staticmethod
    def forward(ctx, x: Tensor, w_OI: Tensor, b_O: Tensor | None, relu: bool) -> Tensor:
        y = product(x, w_OI, b_O, relu)
        ctx.save_for_backward(x, w_OI, y if relu else None)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w_OI, y = ctx.saved_tensors
        if y is not None:
            dy = torch.ops.aten.threshold_backward(dy, y, 0)
        x_NI, dy_NO = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
        of_x, of_w, of_b, _ = ctx.needs_input_grad
        return (
            product(dy, w_OI.T) if of_x else None,
            weight_gradient(x_NI, dy_NO) if of_w else None,
            dy_NO.sum(0) if of_b else None,
            None,
        )


def weight_gradient(x_NI: Tensor, dy_NO: Tensor) -> Tensor:
    """dyᵀ x, [O, I]. Both matrices are copied for it, faster if the wider one stands second."""
    if dy_NO.shape[1] <= x_NI.shape[1]:
        return product(dy_NO.T, x_NI.T)
    return product(x_NI.T, dy_NO.T).T


def product(x: Tensor, w_OI: Tensor, b_O: Tensor | None = None, relu: bool = False) -> Tensor:
    """x wᵀ + b, [..., O], of `x` [..., I]; or its ReLU."""
    if torch.compiler.is_compiling():  # its copy joins a loop of the graph; oneDNN's own would not
        return torch.ops.rope_lab.product(x.contiguous(), w_OI, b_O, relu)
    return by_onednn(x, w_OI, b_O, relu)


def by_onednn(x: Tensor, w_OI: Tensor, b_O: Tensor | None, relu: bool) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, w_OI, b_O, "relu" if relu else "none", [], "")


# torch.compile takes the weights of oneDNN's own operator for constants; an operator of our own it
# leaves whole. Defined by its schema, a call takes two thirds of the time that one of
# library.custom_op takes.
library.define("rope_lab::product", "(Tensor x, Tensor w_OI, Tensor? b_O, bool relu) -> Tensor")
library.impl("rope_lab::product", "CPU", by_onednn)
library.register_fake(
    "rope_lab::product", lambda x, w_OI, b_O, relu: x.new_empty(*x.shape[:-1], w_OI.shape[0])
)
