"""Causal attention, each token seeing those up to itself: softmax attention and linear attention.

Both support incremental decoding: with a cache of the tokens before them, the T tokens at hand are
the last of S.

Shape letters: B batch, T time (queries), S time (keys and values), H heads, K head width (of
queries and keys it may be another than of values), C blocks.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from rope_lab.model.cache import KVCache, LinearAttentionState
from rope_lab.model.cpu_attention import blockwise, is_faster
from rope_lab.model.rotation import wide

# Queries, keys and values: one tensor [B, T, 3, H, K], or three [B, T, H, width].
Heads = Tensor | tuple[Tensor, Tensor, Tensor]

BLOCK = 64  # queries of linear attention that meet their keys at once


def unpacked(heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, [B, T, H, K] each."""
    return heads.unbind(2) if isinstance(heads, Tensor) else heads


def softmax_attention(
    heads: Heads,
    bias: Tensor | None = None,
    cache: KVCache | None = None,
    window: int | None = None,
    sink: Tensor | None = None,
) -> Tensor:
    """softmax(q kᵀ / √K + bias) v, [B, T, H, K], K the width of values.

    bias: added to the scores, broadcastable to [H, T, S] or [B, H, T, S]
    window: how many last tokens a query sees, its own included; None: all
    sink: [H], the logarithm of a number that is added to the denominator of each head's softmax
    """
    q_BTHK, k_BTHK, v_BTHK = unpacked(heads)
    T = v_BTHK.shape[1]
    read = 0 if cache is None else cache.length
    if window is not None and read + T > window:  # −∞ for keys outside a query's window
        far_1TS = torch.ones(1, T, read + T, dtype=torch.bool, device=v_BTHK.device).tril(
            read - window
        )
        if bias is None:
            bias = torch.zeros(1, 1, 1, device=v_BTHK.device)
        elif T > 1 or sink is None:  # of one query a sink does not ignore a constant
            bias = relative(bias, T)
        bias = torch.where(far_1TS, -torch.inf, bias)
    if cache is not None:
        k_BHSK, v_BHSK = cache.add(k_BTHK, v_BTHK)
    if sink is not None:
        if cache is None:
            k_BHSK, v_BHSK = k_BTHK.transpose(1, 2), v_BTHK.transpose(1, 2)
        return with_sink(q_BTHK.transpose(1, 2), k_BHSK, v_BHSK, bias, sink)
    if not read:
        return blockwise(heads, bias) if is_faster(q_BTHK, v_BTHK, bias) else fused(heads, bias)
    with torch.autocast(q_BTHK.device.type, enabled=False):
        return scaled_dot_product(q_BTHK.transpose(1, 2).to(k_BHSK.dtype), k_BHSK, v_BHSK, bias)


def with_sink(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, bias: Tensor | None, sink_H: Tensor
) -> Tensor:
    """Softmax attention of T queries, the last of S keys, with a key before all others, whose score
    is the sink and whose value is 0: [B, T, H, K].
    """
    T, S, H = q_BHTK.shape[2], k_BHSK.shape[2], len(sink_H)
    if T > 1:  # one row for several queries lacks a constant, which the sink does not ignore
        bias = relative(bias, T)
    if bias is None:
        bias = sink_H.new_zeros(1, 1, 1)
    rows = torch.broadcast_shapes(bias.shape[:-2], (H,))
    sink_HT1 = sink_H.view(-1, 1, 1).expand(*rows, T, 1)
    wider = torch.promote_types(sink_H.dtype, bias.dtype)
    bias = torch.cat([sink_HT1.to(wider), bias.expand(*rows, T, S).to(wider)], dim=-1)
    k_BHSK, v_BHSK = F.pad(k_BHSK, (0, 0, 1, 0)), F.pad(v_BHSK, (0, 0, 1, 0))
    with torch.autocast(q_BHTK.device.type, enabled=False):
        q_BHTK = q_BHTK.to(k_BHSK.dtype)
        return scaled_dot_product(q_BHTK, k_BHSK, v_BHSK.to(k_BHSK.dtype), bias)


def relative(bias: Tensor | None, T: int) -> Tensor | None:
    """`bias`; if one row serves all T queries, less its value at a query's own key: so large sums
    survive bfloat16.
    """
    if bias is None or not bias.shape[-2] == 1 < bias.shape[-1]:
        return bias
    return bias - bias[..., 0, -T:].unsqueeze(-1)  # softmax ignores a constant


def fused(heads: Heads, bias: Tensor | None) -> Tensor:
    """Softmax attention of T queries and as many keys by torch's own kernels."""
    return scaled_dot_product(*(x_BTHK.transpose(1, 2) for x_BTHK in unpacked(heads)), bias)


def scaled_dot_product(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, bias: Tensor | None
) -> Tensor:
    """By torch's kernels, [B, T, H, K]: the T queries are the last of S; scores are divided by √K,
    K that of values.
    """
    T, S = q_BHTK.shape[2], k_BHSK.shape[2]
    causal = bias is None and T == S
    bias = relative(bias, T)
    if bias is not None:
        bias = bias.expand(*bias.shape[:-2], T, S)
    if not causal and T > 1:
        future_TS = torch.ones(T, S, dtype=torch.bool, device=q_BHTK.device).triu(S - T + 1)
        bias = (torch.zeros(T, S, device=q_BHTK.device) if bias is None else bias).masked_fill(
            future_TS, -torch.inf
        )
    mask = None if bias is None else bias.to(q_BHTK.dtype)
    o_BHTK = F.scaled_dot_product_attention(
        q_BHTK,
        k_BHSK,
        v_BHSK,
        attn_mask=mask,
        is_causal=causal,
        scale=1 / math.sqrt(v_BHSK.shape[-1]),
    )
    return o_BHTK.transpose(1, 2)


def weighted_values(
    scores_BHTS: Tensor,
    v_BHSK: Tensor,
    bias: Tensor | None,
    window: int | None,
    sink: Tensor | None = None,
) -> Tensor:
    """Σ softmax(scores + bias) v over the keys up to each query, or its last `window`: [B, T, H,
    K]. `sink` as in `softmax_attention`.
    """
    return (weights(scores_BHTS, bias, window, sink) @ v_BHSK).transpose(1, 2)


def weights(
    scores_BHTS: Tensor, bias: Tensor | None, window: int | None, sink: Tensor | None = None
) -> Tensor:
    """softmax(scores + bias) over the keys up to each query, or its last `window`: [B, H, T, S].
    `sink` as in `softmax_attention`.
    """
    T, S = scores_BHTS.shape[-2:]
    scores_BHTS = scores_BHTS if bias is None else scores_BHTS + bias
    seen_TS = torch.ones(T, S, dtype=torch.bool, device=scores_BHTS.device).tril(S - T)
    if window is not None:
        seen_TS = seen_TS.triu(S - T - window + 1)
    scores_BHTS = scores_BHTS.masked_fill(~seen_TS, -torch.inf)
    if sink is not None:
        sink_H11 = sink.to(scores_BHTS.dtype).view(-1, 1, 1)
        sink_BHT1 = sink_H11.expand(*scores_BHTS.shape[:-1], 1)
        return torch.cat([scores_BHTS, sink_BHT1], dim=-1).softmax(-1)[..., :-1]
    return scores_BHTS.softmax(-1)


def positive(qkv_BT3HK: Tensor) -> Tensor:
    """φ(x) = elu(x) + 1 of queries and keys, values as they are (Katharopoulos et al., 2020), in
    float32 or wider.
    """
    x = qkv_BT3HK[:, :, :2].to(wide(qkv_BT3HK.dtype))
    # elu(x) + 1 would round to 0 below x = −17, and we divide by sums of it.
    phi = x.clamp(max=0).exp() + x.clamp(min=0)
    return torch.cat([phi, qkv_BT3HK[:, :, 2:]], dim=2)


def linear_attention(
    rotated_BT3HK: Tensor, positive_BT3HK: Tensor, cache: LinearAttentionState | None = None
) -> Tensor:
    """oₙ = Σᵢ (q̃ₙᵀ k̃ᵢ) ṽᵢ / Σᵢ φ(qₙ)ᵀ φ(kᵢ), i ≤ n, [B, T, H, K] (Su et al., 2021, equation 19).

    `positive` holds φ(q) and φ(k); `rotated` holds q̃, k̃ and ṽ: those and the values after the
    scheme's hook. The numerator is a masked product within a block and q̃ₙᵀ Σ k̃ᵢ ṽᵢᵀ over the
    blocks before it: time and memory grow in proportion to T. In float32 or wider, autocast or not.
    """
    T = rotated_BT3HK.shape[1]
    dtype = wide(rotated_BT3HK.dtype)
    with torch.autocast(rotated_BT3HK.device.type, enabled=False):
        block = min(BLOCK, T)
        padded = F.pad(rotated_BT3HK.to(dtype), (0, 0, 0, 0, 0, 0, 0, -T % block))
        # [B, H, C, block, K] each.
        q, k, v = padded.permute(2, 0, 3, 1, 4).unflatten(3, (-1, block))
        of_block = k.transpose(-1, -2) @ v
        begin = torch.zeros_like(of_block[:, :, 0]) if cache is None else cache.kv_BHKK
        before = torch.cat([begin.unsqueeze(2), of_block[:, :, :-1]], dim=2).cumsum(dim=2)
        o_BTHK = (
            ((q @ k.transpose(-1, -2)).tril() @ v + q @ before)
            .flatten(2, 3)[:, :, :T]
            .transpose(1, 2)
        )

        phi_q, phi_k = positive_BT3HK[:, :, :2].to(dtype).unbind(2)
        sum_BTHK = phi_k.cumsum(dim=1)
        if cache is not None:
            sum_BTHK = sum_BTHK + cache.k_BHK.unsqueeze(1)
            cache.kv_BHKK = before[:, :, -1] + of_block[:, :, -1]
            cache.k_BHK = sum_BTHK[:, -1]
            cache.length += T
        return o_BTHK / (phi_q * sum_BTHK).sum(-1, keepdim=True)
