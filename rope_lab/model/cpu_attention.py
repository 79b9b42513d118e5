"""Softmax attention on a CPU: the numbers of `attention.fused`, where torch's own kernel is slower.

Shape letters: B batch, T time (queries), S time (keys and values), H heads, K head width, N = B ·
H.
"""

import torch
from torch import Tensor, library
from torch.autograd.function import once_differentiable

BLOCK = 64  # queries that meet their keys at once
SMALL = 64 * 64  # numbers of a head's queries


def is_faster(q_BTHK: Tensor, v_BTHK: Tensor, bias: Tensor | None) -> bool:
    """Whether `blockwise` is faster than torch's own kernel: on a CPU, except for small heads in
    float32, no bias.
    """
    _, T, _, K = q_BTHK.shape
    low = v_BTHK.dtype == torch.bfloat16 or torch.is_autocast_enabled("cpu")
    # Torch's kernel takes heads of one width alone.
    small = T * K <= SMALL and v_BTHK.shape[-1] == K
    return v_BTHK.device.type == "cpu" and (low or bias is not None or not small)


def blockwise(heads: Tensor | tuple[Tensor, Tensor, Tensor], bias: Tensor | None) -> Tensor:
    """Causal softmax attention, [B, T, H, K], of `attention.Heads`; `bias` is added to the scores.

    bias: broadcastable to [H, T, T] or [B, H, T, T]; one in float64 that is a single row per head
        is taken relative to each query's own key

    Under autocast scores and their softmax stay in float32; the other products, backward too, are
    taken in bfloat16.
    """
    heads = (heads,) if isinstance(heads, Tensor) else heads
    low = heads[0].dtype
    if torch.is_autocast_enabled("cpu") and low != torch.float64:
        low = torch.get_autocast_dtype("cpu")
    with torch.autocast("cpu", enabled=False):
        return Blockwise.apply(bias, low, *heads)


class Blockwise(torch.autograd.Function):
    """P = softmax(S), S = q kᵀ / √K + bias, o = P v.

    Backward, from do: dv = Pᵀ do, dP = do vᵀ, dS = P ∘ (dP − rowsum(P ∘ dP)), dq = dS k / √K, dk =
                       dSᵀ q / √K.
    The heads are one packed tensor, whose gradient is one too, or three.
    """

    @staticmethod
    def forward(ctx, bias: Tensor | None, low: torch.dtype, *heads: Tensor) -> Tensor:
        function = forward_in_graph if torch.compiler.is_compiling() else forward
        o_NTK, *saved = function(list(heads), bias, low)
        ctx.packed = len(heads) == 1
        ctx.save_for_backward(bias, *saved)
        return o_NTK.unflatten(0, (-1, heads[0].shape[-2])).transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx, do_BTHK: Tensor):
        bias, *saved = ctx.saved_tensors
        wanted = bias is not None and ctx.needs_input_grad[0]
        H = do_BTHK.shape[2]
        function = backward_in_graph if torch.compiler.is_compiling() else backward
        d = function(do_BTHK, saved, bias if wanted else None, ctx.packed)
        dbias = d[-1] if wanted else None
        if ctx.packed:
            return dbias, None, d[0].unflatten(1, (-1, H)).permute(1, 3, 0, 2, 4)
        return dbias, None, *(d_NTK.unflatten(0, (-1, H)).transpose(1, 2) for d_NTK in d[:3])


def forward(heads: list[Tensor], bias: Tensor | None, low: torch.dtype) -> list[Tensor]:
    """The output, [N, T, K], and what `backward` needs: queries, keys and values, [N, T, K], and P
    of each block.
    """
    q_BTHK, k_BTHK, v_BTHK = heads[0].unbind(2) if len(heads) == 1 else heads
    B, T, H, K = v_BTHK.shape
    wide = torch.promote_types(q_BTHK.dtype, torch.float32)
    q_NTK, k_NTK, v_NTK = _by_head(q_BTHK, wide), _by_head(k_BTHK, wide), _by_head(v_BTHK, low)
    q_NTK *= K**-0.5
    o_NTK = torch.empty_like(v_NTK)
    probabilities = []
    bias_TT = None if bias is None else bias.expand(*bias.shape[:-2], T, T)
    # Added faster than filled in.
    future = torch.full((BLOCK, BLOCK), -torch.inf, dtype=wide).triu(1)
    for begin, end in _blocks(T):
        scores = torch.bmm(q_NTK[:, begin:end], k_NTK[:, :end].transpose(1, 2))
        if bias_TT is not None:
            block = bias_TT[..., begin:end, :end]
            if bias.shape[-2] == 1 and bias.dtype != wide:  # float64: subtract before rounding
                block = block - bias[..., 0, begin:end].unsqueeze(-1)
            scores.unflatten(0, (B, H)).add_(block)
        scores[:, :, begin:] += future[: end - begin, : end - begin]
        probabilities.append(scores.softmax(-1).to(low))
        _product(o_NTK[:, begin:end], probabilities[-1], v_NTK[:, :end], add=False)
    return [o_NTK, q_NTK.to(low), k_NTK.to(low), v_NTK, *probabilities]


def backward(
    do_BTHK: Tensor, saved: list[Tensor], bias: Tensor | None, packed: bool
) -> list[Tensor]:
    """The gradients of queries, keys and values, [N, T, K] each or [3, N, T, K], and of `bias` if
    it is given.
    """
    q_NTK, k_NTK, v_NTK, *probabilities = saved
    B, T, H, K = do_BTHK.shape
    do_NTK = do_BTHK.transpose(1, 2).flatten(0, 1).to(q_NTK.dtype)
    qkv = q_NTK, k_NTK, v_NTK
    d_3NTK = (
        v_NTK.new_empty(3, *v_NTK.shape) if packed else [torch.empty_like(x_NTK) for x_NTK in qkv]
    )
    dq_NTK, dk_NTK, dv_NTK = d_3NTK
    dbias = None if bias is None else torch.zeros_like(bias)
    for p, (begin, end) in zip(reversed(probabilities), reversed(_blocks(T)), strict=True):
        do = do_NTK[:, begin:end]
        q = q_NTK[:, begin:end]
        k_NSK = k_NTK[:, :end]
        v_NSK = v_NTK[:, :end]
        _product(dv_NTK[:, :end], p.transpose(1, 2), do, add=end < T)
        ds = torch._softmax_backward_data(torch.bmm(do, v_NSK.transpose(1, 2)), p, -1, p.dtype)
        _product(dq_NTK[:, begin:end], ds, k_NSK, add=False)
        _product(dk_NTK[:, :end], ds.transpose(1, 2), q, add=end < T)
        if dbias is not None:
            part = dbias[..., _own(begin, end, dbias.shape[-2]), _own(0, end, dbias.shape[-1])]
            part += ds.unflatten(0, (B, H)).sum_to_size(part.shape)
    dq_NTK *= K**-0.5
    return [*([d_3NTK] if packed else d_3NTK), *([] if dbias is None else [dbias])]


# as custom operators, which torch.compile leaves whole: else it would break its graph here, or take
# them apart
forward_in_graph = library.custom_op("rope_lab::attention", forward, mutates_args=())
backward_in_graph = library.custom_op("rope_lab::attention_backward", backward, mutates_args=())


@forward_in_graph.register_fake
def _(heads: list[Tensor], bias: Tensor | None, low: torch.dtype) -> list[Tensor]:
    q_BTHK, k_BTHK, v_BTHK = heads[0].unbind(2) if len(heads) == 1 else heads
    B, T, H, _ = v_BTHK.shape
    widths = (x_BTHK.shape[-1] for x_BTHK in (v_BTHK, q_BTHK, k_BTHK, v_BTHK))
    shapes = [
        *((B * H, T, K) for K in widths),
        *((B * H, end - begin, end) for begin, end in _blocks(T)),
    ]
    return [v_BTHK.new_empty(shape, dtype=low) for shape in shapes]


@backward_in_graph.register_fake
def _(do_BTHK: Tensor, saved: list[Tensor], bias: Tensor | None, packed: bool) -> list[Tensor]:
    qkv = saved[:3]
    d = (
        [torch.empty_like(torch.stack(qkv))]
        if packed
        else [torch.empty_like(x_NTK) for x_NTK in qkv]
    )
    return d if bias is None else [*d, torch.empty_like(bias)]


def _by_head(x_BTHK: Tensor, dtype: torch.dtype) -> Tensor:
    """A contiguous copy of `x`, [N, T, K]."""
    x_BHTK = x_BTHK.transpose(1, 2)
    return torch.empty(x_BHTK.shape, dtype=dtype).copy_(x_BHTK).flatten(0, 1)


def _product(out_NTK: Tensor, a_NTS: Tensor, b_NSK: Tensor, add: bool) -> None:
    """out = a b, or out += a b, avoiding torch's loop over N if `out` is strided and wider than
    bfloat16.
    """
    if out_NTK.is_contiguous() or out_NTK.dtype == torch.bfloat16:
        out_NTK.baddbmm_(a_NTS, b_NSK, beta=int(add))
    elif add:
        out_NTK += torch.bmm(a_NTS, b_NSK)
    else:
        out_NTK.copy_(torch.bmm(a_NTS, b_NSK))


def _own(begin: int, end: int, size: int) -> slice:
    """The part of a dimension of a bias that a block has: all of it if it is broadcast."""
    return slice(begin, end) if size > 1 else slice(None)


def _blocks(length: int) -> list[tuple[int, int]]:
    return [(begin, min(begin + BLOCK, length)) for begin in range(0, length, BLOCK)]
