"""The mathematics of position, in float64, against oracles that share no code with the schemes."""

import math
import re

import pytest
import torch
from conftest import ROOT, SCHEMES
from trained import load, make_scheme

from rope_lab.check import shift as change_by_shift
from rope_lab.model.attention import softmax_attention, unpacked
from rope_lab.model.positions import Dims, PositionScheme, Rotary
from rope_lab.model.rotation import rotate
from rope_lab.model.transformer import Transformer
from rope_lab.train import config
from rope_lab.train.loop import evaluate_now, update
from rope_lab.train.trainer import build

B, T, H, K = 2, 7, 3, 8
DIMS = Dims(d_model=H * K, n_heads=H, max_len=64, n_layers=2)
BASE = 10_000.0


def heads(seed: int = 0) -> torch.Tensor:
    """Random queries, keys and values, float64 [B, T, 3, H, K]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(B, T, 3, H, K, generator=generator, dtype=torch.float64)


def rotate_queries(scheme: Rotary, x: torch.Tensor, pos: torch.Tensor) -> torch.Tensor:
    """`x` [B, T, H, K] as the scheme rotates queries."""
    return scheme.heads(torch.stack([x, x, x], dim=2), scheme.prepare(pos, x.dtype))[:, :, 0]


def attend(scheme: PositionScheme, qkv, pos) -> torch.Tensor:
    """Causal attention between the query/key/value and output hooks, written out, [B, T, H, K]."""
    at = scheme.prepare(pos, qkv.dtype)
    q, k, v = unpacked(scheme.heads(qkv, at))
    scores = torch.einsum("bnhk,bihk->bhni", q, k) / K**0.5
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(future, -torch.inf).softmax(-1)
    return scheme.output(torch.einsum("bhni,bihk->bnhk", weights, v), at)


@pytest.mark.parametrize("base", [10_000.0, 500.0])
def test_rotation_is_multiplication_by_a_complex_number(base):
    q = heads()[:, :, 0]
    pos = torch.tensor([0, 1, 2, 5, 100, 4096, 100_000])
    theta = torch.tensor([base ** (-2 * i / K) for i in range(K // 2)], dtype=torch.float64)
    unit_T1C = torch.polar(torch.ones(T, K // 2, dtype=torch.float64), pos[:, None] * theta)[:, None]
    rotated = torch.complex(q[..., ::2], q[..., 1::2]) * unit_T1C
    expected = torch.view_as_real(rotated).flatten(-2)
    torch.testing.assert_close(rotate_queries(Rotary(DIMS, q=1, base=base), q, pos), expected, rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when it compiles
@pytest.mark.parametrize("pairs", ["neighbours", "halves"])
def test_compiled_rotation_is_the_same(pairs):
    scheme, qkv = Rotary(DIMS, q=1, k=1, v=2, o=-1, pairs=pairs), heads().requires_grad_()
    at = scheme.prepare(torch.arange(T) * 100, torch.float64)
    compiled = torch.compile(lambda x, e: rotate(x, e, pairs), fullgraph=True, backend="aot_eager")
    rotated, expected = compiled(qkv, at[0]), rotate(qkv, at[0], pairs)
    gradients = (torch.autograd.grad(x.square().sum() + x[..., 0].sum(), qkv) for x in (rotated, expected))
    torch.testing.assert_close((rotated, next(gradients)), (expected, next(gradients)), rtol=0, atol=1e-12)


def dense_rotation(m: int, base: float = BASE, pairs: int = K // 2) -> torch.Tensor:
    """The block-diagonal matrix of RoFormer's equation 15 for position m, [K, K], acting on column vectors.

    Pairs after the first few are left as they are.
    """
    matrix = torch.eye(K, dtype=torch.float64)
    for i in range(1, pairs + 1):
        angle = torch.tensor(m * base ** (-2 * (i - 1) / K), dtype=torch.float64)
        a, b = 2 * (i - 1), 2 * (i - 1) + 1
        matrix[a, a], matrix[a, b] = angle.cos(), -angle.sin()
        matrix[b, a], matrix[b, b] = angle.sin(), angle.cos()
    return matrix


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_pairs_of_halves_are_those_of_rotate_half(fraction):
    """x ∘ cos + rotate_half(x) ∘ sin of the first r features, as GPT-NeoX and transformers have it."""
    q, pos, r = heads()[:, :, 0], torch.arange(T), int(fraction * K)
    angle = pos[:, None] * BASE ** (-2 * torch.arange(r // 2, dtype=torch.float64) / r)
    angle_T1r = torch.cat([angle, angle], dim=-1)[:, None]
    x, rest = q[..., :r], q[..., r:]
    rotate_half = torch.cat([-x[..., r // 2 :], x[..., : r // 2]], dim=-1)
    expected = torch.cat([x * angle_T1r.cos() + rotate_half * angle_T1r.sin(), rest], dim=-1)
    scheme = Rotary(DIMS, q=1, fraction=fraction, pairs="halves")
    torch.testing.assert_close(rotate_queries(scheme, q, pos), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["roper", "rope_partial", "xpos", "randomized_rope", "rope_head_bases", "ssmax"])
def test_pairs_of_halves_are_neighbours_in_another_order_of_features(name):
    """Weights permuted head by head, feature 2c to c and 2c + 1 to c + r/2, give the same logits."""
    r = K // 2 if name == "rope_partial" else K
    key = "position.scheme.pairs" if name == "randomized_rope" else "position.pairs"
    tokens = torch.arange(20).reshape(2, 10) % 11
    neighbours, halves = make_model(name), make_model(name, f"{key}=halves")
    assert (neighbours(tokens) - halves(tokens)).abs().max() > 1e-3
    order = torch.tensor([*range(0, r, 2), *range(1, r, 2), *range(r, K)])  # of halves, in terms of neighbours
    for layer in halves.layers:
        qkv, out = layer.attention.qkv, layer.attention.out
        for parameter in (qkv.weight, qkv.bias):
            parameter.data = parameter.data.unflatten(0, (3, H, K))[:, :, order].flatten(0, 2)
        out.weight.data = out.weight.data.unflatten(1, (H, K))[:, :, order].flatten(1, 2)
    torch.testing.assert_close(halves(tokens), neighbours(tokens), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("scheme", "distance", "values"),
    [
        ("none", lambda i, n: 0, {}),
        ("rope", lambda i, n: 0, {}),
        ("roper", lambda i, n: i - n, {}),
        ("roper_double_rotation", lambda i, n: 2 * i - n, {}),
        ("roper_fast", lambda i, n: i - n, {"pairs": 2, "base": 100.0}),
        ("roper_fast position.value_fraction=0.75", lambda i, n: i - n, {"pairs": 3, "base": 100.0}),
        ("roper_fast position.value_base=null", lambda i, n: i - n, {"pairs": 2}),
    ],
)
def test_output_is_the_explicit_sum_of_rotated_values(scheme, distance, values):
    """o_n = Σᵢ a_ni R(distance · θ) vᵢ with the scores of RoPE (or of no position), loop by loop.

    The R of values may rotate the first pairs alone, by a base of its own.
    """
    name, *settings = scheme.split()
    (q, k, v), expected = heads().unbind(2), torch.zeros(B, T, H, K, dtype=torch.float64)
    for n in range(T):
        related = [dense_rotation(i - n if name != "none" else 0) for i in range(n + 1)]
        scores = torch.stack([torch.einsum("bhk,kj,bhj->bh", q[:, n], related[i], k[:, i]) for i in range(n + 1)])
        weights = (scores / K**0.5).softmax(0)
        for i in range(n + 1):
            expected[:, n] += weights[i, ..., None] * (v[:, i] @ dense_rotation(distance(i, n), **values).T)
    found = attend(make_scheme(name, DIMS, *settings), heads(), torch.arange(T))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def make_pope(name: str = "pope") -> PositionScheme:
    """With phases that training may have led to, also beyond the bounds that its authors keep them in."""
    scheme = make_scheme(name, DIMS).double()
    with torch.no_grad():
        scheme.delta.copy_(torch.randn(H, K, generator=torch.Generator().manual_seed(2)) * 3)
    return scheme


@pytest.mark.parametrize("name", ["pope", "pope_roper"])
def test_pope_is_its_explicit_sum(name):
    """Σ_c μ(q_c) μ(k_c) cos((i−n)θ_c + δ_c) / √d loop by loop, with values as they are or rotated by i−n."""
    scheme = make_pope(name)
    delta = scheme.delta.detach()
    qkv, pos = heads(), torch.tensor([0, 1, 2, 5, 100, 4096, 100_000])
    (q, k), v = (1 + qkv[:, :, :2].exp()).log().unbind(2), qkv[:, :, 2]
    theta = torch.tensor([BASE ** (-c / K) for c in range(K)], dtype=torch.float64)
    expected = torch.zeros_like(v)
    for n in range(T):
        cosines = [((pos[i] - pos[n]) * theta + delta).cos() for i in range(n + 1)]
        scores = torch.stack([(q[:, n] * k[:, i] * cosines[i]).sum(-1) for i in range(n + 1)])
        weights = (scores / K**0.5).softmax(0)
        for i in range(n + 1):
            rotation = dense_rotation(int(pos[i] - pos[n]) if name == "pope_roper" else 0)
            expected[:, n] += weights[i, ..., None] * (v[:, i] @ rotation.T)
    at = scheme.prepare(pos, torch.float64)
    for o in (attend(scheme, qkv, pos), scheme.output(softmax_attention(scheme.heads(qkv, at)), at)):
        torch.testing.assert_close(o, expected, rtol=0, atol=1e-10)


def test_phases_of_pope_begin_at_0_or_in_the_range_that_is_set():
    """And 0 is the run of before the setting."""
    assert not make_scheme("pope", DIMS).delta.any()
    drawn = make_scheme("pope", Dims(8 * 100, 100, 8), "position.delta_init=6.2832").delta
    assert -6.2832 <= drawn.min() < -6.2
    assert -0.1 < drawn.max() <= 0
    at_0, of_2_pi = (config.identity(load("position=pope", *own)) for own in ([], ["position.delta_init=6.2832"]))
    assert "position.delta_init" not in at_0.settings
    assert at_0.run_id != of_2_pi.run_id
    with pytest.raises(config.ConfigError, match=r"position.delta_init=7.0: must be from 0 to 2π"):
        make_scheme("pope", DIMS, "position.delta_init=7")


def make_model(name: str, *overrides: str) -> Transformer:
    """A float64 model with random weights, always the same ones."""
    torch.manual_seed(0)
    return Transformer(11, "softmax", H * K, 2, H, "pre", "pytorch", 0.0, make_scheme(name, DIMS, *overrides)).double()


def logits(name: str, shift: int) -> torch.Tensor:
    """Of fixed tokens at positions shift, shift + 1, … under a scheme."""
    return make_model(name)(torch.arange(20).reshape(2, 10) % 11, torch.arange(10) + shift)


ABSOLUTE = ["sinusoidal", "sinusoidal_product", "learned", "roper_double_rotation", "fire", "kv_shared"]
ABSOLUTE += ["irope", "randomized_rope", "random_floats"]
RELATIVE = sorted({*SCHEMES} - {*ABSOLUTE})


@pytest.mark.parametrize("name", RELATIVE)
def test_relative_schemes_do_not_notice_a_shift_of_all_positions(name):
    shift = 10_000 if name == "xpos" else 100_000  # beyond 28,000 xpos says that it cannot
    assert change_by_shift(make_model(name), shift) < 1e-9


@pytest.mark.parametrize("name", ABSOLUTE)
def test_absolute_schemes_notice_a_shift(name):
    shift = {"learned": 40, "randomized_rope": 40, "random_floats": 40, "fire": 1000}.get(name, 100_000)
    least = 1e-4 if name == "fire" else 1e-2  # whose distances are shares of the position only beyond its threshold
    assert change_by_shift(make_model(name), shift) > least


def test_the_nine_ways_of_rotating_are_settings():
    """As the table of docs/extending.md has them."""
    page = (ROOT / "docs" / "extending.md").read_text()
    rows = re.findall(r"^\| ([a-z, ]+) \| \d\.\d+ \| `position=(.*)` \|$", page, re.MULTILINE)
    assert len(rows) == 9
    for told, settings in rows:
        name, *own = settings.split()
        rotated = {"output": "o", "nothing": ""}
        expected = {rotated.get(part, part) for part in told.split(", ")} - {""}
        assert getattr(make_scheme(name, DIMS, *own), "theta", {}).keys() == expected


def test_xpos_scores_decay_with_distance_pair_by_pair():
    """q Rᵀ R k by pairs, each times ζ to the power of the distance over scale_base."""
    qkv, pos = heads(), torch.tensor([3, 4, 7, 9, 40, 500, 1200])
    q, k, v = make_scheme("xpos", DIMS).heads(qkv, make_scheme("xpos", DIMS).prepare(pos, torch.float64)).unbind(2)
    assert torch.equal(v, qkv[:, :, 2])
    for n, m in ((6, 0), (3, 2), (5, 5), (4, 1)):
        distance, expected = int(pos[n] - pos[m]), 0.0
        for i in range(K // 2):
            zeta, angle = (2 * i / K + 0.4) / 1.4, distance * BASE ** (-2 * i / K)
            (a, b), (c, d) = (qkv[0, t, j, 1, 2 * i : 2 * i + 2].tolist() for t, j in ((n, 0), (m, 1)))
            rotated = (a * c + b * d) * math.cos(angle) - (b * c - a * d) * math.sin(angle)
            expected += rotated * zeta ** (distance / 512)
        assert (q[0, n, 1] * k[0, m, 1]).sum().item() == pytest.approx(expected, abs=1e-12)
    with pytest.raises(ValueError, match=r"more than the 2\d\d\d\d that the position scheme was made for"):
        logits("xpos", 30_000)


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        ("xpos", "position.scale_base=1e308", "position.scale_base=1e+308: must be a number of positions above 0 and"),
        ("p_rope", "position.p=0.9", "position.p=0.9: 3.6 of the 4 pairs of a head would be rotated"),
        ("rope", "position.fraction=1e-9", "position.fraction=1e-09: 0 of 8 features of a head would be rotated"),
        ("roper", "position.value_fraction=2", "8 of the 4 pairs of a head would be rotated: must be a whole number"),
        ("roper", "position.value_base=1", "position.value_base=1.0: must be a finite number above 1"),
        ("rope", "position.factor=2", "position.factor=2.0: does nothing without position.scaling="),
        ("rope", "position.scaling=linear position.factor=0.5", "position.factor=0.5, position.original=64: must be"),
        ("rope", "position.scaling=yarn position.original=0", "position.original=0: must be numbers of at least 1"),
        ("rope", "position.scaling=pi", "position.scaling=pi: must be 'none', 'linear', 'ntk' or 'yarn'"),
        (
            "rnope_swa",
            "position.window=0",
            "position.window=0, position.temperature=0.0: must be a window of at least 1",
        ),
        ("rnope_swa", "position.window=1.5", "position.window=1.5, position.temperature=0.0: must be a window of"),
        (
            "irope",
            "position.window=null",
            "position.window=null, position.temperature=0.1: must be a window of",
        ),
        ("cope", "position.positions=0", "position.positions=0: must be at least 1"),
        ("path", "position.rank=0", "position.rank=0, position.taps=3: must be at least 1"),
        ("selective_rope", "position.taps=0", "position.rank=16, position.taps=0: must be an even number"),
        ("kv_shared", "position.fraction=0.3", "2.4 of 8 features of a head would be rotated"),
        ("rope", "position.pairs=thirds", "position.pairs=thirds: must be 'neighbours' or 'halves'"),
        ("rope", "position.value_fraction=0.5", "position.value_fraction=0.5, position.value_base=null: must be 1.0"),
        ("fire", "position.hidden=0", "position.hidden=0: must be numbers above 0"),
        ("randomized_rope", "position.longest=10", "position.longest=10: must be from train.seq_len=64 to 10,000,000"),
    ],
)
def test_a_setting_that_cannot_be_served_is_one_clear_message(name, override, message):
    with pytest.raises(config.ConfigError, match=re.escape(message)):
        make_scheme(name, DIMS, *override.split())


SCALINGS = {"linear": "linear", "ntk": "dynamic", "yarn": "yarn"}  # the names of transformers


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize(("width", "base", "factor", "original"), [(64, 1e4, 4.0, 512), (128, 5e5, 8.0, 4096)])
def test_scaled_frequencies_are_those_of_transformers(scaling, width, base, factor, original):
    """Their dynamic NTK of factor 1 at a length of factor · original is ours."""
    rope = pytest.importorskip("transformers.modeling_rope_utils", reason="pip install -e '.[dev]'")
    llama = pytest.importorskip("transformers").LlamaConfig
    parameters = {"rope_type": SCALINGS[scaling], "rope_theta": base, "original_max_position_embeddings": original}
    config_ = llama(
        head_dim=width,
        max_position_embeddings=original,
        rope_parameters=parameters | {"factor": 1.0 if scaling == "ntk" else factor},
    )
    made = rope.ROPE_INIT_FUNCTIONS[SCALINGS[scaling]]
    theirs, temperature = made(config_, torch.device("cpu"), seq_len=int(factor * original))
    words = [f"position.scaling={scaling}", f"position.factor={factor}", f"position.original={original}"]
    scheme = make_scheme("rope", Dims(2 * width, 2, 64), f"position.base={base}", *words)
    torch.testing.assert_close(scheme.theta["q"].float(), theirs, rtol=1e-6, atol=0)
    assert scheme.sharpness == pytest.approx(temperature**2)


def test_yarn_multiplies_all_scores():
    """Under partial rotation too, by (0.1 ln factor + 1)²; values are as they were."""
    own = ["position.scaling=yarn", "position.factor=16", "position.fraction=0.5"]
    plain, scaled = make_scheme("rope", DIMS, "position.fraction=0.5"), make_scheme("rope", DIMS, *own)
    for scheme in (plain, scaled):
        scheme.theta = plain.theta
    expected, found = (s.heads(heads(), s.prepare(torch.arange(T), torch.float64)) for s in (plain, scaled))
    torch.testing.assert_close(found[:, :, 0], expected[:, :, 0] * (0.1 * math.log(16) + 1) ** 2, rtol=0, atol=1e-12)
    assert torch.equal(found[:, :, 1:], expected[:, :, 1:])


def test_a_scaling_is_another_run_and_none_is_the_run_of_before():
    plain, scaled = (
        config.identity(load("position=roper", *own)) for own in ([], ["position.scaling=ntk", "position.factor=2"])
    )
    assert not {"position.scaling", "position.factor", "position.original"} & plain.settings.keys()
    assert plain.run_id != scaled.run_id


@pytest.mark.parametrize("name", ["rope", "pope"])
def test_an_odd_width_is_one_clear_message(name):
    with pytest.raises(config.ConfigError, match=r"model.n_heads=2: 7 of 7 features of a head"):
        make_scheme(name, Dims(14, 2, 64))


@pytest.mark.parametrize(
    ("n_heads", "exponents"),
    [(1, [8]), (4, [2, 4, 6, 8]), (8, [1, 2, 3, 4, 5, 6, 7, 8]), (3, [4, 8, 2]), (6, [2, 4, 6, 8, 1, 3])],
)
def test_alibi_takes_distance_times_slope_from_each_score(n_heads, exponents):
    scheme = make_scheme("alibi", Dims(8 * n_heads, n_heads, 8))
    bias = scheme.bias(torch.tensor([5, 9]), torch.tensor([0, 5]))
    for head, exponent in enumerate(exponents):
        assert bias[head].tolist() == [[-5 * 2.0**-exponent, 0.0], [-9 * 2.0**-exponent, -4 * 2.0**-exponent]]


def test_t5_buckets_widen():
    """Sixteen distances of their own, then by logarithm to 128, then one for all."""
    scheme = make_scheme("t5_bias", DIMS)
    with torch.no_grad():
        scheme.table.weight.copy_(torch.arange(32.0)[:, None].expand(32, H))
    buckets = scheme.bias(torch.arange(400), torch.arange(400))[0, 399].flip(0).long().tolist()
    assert buckets[:16] == list(range(16))
    for distance in range(16, 400):
        expected = min(31, 16 + int(math.log(distance / 16) / math.log(128 / 16) * 16 + 1e-9))
        assert buckets[distance] == expected, distance
    assert scheme.bias(torch.tensor([0]), torch.tensor([7]))[0].item() == 0  # the future, which nobody sees


def test_fire_is_the_formula():
    torch.manual_seed(0)
    at_once = make_scheme("fire", DIMS, "position.threshold=1e-9").bias(torch.arange(9), torch.arange(9))
    assert at_once.isfinite().all()
    scheme = make_scheme("fire", DIMS, "position.threshold=5.0").double()
    first, last = scheme.network[0], scheme.network[2]
    with torch.no_grad():
        scheme.c.fill_(0.3)
        bias = scheme.bias(torch.arange(9), torch.arange(9))
        for n, m in ((8, 0), (8, 7), (3, 1), (0, 0)):
            relative = math.log(0.3 * (n - m) + 1) / math.log(0.3 * max(5.0, n) + 1)
            pairs = zip(first.weight[:, 0].tolist(), first.bias.tolist(), strict=True)
            hidden = [max(0.0, w * relative + b) for w, b in pairs]
            for head in range(H):
                total = sum(w * h for w, h in zip(last.weight[head].tolist(), hidden, strict=True))
                assert bias[head, n, m].item() == pytest.approx(total + last.bias[head].item(), abs=1e-12)


def test_fires_threshold_is_the_training_length_unless_set():
    """So that beyond it, and only there, distances are scaled to those of training; runs of before keep theirs."""
    default, old = (make_scheme("fire", DIMS, *own) for own in ([], ["position.threshold=512"]))
    assert (default.threshold, old.threshold) == (DIMS.max_len, 512)
    pos = torch.arange(4 * DIMS.max_len)
    bias = default.double().bias(pos, pos).detach()
    torch.testing.assert_close(bias[:, 64, 0], bias[:, 255, 0])  # each the whole of what a query sees
    torch.testing.assert_close(bias[:, 20, 10], bias[:, 60, 50])  # within the training length distance is what counts
    assert load("position=fire", "position.threshold=512").position["threshold"] == 512


def test_random_positions_are_sorted_distinct_and_those_of_the_seed():
    scheme = make_scheme("randomized_rope", DIMS)
    draws = []
    for seed in (0, 1, 0):
        scheme.draw(seed, DIMS.max_len)
        draws.append(scheme.drawn.tolist())
        assert draws[-1] == sorted(set(draws[-1]))
        assert len(draws[-1]) == DIMS.max_len
        assert 0 <= draws[-1][0] <= draws[-1][-1] < 2048
    assert draws[0] == draws[2] != draws[1]
    qkv, pos = heads(), torch.arange(T)
    inner = Rotary(DIMS, q=1, k=1)
    expected = inner.heads(qkv, inner.prepare(torch.tensor(draws[0][:T]), torch.float64))
    assert torch.equal(scheme.heads(qkv, scheme.prepare(pos, torch.float64)), expected)


def test_a_run_draws_new_positions_for_each_step_and_the_same_for_every_evaluation(tiny):
    cfg = load(*tiny, "position=randomized_rope")
    lab = build(cfg)
    seen = []
    for action in (lambda: update(lab, 0), lambda: update(lab, 1), lambda: evaluate_now(lab), lambda: update(lab, 0)):
        action()
        seen.append(tuple(lab.model.position.drawn.tolist()))
    assert seen[0] == seen[3]
    assert len(set(seen)) == 3
    evaluate_now(lab)
    assert tuple(lab.model.position.drawn.tolist()) == seen[2]


def test_the_misreading_multiplies_where_sinusoidal_adds():
    x, pos = heads()[:, :, 0].flatten(2), torch.arange(T)
    encodings = make_scheme("sinusoidal", DIMS)
    product = make_scheme("sinusoidal_product", DIMS)
    added = encodings.embed(torch.zeros_like(x), encodings.prepare(pos, torch.float64))
    assert torch.equal(product.embed(x, product.prepare(pos, torch.float64)), x * added)


@pytest.mark.parametrize("base", [10_000.0, 500.0])
def test_sinusoidal_is_the_formula(base):
    scheme = make_scheme("sinusoidal", DIMS, f"position.base={base}")
    nothing = torch.zeros(1, 3, DIMS.d_model, dtype=torch.float64)
    added = scheme.embed(nothing, scheme.prepare(torch.tensor([0, 1, 77]), torch.float64))
    for t, p in enumerate([0, 1, 77]):
        for i in range(DIMS.d_model // 2):
            angle = torch.tensor(p / base ** (2 * i / DIMS.d_model), dtype=torch.float64)
            torch.testing.assert_close(added[0, t, 2 * i], angle.sin(), rtol=0, atol=1e-12)
            torch.testing.assert_close(added[0, t, 2 * i + 1], angle.cos(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["sinusoidal", "rope", "roper", "pope"])
def test_tables_stay_wide_when_the_model_is_narrowed(name):
    scheme = make_scheme(name, DIMS).to(torch.bfloat16)
    pos = torch.tensor([5000])
    prepared = scheme.prepare(pos, torch.bfloat16)
    exact = scheme.prepare(pos, torch.float64)
    for narrow, wide in zip(*(tables(p) for p in (prepared, exact)), strict=True):
        assert narrow.dtype == torch.float32
        torch.testing.assert_close(narrow.double(), wide, rtol=0, atol=1e-7)


def tables(prepared) -> list[torch.Tensor]:
    return [prepared] if torch.is_tensor(prepared) else [table for table in prepared if table is not None]


def test_a_position_beyond_a_learned_table_is_a_clear_error():
    with pytest.raises(ValueError, match="65 positions are more than the 64"):
        logits("learned", 55)
    logits("learned", 54)
    logits("rope", 10**6)  # rotary has no end
