"""The notation of layers. What each layer of a pattern does is in test_oracles.py."""

import re
from dataclasses import replace

import pytest
import torch
from conftest import CONF, TINY
from sums import DIMS, D, H
from trained import load, make_scheme

from rope_lab.model.hooks import Dims
from rope_lab.model.schemes import Layers
from rope_lab.shipped import choices
from rope_lab.text import ConfigError
from rope_lab.train import config, pattern, trainer
from rope_lab.train.optimizer import _is_decaying_matrix as is_decaying
from rope_lab.train.overrides import expand

DECAYING = """
import torch
from rope_lab.model.hooks import PositionScheme

class Decaying(PositionScheme):
    decays = True

    def __init__(self, dims):
        super().__init__(dims)
        self.matrix = torch.nn.Parameter(torch.ones(2, 2))
"""
PRESETS = [
    "gemma4",
    "deepseek_v4",
    "llama4",
    "trinity",
    "smollm3",
    "mimo",
    "gpt_oss",
    "marin",
    "mistral",
]


def some(n_layers: int) -> Dims:
    return Dims(D, H, max_len=8, n_layers=n_layers)


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
    for name in PRESETS:
        text = (CONF / "position" / f"{name}.yaml").read_text()
        assert len(text.splitlines()) <= 12
        for written in re.findall(r"^(?:pattern|first|last): (.*)", text, re.M):
            assert pattern.canonical(written) == written


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("roppe", "position.pattern: roppe: there is no such scheme; did you mean rope?"),
        ("./nope.py *3 | none", "position.pattern: nope.py: there is no such file; give the path"),
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
    assert {"gemma4", "layers"} <= set(choices("position"))
    assert issubclass(type(make_scheme("rnope", DIMS)), Layers)


@torch.no_grad()
def test_a_window_bounds_the_keys_that_count():
    """SSMax multiplies scores by s ln n: within a window n is at most its width."""
    words = ["position.pattern='ssmax window:4 | ssmax'"]
    scheme = make_scheme("layers", some(2), *words)
    at = scheme.prepare(torch.arange(9), torch.float64)
    inside, whole = scheme.with_keys(at, torch.arange(1, 10))
    factor = (inside[0] / whole[0])[:, 0].flatten(1)
    expected = torch.arange(1, 10).clamp(max=4).double().log() / torch.arange(1, 10).double().log()
    torch.testing.assert_close(factor[1:], expected[1:, None].expand_as(factor[1:]))


def test_one_of_two_parts_may_decay(write):
    write("dec.py", DECAYING)
    words = [*TINY, "position=layers", "position.pattern='./dec.py | fox'", "model.n_layers=2"]
    model = trainer.build(trainer.resolve(load(*words))).model
    decaying = [name for name, p in model.named_parameters() if is_decaying(model, name, p)]
    of_position = [name for name in decaying if name.startswith("position.")]
    assert [name.rpartition(".")[2] for name in of_position] == ["matrix"]


def test_a_child_keeps_the_window_of_its_parent():
    """Which is a share of the parent's training length; at another length it is another run."""
    pattern = "position.pattern=rope window:0.25 | none"
    cfg = load(*TINY, "position=layers", pattern, "train.seq_len=64")
    child = replace(cfg, parent={"seq_len": 16})
    windows = [trainer.build_model(each, 11).position.in_layer(0).window for each in (cfg, child)]
    assert windows == [16, 4]
    ids = []
    for more in ({}, {"seq_len": 64}, {"seq_len": 16}):
        ids.append(config.identity(replace(cfg, parent={"steps": 1} | more)).run_id)
    assert ids[0] == ids[1] != ids[2]
