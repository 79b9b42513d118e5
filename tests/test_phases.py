"""Other phases of RoPE, and shared keys and values with norms, in float64 as explicit sums."""

import math
import re

import pytest
import torch
from sums import (
    DIMS,
    LAYER,
    POS,
    QKV,
    D,
    H,
    K,
    T,
    X,
    assert_output,
    attended,
    learned,
    make_model,
    rope,
    rotated,
    rotation,
)
from trained import make_scheme

from rope_lab.checking.schemes import TOKENS, cached
from rope_lab.model.hooks import Dims
from rope_lab.text import ConfigError


def test_repo_is_rope_at_positions_from_content():
    """z = W_z (SiLU(W_g x) ∘ W_c x) is the position of queries and keys."""
    scheme = learned("repo")
    gate, content = scheme.gates[0].weight, scheme.contents[0].weight
    with torch.no_grad():
        scheme.positions[0].weight.mul_(10)

    def z(b, h, token):
        g = gate @ X[b, token]
        hidden = g / (1 + (-g).exp()) * (content @ X[b, token])
        return (scheme.positions[0].weight[h] @ hidden).item()

    def score(b, h, n, i, q, k):
        return q @ rotated(z(b, h, i) - z(b, h, n), rope(500_000.0)) @ k

    assert_output(scheme, score, within=1e-10)


def test_repo_begins_after_a_third_of_the_layers():
    dims = [Dims(D, H, 64, n_layers=layers) for layers in (1, 2, 3, 4, 16)]
    assert [make_scheme("repo", each).first for each in dims] == [0, 1, 1, 2, 6]
    scheme = make_scheme("repo", DIMS)
    at = scheme.prepare(torch.arange(T), torch.float64)
    assert scheme.read(X, at, 0, None)[0] is at


@pytest.mark.parametrize("rotates_values", [False, True])
def test_random_rotations_accumulate(rotates_values):
    """The angle between two positions is the sum of the steps between them, times θ."""
    own = ["position.v=1", "position.o=-1"] if rotates_values else []
    scheme = make_scheme("random_rotations", DIMS, *own)
    random = torch.Generator().manual_seed(0)
    steps = torch.randn(16_384, K // 2, generator=random, dtype=torch.float64)
    pos = [0, 1, 2, 5, 100, 4096, 16_000]
    theta = torch.tensor(rope(), dtype=torch.float64)

    def between(n, i):
        return rotation(-theta * steps[pos[i] + 1 : pos[n] + 1].sum(0))

    value = (lambda b, h, n, i, v: between(n, i) @ v) if rotates_values else None
    score = lambda b, h, n, i, q, k: q @ between(n, i) @ k  # noqa: E731
    assert_output(scheme, score, value, pos=pos, within=1e-10)


def two_heads(scheme, second_query) -> None:
    """Compare both outputs of each head with softmax of RoPE's scores; the second has a query of
    its own.
    """
    made = attended(scheme).unflatten(2, (H, 2))
    for b, h, n in ((b, h, n) for b in range(len(X)) for h in range(H) for n in range(T)):
        keys, values = QKV[b, : n + 1, 1, h], QKV[b, : n + 1, 2, h]
        for which, q in enumerate((QKV[b, n, 0, h], second_query(b, h, n))):
            scores = [q @ rotated(POS[i] - POS[n]) @ keys[i] for i in range(n + 1)]
            expected = (torch.stack(scores) / K**0.5).softmax(0) @ values
            torch.testing.assert_close(made[b, n, h, which], expected, rtol=0, atol=1e-10)


def test_the_second_head_is_a_quarter_turn_behind():
    quarter = rotation([-math.pi / 2] * (K // 2))
    two_heads(make_scheme("rope_pp", DIMS), lambda b, h, n: quarter @ QKV[b, n, 0, h])


def test_the_control_of_rope_pp_projects_its_second_query():
    scheme = learned("rope_double_heads")
    project = scheme.queries[LAYER]
    two_heads(scheme, lambda b, h, n: project(X[b, n]).view(H, K)[h])


@torch.no_grad()
@pytest.mark.parametrize("name", ["rope_pp", "rope_double_heads"])
def test_two_outputs_of_each_head_are_mixed(name):
    """With a cache no larger than that of RoPE; the first heads have the weights of any scheme."""
    model, plain = make_model(name), make_model("rope")
    cached(model)
    cached(make_model(name, kv_heads=1))
    assert model.bytes_of_token(64) == plain.bytes_of_token(64)
    weight = model.layers[0].attention.out.weight
    assert weight.shape == (D, 2 * D)
    first = weight.unflatten(1, (H, 2, K))[:, :, 0].flatten(1)
    if name == "rope_pp":  # the other draws weights of its own first
        torch.testing.assert_close(first, plain.layers[0].attention.out.weight)
    assert model(TOKENS).shape == plain(TOKENS).shape


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_keys_of_deepseek_are_normalised_rotated_values(fraction):
    """oₙ = Σᵢ aₙᵢ R(i−n) kᵢ′, k′ at root mean square 1 times gains; the last features rotated."""
    scheme = learned("kv_shared_deepseek", f"position.fraction={fraction}")
    gain = scheme.gains[LAYER].detach()
    width = int(fraction * K)
    turn = lambda distance: rotated(distance, rope(width=width), K - width)  # noqa: E731

    def score(b, h, n, i, q, k):
        return norm(q) @ turn(POS[i] - POS[n]) @ (gain * norm(k))

    def value(b, h, n, i, v):
        return turn(POS[i] - POS[n]) @ (gain * norm(QKV[b, i, 1, h]))

    assert_output(scheme, score, value, within=1e-10)


@pytest.mark.parametrize(("p", "pairs"), [(1.0, 4), (0.25, 1)])
def test_values_of_gemma_are_normalised_keys(p, pairs):
    """Scores (g q′)ᵀ R(i−n) (g′ k′), not divided by √K; values k′, at root mean square 1."""
    scheme = learned("kv_shared_gemma", f"position.p={p}", "position.base=1e6")
    of_q, of_k = scheme.gains[LAYER].detach()
    theta = rope(1e6)[:pairs]

    def score(b, h, n, i, q, k):
        turned = rotated(POS[i] - POS[n], theta) @ (of_k * norm(k))
        return K**0.5 * (of_q * norm(q)) @ turned

    value = lambda b, h, n, i, v: norm(QKV[b, i, 1, h])  # noqa: E731
    assert_output(scheme, score, value, within=1e-10)


def norm(x: torch.Tensor) -> torch.Tensor:
    return x / (x.square().mean() + 1e-6).sqrt()


@torch.no_grad()
def test_keys_are_values_in_some_layers_alone():
    """Only those layers lack a value projection; also with a cache."""
    dims = Dims(D, H, max_len=8, n_layers=3)
    model = make_model(
        "layers", "position.pattern=rope *2 | kv_shared_gemma p:0.25", layers=3, dims=dims
    )
    outputs = [layer.attention.qkv.out_features for layer in model.layers]
    assert outputs == [3 * D, 3 * D, 2 * D]
    cached(model)


@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        ("repo", "first=2", "position.first=2: must be a layer, from 0 to 1"),
        ("random_rotations", "positions=9", "position.positions=9: must be at least train.seq_len"),
        ("grape_ap", "width=3", "position.width=3: must be an even number"),
        ("kv_shared_gemma", "p=0.3", "position.p=0.3: 1.2 of the 4 pairs"),
    ],
)
def test_a_setting_that_cannot_be_served_is_named(name, setting, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        make_scheme(name, DIMS, f"position.{setting}")
