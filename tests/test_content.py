"""Schemes in which content enters, in float64, against their formulas written out as explicit sums."""

import math
import re

import pytest
import torch
import torch.nn.functional as F
from conftest import SCHEMES
from test_readme import block
from torch import Tensor
from trained import make_scheme

from rope_lab.check import cached
from rope_lab.model import attention, content
from rope_lab.model.biases import Alibi
from rope_lab.model.cache import so_far
from rope_lab.model.content import SelectiveRoPE
from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.model.more_positions import RNoPE
from rope_lab.model.transformer import Transformer

B, T, H, K = 2, 7, 3, 8
D, LAYER = H * K, 1
DIMS = Dims(D, H, max_len=8, n_layers=2)


def numbers(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def learned(name: str) -> PositionScheme:
    """In float64, with parameters that training may have led to."""
    return as_trained(make_scheme(name, DIMS).double())


def as_trained(scheme: PositionScheme) -> PositionScheme:
    with torch.no_grad():
        for number, parameter in enumerate(scheme.parameters()):
            parameter.copy_(numbers(*parameter.shape, seed=number))
    return scheme


X, QKV = numbers(B, T, D, seed=8), numbers(B, T, 3, H, K, seed=9)


def attended(scheme: PositionScheme) -> Tensor:
    """The output hook's output in layer LAYER, of input X, whose queries, keys and values are QKV."""
    at = scheme.prepare(torch.arange(T), torch.float64)
    own_at, bias = scheme.read(X, at, LAYER, None)
    bias = scheme.bias(at, at) if bias is None else bias
    return scheme.output(scheme.attention(scheme.heads(QKV, own_at), own_at, bias, None), own_at)


def assert_output(scheme: PositionScheme, score, value=lambda b, h, n, i, v: v) -> None:
    """Output n of each head is Σᵢ softmaxᵢ(score(b, h, n, i, q, k)) value(b, h, n, i, v), i ≤ n."""
    made = attended(scheme)
    for b in range(B):
        for h in range(H):
            q, k, v = (x[:, h] for x in QKV[b].unbind(1))
            for n in range(T):
                scores = torch.stack([torch.as_tensor(score(b, h, n, i, q[n], k[i])) for i in range(n + 1)])
                values = torch.stack([value(b, h, n, i, v[i]) for i in range(n + 1)])
                torch.testing.assert_close(made[b, n, h], scores.softmax(0) @ values, rtol=0, atol=1e-12)


def test_fox_is_its_formula():
    scheme = learned("fox")
    gate = scheme.gates[LAYER]

    def score(b, h, n, i, q, k):
        gates = [torch.sigmoid(X[b, j] @ gate.weight[h] + gate.bias[h]) for j in range(i + 1, n + 1)]
        return q @ k / K**0.5 + sum(f.log() for f in gates)

    assert_output(scheme, score)


def test_the_documented_file_of_under_25_lines_is_fox():
    written, names = block("Content", "python"), {}
    exec(written, names)
    theirs = names["Forgetting"](DIMS).double()
    theirs.load_state_dict(learned("fox").state_dict())
    torch.testing.assert_close(attended(theirs), attended(learned("fox")), rtol=0, atol=0)
    assert len(written.splitlines()) < 25


def rotation(angles: Tensor) -> Tensor:
    """R of each pair's angle, neighbours a pair, [K, K]."""
    blocks = [torch.stack([torch.stack([a.cos(), -a.sin()]), torch.stack([a.sin(), a.cos()])]) for a in angles]
    return torch.block_diag(*blocks)


@pytest.mark.parametrize("name", ["selective_rope", "selective_roper"])
def test_selective_rope_is_its_formula(name):
    """RoPER's form: values rotated by the difference of running phases, as scores are."""
    scheme = learned(name)
    w1, w2 = (linear.weight for linear in scheme.project[LAYER])
    taps = scheme.taps[LAYER].detach()
    theta = torch.tensor([500_000.0 ** (-2 * j / K) for j in range(K // 2)], dtype=torch.float64)

    def phi(b, t):
        """The sum over the token and the three before it."""
        total = torch.zeros(D // 2, dtype=torch.float64)
        for back in range(min(4, t + 1)):
            unit = torch.cat([x / x.norm() for x in X[b, t - back].split(K)])
            total += taps[3 - back] * (w2 @ (w1 @ unit))
        return total.detach()

    def difference(b, h, n, i):
        """R(Φᵢ − Φₙ)"""
        passed = sum((phi(b, t) for t in range(i + 1, n + 1)), torch.zeros(D // 2))
        return rotation(-theta * passed.view(H, -1)[h])

    def value(b, h, n, i, v):
        return difference(b, h, n, i) @ v if name == "selective_roper" else v

    assert_output(scheme, lambda b, h, n, i, q, k: q @ (difference(b, h, n, i) @ k) / K**0.5, value)


@pytest.mark.parametrize("values", [False, True])
def test_selective_roper_is_relative(values):
    """A phase that a text before may have left, the same for all tokens that follow, changes no output."""
    torch.manual_seed(0)
    scheme = SelectiveRoPE(DIMS, values=values)
    model = Transformer(11, "softmax", D, 2, H, "pre", "pytorch", 0.0, scheme).double()
    tokens, outputs = torch.arange(14).view(2, 7) % 11, []
    for size in (0, 100):
        cache = model.new_cache(2, 7)
        for layer in cache:
            layer.own["phase"] = size * numbers(2, 1, H, K // 2)
        outputs.append(model(tokens, cache=cache))
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-12)
    scheme.values, scheme.output = True, lambda o, at: o  # values rotated, and not back: no longer relative
    cache = model.new_cache(2, 7)
    for layer in cache:
        layer.own["phase"] = 100 * numbers(2, 1, H, K // 2)
    assert (model(tokens, cache=cache) - model(tokens)).abs().max() > 1e-2


def test_grape_a_is_its_formula():
    scheme = learned("grape_a")
    v, omega = scheme.v[LAYER].detach(), scheme.omega[LAYER].detach()

    def score(b, h, n, i, q, k):
        gate = math.log(1 + math.exp(v[h] / v[h].norm() @ q / K**0.5))
        return q @ k / K**0.5 - (n - i) * [2**-4, 2**-8, 2**-2][h] * math.log(1 + math.exp(omega[h])) * gate

    assert_output(scheme, score)
    begun = make_scheme("grape_a", DIMS)
    torch.testing.assert_close(F.softplus(begun.omega[LAYER]), torch.ones(H))


def test_cope_is_its_formula():
    """Also where more is counted than there are positions."""
    scheme = learned("cope")
    e = scheme.tables[LAYER].data = scheme.tables[LAYER].detach()[:, :3]

    def score(b, h, n, i, q, k):
        keys = QKV[b, :, 1, h]
        p = min(sum(1 / (1 + math.exp(-(q @ keys[j]) / K**0.5)) for j in range(i, n + 1)), 2.0)
        below, above = math.floor(p), math.ceil(p)
        return q @ k / K**0.5 + q @ ((1 - (p - below)) * e[:, below] + (p - below) * e[:, above])

    assert_output(scheme, score)


@pytest.mark.parametrize("block", [2, 64])
def test_path_is_its_formula(block, monkeypatch):
    monkeypatch.setattr(content, "BLOCK", block)
    scheme = learned("path")
    w1, w2 = (linear.weight for linear in scheme.project[LAYER])
    taps, beta = scheme.taps[LAYER].detach(), scheme.betas[LAYER]

    def transformation(b, h, t):
        """Hₜ = I − βₜ wₜ wₜᵀ"""
        w = F.silu(sum(taps[2 - back] * (w2 @ (w1 @ X[b, t - back])) for back in range(min(3, t + 1)))).view(H, K)[h]
        w = w / w.norm()
        return torch.eye(K) - 2 * torch.sigmoid(beta.weight[h] @ X[b, t] + beta.bias[h]) * torch.outer(w, w)

    def score(b, h, n, i, q, k):
        product = torch.eye(K, dtype=torch.float64)
        for t in range(i + 1, n + 1):
            product = product @ transformation(b, h, t)
        return k @ product @ q / K**0.5

    assert_output(scheme, score)


def test_windows_and_temperatures_are_those_of_their_layers():
    """RoPE within 3 tokens in the first layer; in the second no position, scores times 1 + 0.5 ln(1 + ⌊(n+1)/3⌋)."""
    scheme = RNoPE(DIMS, window=3, temperature=0.5)
    at, rope = scheme.prepare(torch.arange(T), torch.float64), make_scheme("rope", DIMS)
    local, other = scheme.in_layer(0), scheme.in_layer(1)
    q, k, v = rope.heads(QKV, rope.prepare(torch.arange(T), torch.float64)).unbind(2)
    distance = torch.arange(T)[:, None] - torch.arange(T)
    scores = torch.einsum("bnhk,bihk->bhni", q, k) / K**0.5
    weights = scores.masked_fill((distance < 0) | (distance > 2), -torch.inf).softmax(-1)
    expected = torch.einsum("bhni,bihk->bnhk", weights, v)
    torch.testing.assert_close(local.attention(local.heads(QKV, at), at, None, None), expected, rtol=0, atol=1e-12)
    q, k, v = QKV.unbind(2)
    factor = torch.tensor([1 + 0.5 * math.log(1 + (n + 1) // 3) for n in range(T)])
    scores = torch.einsum("bnhk,bihk->bhni", q, k) / K**0.5 * factor.double()[:, None]
    expected = torch.einsum("bhni,bihk->bnhk", scores.masked_fill(distance < 0, -torch.inf).softmax(-1), v)
    torch.testing.assert_close(other.attention(other.heads(QKV, at), at, None, None), expected, rtol=0, atol=1e-6)


def test_random_floats_are_sorted_and_those_of_the_seed():
    scheme, draws = make_scheme("random_floats", DIMS), []
    for seed in (0, 1, 0):
        scheme.draw(seed, 500)
        draws.append(scheme.drawn)
    assert torch.equal(draws[0], draws[0].sort().values)
    assert 0 <= draws[0][0] < 50
    assert 2000 < draws[0][-1] < 2048
    assert (draws[0] % 1 != 0).all()
    assert torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[0], draws[1])


@pytest.mark.parametrize("name", SCHEMES)
def test_cached_decoding_is_the_full_pass_beyond_the_trained_length(name):
    """16 tokens, with parameters that training may have led to; twice as many as were trained on."""
    scheme = make_scheme(name, DIMS)
    if name == "learned":
        with pytest.raises(ValueError, match="16 positions are more than the 8"):
            scheme.draw(0, 16)
        return
    model = Transformer(11, "softmax", D, 2, H, "pre", "pytorch", 0.0, scheme).double()
    as_trained(scheme).draw(0, 16)
    cached(model)


@pytest.mark.parametrize("name", SCHEMES)
def test_under_autocast_logits_are_nearly_those_of_float32(name):
    torch.manual_seed(0)
    scheme, tokens = make_scheme(name, Dims(D, H, 64, n_layers=2)), torch.arange(128).view(2, 64) % 11
    model = Transformer(11, "softmax", D, 2, H, "pre", "pytorch", 0.0, scheme)
    with torch.autocast("cpu", torch.bfloat16):
        low = model(tokens)
    assert (low.float() - model(tokens)).abs().max() < 0.1


def test_gates_beside_another_bias_survive_bfloat16():
    """Sums near 1,000, added to those of ALiBi before bfloat16 sees them."""

    class Both(Alibi):
        def read(self, x, at, layer, cache):
            return at, so_far("sum", (1000 + 0.5 * torch.arange(x.shape[1])).expand(x.shape[:2]), cache)[:, None, None]

    logits = []
    for dtype in (torch.float64, torch.bfloat16):
        torch.manual_seed(0)
        model = Transformer(11, "softmax", D, 1, H, "pre", "pytorch", 0.0, Both(DIMS)).to(dtype)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(attention, "blockwise", attention.fused)  # as on a GPU
            logits.append(model(torch.arange(9)[None]).double())
    torch.testing.assert_close(*logits, rtol=0, atol=0.03)


@pytest.mark.parametrize("name", ["fox", "selective_rope", "selective_roper", "grape_a", "cope", "path"])
def test_each_layer_has_parameters_of_its_own(name):
    scheme = learned(name)
    before, own = attended(scheme), {n: p for n, p in scheme.named_parameters() if re.match(rf"\w+\.{LAYER}\b", n)}
    assert 2 * len(own) == len([*scheme.parameters()])
    for parameter in own.values():
        parameter.data += numbers(*parameter.shape, seed=5)
    assert not torch.allclose(attended(scheme), before)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when it compiles
@pytest.mark.parametrize("name", ["fox", "kv_shared_back", "path", "selective_roper"])
def test_compiled_layers_are_the_same(name):
    """Without a graph break, which training would pay for in every step."""
    torch.manual_seed(0)
    scheme, tokens = make_scheme(name, DIMS), torch.arange(14).view(2, 7) % 11
    model = Transformer(11, "softmax", D, 1, H, "pre", "pytorch", 0.0, scheme)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(tokens), model(tokens), rtol=0, atol=1e-5)
