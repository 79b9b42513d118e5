"""Schemes, layouts and controls in whole models, compared with the loops of oracle.py: at once, in
parts with a KV cache, and beyond the trained length.
"""

import numpy as np
import oracle
import pytest
import torch
from oracle import Attention, frequencies
from sums import make_model

from rope_lab.model.hooks import Dims
from rope_lab.model.transformer import Transformer

H, K = oracle.HEADS, 16
L, T = 8, 20  # tokens of a text in training, and here
WINDOW = L // 4
TOKENS = torch.randint(11, (2, T), generator=torch.Generator().manual_seed(3))
ALL = frequencies(1e4, K)
HALF = frequencies(1e4, K // 2)
RANDOM = torch.randn(
    16_384, K // 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64
).numpy()


def some(n_layers: int) -> Dims:
    return Dims(d_model=H * K, n_heads=H, max_len=L, n_layers=n_layers)


@torch.no_grad()
def assert_same(model: Transformer, layers: list[Attention]) -> None:
    """Logits of the model, off its initial values, are those of the oracle."""
    random = torch.Generator().manual_seed(5)
    for parameter in model.parameters():
        parameter += 0.3 * torch.randn(parameter.shape, generator=random, dtype=parameter.dtype)
    expected = np.stack([oracle.logits(model, row.tolist(), layers, L) for row in TOKENS])
    cache = model.new_cache(len(TOKENS), T)
    parts = [model(part, cache=cache) for part in TOKENS.split([1, 4, 1, 7, 7], dim=1)]
    for made in (model(TOKENS), torch.cat(parts, dim=1)):
        torch.testing.assert_close(made, torch.from_numpy(expected), rtol=0, atol=1e-10)


def both(scheme: oracle.Scheme, **settings) -> list[Attention]:
    """Two layers of a scheme."""
    return [Attention(scheme, number=number, settings=settings) for number in (0, 1)]


REPO = frequencies(5e5, K)
SCHEMES = {
    "partial_key_offset": both(oracle.partial_key_offset, theta=HALF),
    "partial_key_offset_roper": both(oracle.partial_key_offset, theta=HALF, values=True),
    "partial_key_offset_none": both(oracle.partial_key_offset, theta=[]),
    "partial_key_offset_none position.share=0.75": both(
        oracle.partial_key_offset, theta=[], first=K // 4
    ),
    "kv_shift": both(oracle.kv_shift, theta=ALL),
    "inkling": both(oracle.inkling),
    "inkling position.modes=5 position.extent=3": both(oracle.inkling),
    "grape_ap": both(oracle.grape_ap),
    "wall": both(oracle.wall),
    # Computed positions from a third of the layers on, rounded up.
    "repo": [
        Attention(oracle.rope, settings={"theta": REPO}),
        Attention(oracle.repo, number=0, settings={"theta": REPO}),
    ],
    "random_rotations": both(oracle.random_rotations, steps=RANDOM * ALL),
    "random_rotations position.v=1 position.o=-1": both(
        oracle.random_rotations, steps=RANDOM * ALL, values=True
    ),
    "rope_pp": both(oracle.rope_pp, theta=ALL),
    "rope_double_heads": both(oracle.rope_double_heads, theta=ALL),
    "kv_shared_deepseek": both(oracle.kv_shared_deepseek, theta=ALL),
    "kv_shared_deepseek position.fraction=0.25": both(
        oracle.kv_shared_deepseek, theta=frequencies(1e4, K // 4)
    ),
    "kv_shared_gemma": both(oracle.kv_shared_gemma, theta=ALL),
    "kv_shared_gemma position.p=0.25 position.base=1e6": both(
        oracle.kv_shared_gemma, theta=frequencies(1e6, K)[: K // 8]
    ),
    "temperature_tuning": both(oracle.temperature_tuning),
}


@pytest.mark.parametrize("written", SCHEMES)
def test_a_scheme_is_its_formula(written):
    name, *settings = written.split()
    assert_same(make_model(name, *settings, dims=some(2)), SCHEMES[written])


@pytest.mark.parametrize("written", ["inkling", "wall", "rope_pp", "kv_shift", "grape_ap"])
def test_a_scheme_with_sinks_and_gates_is_its_formula(written):
    model = make_model(written, dims=some(2), sink=True, gate="head")
    assert_same(model, SCHEMES[written])


def test_each_layer_of_a_pattern_is_its_scheme_alone():
    """The layers of a part are numbered within it, and have its window."""
    pattern = "alibi | inkling window:5 *2 | kv_shared_deepseek fraction:0.5"
    pattern += " | partial_key_offset | wall window:0.5"
    layers = [
        Attention(oracle.alibi, prefix="parts.0."),
        Attention(oracle.inkling, 5, "parts.1.", number=0),
        Attention(oracle.inkling, 5, "parts.1.", number=1),
        Attention(oracle.kv_shared_deepseek, None, "parts.2.", settings={"theta": HALF}),
        Attention(oracle.partial_key_offset, None, "parts.3.", settings={"theta": HALF}),
        Attention(oracle.wall, L // 2, "parts.4."),
        Attention(oracle.alibi, prefix="parts.0."),
    ]
    model = make_model("layers", f"position.pattern={pattern}", layers=7, dims=some(7))
    assert_same(model, layers)


# The layouts of published models


def rope(base: float, width: int = K, window: int | None = None) -> Attention:
    """RoPE on the first `width` features, their frequencies spaced over these."""
    return Attention(oracle.rope, window, settings={"theta": frequencies(base, width)})


NONE = Attention(oracle.none)


def gemma4(i: int, last: bool) -> Attention:
    """Layer types of transformers' class: i % 6 == 5 is full, and the last layer; these rotate the
    first 25% of the pairs at the frequencies of all.
    """
    if i % 6 == 5 or last:
        return Attention(oracle.rope, settings={"theta": frequencies(1e6, K)[: K // 8]})
    return rope(1e4, window=WINDOW)


def llama4(i: int, last: bool) -> Attention:
    if (i + 1) % 4 == 0:
        return Attention(oracle.temperature_tuning)
    return rope(5e5, window=WINDOW)


def trinity(i: int, last: bool) -> Attention:
    return NONE if (i + 1) % 4 == 0 else rope(1e4, window=WINDOW)


def smollm3(i: int, last: bool) -> Attention:
    return NONE if (i + 1) % 4 == 0 else rope(2e6)


def mimo(i: int, last: bool) -> Attention:
    """Full: i == 0 or (i + 1) % 6 == 0, as in transformers' class; a quarter is rotated."""
    if i == 0 or (i + 1) % 6 == 0:
        return rope(5e6, K // 4)
    return rope(1e4, K // 4, WINDOW)


def gpt_oss(i: int, last: bool) -> Attention:
    return rope(1.5e5, window=None if (i + 1) % 2 == 0 else WINDOW)


def marin(i: int, last: bool) -> Attention:
    return NONE if (i + 1) % 4 == 0 or last else rope(1e4, K // 2, WINDOW)


def mistral(i: int, last: bool) -> Attention:
    return rope(1e4, window=WINDOW)


def deepseek_v4(i: int, last: bool) -> Attention:
    settings = {"theta": frequencies(1.6e5, K // 4)}
    return Attention(oracle.kv_shared_deepseek, None, "parts.0.", i, settings)


LAYERS = [
    (gemma4, 8),
    (llama4, 5),
    (trinity, 5),
    (smollm3, 5),
    (mimo, 8),
    (gpt_oss, 3),
    (marin, 6),
    (mistral, 2),
    (deepseek_v4, 2),
]


@pytest.mark.parametrize(("preset", "n_layers"), LAYERS)
def test_a_published_layout_is_written_out_layer_by_layer(preset, n_layers):
    model = make_model(preset.__name__, layers=n_layers, dims=some(n_layers))
    assert_same(model, [preset(i, i == n_layers - 1) for i in range(n_layers)])


# Controls

TOGETHER = {"conv": "canon", "smear": True, "gate": "feature", "sink": True, "qk_norm": True}


@pytest.mark.parametrize(
    ("name", "control"),
    [
        ("rope", {"conv": "k"}),
        ("rope", {"conv": "kv", "qk_norm": True}),
        ("rope", {"conv": "canon"}),
        ("rope", {"smear": True}),
        ("rope", {"gate": "head"}),
        ("rope", {"gate": "feature"}),
        ("rope", {"sink": True}),
        ("rope", TOGETHER),
        ("rope_pp", TOGETHER),
        ("kv_shared_gemma", {"conv": "kv"}),
    ],
    ids=str,
)
def test_a_control_is_its_formula(name, control):
    layers = SCHEMES.get(name) or both(oracle.rope, theta=ALL)
    assert_same(make_model(name, dims=some(2), **control), layers)
