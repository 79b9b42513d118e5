"""Causal attention: softmax(q kᵀ / √K + bias) v, each token seeing those up to itself.

Shape letters: B batch, T time, H heads, K head width; N = B · H.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 64  # queries that meet their keys at once on a CPU: keys that none of them may see are left out


def causal_attention(qkv_BT3HK: Tensor, bias: Tensor | None = None) -> Tensor:
    """What each head's queries find, [B, T, H, K]; `bias`, [H, T, T] or [B, H, T, T], is added to the scores."""
    if bias is not None:
        bias = bias.expand(*bias.shape[:-2], *2 * [qkv_BT3HK.shape[1]])
    return blockwise(qkv_BT3HK, bias) if qkv_BT3HK.device.type == "cpu" else fused(qkv_BT3HK, bias)


def fused(qkv_BT3HK: Tensor, bias: Tensor | None) -> Tensor:
    """The same by torch's own kernels."""
    q_BHTK, k_BHTK, v_BHTK = qkv_BT3HK.permute(2, 0, 3, 1, 4)
    if bias is not None:
        bias = bias.masked_fill(_future(bias.shape[-1], bias.device), -torch.inf).to(q_BHTK.dtype)
    o_BHTK = F.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, attn_mask=bias, is_causal=bias is None)
    return o_BHTK.transpose(1, 2)


@torch.compiler.disable
def blockwise(qkv_BT3HK: Tensor, bias: Tensor | None) -> Tensor:
    """The same on a CPU, where torch's own kernel takes up to twice as long, forward and backward.

    Under autocast scores and their softmax stay in float32; the other products, backward too, are taken in bfloat16.
    """
    low = qkv_BT3HK.dtype
    if torch.is_autocast_enabled("cpu") and low != torch.float64:
        low = torch.get_autocast_dtype("cpu")
    with torch.autocast("cpu", enabled=False):
        return Blockwise.apply(qkv_BT3HK, bias, low)


class Blockwise(torch.autograd.Function):
    """P = softmax(S), S = q kᵀ / √K + bias, o = P v, for one block of queries after the other.

    Backward, from do: dv = Pᵀ do, dP = do vᵀ, dS = P ∘ (dP − rowsum(P ∘ dP)), dq = dS k / √K, dk = dSᵀ q / √K.
    """

    @staticmethod
    def forward(ctx, qkv_BT3HK: Tensor, bias: Tensor | None, low: torch.dtype) -> Tensor:
        B, T, _, H, K = qkv_BT3HK.shape
        wide = torch.promote_types(qkv_BT3HK.dtype, torch.float32)
        qkv = torch.empty(3, B, H, T, K, dtype=wide).copy_(qkv_BT3HK.permute(2, 0, 3, 1, 4)).flatten(1, 2)
        qkv[0] *= K**-0.5
        q_NTK, k_NTK, _ = qkv
        qkv_low = qkv.to(low)
        o_NTK, v_NTK = torch.empty_like(qkv_low[2]), qkv_low[2]
        probabilities = []
        for begin, end in _blocks(T):
            scores = torch.bmm(q_NTK[:, begin:end], k_NTK[:, :end].transpose(1, 2))
            if bias is not None:
                scores.unflatten(0, (B, H)).add_(bias[..., begin:end, :end])
            scores[:, :, begin:].masked_fill_(_future(end - begin), -torch.inf)
            probabilities.append(scores.softmax(-1).to(low))
            torch.bmm(probabilities[-1], v_NTK[:, :end], out=o_NTK[:, begin:end])
        ctx.save_for_backward(qkv_low, bias, *probabilities)
        return o_NTK.unflatten(0, (B, H)).transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx, do_BTHK: Tensor):
        (q_NTK, k_NTK, v_NTK), bias, *probabilities = ctx.saved_tensors
        B, T, H, K = do_BTHK.shape
        do_NTK = do_BTHK.transpose(1, 2).flatten(0, 1).to(q_NTK.dtype)
        d_3NTK = torch.zeros(3, B * H, T, K, dtype=q_NTK.dtype)
        dq_NTK, dk_NTK, dv_NTK = d_3NTK
        dbias = None if bias is None or not ctx.needs_input_grad[1] else torch.zeros_like(bias)
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
        return d_3NTK.unflatten(1, (B, H)).permute(1, 3, 0, 2, 4), dbias, None


def _blocks(length: int) -> list[tuple[int, int]]:
    return [(begin, min(begin + BLOCK, length)) for begin in range(0, length, BLOCK)]


def _future(length: int, device: torch.device | None = None) -> Tensor:
    """Where a key comes after its query, bool [T, T]."""
    return torch.ones(length, length, dtype=torch.bool, device=device).triu(1)
