"""Layers composed of schemes, and the layouts of published models, written out layer by layer."""

import math
import re

import pytest
import torch
from conftest import CONF
from sums import DIMS, D, H, K, make_model, rope, rotation
from torch import Tensor
from trained import load, make_scheme

from rope_lab.checking.schemes import TOKENS, cached
from rope_lab.model.hooks import Dims
from rope_lab.model.schemes import Layers
from rope_lab.text import ConfigError
from rope_lab.train import config, pattern
from rope_lab.train.instantiate import names
from rope_lab.train.overrides import expand

L = 8  # the training length, so that a window of a quarter of it is 2 tokens
WINDOW = 2


def some(n_layers: int) -> Dims:
    return Dims(D, H, max_len=L, n_layers=n_layers)


def windowed(base: float = 1e4, width: int = K) -> tuple:
    return rope(base, width), WINDOW, 0.0


def full(base: float, width: int = K) -> tuple:
    return rope(base, width), None, 0.0


NONE = ([], None, 0.0)
P_ROPE = (rope(1e6)[:1], None, 0.0)  # 25% of the pairs at the frequencies of all of them
# The frequencies of rotated pairs, the window and the temperature of each layer.
LAYOUTS = {
    "gemma4": [*[windowed()] * 5, P_ROPE, windowed(), P_ROPE],
    "llama4": [*[windowed(5e5)] * 3, ([], None, 0.1), windowed(5e5)],
    "trinity": [*[windowed()] * 3, NONE, windowed()],
    "smollm3": [*[full(2e6)] * 3, NONE, full(2e6)],
    "mimo": [full(5e6, 2), *[windowed(1e4, 2)] * 4, full(5e6, 2), windowed(1e4, 2)],
    "gpt_oss": [windowed(1.5e5), full(1.5e5), windowed(1.5e5)],
    "marin": [*[windowed(1e4, 4)] * 3, NONE, windowed(1e4, 4), NONE],
}


def attended(layer, x: Tensor, theta: list[float], window: int | None, temperature: float):
    """The output of attention, each score by itself: i is a key position, n a query position."""
    q, k, v = layer.attention.qkv(x).unflatten(-1, (3, H, K)).unbind(2)
    o = torch.zeros_like(q)
    B, T = x.shape[:2]
    for b, h, n in ((b, h, n) for b in range(B) for h in range(H) for n in range(T)):
        factor = 1 + temperature * math.log(1 + (n + 1) // WINDOW)
        seen = range(0 if window is None else max(0, n - window + 1), n + 1)
        pairs = [
            factor * (q[b, n, h] @ rotation([(i - n) * angle for angle in theta]) @ k[b, i, h])
            for i in seen
        ]
        weights = (torch.stack(pairs) / K**0.5).softmax(0)
        o[b, n, h] = weights @ v[b, list(seen), h]
    return layer.attention.out(o.flatten(2))


@torch.no_grad()
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_published_layout_is_written_out_layer_by_layer(name):
    """In texts twice as long as in training, at once and by incremental decoding."""
    kinds = LAYOUTS[name]
    model = make_model(name, layers=len(kinds), dims=some(len(kinds)))
    x = model.embedding(TOKENS)
    for layer, kind in zip(model.layers, kinds, strict=True):
        x = x + attended(layer, layer.norm1(x), *kind)
        x = x + layer.feed_forward(layer.norm2(x))
    expected = model.unembedding(model.norm(x))
    # The temperature is computed in float32 or wider.
    torch.testing.assert_close(model(TOKENS), expected, rtol=0, atol=1e-10)
    cached(model)


@torch.no_grad()
def test_deepseek_v4_has_one_scheme_in_all_layers():
    """That scheme's own formula is in test_phases.py."""
    own = ["position.fraction=0.25", "position.base=1.6e5"]
    expected = make_model("kv_shared_deepseek", *own, layers=3, dims=some(3))
    made = make_model("deepseek_v4", layers=3, dims=some(3))
    torch.testing.assert_close(made(TOKENS), expected(TOKENS), rtol=0, atol=1e-10)
    cached(made)


def letters(n_layers: int, *settings: str) -> str:
    scheme = make_scheme("layers", some(n_layers), *settings)
    kinds = {"Alibi": "a", "FoX": "f", "PositionScheme": "n", "Rotary": "r"}
    return "".join(kinds[type(scheme.in_layer(number)).__name__] for number in range(n_layers))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["position.pattern=alibi *2 | none"], "aanaana"),
        (["position.pattern=alibi *2 | none", "position.from_last=true"], "naanaan"),
        (["position.pattern=alibi", "position.last=none"], "aaaaaan"),
        (["position.pattern=alibi", "position.first=fox *2 | none"], "ffnaaaa"),
        (["position.pattern=alibi", "position.first=fox *9", "position.last=none"], "ffffffn"),
        (["position.pattern=alibi", "position.last=fox *9"], "fffffff"),
        ([], "rrrnrrr"),
    ],
)
def test_patterns_are_counted_from_first_or_last(settings, expected):
    assert letters(7, *settings) == expected


def test_each_part_has_its_own_layers_and_bias():
    """FoX has gates for its two layers alone, ALiBi's bias is in its own layers alone."""
    model = make_model("layers", "position.pattern=fox | alibi", layers=4, dims=some(4))
    gates = [parameter for name, parameter in model.named_parameters() if ".gates." in name]
    assert len(gates) == 2 * 2
    with torch.no_grad():
        for gate in gates:
            gate += 0.3
    kinds = [make_scheme("fox", some(2)).double(), make_scheme("alibi", some(4))]
    kinds[0].load_state_dict(model.position.parts[0].state_dict())
    x, at = model.embedding(TOKENS), torch.arange(TOKENS.shape[1])
    for number, layer in enumerate(model.layers):
        bias = kinds[1].bias(at, at) if number % 2 else None
        x = layer(x, kinds[number % 2], at, bias, None, number // 2)
    expected = model.unembedding(model.norm(x))
    torch.testing.assert_close(model(TOKENS), expected, rtol=0, atol=1e-12)
    cached(model)


def test_a_pattern_has_one_spelling():
    """What Hydra reads, with or without spaces, is one setting and one run."""
    words = ("rope base:500*3|none", "rope base:500  *3 | none *1")
    cfgs = [load("position=layers", f"position.pattern={word}") for word in words]
    assert [cfg.position["pattern"] for cfg in cfgs] == ["rope base:500 *3 | none"] * 2
    assert config.identity(cfgs[0]).run_id == config.identity(cfgs[1]).run_id


def test_several_patterns_are_a_sweep():
    runs = expand(["position=layers", "position.pattern=rope *3 | none,rope | none"])
    patterns = [load(*run).position["pattern"] for run in runs]
    assert patterns == ["rope *3 | none", "rope | none"]


def test_presets_are_short_and_spelled_canonically():
    for name in [*LAYOUTS, "deepseek_v4"]:
        text = (CONF / "position" / f"{name}.yaml").read_text()
        assert len(text.splitlines()) <= 12
        for written in re.findall(r"^(?:pattern|first|last): (.*)", text, re.M):
            assert pattern.canonical(written) == written


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("roppe", "position.pattern: roppe: there is no such scheme; did you mean rope?"),
        ("rope * 3", "position.pattern=rope * 3: 'rope * 3' must be NAME"),
        ("rope bse:3", "position.pattern.rope.bse=3: no such setting; did you mean"),
        ("rope base:x", "position.pattern.rope.base=x: must be a valid number"),
        ("rope window:0", "position.pattern: window=0: must be a whole number of tokens"),
        ("sinusoidal", "position.pattern: Sinusoidal serves a whole model"),
        ("rnope", "position.pattern: RNoPE serves a whole model"),
    ],
)
def test_a_pattern_that_cannot_be_served_is_one_message(written, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        make_scheme("layers", DIMS, f"position.pattern={written}")


def test_every_class_with_a_pattern_is_known_by_name():
    assert {"gemma4", "layers"} <= set(names("position"))
    assert issubclass(type(make_scheme("rnope", DIMS)), Layers)
