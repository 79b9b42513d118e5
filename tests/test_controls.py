"""Convolutions, smear, output gates and sinks. Their formulas are in test_oracles.py."""

import itertools
import re

import pytest
import torch
from sums import DIMS, QKV, D, H, K, T, X, learned, make_model
from trained import load

from rope_lab.checking.causality import causality
from rope_lab.checking.schemes import TOKENS, cached
from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.model.schemes import Rotary
from rope_lab.model.transformer import Transformer
from rope_lab.text import ConfigError
from rope_lab.train import config
from rope_lab.train.optimizer import make
from rope_lab.train.trainer import build_model, resolve

CONTROLS = [{"conv": kind} for kind in ("k", "kv", "canon")]
CONTROLS += [{"smear": True}, {"gate": "head"}, {"gate": "feature"}, {"sink": True}]
NAMES = ["=".join(map(str, next(iter(control.items())))) for control in CONTROLS]
controls = pytest.mark.parametrize("control", CONTROLS, ids=NAMES)


def trained(**more) -> Transformer:
    """A model whose controls are not at their initial values."""
    model = make_model("rope", **more)
    random = torch.Generator().manual_seed(1)
    own = ("conv", "smear", "gate", "sink")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(word in name for word in own):
                parameter += torch.randn(parameter.shape, generator=random, dtype=parameter.dtype)
    return model


@controls
@pytest.mark.parametrize("more", [{"kv_heads": 1}, {"norm": "post", "qk_norm": True}], ids=str)
def test_controls_are_causal_and_serve_other_models(control, more):
    model = trained(**control | more)
    assert causality(model, TOKENS) is None
    with torch.no_grad():
        cached(model)
        cached(trained(**control | {"conv": "kv", "smear": True}))


@controls
def test_all_other_weights_are_those_without_the_control(control):
    """Off, a model has no part of a control: the same weights, and the same logits bit by bit."""
    plain, own = make_model("rope"), make_model("rope", **control).state_dict()
    weights = plain.state_dict()
    assert all(torch.equal(weights[name], own[name]) for name in weights)
    assert own.keys() > weights.keys()


@controls
def test_a_control_is_another_run(control):
    """Off, a run has the id that it had before there were controls."""
    words = [f"model.{name}={value}" for name, value in control.items()]
    off = ["model.conv=null", "model.smear=false", "model.gate=null", "model.sink=false"]
    plain, with_control, without = (
        config.identity(resolve(load("device=cpu", "position=rope", *each)))
        for each in ([], words, off)
    )
    assert plain.run_id == without.run_id != with_control.run_id
    assert plain.recipe_id != with_control.recipe_id
    assert plain.settings == without.settings


def test_muon_leaves_taps_and_sinks_to_adamw():
    words = ["model.conv=canon", "model.smear=true", "model.sink=true", "train.optimizer=muon"]
    cfg = resolve(load("device=cpu", "position=rope", *words))
    model = build_model(cfg, 11)
    muon = {id(p) for p in make(model, cfg.train)["muon"].param_groups[0]["params"]}
    names = [name for name, parameter in model.named_parameters() if id(parameter) in muon]
    assert names
    assert not [name for name in names if "conv" in name or "sink" in name or "smear" in name]


SINKS = ["alibi", "fox", "grape_a", "cope", "path", "inkling", "grape_ap", "wall", "rope_pp"]
SINKS += ["rope", "pope", "kv_shift", "kv_shared_back"]


@torch.no_grad()
@pytest.mark.parametrize("name", ["fox", "grape_a", "cope", "path", "pope", "kv_shared_back"])
@pytest.mark.parametrize("window", [None, 3])
def test_a_sink_takes_its_part_of_a_softmax(name, window):
    """o Z / (Z + eˢ): Z found from one sink predicts the outputs of another."""
    scheme = learned(name)
    for parameter in scheme.parameters():
        parameter.mul_(0.3)  # else one key has all the weight
    scheme.window = window
    pos = torch.arange(T)
    prepared = scheme.prepare(pos, torch.float64)
    at = scheme.with_keys(prepared, pos + 1)
    at, own = scheme.read(X, at, 1, None)
    bias = scheme.bias(prepared, prepared) if own is None else own
    qkv = QKV if scheme.projects_values else QKV[:, :, :2]
    heads = scheme.heads(qkv, at)

    def outputs(**sink):
        return scheme.attention(heads, at, bias, None, **sink)

    none, one = outputs(), outputs(sink=torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64))
    two = outputs(sink=torch.zeros(H, dtype=torch.float64))
    times = none.shape[2] // H
    e_H1 = torch.tensor([0.3, -1.0, 2.0]).double().exp().repeat_interleave(times)[:, None]
    share = one / none
    torch.testing.assert_close(share, share[..., :1].expand_as(share), rtol=1e-6, atol=0)
    z = share * e_H1 / (1 - share)
    torch.testing.assert_close(two, none * z / (z + 1), rtol=1e-6, atol=1e-10)


@torch.no_grad()
@pytest.mark.parametrize("name", ["t5_bias", "fire", "inkling"])
def test_a_sink_with_a_window_decodes_from_a_cache(name):
    """Biases that are not 0 at distance 0: a sink does not ignore the constant."""
    scheme = learned(name)
    scheme.window = 4
    model = make_model("none", sink=True)
    model.position = scheme
    cached(model)


@torch.no_grad()
def test_forget_gates_and_a_sink_are_their_formula():
    """The bias of the own key is 0, also in the first token of a cache."""
    scheme, sink = learned("fox"), torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)
    gate = scheme.gates[1]
    at, bias = scheme.read(X, torch.arange(T), 1, None)
    made = scheme.attention(QKV, at, bias, None, sink=sink)
    for b, h, n in itertools.product(range(len(X)), range(H), range(T)):
        q, k, v = (each[:, h] for each in QKV[b].unbind(1))
        log_f = torch.sigmoid(X[b] @ gate.weight[h] + gate.bias[h]).log()
        scores = [q[n] @ k[i] / K**0.5 + log_f[i + 1 : n + 1].sum() for i in range(n + 1)]
        weights = torch.stack(scores).exp()
        expected = weights @ v[: n + 1] / (weights.sum() + sink[h].exp())
        torch.testing.assert_close(made[b, n, h], expected, rtol=0, atol=1e-10)


@torch.no_grad()
@pytest.mark.parametrize("name", [*SINKS, "t5_bias", "fire", "gemma4"])
def test_any_scheme_with_a_sink_decodes_incrementally(name):
    """One token at a time from the first, beyond the trained length."""
    model = make_model(name, sink=True, dims=Dims(D, H, max_len=8, n_layers=2))
    for parameter in model.position.parameters():
        parameter += 0.3
    cached(model)
    cache = model.new_cache(*TOKENS.shape)
    parts = [model(TOKENS[:, t : t + 1], cache=cache) for t in range(4)]
    torch.testing.assert_close(torch.cat(parts, 1), model(TOKENS[:, :4]), rtol=0, atol=1e-10)


class OwnAttention(Rotary):
    def attention(self, heads, at, bias, cache):
        return super().attention(heads, at, bias, cache)


@pytest.mark.parametrize(
    ("scheme", "attention", "message"),
    [
        (OwnAttention(DIMS, q=1, k=1), "softmax", "OwnAttention.attention has no argument `sink`"),
        (PositionScheme(DIMS), "linear", "linear attention has no softmax"),
    ],
)
def test_a_layer_without_sinks_refuses_them(scheme, attention, message):
    with pytest.raises(ConfigError, match=re.escape(f"model.sink=true: {message}")):
        make_model(scheme, sink=True, attention=attention)


def test_smear_reads_few_features_of_narrow_models():
    model = trained(smear=True)
    assert model.smear.gate.shape == (min(12, D),)
