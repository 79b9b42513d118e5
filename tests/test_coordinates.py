"""Schemes with coordinates in float64, compared with formulas written out."""

import math

import numpy as np
import pytest
import torch
from conftest import TINY
from sums import DIMS, B, H, K, T, assert_output, learned, make_model, numbers, rotation
from trained import load, make_scheme

from rope_lab.model.hooks import Dims
from rope_lab.model.probes import changed, rotated_pairs
from rope_lab.text import ConfigError
from rope_lab.train import config, trainer

# Count, row and column of each token, [B, T, 3].
CELLS = [[[n, 3 * n % 4 - 1, (n * n + b) % 5 / 2] for n in range(T)] for b in range(B)]
TOKENS = torch.arange(20).reshape(2, 10) % 11
ROPER = ("position.v=1", "position.o=-1")


def moved(b: int, n: int, i: int) -> tuple[float, float, float]:
    """Count, row and column of key i, less those of query n."""
    return tuple(key - query for key, query in zip(CELLS[b][i], CELLS[b][n], strict=True))


def axial(scheme, h: int, count: float, row: float, column: float) -> list[float]:
    theta = [100.0 ** (-4 * j / K) for j in range(K // 4)]
    return [t * column for t in theta] + [t * row for t in theta]


def golden_gate(scheme, h: int, count: float, row: float, column: float) -> list[float]:
    angles, pairs = [], K // 2
    for f in range(pairs):
        frequency = 0.01 ** (f / (pairs - 1))
        turn = (h * pairs + f) * math.pi * (1 - 5**0.5) / 2
        angles.append(frequency * (math.cos(turn) * column + math.sin(turn) * row))
    return angles


def mixed(scheme, h: int, count: float, row: float, column: float) -> list[float]:
    along_column, along_row = scheme.vectors[1][:, h].detach()
    return (column * along_column + row * along_row).tolist()


def chunked(scheme, h: int, count: float, row: float, column: float) -> list[float]:
    return [x * 1e4 ** (-2 * j / K) for j, x in enumerate((count, count, row, column))]


def interleaved(scheme, h: int, count: float, row: float, column: float) -> list[float]:
    return [x * 1e4 ** (-2 * j / K) for j, x in enumerate((count, row, column, count))]


FORMULAS = {
    "axial_rope": axial,
    "rope_mixed": mixed,
    "golden_gate_rope": golden_gate,
    "m_rope": chunked,
    "m_rope_interleaved": interleaved,
}


@pytest.mark.parametrize("name", FORMULAS)
def test_scores_are_rotated_along_the_formulas_directions(name):
    scheme = learned(name)

    def score(b, h, n, i, q, k):
        return q @ rotation(FORMULAS[name](scheme, h, *moved(b, n, i))) @ k

    assert_output(scheme, score, pos=CELLS)


@pytest.mark.parametrize("name", FORMULAS)
def test_roper_rotates_values_by_the_way_from_query_to_key(name):
    scheme = learned(name, *ROPER)

    def rotated(b, h, n, i):
        return rotation(FORMULAS[name](scheme, h, *moved(b, n, i)))

    def score(b, h, n, i, q, k):
        return q @ rotated(b, h, n, i) @ k

    assert_output(scheme, score, lambda b, h, n, i, v: rotated(b, h, n, i) @ v, pos=CELLS)


def test_values_alone_may_be_rotated():
    scheme = learned("rope_mixed", "position.v=2")
    twice = lambda b, h, i: [2 * angle for angle in mixed(scheme, h, *CELLS[b][i])]  # noqa: E731
    value = lambda b, h, n, i, v: rotation(twice(b, h, i)) @ v  # noqa: E731

    def score(b, h, n, i, q, k):
        return q @ rotation(mixed(scheme, h, *moved(b, n, i))) @ k

    assert_output(scheme, score, value, pos=CELLS)


def test_axial_roper_is_a_setting_of_axial_rope():
    made = make_model("axial_rope", *ROPER)(TOKENS)
    assert torch.equal(make_model("axial_roper")(TOKENS), made)


@pytest.mark.parametrize("name", ["m_rope", "m_rope_interleaved"])
def test_m_rope_is_rope_if_all_axes_are_equal(name):
    """As in tasks without coordinates, where the position stands for each."""
    rope, made = make_model("rope"), make_model(name)
    torch.testing.assert_close(made(TOKENS), rope(TOKENS), rtol=0, atol=1e-12)
    three = torch.arange(10)[None, :, None].expand(2, -1, 3)
    torch.testing.assert_close(made(TOKENS, three), rope(TOKENS), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("layout", "pairs", "expected"),
    [
        ("chunked", 64, [0] * 16 + [1] * 24 + [2] * 24),
        ("interleaved", 64, [0, 1, 2] * 20 + [0] * 4),
        ("chunked", 8, [0, 0, 1, 1, 1, 2, 2, 2]),
        ("interleaved", 8, [0, 1, 2, 0, 1, 2, 0, 0]),
    ],
)
def test_pairs_of_m_rope_are_divided_as_published(layout, pairs, expected):
    dims = Dims(2 * pairs, 1, 8)
    scheme = make_scheme("m_rope", dims, f"position.layout={layout}")
    assert scheme.direction_AHC[:, 0].argmax(0).tolist() == expected


def test_sections_of_m_rope_may_be_set():
    scheme = make_scheme("m_rope", DIMS, "position.sections=[1,0,3]")
    assert scheme.direction_AHC[:, 0].argmax(0).tolist() == [0, 2, 2, 2]


def test_mixed_frequencies_begin_as_published():
    """Magnitudes 10^(−4j/K), twice; the second 90° further; directions differ between heads and
    layers.
    """
    scheme = make_scheme("rope_mixed", DIMS)
    directions = set()
    for f_AHC in scheme.vectors:
        first, second = f_AHC.detach().double().unflatten(-1, (2, K // 4)).unbind(2)
        expected = torch.tensor([10.0 ** (-4 * j / K) for j in range(K // 4)]).expand(H, -1)
        torch.testing.assert_close(first.norm(dim=0).float(), expected)
        torch.testing.assert_close(second.float(), torch.stack([-first[1], first[0]]).float())
        directions |= {round(math.atan2(*each), 4) for each in first[:, :, 0].T.tolist()}
    assert len(directions) == H * DIMS.n_layers


@pytest.mark.parametrize(
    ("name", "axis", "moves"), [("abacus", 1, 99), ("position_coupling", 2, 99)]
)
def test_a_learned_axis_is_added_and_moved_in_training(name, axis, moves):
    """All places but 0 by one random number for each step; in evaluation by none."""
    scheme, x = learned(name), numbers(B, T, DIMS.d_model)
    places = torch.tensor([[[7, n % 3, 5 * n % 4] for n in range(T)]] * B)
    own, seen = places[..., axis], set()
    for seed in range(300):
        scheme.draw(seed, T)
        at = scheme.prepare(places, torch.float64)
        (offset,) = {int(each) for each in (at - own)[own > 0]}
        assert not at[own == 0].any()
        seen.add(offset)
    assert (min(seen), max(seen)) == (0, moves)
    scheme.eval()
    expected = x + scheme.table.weight[own]
    torch.testing.assert_close(scheme.embed(x, scheme.prepare(places, torch.float64)), expected)


def test_a_scheme_may_have_another_axis():
    """RoPE, and RoPER, at the time of a token, a real number."""
    scores = lambda b, h, n, i, q, k: q @ turned(b, n, i) @ k  # noqa: E731

    def turned(b, n, i):
        time = moved(b, n, i)[-1]
        return rotation([time * 1e4 ** (-2 * j / K) for j in range(K // 2)])

    last = "position.axis=-1"
    assert_output(make_scheme("rope_on_axis", DIMS, last), scores, pos=CELLS)
    values = lambda b, h, n, i, v: turned(b, n, i) @ v  # noqa: E731
    assert_output(make_scheme("roper_on_axis", DIMS, last), scores, values, pos=CELLS)


def test_biases_are_those_of_positions_in_each_row():
    """A key at a later position counts as at distance 0."""
    rows = torch.tensor([[0, 5, 2, 2.5, 9, 1, 4]] * B, dtype=torch.float64)
    slopes = [2.0**-4, 2.0**-8, 2.0**-2]

    def score(b, h, n, i, q, k):
        return q @ k - K**0.5 * slopes[h] * max(float(rows[b, n] - rows[b, i]), 0)

    assert_output(make_scheme("alibi", DIMS), score, pos=rows.tolist())


def test_a_scheme_with_one_axis_takes_the_first():
    model, cells = make_model("rope"), torch.tensor(CELLS)[:, :, :]
    tokens = TOKENS[:, :T]
    torch.testing.assert_close(model(tokens, cells), model(tokens, cells[..., 0]))
    layers = make_model("layers", "position.pattern=rope | axial_rope")
    assert (layers(tokens, cells) - layers(tokens, cells[..., 0])).abs().max() > 1e-3


def test_probes_stop_pairs_of_axial_rope():
    model = make_model("axial_roper")
    assert {
        part: len(pairs) for part, pairs in rotated_pairs(model.position).items()
    } == dict.fromkeys("qkvo", K // 2)
    model.position = changed("ablate=vo", model)
    torch.testing.assert_close(model(TOKENS), make_model("axial_rope")(TOKENS))


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("axial_rope", ["model.d_model=36", "model.n_heads=6"], "must be a multiple of 4"),
        ("rope_mixed", ["model.d_model=36", "model.n_heads=6"], "must be a multiple of 4"),
        ("axial_rope", ["position.base=1"], "position.base=1.0: must be a finite number"),
        ("golden_gate_rope", ["position.slowest=2"], "position.slowest=2.0: must be above 0"),
        ("m_rope", ["position.sections=[4,5]"], "must be 3 numbers whose sum is 8"),
        ("m_rope_interleaved", ["position.sections=[0,4,4]"], "cannot be shared like this"),
        ("abacus", ["position.offset=-1"], "position.offset=-1: must be at least 0"),
    ],
)
def test_settings_of_coordinates_are_checked(name, settings, message):
    cfg = load(f"position={name}", *settings)
    with pytest.raises(ConfigError, match=message):
        config.build_position(cfg, Dims(cfg.model.d_model, cfg.model.n_heads, 64))


def test_sums_of_bytes_are_whole_positions():
    """numpy makes uint64 of them, and reals of these beside int64."""
    task = config.build_task(load("task=events"))
    assert task.text(np.random.default_rng(0), 2, 64).positions.dtype.kind == "i"


@pytest.mark.parametrize("name", ["abacus", "position_coupling"])
def test_a_table_too_short_for_longer_texts_is_refused(name):
    """Also by tasks that give no positions."""
    words = [*TINY, "task=copy_string", f"position={name}", "position.offset=0"]
    cfg = trainer.resolve(load(*words, "eval.lengths=[500]"))
    with pytest.raises(ConfigError, match="outside of the table"):
        trainer.build(cfg)
