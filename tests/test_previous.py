"""Schemes that use the token before, in float64, as explicit sums."""

import re

import pytest
import torch
from sums import (
    DIMS,
    LAYER,
    QKV,
    D,
    H,
    K,
    X,
    assert_output,
    learned,
    make_model,
    rope,
    rotated,
)
from trained import make_scheme

from rope_lab.checking.schemes import TOKENS, cached
from rope_lab.model.hooks import Dims
from rope_lab.text import ConfigError

HALF = K // 2
CONSECUTIVE = [*range(7)]


def offset(b: int, h: int, i: int, moved: int = HALF) -> torch.Tensor:
    """Key i, its last features those of key i − 1, or its own if it is the first."""
    before = QKV[b, max(i - 1, 0), 1, h]
    return torch.cat([QKV[b, i, 1, h, : K - moved], before[K - moved :]])


@pytest.mark.parametrize(
    ("name", "rotates", "rotates_values"),
    [
        ("partial_key_offset", True, False),
        ("partial_key_offset_roper", True, True),
        ("partial_key_offset_none", False, False),
    ],
)
def test_unrotated_features_of_keys_are_those_of_the_token_before(name, rotates, rotates_values):
    """Score qₙᵀ R(i−n) kᵢ′ with half of the features rotated; values as in half RoPE or RoPER."""
    theta = rope(width=HALF)

    def turn(distance):
        return rotated(distance if rotates else 0, theta)

    def score(b, h, n, i, q, k):
        return q @ turn(i - n) @ offset(b, h, i)

    value = (lambda b, h, n, i, v: turn(i - n) @ v) if rotates_values else None
    assert_output(make_scheme(name, DIMS), score, value, pos=CONSECUTIVE, within=1e-10)


def test_the_share_of_key_features_may_be_set():
    scheme = make_scheme("partial_key_offset_none", DIMS, "position.share=1")
    score = lambda b, h, n, i, q, k: q @ offset(b, h, i, moved=K)  # noqa: E731
    assert_output(scheme, score, within=1e-10)


def test_kv_shift_is_its_formula():
    scheme = learned("kv_shift")
    w_k, w_v = scheme.gates[LAYER].weight.detach().unflatten(0, (2, H))

    def mixed(b, h, i, w, part):
        """α x of the token before + (1 − α) x, 0 before the first token."""
        alpha = torch.sigmoid(w[h] @ X[b, i])
        previous = QKV[b, i - 1, part, h] if i else torch.zeros(K)
        return alpha * previous + (1 - alpha) * QKV[b, i, part, h]

    def score(b, h, n, i, q, k):
        return q @ rotated(i - n) @ mixed(b, h, i, w_k, 1)

    value = lambda b, h, n, i, v: mixed(b, h, i, w_v, 2)  # noqa: E731
    assert_output(scheme, score, value, pos=CONSECUTIVE, within=1e-10)


@torch.no_grad()
@pytest.mark.parametrize("name", ["partial_key_offset", "kv_shift"])
def test_they_serve_some_layers_and_fewer_key_heads(name):
    """Also with a cache, beyond the trained length."""
    dims = Dims(D, H, max_len=8, n_layers=3)
    cached(make_model("layers", f"position.pattern={name} window:5 | rope", layers=3, dims=dims))
    cached(make_model(name, layers=3, dims=dims, kv_heads=1))


def test_the_first_token_alone_is_read_from_a_cache():
    model = make_model("partial_key_offset")
    cache = model.new_cache(3, 16)
    parts = [model(TOKENS[:, t : t + 1], cache=cache) for t in range(3)]
    torch.testing.assert_close(torch.cat(parts, 1), model(TOKENS[:, :3]), rtol=0, atol=1e-12)


def test_a_scheme_that_cannot_be_wrapped_is_refused():
    own = ["position.scheme._target_=rope_lab.model.schemes.SharedKV", "~position.scheme.q"]
    with pytest.raises(ConfigError, match=re.escape("position.scheme: SharedKV differs between")):
        make_scheme("kv_shift", DIMS, *own, "~position.scheme.k")
