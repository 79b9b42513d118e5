"""Ways to read longer texts than in training, in float64 against their papers' formulas."""

import math
import re

import pytest
import torch
from sums import DIMS, POS, QKV, H, K, T, assert_output, attended, make_model, rope, rotated
from trained import make_scheme

from rope_lab.checking.schemes import cached
from rope_lab.model.hooks import Dims
from rope_lab.text import ConfigError

L = 12  # the training length
NEAR, GROUP = 8, 3
FAR = [0, 3, 4, 9, 10, 23, 40]  # positions of the T tokens
WORDS = [f"position.original={L}", f"position.near={NEAR}", f"position.group={GROUP}"]


def of_rerope(n: int, i: int) -> tuple[int, int]:
    """Positions of query and key: their distance is at most NEAR."""
    return min(n - i, NEAR), 0


def of_self_extend(n: int, i: int) -> tuple[int, int]:
    if n - i < NEAR:
        return n, i
    return math.floor(n / GROUP) + NEAR - math.floor(NEAR / GROUP), math.floor(i / GROUP)


def of_dual_chunk(n: int, i: int) -> tuple[int, int]:
    chunks = math.floor(n / NEAR) - math.floor(i / NEAR)
    if chunks == 0:
        return n % NEAR, i % NEAR
    if chunks == 1:
        return min(n % NEAR + NEAR, L - 1), i % NEAR
    return L - 1, i % NEAR


METHODS = {"rerope": of_rerope, "self_extend": of_self_extend, "dual_chunk": of_dual_chunk}


@pytest.mark.parametrize("rotates_values", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_remapped_positions_are_those_of_the_paper(method, rotates_values):
    """Σᵢ softmax(qᵀ R(b − a) k) R(b − a) v, a and b the positions of query and key."""
    own = ["position.v=1", "position.o=-1"] if rotates_values else []
    scheme = make_scheme("rope_remapped", DIMS, f"position.method={method}", *WORDS, *own)
    scheme.original = 3 if method == "rerope" else L  # some queries see more keys

    def between(n: int, i: int) -> torch.Tensor:
        query, key = METHODS[method](FAR[n], FAR[i])
        return rotated(key - query)

    def score(b, h, n, i, q, k):
        factor = max(1, math.log(n + 1) / math.log(3)) if method == "rerope" else 1
        return factor * (q @ between(n, i) @ k)

    value = lambda b, h, n, i, v: between(n, i) @ v  # noqa: E731
    assert_output(scheme, score, value if rotates_values else None, FAR, within=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_no_distance_is_longer_than_in_training(method):
    """Of SelfExtend if the group is large enough."""
    words = [f"position.method={method}", f"position.original={L}", "position.group=9"]
    scheme = make_scheme("rope_remapped", DIMS, *words)
    n = torch.arange(6 * L)
    zones = scheme.zones(n, n)
    seen = torch.ones(len(n), len(n), dtype=torch.bool).tril()
    together = torch.stack([zone.pairs_TS & seen for zone in zones])
    assert torch.equal(together.sum(0), seen.long())
    for zone in zones:
        distance = (zone.query_T[:, None] - zone.key_S)[zone.pairs_TS & seen]
        assert 0 <= distance.min() <= distance.max() < L


@pytest.mark.parametrize("method", METHODS)
def test_within_near_distances_remapped_is_rope(method):
    words = [f"position.method={method}", f"position.near={L}", "position.original=13"]
    pos = [*range(T)]
    plain = attended(make_scheme("rope", DIMS), pos)
    same = attended(make_scheme("rope_remapped", DIMS, *words), pos)
    torch.testing.assert_close(same, plain, rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("method", METHODS)
def test_remapped_decodes_as_it_reads(method):
    words = [f"position.method={method}", "position.original=8", "position.near=3"]
    model = make_model("rope_remapped", *words, "position.v=1", "position.o=-1")
    cached(model)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["position.near=0"], "near=0, group=4: must be at least 2, 1 and 1"),
        (
            ["position.method=dual_chunk", "position.near=64"],
            "position.near=64: must be below position.original=64",
        ),
    ],
)
def test_sizes_of_zones_that_cannot_be_are_named(words, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        make_scheme("rope_remapped", DIMS, *words)


@pytest.mark.parametrize(
    ("width", "base", "factor", "original"), [(64, 1e4, 4.0, 512), (16, 1e4, 8.0, 64)]
)
def test_ntk_by_parts_is_its_formula(width, base, factor, original):
    """γ = clip((L/λ − 1)/31, 0, 1) and θ′ = (1 − γ) θ/s + γθ (Peng et al., 2023)."""
    words = [f"position.factor={factor}", f"position.original={original}"]
    dims = Dims(2 * width, 2, 64)
    scheme = make_scheme("rope", dims, "position.scaling=ntk_by_parts", *words)
    for theta, found in zip(rope(base, width), scheme.theta["q"].tolist(), strict=True):
        turns = original / (2 * math.pi / theta)
        gamma = min(max((turns - 1) / 31, 0), 1)
        assert found == pytest.approx((1 - gamma) * theta / factor + gamma * theta, rel=1e-12)
    assert scheme.sharpness == 1


def test_a_window_of_rope_and_pope_hides_older_keys():
    for name in ("rope", "pope"):
        whole = make_scheme(name, DIMS)
        windowed = make_scheme(name, DIMS, "position.window=2")
        found = attended(windowed, POS)
        torch.testing.assert_close(found[:, :2], attended(whole, POS)[:, :2])
        changed = QKV.clone()
        changed[:, 0] += 1
        at = windowed.prepare(torch.tensor(POS), torch.float64)
        again = windowed.attention(windowed.heads(changed, at), at, None, None)
        assert again.shape[2:] == (H, K)
        torch.testing.assert_close(windowed.output(again, at)[:, 2:], found[:, 2:])
