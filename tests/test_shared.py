"""Values that are keys, in float64, against their formulas written out loop by loop."""

import pytest
import torch
from trained import load, make_scheme

from rope_lab.model.attention import softmax_attention
from rope_lab.model.hooks import Dims
from rope_lab.train.trainer import build_model

B, T, H, K = 2, 6, 3, 8
DIMS = Dims(d_model=H * K, n_heads=H, max_len=64)


def rotation(n: int, rotated: int) -> torch.Tensor:
    """R(nθ) of the last `rotated` features, neighbours a pair, [K, K]."""
    matrix = torch.eye(K, dtype=torch.float64)
    for j in range(rotated // 2):
        angle = torch.tensor(n * 10_000.0 ** (-2 * j / rotated), dtype=torch.float64)
        a = K - rotated + 2 * j
        matrix[a : a + 2, a : a + 2] = torch.tensor([[angle.cos(), -angle.sin()], [angle.sin(), angle.cos()]])
    return matrix


@pytest.mark.parametrize("rotated", [K, 2])
@pytest.mark.parametrize(
    ("name", "of_value"),
    [("kv_shared", lambda i, n: i), ("kv_shared_back", lambda i, n: i - n), ("kv_unrotated", lambda i, n: 0)],
)
def test_the_output_is_the_explicit_sum_of_keys(name, of_value, rotated):
    """oₙ = Σᵢ aₙᵢ R(of_value · θ) kᵢ with the scores of RoPE."""
    scheme, pos = make_scheme(name, DIMS, f"position.fraction={rotated / K}"), torch.tensor([0, 1, 2, 7, 100, 4096])
    qk = torch.randn(B, T, 2, H, K, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    at = scheme.prepare(pos, torch.float64)
    made = scheme.output(softmax_attention(scheme.heads(qk, at)), at)
    q, k = qk.unbind(2)
    for n in range(T):
        keys = [k[:, i] @ rotation(int(pos[i] - pos[n]), rotated).T for i in range(n + 1)]
        weights = (torch.stack([(q[:, n] * key).sum(-1) for key in keys]) / K**0.5).softmax(0)
        values = [k[:, i] @ rotation(of_value(int(pos[i]), int(pos[n])), rotated).T for i in range(n + 1)]
        expected = sum(w[..., None] * value for w, value in zip(weights, values, strict=True))
        torch.testing.assert_close(made[:, n], expected, rtol=0, atol=1e-11)


def test_the_value_projection_is_absent_and_all_other_weights_are_those_of_rope():
    shared, rope = (build_model(load(f"position={name}", "seed=3"), 11) for name in ("kv_shared_back", "rope"))
    D, layers = rope.embedding.weight.shape[1], len(rope.layers)
    counts = [sum(p.numel() for p in model.parameters()) for model in (shared, rope)]
    assert counts[1] - counts[0] == layers * (D * D + D)
    ours, theirs = shared.state_dict(), rope.state_dict()
    for name, value in ours.items():
        assert torch.equal(value, theirs[name][: len(value)]), name
        assert value.shape == theirs[name].shape or ".qkv." in name
