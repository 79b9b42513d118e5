"""Causal attention, each token seeing those up to itself: softmax attention and linear attention.

Either can go on from a memory of what was read before, where the T tokens at hand are the last of S.

Shape letters: B batch, T time (queries), S time (keys and values), H heads, K head width (of queries and keys it may be
another than of values), C chunks, N = B · H.
"""

import math
from dataclasses import dataclass
from typing import Protocol, Self

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

Heads = Tensor | tuple[Tensor, Tensor, Tensor]  # queries, keys, values: [B, T, 3, H, K], or each [B, T, H, own width]

BLOCK = 64  # queries that meet their keys at once: on a CPU in softmax attention, everywhere in linear attention


class Memory(Protocol):
    """What one layer keeps of the `length` tokens that it has read."""

    length: int

    def rows(self, chosen_B: Tensor) -> Self:
        """That of some of its rows, bool [B]."""
        ...

    @property
    def nbytes(self) -> int: ...


@dataclass
class KeysAndValues:
    """The memory of softmax attention: `length` keys and values, in buffers with room for more, [B, H, slots, K].

    Keys as a scheme has made them, with its width for them.
    """

    k_BHSK: Tensor
    v_BHSK: Tensor
    length: int = 0

    def add(self, k_BTHK: Tensor, v_BTHK: Tensor) -> tuple[Tensor, Tensor]:
        """Puts T more into their slots; all so far."""
        begin, self.length = self.length, self.length + k_BTHK.shape[1]
        self.k_BHSK[:, :, begin : self.length] = k_BTHK.transpose(1, 2)
        self.v_BHSK[:, :, begin : self.length] = v_BTHK.transpose(1, 2)
        return self.k_BHSK[:, :, : self.length], self.v_BHSK[:, :, : self.length]

    def rows(self, chosen_B: Tensor) -> "KeysAndValues":
        return KeysAndValues(self.k_BHSK[chosen_B], self.v_BHSK[chosen_B], self.length)

    @property
    def nbytes(self) -> int:
        return self.k_BHSK.nbytes + self.v_BHSK.nbytes


@dataclass
class Sums:
    """The memory of linear attention: Σᵢ k̃ᵢ ṽᵢᵀ, [B, H, K, K], and Σᵢ φ(kᵢ), [B, H, K]; it does not grow."""

    kv_BHKK: Tensor
    k_BHK: Tensor
    length: int = 0

    def rows(self, chosen_B: Tensor) -> "Sums":
        return Sums(self.kv_BHKK[chosen_B], self.k_BHK[chosen_B], self.length)

    @property
    def nbytes(self) -> int:
        return self.kv_BHKK.nbytes + self.k_BHK.nbytes


def unpacked(heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, [B, T, H, K] each."""
    return heads.unbind(2) if isinstance(heads, Tensor) else heads


def softmax_attention(heads: Heads, bias: Tensor | None = None, memory: KeysAndValues | None = None) -> Tensor:
    """softmax(q kᵀ / √K + bias) v, [B, T, H, K], K the width of values; `bias`, [H, T, S], is added to the scores."""
    q_BTHK, k_BTHK, v_BTHK = unpacked(heads)
    T, read = v_BTHK.shape[1], 0 if memory is None else memory.length
    if bias is not None:
        bias = bias.expand(*bias.shape[:-2], T, read + T)
    if memory is not None:
        k_BHSK, v_BHSK = memory.add(k_BTHK, v_BTHK)
    if not read:
        return blockwise(heads, bias) if v_BTHK.device.type == "cpu" else fused(heads, bias)
    with torch.autocast(q_BTHK.device.type, enabled=False):
        return scaled_dot_product(q_BTHK.transpose(1, 2).to(k_BHSK.dtype), k_BHSK, v_BHSK, bias)


def fused(heads: Heads, bias: Tensor | None) -> Tensor:
    """The same by torch's own kernels."""
    return scaled_dot_product(*(x_BTHK.transpose(1, 2) for x_BTHK in unpacked(heads)), bias)


def scaled_dot_product(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, bias: Tensor | None) -> Tensor:
    """torch's own kernels, told that the T queries are the last of S and that scores are divided by √K of values."""
    T, S = q_BHTK.shape[2], k_BHSK.shape[2]
    causal = bias is None and T == S
    if not causal and T > 1:
        bias = (torch.zeros(T, S, device=q_BHTK.device) if bias is None else bias).masked_fill(
            _future(T, S, q_BHTK.device), -torch.inf
        )
    mask = None if bias is None else bias.to(q_BHTK.dtype)
    o_BHTK = F.scaled_dot_product_attention(
        q_BHTK, k_BHSK, v_BHSK, attn_mask=mask, is_causal=causal, scale=1 / math.sqrt(v_BHSK.shape[-1])
    )
    return o_BHTK.transpose(1, 2)


@torch.compiler.disable
def blockwise(heads: Heads, bias: Tensor | None) -> Tensor:
    """The same on a CPU, where torch's own kernel takes up to twice as long, forward and backward.

    Under autocast scores and their softmax stay in float32; the other products, backward too, are taken in bfloat16.
    """
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
        q_BTHK, k_BTHK, v_BTHK = unpacked(heads[0] if len(heads) == 1 else heads)
        B, T, H, K = v_BTHK.shape
        wide = torch.promote_types(q_BTHK.dtype, torch.float32)
        q_NTK, k_NTK, v_NTK = _by_head(q_BTHK, wide), _by_head(k_BTHK, wide), _by_head(v_BTHK, low)
        q_NTK *= K**-0.5
        o_NTK, probabilities = torch.empty_like(v_NTK), []
        for begin, end in _blocks(T):
            scores = torch.bmm(q_NTK[:, begin:end], k_NTK[:, :end].transpose(1, 2))
            if bias is not None:
                scores.unflatten(0, (B, H)).add_(bias[..., begin:end, :end])
            scores[:, :, begin:].masked_fill_(_future(end - begin, end - begin), -torch.inf)
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


def positive(qkv_BT3HK: Tensor) -> Tensor:
    """φ(x) = elu(x) + 1 of queries and keys, values as they are (Katharopoulos et al., 2020), in float32 or wider."""
    x = qkv_BT3HK[:, :, :2].to(torch.promote_types(qkv_BT3HK.dtype, torch.float32))
    phi = x.clamp(max=0).exp() + x.clamp(min=0)  # elu(x) + 1 itself is 0 from x = −17 on, and a sum of zeros divides
    return torch.cat([phi, qkv_BT3HK[:, :, 2:]], dim=2)


def linear_attention(turned_BT3HK: Tensor, positive_BT3HK: Tensor, memory: Sums | None = None) -> Tensor:
    """oₙ = Σᵢ (q̃ₙᵀ k̃ᵢ) ṽᵢ / Σᵢ φ(qₙ)ᵀ φ(kᵢ), i ≤ n, [B, T, H, K] (Su et al., 2021, equation 19).

    φ(q) and φ(k) are in `positive`; q̃, k̃ and ṽ, what a scheme has turned these and the values into, are in `turned`.
    The numerator is Σ over the tokens of a block, as a product masked like softmax attention, and q̃ₙᵀ Σ k̃ᵢ ṽᵢᵀ over all
    blocks before it: time and memory grow in proportion to T. In float32 or wider, autocast or not.
    """
    T = turned_BT3HK.shape[1]
    dtype = torch.promote_types(turned_BT3HK.dtype, torch.float32)
    with torch.autocast(turned_BT3HK.device.type, enabled=False):
        block = min(BLOCK, T)
        padded = F.pad(turned_BT3HK.to(dtype), (0, 0, 0, 0, 0, 0, 0, -T % block))
        q, k, v = padded.permute(2, 0, 3, 1, 4).unflatten(3, (-1, block))  # [B, H, C, block, K] each
        of_block = k.transpose(-1, -2) @ v
        begin = torch.zeros_like(of_block[:, :, 0]) if memory is None else memory.kv_BHKK
        before = torch.cat([begin.unsqueeze(2), of_block[:, :, :-1]], dim=2).cumsum(dim=2)
        o_BTHK = ((q @ k.transpose(-1, -2)).tril() @ v + q @ before).flatten(2, 3)[:, :, :T].transpose(1, 2)

        phi_q, phi_k = positive_BT3HK[:, :, :2].to(dtype).unbind(2)
        sum_BTHK = phi_k.cumsum(dim=1)
        if memory is not None:
            sum_BTHK = sum_BTHK + memory.k_BHK.unsqueeze(1)
            memory.kv_BHKK, memory.k_BHK = before[:, :, -1] + of_block[:, :, -1], sum_BTHK[:, -1]
            memory.length += T
        return o_BTHK / (phi_q * sum_BTHK).sum(-1, keepdim=True)


def _by_head(x_BTHK: Tensor, dtype: torch.dtype) -> Tensor:
    """A copy of `x`, [N, T, K], its numbers side by side."""
    x_BHTK = x_BTHK.transpose(1, 2)
    return torch.empty(x_BHTK.shape, dtype=dtype).copy_(x_BHTK).flatten(0, 1)


def _blocks(length: int) -> list[tuple[int, int]]:
    return [(begin, min(begin + BLOCK, length)) for begin in range(0, length, BLOCK)]


def _future(T: int, S: int, device: torch.device | None = None) -> Tensor:
    """Where a key comes after its query, for the last T queries of S: bool [T, S]."""
    return torch.ones(T, S, dtype=torch.bool, device=device).triu(S - T + 1)
