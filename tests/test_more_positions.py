"""The further schemes, in float64, against their formulas written out loop by loop."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from trained import make_scheme

from rope_lab.model.attention import softmax_attention
from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.model.more_positions import CayleyString, HeadBases, KerpleLog, LeRoPE, RNoPE, SSMax
from rope_lab.model.positions import Randomized
from rope_lab.model.transformer import Transformer
from rope_lab.probe import changed

B, T, H, K = 2, 7, 3, 8
DIMS = Dims(d_model=H * K, n_heads=H, max_len=64)
POS = torch.tensor([0, 1, 2, 5, 100, 4096, 100_000])
Score = Callable[[int, int, int, Tensor, Tensor], float]  # of head, query's and key's position, query and key [K]


def numbers(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def learned(scheme: PositionScheme) -> PositionScheme:
    """In float64, with parameters that training may have led to."""
    scheme.double()
    with torch.no_grad():
        for number, parameter in enumerate(scheme.parameters()):
            parameter.copy_(numbers(*parameter.shape, seed=number) / 2)
    return scheme


def rotated(q_K: Tensor, k_K: Tensor, distance: int, theta: list[float]) -> float:
    """q R(distance · θ) k, neighbours a pair."""
    total = 0.0
    for j, frequency in enumerate(theta):
        (a, b), (c, d) = q_K[2 * j : 2 * j + 2].tolist(), k_K[2 * j : 2 * j + 2].tolist()
        cos, sin = math.cos(distance * frequency), math.sin(distance * frequency)
        total += a * (c * cos - d * sin) + b * (c * sin + d * cos)
    return total


def rope(base: float) -> list[float]:
    return [base ** (-2 * j / K) for j in range(K // 2)]


def assert_scores(scheme: PositionScheme, score: Score) -> None:
    """Its attention is softmax(score / √K) over the keys up to each query, values as they are."""
    qkv = numbers(B, T, 3, H, K)
    q, k, v = qkv.unbind(2)
    at = scheme.prepare(POS, torch.float64)
    heads = scheme.heads(qkv, scheme.with_keys(at, torch.arange(1, T + 1)))
    made = scheme.output(softmax_attention(heads, scheme.bias(at, at)), at)
    for b in range(B):
        for h in range(H):
            for n in range(T):
                scores = [score(h, int(POS[n]), int(POS[i]), q[b, n, h], k[b, i, h]) for i in range(n + 1)]
                weights = (torch.tensor(scores, dtype=torch.float64) / K**0.5).softmax(0)
                torch.testing.assert_close(made[b, n, h], weights @ v[b, : n + 1, h], rtol=0, atol=1e-9)


def test_kerple_log_is_its_formula():
    scheme, r1, r2 = KerpleLog(DIMS).double(), [0.5, 1.0, 2.0], [0.3, 0.1, 0.7]
    with torch.no_grad():
        scheme.r1_H11.copy_(torch.tensor([0.5, -1.0, 2.0]).view(H, 1, 1))
        scheme.r2_H11.copy_(torch.tensor([-0.3, 0.1, 0.7], dtype=torch.float64).view(H, 1, 1))
        bias = scheme.bias(POS, POS)
    assert bias.shape == (H, T, T)
    for h in range(H):
        for n in range(T):
            for i in range(n + 1):
                expected = -r1[h] * math.log(1 + r2[h] * int(POS[n] - POS[i]))
                assert bias[h, n, i].item() == pytest.approx(expected, abs=1e-12)


def test_kerple_log_begins_as_its_authors_do():
    scheme = KerpleLog(Dims(8 * 1000, 1000, 8))
    for r, most in ((scheme.r1_H11, 2), (scheme.r2_H11, 1)):
        assert 0 <= r.min() < 0.01 * most
        assert 0.99 * most < r.max() < most


def test_lerope_is_its_formula():
    scheme = learned(LeRoPE(DIMS, base=500.0))
    theta = [math.exp(a) * f for a, f in zip(scheme.alpha_C.tolist(), rope(500.0), strict=True)]
    assert_scores(scheme, lambda h, n, i, q, k: rotated(q, k, i - n, theta))


def test_each_head_has_its_base():
    scheme = HeadBases(DIMS, base=100.0, last_base=1_000_000.0)
    assert_scores(scheme, lambda h, n, i, q, k: rotated(q, k, i - n, rope([1e2, 1e4, 1e6][h])))


def test_cayley_string_is_its_formula():
    scheme = learned(CayleyString(DIMS))
    bases = []
    for a in scheme.a_HKK.detach():
        s, one = a - a.T, torch.eye(K, dtype=torch.float64)
        bases.append((one - s) @ torch.linalg.inv(one + s))
        torch.testing.assert_close(bases[-1] @ bases[-1].T, one, rtol=0, atol=1e-12)
        assert (bases[-1] - one).abs().max() > 0.3
    assert_scores(scheme, lambda h, n, i, q, k: rotated(bases[h] @ q, bases[h] @ k, i - n, rope(10_000.0)))


def test_ssmax_is_its_formula():
    scheme = learned(SSMax(DIMS))
    s, keys = scheme.s_H.tolist(), {int(n): index + 1 for index, n in enumerate(POS)}
    assert_scores(scheme, lambda h, n, i, q, k: s[h] * math.log(keys[n]) * rotated(q, k, i - n, rope(10_000.0)))


def test_ssmax_begins_where_its_author_does():
    """Also where its positions are random ones of more."""
    dims = Dims(H * K, H, 1024)
    for scheme in (SSMax(dims), Randomized(dims, SSMax, longest=4096).scheme):
        assert scheme.s_H.tolist() == pytest.approx([0.168] * H, abs=5e-4)


def test_ssmax_counts_keys_under_random_positions_too():
    """The n-th query is multiplied by s ln n, wherever it stands: it is RoPE's at the same positions times that."""
    scheme, plain, qkv = Randomized(DIMS, SSMax), make_scheme("rope", DIMS), numbers(B, T, 3, H, K)
    at = scheme.with_keys(scheme.prepare(torch.arange(T), torch.float64), torch.arange(1, T + 1))
    made, expected = (s.heads(qkv, a) for s, a in ((scheme, at), (plain, plain.prepare(scheme.drawn[:T], at[0].dtype))))
    factor_T = scheme.scheme.s_H[0].item() * torch.arange(1, T + 1).double().log()
    torch.testing.assert_close(made[:, :, 0], expected[:, :, 0] * factor_T[:, None, None])
    torch.testing.assert_close(made[:, :, 1:], expected[:, :, 1:], rtol=0, atol=0)


@pytest.mark.parametrize(("every", "with_rope"), [(2, [0, 2]), (3, [0, 1]), (4, [0, 1, 2])])
def test_rnope_is_rope_and_none_layer_by_layer(every, with_rope):
    rope_, none = make_scheme("rope", DIMS), make_scheme("none", DIMS)
    model = Transformer(11, "softmax", H * K, 4 - (every < 4), H, "pre", "pytorch", 0.0, RNoPE(DIMS, every)).double()
    tokens, at = torch.arange(10).view(2, 5), rope_.prepare(torch.arange(5), torch.float64)
    x = model.embedding(tokens)
    for number, layer in enumerate(model.layers):
        x = layer(x, rope_ if number in with_rope else none, at, None, None)
    torch.testing.assert_close(model(tokens), model.unembedding(model.norm(x)), rtol=0, atol=1e-12)


def test_random_positions_and_probes_leave_its_layers_as_they_are():
    tokens, pos = torch.arange(10).view(2, 5), torch.arange(5)
    torch.manual_seed(0)
    model = Transformer(11, "softmax", H * K, 2, H, "pre", "pytorch", 0.0, RNoPE(DIMS)).double()
    expected = model(tokens, 3 + pos)
    model.position, _ = changed("shift=3", model)
    assert torch.equal(model(tokens), expected)
    model.position = Randomized(DIMS, RNoPE, longest=64)
    drawn = model.position.drawn[:5]
    random = model(tokens)
    model.position = RNoPE(DIMS)
    assert torch.equal(random, model(tokens, drawn))


@pytest.mark.parametrize("name", ["lerope", "cayley_string"])
def test_what_is_learned_begins_as_rope(name):
    qkv, scheme, plain = numbers(B, T, 3, H, K), make_scheme(name, DIMS).double(), make_scheme("rope", DIMS)
    made, expected = (s.heads(qkv, s.prepare(POS, torch.float64)) for s in (scheme, plain))
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["kerple_log", "lerope", "cayley_string", "ssmax", "pope", "fire", "t5_bias"])
def test_gradients(name):
    """Of queries, keys and values, and of what is learned."""
    scheme, qkv, pos = learned(make_scheme(name, DIMS)), numbers(1, 4, 3, H, K).requires_grad_(), POS[:4]

    def attention(qkv: Tensor, *_: Tensor) -> Tensor:
        at = scheme.with_keys(scheme.prepare(pos, torch.float64), torch.arange(1, 5))
        return softmax_attention(scheme.heads(qkv, at), scheme.bias(at, at))

    assert torch.autograd.gradcheck(attention, (qkv, *scheme.parameters()), fast_mode=True)


def test_a_window_may_be_a_share_of_the_training_length():
    """Of the tokens of a text, on random positions too."""
    assert [RNoPE(DIMS, window=window).window for window in (0.25, 0.001, 3)] == [DIMS.max_len // 4, 1, 3]
    random = Randomized(DIMS, lambda dims: RNoPE(dims, window=0.25), longest=20 * DIMS.max_len)
    assert random.in_layer(0).window == DIMS.max_len // 4
