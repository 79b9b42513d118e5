"""Position schemes in float64, compared with independent reference formulas."""

import math
import re

import pytest
import torch
from conftest import SCHEMES
from sums import (
    DIMS,
    POS,
    QKV,
    B,
    H,
    K,
    T,
    assert_output,
    attended,
    learned,
    make_model,
    numbers,
    rope,
    rotated,
)
from trained import load, make_scheme

from rope_lab.model.hooks import Dims
from rope_lab.model.schemes import Randomized, RNoPE, Rotary, SSMax
from rope_lab.train import config
from rope_lab.train.loop import evaluate_now, update
from rope_lab.train.trainer import build

FLOATS, SINES = torch.float64, ("sinusoidal", "sinusoidal_product")
TOKENS = torch.arange(20).reshape(2, 10) % 11


@pytest.mark.parametrize(
    "name", ["roper", "rope_partial", "xpos", "randomized_rope", "rope_head_bases", "ssmax"]
)
def test_pairs_of_halves_are_neighbours_in_another_order_of_features(name):
    """Permuting the weights of each head, feature 2c to c and 2c + 1 to c + r/2, gives the same
    logits.
    """
    r = K // 2 if name == "rope_partial" else K
    key = "position.scheme.pairs" if name == "randomized_rope" else "position.pairs"
    neighbours, halves = make_model(name), make_model(name, f"{key}=halves")
    assert (neighbours(TOKENS) - halves(TOKENS)).abs().max() > 1e-3
    # Of halves, as indices of neighbours.
    order = torch.tensor([*range(0, r, 2), *range(1, r, 2), *range(r, K)])
    for layer in halves.layers:
        qkv, out = layer.attention.qkv, layer.attention.out
        for parameter in (qkv.weight, qkv.bias):
            parameter.data = parameter.data.unflatten(0, (3, H, K))[:, :, order].flatten(0, 2)
        out.weight.data = out.weight.data.unflatten(1, (H, K))[:, :, order].flatten(1, 2)
    torch.testing.assert_close(halves(TOKENS), neighbours(TOKENS), rtol=0, atol=1e-12)


# Schemes as explicit sums: i is a key position, n a query position

SHARED = [("", 0, rope()), (" position.fraction=0.25", K - 2, rope(width=2))]


@pytest.mark.parametrize(
    ("scheme", "of_value", "theta"),
    [
        ("none", lambda i, n: 0, None),
        ("rope", lambda i, n: 0, None),
        ("roper", lambda i, n: i - n, None),
        ("roper_double_rotation", lambda i, n: 2 * i - n, None),
        ("roper_fast", lambda i, n: i - n, rope(100.0)[:2]),
        ("roper_fast position.value_fraction=0.75", lambda i, n: i - n, rope(100.0)[:3]),
        ("roper_fast position.value_base=null", lambda i, n: i - n, rope()[:2]),
    ],
)
def test_the_output_is_the_sum_of_rotated_values(scheme, of_value, theta):
    """oₙ = Σᵢ aₙᵢ R(of_value · θ) vᵢ with the scores of RoPE (or without positions)."""
    name, *settings = scheme.split()

    def score(b, h, n, i, q, k):
        return q @ rotated(i - n if name != "none" else 0) @ k

    value = lambda b, h, n, i, v: rotated(of_value(i, n), theta) @ v  # noqa: E731
    assert_output(make_scheme(name, DIMS, *settings), score, value, pos=[*range(T)], within=1e-12)


@pytest.mark.parametrize(("settings", "first", "theta"), SHARED)
@pytest.mark.parametrize(
    ("name", "of_value"),
    [
        ("kv_shared", lambda i, n: i),
        ("kv_shared_back", lambda i, n: i - n),
        ("kv_unrotated", lambda i, n: 0),
    ],
)
def test_the_output_is_the_sum_of_rotated_keys(name, of_value, settings, first, theta):
    """oₙ = Σᵢ aₙᵢ R(of_value · θ) kᵢ with the scores of RoPE; only features from `first` on are
    rotated.
    """
    scheme = make_scheme(name, DIMS, *settings.split())
    score = lambda b, h, n, i, q, k: q @ rotated(POS[i] - POS[n], theta, first) @ k  # noqa: E731
    value = lambda b, h, n, i, v: rotated(of_value(POS[i], POS[n]), theta, first) @ QKV[b, i, 1, h]  # noqa: E731
    assert_output(scheme, score, value)


@pytest.mark.parametrize("name", ["pope", "pope_roper"])
def test_pope_is_its_formula(name):
    """Σ_c μ(q_c) μ(k_c) cos((i−n)θ_c + δ_c) / √d, with values unrotated or rotated by i−n."""
    scheme, theta = learned(name), torch.tensor(rope(10_000.0, 2 * K), dtype=FLOATS)
    delta = scheme.delta.data.mul_(3)  # also outside its authors' bounds

    def score(b, h, n, i, q, k):
        return (
            (1 + q.exp()).log() * (1 + k.exp()).log() * ((POS[i] - POS[n]) * theta + delta[h]).cos()
        ).sum()

    back = lambda b, h, n, i, v: rotated(POS[i] - POS[n]) @ v  # noqa: E731
    assert_output(scheme, score, back if name == "pope_roper" else None)


def test_phases_of_pope_begin_at_0_or_as_set():
    assert not make_scheme("pope", DIMS).delta.any()
    drawn = make_scheme("pope", Dims(8 * 100, 100, 8), "position.delta_init=6.2832").delta
    assert -6.2832 <= drawn.min() < -6.2
    assert -0.1 < drawn.max() <= 0


def test_scores_of_xpos_decay_with_distance_pair_by_pair():
    """Per feature pair, q Rᵀ R k · ζ^(distance / scale_base). Positions beyond the limit raise
    ValueError.
    """
    pos = [3, 4, 7, 9, 40, 500, 1200]
    zeta = [(2 * j / K + 0.4) / 1.4 for j in range(K // 2)]

    def score(b, h, n, i, q, k):
        pairs = torch.stack([q, rotated(pos[i] - pos[n]) @ k]).prod(0).unflatten(0, (-1, 2)).sum(-1)
        return sum(
            pair * z ** ((pos[n] - pos[i]) / 512) for pair, z in zip(pairs, zeta, strict=True)
        )

    assert_output(make_scheme("xpos", DIMS), score, pos=pos, within=1e-12)
    with pytest.raises(
        ValueError, match=r"more than the 2\d\d\d\d that the position scheme was made for"
    ):
        make_model("xpos")(TOKENS, torch.arange(10) + 30_000)


def of_cayley(a: torch.Tensor) -> torch.Tensor:
    """Orthogonal matrix P of each head, by the Cayley transform."""
    one, s = torch.eye(K, dtype=FLOATS), a - a.mT
    return (one - s) @ torch.linalg.inv(one + s)


@pytest.mark.parametrize("name", ["lerope", "rope_head_bases", "cayley_string", "ssmax"])
def test_scores_are_those_of_rope_with_learned_parts(name):
    scheme = learned(name, *(["position.base=100"] if name == "rope_head_bases" else []))
    p = (
        of_cayley(scheme.a_HKK.detach())
        if name == "cayley_string"
        else torch.eye(K, dtype=FLOATS).expand(H, K, K)
    )
    bases, s = [1e4] * H, getattr(scheme, "s_H", torch.ones(H)).tolist()
    bases = [1e2, 1e4, 1e6] if name == "rope_head_bases" else bases
    alpha = getattr(scheme, "alpha_C", torch.zeros(K // 2)).tolist()

    def score(b, h, n, i, q, k):
        theta = [
            math.exp(a) * frequency for a, frequency in zip(alpha, rope(bases[h]), strict=True)
        ]
        sharpness = s[h] * math.log(n + 1) if name == "ssmax" else 1.0
        return sharpness * (p[h] @ q @ rotated(POS[i] - POS[n], theta) @ (p[h] @ k))

    assert_output(scheme, score)


@pytest.mark.parametrize("name", ["lerope", "cayley_string"])
def test_what_is_learned_begins_as_rope(name):
    made, expected = (attended(make_scheme(each, DIMS).double()) for each in (name, "rope"))
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-12)


def of_fire(scheme, h: int, n: int, distance: int) -> float:
    """The network's output of ln(c · distance + 1) / ln(c · max(L, n) + 1)."""
    first, last, c = scheme.network[0], scheme.network[2], abs(scheme.c.item())
    longest = max(abs(scheme.share.item()) * scheme.threshold, n)
    x = math.log(c * distance + 1) / math.log(c * longest + 1)
    return ((first.weight[:, 0] * x + first.bias).relu() @ last.weight[h] + last.bias[h]).item()


def of_t5(scheme, h: int, n: int, distance: int) -> float:
    """Sixteen buckets of one distance each, logarithmic buckets up to 128, then a shared one."""
    shared = 16 + int(math.log(max(distance, 16) / 16) / math.log(128 / 16) * 16 + 1e-9)
    return scheme.table.weight[distance if distance < 16 else min(31, shared), h].item()


BIASES = {
    "alibi": lambda scheme, h, n, distance: -distance * [2.0**-4, 2.0**-8, 2.0**-2][h],
    "kerple_log": lambda scheme, h, n, distance: (
        -abs(scheme.r1_H11[h].item()) * math.log(1 + abs(scheme.r2_H11[h].item()) * distance)
    ),
    "fire": of_fire,
    "t5_bias": of_t5,
}


@pytest.mark.parametrize("name", BIASES)
def test_a_bias_is_its_formula(name):
    """For each head, each query and each key up to it."""
    scheme = learned(name)
    pos = torch.tensor([*range(20), 63, 64, 99, 200, 4096])
    bias = scheme.bias(pos, pos).detach().double()
    assert bias.shape == (H, len(pos), len(pos))
    for (a, n), (b, m) in (
        (x, y) for x in enumerate(pos.tolist()) for y in enumerate(pos.tolist()) if y <= x
    ):
        expected = [BIASES[name](scheme, h, n, n - m) for h in range(H)]
        assert bias[:, a, b].tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9), (n, m)


@pytest.mark.parametrize(
    ("n_heads", "exponents"),
    [
        (1, [8]),
        (4, [2, 4, 6, 8]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (3, [4, 8, 2]),
        (6, [2, 4, 6, 8, 1, 3]),
    ],
)
def test_slopes_of_alibi(n_heads, exponents):
    scheme = make_scheme("alibi", Dims(8 * n_heads, n_heads, 8))
    assert scheme.bias(torch.tensor([9]), torch.tensor([8])).flatten().tolist() == [
        -(2.0**-e) for e in exponents
    ]


def test_fires_threshold_is_the_training_length_unless_set():
    """Distances are rescaled only beyond it; an explicit threshold, as in old runs, is kept."""
    default, old = (make_scheme("fire", DIMS, *own) for own in ([], ["position.threshold=512"]))
    assert (default.threshold, old.threshold) == (DIMS.max_len, 512)
    assert (
        make_scheme("fire", DIMS, "position.threshold=1e-9")
        .bias(torch.arange(9), torch.arange(9))
        .isfinite()
        .all()
    )


@pytest.mark.parametrize("base", [10_000.0, 500.0])
def test_sinusoidal_is_the_formula_and_its_misreading_multiplies(base):
    scheme, product = (make_scheme(name, DIMS, f"position.base={base}") for name in SINES)
    pos, x = torch.tensor(POS), numbers(B, T, H * K)
    angle = pos[:, None] * torch.tensor(rope(base, H * K), dtype=FLOATS)
    encoding = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)
    torch.testing.assert_close(
        scheme.embed(x, scheme.prepare(pos, FLOATS)), x + encoding, rtol=0, atol=1e-12
    )
    torch.testing.assert_close(
        product.embed(x, product.prepare(pos, FLOATS)), x * encoding, rtol=0, atol=1e-12
    )


# Per-layer schemes


@pytest.mark.parametrize(("every", "with_rope"), [(2, [0, 2]), (3, [0, 1]), (4, [0, 1, 2])])
def test_rnope_is_rope_and_none_layer_by_layer(every, with_rope):
    plain, none = make_scheme("rope", DIMS), make_scheme("none", DIMS)
    model = make_model(RNoPE(DIMS, every), layers=4 - (every < 4))
    x, at = model.embedding(TOKENS), plain.prepare(torch.arange(10), FLOATS)
    for number, layer in enumerate(model.layers):
        x = layer(x, plain if number in with_rope else none, at, None, None)
    torch.testing.assert_close(model(TOKENS), model.unembedding(model.norm(x)), rtol=0, atol=1e-12)


def test_windows_and_temperatures_are_those_of_their_layers():
    """First layer: RoPE in a window of 3 tokens. Second: no positions, scores times 1 + 0.5 ln(1 +
    ⌊(n+1)/3⌋).
    """
    scheme = RNoPE(DIMS, window=3, temperature=0.5)
    local = Rotary(DIMS, q=1, k=1)
    local.window, local.in_layer = 3, lambda number: local
    scores = lambda b, h, n, i, q, k: q @ rotated(i - n) @ k if n - i < 3 else -math.inf  # noqa: E731
    assert_output(local, scores, pos=[*range(T)])
    scores = lambda b, h, n, i, q, k: (1 + 0.5 * math.log(1 + (n + 1) // 3)) * (q @ k)  # noqa: E731
    assert_output(scheme, scores, pos=[*range(T)], within=1e-6)
    assert [scheme.in_layer(number).window for number in (0, 1)] == [3, None]
    of_all = scheme.prepare(torch.arange(T), FLOATS)
    first, (_, at, _) = scheme.in_layer(0), scheme.for_layer(0, of_all, [None, None])
    made = first.attention(first.heads(QKV, at), at, None, None)
    torch.testing.assert_close(made, attended(local, [*range(T)]), rtol=0, atol=1e-12)


def test_a_window_may_be_a_share_of_the_training_length():
    """A share of `max_len`, also behind random positions."""
    assert [RNoPE(DIMS, window=window).in_layer(0).window for window in (0.25, 0.001, 3)] == [
        DIMS.max_len // 4,
        1,
        3,
    ]
    random = Randomized(DIMS, lambda dims: RNoPE(dims, window=0.25), longest=20 * DIMS.max_len)
    assert random.in_layer(0).window == DIMS.max_len // 4


# Random positions


@pytest.mark.parametrize("name", ["randomized_rope", "random_floats"])
def test_random_positions_are_sorted_distinct_and_those_of_the_seed(name):
    """They cover the range below 2048, and the inner scheme receives them."""
    scheme, draws = make_scheme(name, DIMS), []
    for seed in (0, 1, 0):
        scheme.draw(seed, 500)
        draws.append(scheme.drawn.tolist())
        assert draws[-1] == sorted(set(draws[-1]))
        assert len(draws[-1]) == 500
        assert 0 <= draws[-1][0] < 50
        assert 2000 < draws[-1][-1] < 2048
    assert draws[0] == draws[2] != draws[1]
    assert any(each % 1 for each in draws[0]) == (name == "random_floats")
    inner = Rotary(DIMS, q=1, k=1)
    expected = inner.heads(QKV, inner.prepare(scheme.drawn[:T], FLOATS))
    assert torch.equal(
        scheme.in_layer(0).heads(QKV, scheme.prepare(torch.arange(T), FLOATS)), expected
    )


def test_fractional_distances_are_in_t5s_bucket_below():
    bias = make_scheme("t5_bias", DIMS).bias
    at_S = torch.arange(16)
    assert torch.equal(bias(at_S[-1:] + 0.5, at_S), bias(at_S[-1:], at_S))


def test_ssmax_counts_keys_under_random_positions_too():
    """The n-th query is RoPE's query at the same random position times s ln n."""
    scheme, plain = Randomized(DIMS, SSMax), make_scheme("rope", DIMS)
    at = scheme.with_keys(scheme.prepare(torch.arange(T), FLOATS), torch.arange(1, T + 1))
    made = scheme.in_layer(0).heads(QKV, at)
    expected = plain.heads(QKV, plain.prepare(scheme.drawn[:T], at[0].dtype))
    factor_T = scheme.scheme.s_H[0].item() * torch.arange(1, T + 1).double().log()
    torch.testing.assert_close(made[:, :, 0], expected[:, :, 0] * factor_T[:, None, None])
    torch.testing.assert_close(made[:, :, 1:], expected[:, :, 1:], rtol=0, atol=0)


def test_positions_are_drawn_per_step_and_fixed_for_evaluation(tiny):
    lab, seen = build(load(*tiny, "position=randomized_rope")), []
    for action in (
        lambda: update(lab, 0),
        lambda: update(lab, 1),
        lambda: evaluate_now(lab),
        lambda: update(lab, 0),
    ):
        action()
        seen.append(tuple(lab.model.position.drawn.tolist()))
    assert seen[0] == seen[3]
    assert len(set(seen)) == 3
    evaluate_now(lab)
    assert tuple(lab.model.position.drawn.tolist()) == seen[2]


# All schemes

ABSOLUTE = [
    "sinusoidal",
    "sinusoidal_product",
    "learned",
    "roper_double_rotation",
    "fire",
    "kv_shared",
]
ABSOLUTE += [
    "grape_ap",
    "random_rotations",
    "irope",
    "temperature_tuning",
    "randomized_rope",
    "random_floats",
    "abacus",
    "position_coupling",
]


@pytest.mark.parametrize("name", SCHEMES)
def test_only_relative_schemes_ignore_a_shift(name):
    """xPos is limited to about 28,000 positions; FIRE depends on absolute position only beyond its
    threshold.
    """
    far = {"xpos": 10_000, "learned": 40, "randomized_rope": 40, "random_floats": 40, "fire": 1000}
    far |= {"random_rotations": 1000, "abacus": 40, "position_coupling": 40}
    model, pos = make_model(name), torch.arange(16)
    tokens = torch.randint(11, (3, 16), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        change = (
            (model(tokens, pos + far.get(name, 100_000)) - model(tokens, pos)).abs().max().item()
        )
    assert change > (1e-4 if name == "fire" else 1e-2) if name in ABSOLUTE else change < 1e-9


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        (
            "p_rope",
            "position.p=0.9",
            "position.p=0.9: 3.6 of the 4 pairs of a head are rotated",
        ),
        ("pope", "position.delta_init=7", "position.delta_init=7.0: must be from 0 to 2π"),
        (
            "rope",
            "position.factor=2",
            "position.factor=2.0, position.original=null: do nothing without",
        ),
        (
            "rope",
            "position.original=64",
            "position.original=64: do nothing without position.scaling=",
        ),
        (
            "rope",
            "position.scaling=linear position.factor=0.5",
            "position.factor=0.5, position.original=64: must be",
        ),
        (
            "irope",
            "position.window=null",
            "position.window=null, position.temperature=0.1: must be a window of",
        ),
        (
            "randomized_rope",
            "position.longest=10",
            "position.longest=10: must be from train.seq_len=64 to 10,000,000",
        ),
        ("repo", "position.first=2", "position.first=2: must be a layer, from 0 to 1"),
        (
            "random_rotations",
            "position.positions=9",
            "position.positions=9: must be at least train.seq_len",
        ),
        ("grape_ap", "position.width=3", "position.width=3: must be an even number"),
        ("kv_shared_gemma", "position.p=0.3", "position.p=0.3: 1.2 of the 4 pairs"),
    ],
)
def test_a_setting_that_cannot_be_served_is_one_clear_message(name, override, message):
    with pytest.raises(config.ConfigError, match=re.escape(message)):
        make_scheme(name, DIMS, *override.split())
    if name in ("rope", "pope"):
        with pytest.raises(config.ConfigError, match=r"model.n_heads=2: a head has 7 features"):
            make_scheme(name, Dims(14, 2, 64))


# The names in transformers.
SCALINGS = {"linear": "linear", "ntk": "dynamic", "ntk_by_parts": "llama3", "yarn": "yarn"}


@pytest.mark.slow  # transformers takes seconds to import
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize(
    ("width", "base", "factor", "original"), [(64, 1e4, 4.0, 512), (128, 5e5, 8.0, 4096)]
)
def test_scaled_frequencies_are_those_of_transformers(scaling, width, base, factor, original):
    """Our NTK equals their dynamic NTK with factor 1 at length factor · original, our NTK by parts
    Llama 3's with YaRN's limits.
    """
    their = pytest.importorskip(
        "transformers.modeling_rope_utils", reason="pip install -e '.[dev]'"
    )
    llama = pytest.importorskip("transformers").LlamaConfig
    parameters = {
        "rope_type": SCALINGS[scaling],
        "rope_theta": base,
        "original_max_position_embeddings": original,
    }
    parameters |= {"factor": 1.0 if scaling == "ntk" else factor}
    if scaling == "ntk_by_parts":
        parameters |= {"low_freq_factor": 1.0, "high_freq_factor": 32.0}
    config_ = llama(head_dim=width, max_position_embeddings=original, rope_parameters=parameters)
    made = their.ROPE_INIT_FUNCTIONS[SCALINGS[scaling]]
    theirs, temperature = made(config_, torch.device("cpu"), seq_len=int(factor * original))
    words = [
        f"position.scaling={scaling}",
        f"position.factor={factor}",
        f"position.original={original}",
    ]
    scheme = make_scheme("rope", Dims(2 * width, 2, 64), f"position.base={base}", *words)
    torch.testing.assert_close(scheme.theta["q"].float(), theirs, rtol=1e-6, atol=0)
    assert scheme.sharpness == pytest.approx(temperature**2)


@pytest.mark.parametrize("pairs", ["neighbours", "halves"])
def test_yarn_scales_rotated_features_alone(pairs):
    """By 0.1 ln factor + 1 in queries and in keys, as in transformers; values are unchanged."""
    partial = ("position.fraction=0.5", f"position.pairs={pairs}")
    scheme = make_scheme("rope", DIMS, "position.scaling=yarn", "position.factor=16", *partial)
    plain = make_scheme("rope", DIMS, *partial)
    scheme.theta = plain.theta
    qkv = torch.randn(1, T, 3, H, K, dtype=FLOATS)
    found, without = (
        each.heads(qkv, each.prepare(torch.arange(T), FLOATS)) for each in (scheme, plain)
    )
    half = K // 2
    expected = without.clone()
    expected[:, :, 0, :, :half] *= (0.1 * math.log(16) + 1) ** 2
    torch.testing.assert_close(found, expected)


def test_yarn_scales_a_rotated_factor_once():
    words = ("position.scaling=yarn", "position.factor=16")
    assert make_scheme("rope", DIMS, "position.k=0", *words).sharpness == 0.1 * math.log(16) + 1
    assert make_scheme("value_rope", DIMS, *words).sharpness == 1


@pytest.mark.parametrize("name", ["sinusoidal", "rope", "roper", "pope"])
def test_tables_stay_wide_when_the_model_is_narrowed(name):
    scheme = make_scheme(name, DIMS).to(torch.bfloat16)
    prepared = (scheme.prepare(torch.tensor([5000]), dtype) for dtype in (torch.bfloat16, FLOATS))
    tables = (
        [each] if torch.is_tensor(each) else [table for table in each if table is not None]
        for each in prepared
    )
    for narrow, wide in zip(*tables, strict=True):
        assert narrow.dtype == torch.float32
        torch.testing.assert_close(narrow.double(), wide, rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", SCHEMES)
def test_under_autocast_logits_are_nearly_those_of_float32(name):
    model, tokens = (
        make_model(name, qk_norm=name == "rope").float(),
        torch.arange(128).view(2, 64) % 11,
    )
    with torch.autocast("cpu", torch.bfloat16):
        low = model(tokens)  # a warning fails the test
    assert (low.float() - model(tokens)).abs().max() < 0.1
