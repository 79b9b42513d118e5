"""Softmax attention on a CPU: the numbers of `attention.fused`, where torch's own kernel takes up to twice as long.

Shape letters: B batch, T time (queries), S time (keys and values), H heads, K head width, N = B · H.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 64  # queries that meet their keys at once


def blockwise(heads: Tensor | tuple[Tensor, Tensor, Tensor], bias: Tensor | None) -> Tensor:
    """Causal softmax attention, [B, T, H, K], of `attention.Heads`; `bias`, [H, T, T], is added to the scores.

    Under autocast scores and their softmax stay in float32; the other products, backward too, are taken in bfloat16.
    """
    if torch.compiler.is_compiling():  # as a decorator it would import the compiler at every start
        return torch.compiler.disable(_attend)(heads, bias)
    return _attend(heads, bias)


def _attend(heads: Tensor | tuple[Tensor, Tensor, Tensor], bias: Tensor | None) -> Tensor:
    heads = (heads,) if isinstance(heads, Tensor) else heads
    low = heads[0].dtype
    if torch.is_autocast_enabled("cpu") and low != torch.float64:
        low = torch.get_autocast_dtype("cpu")
    with torch.autocast("cpu", enabled=False):
        return Blockwise.apply(bias, low, *heads)


class Blockwise(torch.autograd.Function):
    """P = softmax(S), S = q kᵀ / √K + bias, o = P v, for one block of queries after the other.

    Backward, from do: dv = Pᵀ do, dP = do vᵀ, dS = P ∘ (dP − rowsum(P ∘ dP)), dq = dS k / √K, dk = dSᵀ q / √K.
    The heads are one packed tensor, whose gradient is one too, or three.
    """

    @staticmethod
    def forward(ctx, bias: Tensor | None, low: torch.dtype, *heads: Tensor) -> Tensor:
        q_BTHK, k_BTHK, v_BTHK = heads[0].unbind(2) if len(heads) == 1 else heads
        B, T, H, K = v_BTHK.shape
        wide = torch.promote_types(q_BTHK.dtype, torch.float32)
        q_NTK, k_NTK, v_NTK = _by_head(q_BTHK, wide), _by_head(k_BTHK, wide), _by_head(v_BTHK, low)
        q_NTK *= K**-0.5
        o_NTK, probabilities = torch.empty_like(v_NTK), []
        future = torch.full((BLOCK, BLOCK), -torch.inf, dtype=wide).triu(1)  # added faster than filled in
        for begin, end in _blocks(T):
            scores = torch.bmm(q_NTK[:, begin:end], k_NTK[:, :end].transpose(1, 2))
            if bias is not None:
                scores.unflatten(0, (B, H)).add_(bias[..., begin:end, :end])
            scores[:, :, begin:] += future[: end - begin, : end - begin]
            probabilities.append(scores.softmax(-1).to(low))
            torch.bmm(probabilities[-1], v_NTK[:, :end], out=o_NTK[:, begin:end])
        ctx.packed = len(heads) == 1
        ctx.save_for_backward(q_NTK.to(low), k_NTK.to(low), v_NTK, bias, *probabilities)
        return o_NTK.unflatten(0, (B, H)).transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx, do_BTHK: Tensor):
        q_NTK, k_NTK, v_NTK, bias, *probabilities = ctx.saved_tensors
        B, T, H, K = do_BTHK.shape
        do_NTK = do_BTHK.transpose(1, 2).flatten(0, 1).to(q_NTK.dtype)
        qkv = q_NTK, k_NTK, v_NTK
        d_3NTK = v_NTK.new_zeros(3, *v_NTK.shape) if ctx.packed else [torch.zeros_like(x_NTK) for x_NTK in qkv]
        dq_NTK, dk_NTK, dv_NTK = d_3NTK
        dbias = None if bias is None or not ctx.needs_input_grad[0] else torch.zeros_like(bias)
        for p, (begin, end) in zip(probabilities, _blocks(T), strict=True):
            do, q, k_NSK, v_NSK = do_NTK[:, begin:end], q_NTK[:, begin:end], k_NTK[:, :end], v_NTK[:, :end]
            dv_NTK[:, :end].baddbmm_(p.transpose(1, 2), do)
            ds = torch._softmax_backward_data(torch.bmm(do, v_NSK.transpose(1, 2)), p, -1, p.dtype)
            torch.bmm(ds, k_NSK, out=dq_NTK[:, begin:end])
            dk_NTK[:, :end].baddbmm_(ds.transpose(1, 2), q)
            if dbias is not None:
                part = dbias[..., begin:end, :end]
                part.copy_(ds.unflatten(0, (B, H)).sum_to_size(part.shape))
        dq_NTK *= K**-0.5
        if ctx.packed:
            return dbias, None, d_3NTK.unflatten(1, (B, H)).permute(1, 3, 0, 2, 4)
        return dbias, None, *(d_NTK.unflatten(0, (B, H)).transpose(1, 2) for d_NTK in d_3NTK)


def _by_head(x_BTHK: Tensor, dtype: torch.dtype) -> Tensor:
    """A copy of `x`, [N, T, K], its numbers side by side."""
    x_BHTK = x_BTHK.transpose(1, 2)
    return torch.empty(x_BHTK.shape, dtype=dtype).copy_(x_BHTK).flatten(0, 1)


def _blocks(length: int) -> list[tuple[int, int]]:
    return [(begin, min(begin + BLOCK, length)) for begin in range(0, length, BLOCK)]
