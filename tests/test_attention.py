"""Causal attention: every implementation agrees with the formula or with another one, forward and
backward.
"""

import pytest
import torch
import torch.nn.functional as F

from rope_lab.model import attention
from rope_lab.model.attention import (
    KVCache,
    LinearAttentionState,
    fused,
    linear_attention,
    positive,
    softmax_attention,
)
from rope_lab.model.cpu_attention import BLOCK, blockwise

B, H, K = 2, 3, 4
# Of queries, keys and values, if separate.
WIDTHS = {
    "packed": None,
    "wider": (2 * K, 2 * K, K),
    "narrower": (2, 2, K),
}


def make_heads(
    length: int, widths: tuple[int, ...] | None
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """Random queries, keys and values, float64: packed, or each with its own width."""
    shapes = (
        [(B, length, 3, H, K)] if widths is None else [(B, length, H, width) for width in widths]
    )
    made = tuple(torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    return made[0] if widths is None else made


def make_bias(kind: str, length: int) -> torch.Tensor | None:
    batch = {
        "rows": (B, H, length, length),
        "keys": (B, H, 1, length),
        "queries": (B, 1, length, 1),
    }
    shape = {"none": None, "heads": (H, length, length)}.get(kind, batch.get(kind))
    return None if shape is None else torch.randn(shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("widths", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("kind", ["none", "heads", "rows", "keys", "queries"])
@pytest.mark.parametrize("length", [1, BLOCK, BLOCK + 1, 2 * BLOCK + 17])
def test_the_cpu_path_agrees_with_the_reference_forward_and_backward(length, kind, widths):
    torch.manual_seed(length)
    qkv = make_heads(length, widths)
    bias, weights = make_bias(kind, length), torch.randn(B, length, H, K, dtype=torch.float64)
    leaves = [*(qkv if widths else [qkv]), *([] if bias is None else [bias])]
    before = [leaf.detach().clone() for leaf in leaves]
    results = [
        (o, *torch.autograd.grad((o * weights).sum(), leaves))
        for o in (blockwise(qkv, bias), fused(qkv, bias))
    ]
    for ours, theirs in zip(*results, strict=True):
        assert ours.shape == theirs.shape
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    assert all(map(torch.equal, leaves, before))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # from torch.compile itself
def test_torch_compile_takes_the_cpu_path_without_a_graph_break():
    """In bfloat16; test_content.py compiles whole layers in float32."""
    torch.manual_seed(0)
    qkv = make_heads(BLOCK + 3, None).detach().float().requires_grad_()
    bias, results = torch.randn(H, BLOCK + 3, BLOCK + 3, requires_grad=True), []
    for attend in (blockwise, torch.compile(blockwise, fullgraph=True, backend="aot_eager")):
        with torch.autocast("cpu", torch.bfloat16):
            o = attend(qkv, bias)
        assert o.dtype == torch.bfloat16
        results.append((o, *torch.autograd.grad(o.float().square().sum(), (qkv, bias))))
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("kind", ["none", "heads", "keys"])
@pytest.mark.parametrize("window", [1, 3, 70, 1000])
def test_a_window_is_the_last_keys_of_each_query(window, kind):
    """Also if tokens are read in parts, with a KV cache."""
    torch.manual_seed(0)
    qkv, bias = make_heads(70, None).detach(), make_bias(kind, 70)
    q, k, v = qkv.unbind(2)
    scores = torch.einsum("bnhk,bihk->bhni", q, k) / K**0.5 + (0 if bias is None else bias)
    distance = torch.arange(70)[:, None] - torch.arange(70)
    weights = scores.masked_fill((distance < 0) | (distance >= window), -torch.inf).softmax(-1)
    expected = torch.einsum("bhni,bihk->bnhk", weights, v)
    torch.testing.assert_close(
        softmax_attention(qkv, bias, None, window), expected, rtol=0, atol=1e-12
    )
    cache, parts = KVCache(*(torch.zeros(B, H, 70, K, dtype=torch.float64) for _ in range(2))), []
    for begin, end in ((0, 5), (5, 68), (68, 69), (69, 70)):
        part = (
            None
            if bias is None
            else bias[..., begin if kind == "heads" else 0 :, :end][..., : end - begin, :]
        )
        parts.append(softmax_attention(qkv[:, begin:end], part, cache, window))
    torch.testing.assert_close(torch.cat(parts, dim=1), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("window", [None, 5])
def test_large_biases_of_keys_survive_bfloat16(window):
    """Biases near 1,000 differ by 0.5 from key to key; there bfloat16 resolves only steps of 4."""
    q = k = torch.zeros(1, 8, 1, K, dtype=torch.bfloat16)
    v = torch.eye(8, dtype=torch.bfloat16)[None, :, None, :]
    bias = (1000 + 0.5 * torch.arange(8)).view(1, 1, 1, 8)
    cache = KVCache(
        torch.zeros(1, 1, 8, K, dtype=torch.bfloat16), torch.zeros(1, 1, 8, 8, dtype=torch.bfloat16)
    )
    for begin, end in ((0, 6), (6, 8)):
        o = softmax_attention([x[:, begin:end] for x in (q, k, v)], bias[..., :end], cache, window)
    expected = (
        (0.5 * torch.arange(8))
        .masked_fill(torch.arange(8) < 8 - (window or 8), -torch.inf)
        .softmax(0)
    )
    torch.testing.assert_close(o[0, -1, 0].float(), expected, rtol=0.02, atol=0)


def test_under_autocast_the_scores_stay_in_float32():
    """Scores near 300 differ by 0.5, which bfloat16 would round away."""
    qkv = torch.zeros(1, 2, 3, 1, K)
    qkv[0, 1, 0, 0, 0], qkv[0, :, 1, 0, 0] = 20.0, torch.tensor([30.0, 30.05])
    qkv[0, :, 2, 0, 0] = torch.tensor([0.0, 1.0])
    with torch.autocast("cpu", torch.bfloat16):
        o = blockwise(qkv, None)
    assert o.dtype == torch.bfloat16
    assert o[0, 1, 0, 0].item() == pytest.approx(torch.tensor(0.5).sigmoid().item(), rel=0.01)


def transformed(qkv: torch.Tensor) -> torch.Tensor:
    """Multiply each token's queries, keys and values by random matrices, as a position scheme
    might.
    """
    matrices = torch.randn(
        qkv.shape[1], 3, 1, K, K, generator=torch.Generator().manual_seed(7), dtype=torch.float64
    )
    return (matrices @ qkv.unsqueeze(-1)).squeeze(-1)


def quadratic(rotated: torch.Tensor, plain: torch.Tensor) -> torch.Tensor:
    """The formula of linear attention, token by token."""
    (q, k, v), (phi_q, phi_k, _) = rotated.unbind(2), plain.unbind(2)
    o = torch.zeros_like(v)
    for n in range(o.shape[1]):
        above = sum((q[:, n] * k[:, i]).sum(-1, keepdim=True) * v[:, i] for i in range(n + 1))
        below = sum((phi_q[:, n] * phi_k[:, i]).sum(-1, keepdim=True) for i in range(n + 1))
        o[:, n] = above / below
    return o


def elu_plus_one(qkv: torch.Tensor) -> torch.Tensor:
    """Applied to queries and keys only, not to values (Katharopoulos et al., 2020)."""
    q, k, v = qkv.unbind(2)
    return torch.stack([F.elu(q) + 1, F.elu(k) + 1, v], dim=2)


@pytest.mark.parametrize("length", [1, 8, 9, 35])
def test_linear_attention_is_its_formula(length, monkeypatch):
    """Lengths within a block, of a whole block and of several."""
    monkeypatch.setattr(attention, "BLOCK", 8)
    torch.manual_seed(length)
    raw = torch.randn(B, length, 3, H, K, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(B, length, H, K, dtype=torch.float64)
    results = []
    for attend, features in ((linear_attention, positive), (quadratic, elu_plus_one)):
        plain = features(raw)
        o = attend(transformed(plain), plain)
        results.append((o, *torch.autograd.grad((o * weights).sum(), raw)))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_linear_attention_of_very_negative_features_averages_values(dtype):
    qkv = torch.full((1, 3, 3, 1, 4), -30.0, dtype=dtype)
    qkv[0, :, 2] = torch.arange(3, dtype=dtype).view(3, 1, 1)
    plain = positive(qkv)
    with torch.autocast("cpu", torch.bfloat16):
        o = linear_attention(plain, plain)
    torch.testing.assert_close(o[0, :, 0, 0], torch.tensor([0.0, 0.5, 1.0]))


@pytest.mark.parametrize("steps", [[1] * 5, [64, 1, 1], [10, 100, 7]])
def test_linear_attention_with_state_equals_the_full_pass(steps):
    plain = positive(torch.randn(B, sum(steps), 3, H, K, dtype=torch.float64))
    whole, parts = transformed(plain), []
    cache = LinearAttentionState(
        *(torch.zeros(B, H, *shape, dtype=torch.float64) for shape in ((K, K), (K,)))
    )
    for n in steps:
        here = slice(cache.length, cache.length + n)
        parts.append(linear_attention(whole[:, here], plain[:, here], cache))
    torch.testing.assert_close(
        torch.cat(parts, dim=1), linear_attention(whole, plain), rtol=0, atol=1e-10
    )
