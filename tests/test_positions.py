"""The mathematics of position, in float64, against oracles that share no code with the schemes."""

import pytest
import torch
from conftest import SCHEMES, make_scheme

from rope_lab.model import Transformer
from rope_lab.positions import Dims, PositionScheme, Rotary, turn

B, T, H, K = 2, 7, 3, 8
DIMS = Dims(d_model=H * K, n_heads=H, max_len=64)
BASE = 10_000.0


def heads(seed: int = 0) -> torch.Tensor:
    """Random queries, keys and values, float64 [B, T, 3, H, K]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(B, T, 3, H, K, generator=generator, dtype=torch.float64)


def turn_queries(scheme: Rotary, x: torch.Tensor, pos: torch.Tensor) -> torch.Tensor:
    """`x` [B, T, H, K] as the scheme turns queries."""
    return scheme.heads(torch.stack([x, x, x], dim=2), scheme.prepare(pos, x.dtype))[:, :, 0]


def attend(scheme: PositionScheme, qkv, pos) -> torch.Tensor:
    """Causal attention through doors 2 and 4, written out, [B, T, H, K]."""
    at = scheme.prepare(pos, qkv.dtype)
    q, k, v = scheme.heads(qkv, at).unbind(2)
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
    turned = torch.complex(q[..., ::2], q[..., 1::2]) * unit_T1C
    expected = torch.view_as_real(turned).flatten(-2)
    torch.testing.assert_close(turn_queries(Rotary(DIMS, q=1, base=base), q, pos), expected, rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when it compiles
def test_compiled_rotation_is_the_same():
    scheme, qkv = Rotary(DIMS, q=1, k=1, v=2, o=-1), heads().requires_grad_()
    at = scheme.prepare(torch.arange(T) * 100, torch.float64)
    compiled = torch.compile(lambda x, e: turn(x, e), fullgraph=True)
    for ours in (turn, compiled):
        turned = ours(qkv, at[0])
        (gradient,) = torch.autograd.grad(turned.square().sum() + turned[..., 0].sum(), qkv)
        if ours is turn:
            expected = turned, gradient
    torch.testing.assert_close((turned, gradient), expected, rtol=0, atol=1e-12)


def dense_rotation(m: int) -> torch.Tensor:
    """The block-diagonal matrix of RoFormer's equation 15 for position m, [K, K], acting on column vectors."""
    matrix = torch.zeros(K, K, dtype=torch.float64)
    for i in range(1, K // 2 + 1):
        angle = torch.tensor(m * BASE ** (-2 * (i - 1) / K), dtype=torch.float64)
        a, b = 2 * (i - 1), 2 * (i - 1) + 1
        matrix[a, a], matrix[a, b] = angle.cos(), -angle.sin()
        matrix[b, a], matrix[b, b] = angle.sin(), angle.cos()
    return matrix


def test_rotation_is_the_dense_block_diagonal_matrix():
    q = heads()[:, :, 0]
    pos = torch.arange(1, T + 1)
    expected = torch.stack([q[:, t] @ dense_rotation(int(pos[t])).T for t in range(T)], dim=1)
    torch.testing.assert_close(turn_queries(Rotary(DIMS, q=1), q, pos), expected, rtol=0, atol=1e-12)


def test_pairs_of_halves_are_the_same_up_to_the_order_of_features():
    """x ∘ cos + rotate_half(x) ∘ sin, as other code has it."""
    q, pos = heads()[:, :, 0], torch.arange(T)
    order = torch.arange(K).view(2, K // 2).T.flatten()  # 0, K/2, 1, K/2 + 1, …
    angle = pos[:, None] * BASE ** (-2 * torch.arange(K // 2, dtype=torch.float64) / K)
    angle_T1K = torch.cat([angle, angle], dim=-1)[:, None]
    rotated = torch.cat([-q[..., K // 2 :], q[..., : K // 2]], dim=-1)
    halves = q * angle_T1K.cos() + rotated * angle_T1K.sin()
    torch.testing.assert_close(
        turn_queries(Rotary(DIMS, q=1), q[..., order], pos), halves[..., order], rtol=0, atol=1e-12
    )


@pytest.mark.parametrize(
    ("name", "turns"),
    [
        ("none", lambda i, n: 0),
        ("rope", lambda i, n: 0),
        ("roper", lambda i, n: i - n),
        ("roper_double_rotation", lambda i, n: 2 * i - n),
    ],
)
def test_output_is_the_explicit_sum_of_turned_values(name, turns):
    """o_n = Σᵢ a_ni R(turns · θ) vᵢ with the scores of RoPE (or of no position), loop by loop."""
    scheme, qkv = make_scheme(name, DIMS), heads()
    q, k, v = qkv.unbind(2)
    expected = torch.zeros_like(v)
    for n in range(T):
        related = [dense_rotation(i - n if name != "none" else 0) for i in range(n + 1)]
        scores = torch.stack([torch.einsum("bhk,kj,bhj->bh", q[:, n], related[i], k[:, i]) for i in range(n + 1)])
        weights = (scores / K**0.5).softmax(0)
        for i in range(n + 1):
            expected[:, n] += weights[i, ..., None] * (v[:, i] @ dense_rotation(turns(i, n)).T)
    torch.testing.assert_close(attend(scheme, qkv, torch.arange(T)), expected, rtol=0, atol=1e-12)


def test_turning_keeps_norms():
    q = heads()[:, :, 0]
    turned = turn_queries(Rotary(DIMS, q=1), q, torch.arange(T) * 1000)
    assert not torch.allclose(turned, q)
    torch.testing.assert_close(turned.norm(dim=-1), q.norm(dim=-1), rtol=1e-14, atol=0)


def test_fraction_turns_the_first_features_by_angles_of_its_own_width():
    q, pos = heads()[:, :, 0], torch.arange(T)
    turned = turn_queries(Rotary(DIMS, q=1, fraction=0.5), q, pos)
    assert torch.equal(turned[..., K // 2 :], q[..., K // 2 :])
    narrow = Rotary(Dims(DIMS.d_model // 2, H, 64), q=1)
    torch.testing.assert_close(turned[..., : K // 2], turn_queries(narrow, q[..., : K // 2], pos), rtol=0, atol=1e-15)


def test_gradients():
    qkv = heads()[:1, :3, :, :1].clone().requires_grad_()
    scheme = Rotary(Dims(K, 1, 8), q=1, k=1, v=2, o=-1)
    at = scheme.prepare(torch.tensor([0, 3, 50]), torch.float64)
    assert torch.autograd.gradcheck(lambda x: scheme.heads(x, at), (qkv,))
    assert torch.autograd.gradcheck(lambda x: scheme.output(x[:, :, 0], at), (qkv,))


def logits(name: str, shift: int, max_len: int = 64) -> torch.Tensor:
    """What a random float64 model under a scheme makes of fixed tokens that stand at shift, shift + 1, …"""
    torch.manual_seed(0)
    dims = Dims(d_model=24, n_heads=3, max_len=max_len)
    model = Transformer(11, 24, 2, 3, "pre", "pytorch", 0.0, make_scheme(name, dims)).double()
    tokens = torch.arange(20).reshape(2, 10) % 11
    return model(tokens, torch.arange(10) + shift)


@pytest.mark.parametrize("name", ["none", "rope", "roper"])
def test_relative_schemes_do_not_notice_a_shift_of_all_positions(name):
    torch.testing.assert_close(logits(name, 100_000), logits(name, 0), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["rope", "roper"])
def test_attention_output_in_float32_does_not_notice_a_shift(name):
    scheme, qkv = make_scheme(name, DIMS), heads().float()
    here, there = (attend(scheme, qkv, torch.arange(T) + shift) for shift in (0, 100_000))
    torch.testing.assert_close(there, here, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("name", "shift"), [("roper_double_rotation", 100_000), ("sinusoidal", 100_000), ("learned", 50)]
)
def test_absolute_schemes_notice_a_shift(name, shift):
    assert (logits(name, shift) - logits(name, 0)).abs().max() > 1e-2


def test_double_rotation_notices_a_shift_in_the_attention_itself():
    scheme, qkv = make_scheme("roper_double_rotation", DIMS), heads()
    assert (attend(scheme, qkv, torch.arange(T) + 9) - attend(scheme, qkv, torch.arange(T))).abs().max() > 1e-2


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


@pytest.mark.parametrize("name", ["sinusoidal", "rope", "roper"])
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


@pytest.mark.parametrize("name", SCHEMES)
def test_rows_may_stand_at_places_of_their_own(name):
    """Positions [B, T] give each row what positions [T] give it alone."""
    scheme = make_scheme(name, DIMS).double()
    qkv = heads()
    x = torch.randn(B, T, DIMS.d_model, dtype=torch.float64)
    pos_BT = torch.stack([torch.arange(T), torch.arange(T) + 30])
    at = scheme.prepare(pos_BT, torch.float64)
    together = (scheme.embed(x, at), scheme.heads(qkv, at), scheme.output(qkv[:, :, 2], at))
    for row in range(B):
        at = scheme.prepare(pos_BT[row], torch.float64)
        one = slice(row, row + 1)
        alone = (scheme.embed(x[one], at), scheme.heads(qkv[one], at), scheme.output(qkv[one, :, 2], at))
        for a, b in zip(together, alone, strict=True):
            torch.testing.assert_close(a[one], b, rtol=0, atol=0)


def test_a_position_beyond_a_learned_table_is_a_clear_error():
    with pytest.raises(ValueError, match="65 positions are more than the 64"):
        logits("learned", 55)
    logits("learned", 54)
    logits("rope", 10**6)  # rotary has no end


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dims": Dims(6, 2, 8)}, "model.d_model=6 over model.n_heads=2"),
        ({"dims": DIMS, "fraction": 0.3}, "position.fraction=0.3"),
        ({"dims": DIMS, "fraction": 0.0}, "position.fraction=0.0"),
        ({"dims": DIMS, "base": 1.0}, "position.base=1.0"),
        ({"dims": Dims(10, 2, 8), "fraction": 0.8}, "4 of 5 features of a head turn"),
    ],
)
def test_rotary_checks_its_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Rotary(**arguments)
