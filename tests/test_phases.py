"""Other phases of RoPE, and shared keys and values: layers and sizes. Their formulas are in
test_oracles.py.
"""

import pytest
import torch
from sums import DIMS, D, H, K, T, X, make_model
from trained import make_scheme

from rope_lab.checking.schemes import TOKENS, cached
from rope_lab.model.hooks import Dims
from rope_lab.text import ConfigError


def test_repo_begins_after_a_third_of_the_layers():
    dims = [Dims(D, H, 64, n_layers=layers) for layers in (1, 2, 3, 4, 16)]
    assert [make_scheme("repo", each).first for each in dims] == [0, 1, 1, 2, 6]
    scheme = make_scheme("repo", DIMS)
    at = scheme.prepare(torch.arange(T), torch.float64)
    assert scheme.read(X, at, 0, None)[0] is at


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


def test_norms_do_not_leave_out_the_second_queries():
    for settings in ({"qk_norm": True}, {"conv": "canon"}):
        make_model("rope_pp", **settings)
        with pytest.raises(ConfigError, match="RoPEPlusPlus projects itself"):
            make_model("rope_double_heads", **settings)


@torch.no_grad()
def test_the_second_outputs_begin_as_the_first_do():
    """Under both rules of initial weights."""
    for init in ("pytorch", "xavier"):
        weight = make_model("rope_pp", init=init).layers[0].attention.out.weight
        first, second = weight.unflatten(1, (H, 2, K)).unbind(2)
        torch.testing.assert_close(first.std(), second.std(), rtol=0.1, atol=0)
