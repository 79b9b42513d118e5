"""Schemes that use the token before. Their formulas are in test_oracles.py."""

import re

import pytest
import torch
from sums import DIMS, D, H, make_model
from trained import make_scheme

from rope_lab.checking.schemes import cached
from rope_lab.model.hooks import Dims, TooLong
from rope_lab.text import ConfigError


@torch.no_grad()
@pytest.mark.parametrize("name", ["partial_key_offset", "kv_shift"])
def test_they_serve_some_layers_and_fewer_key_heads(name):
    """Also with a cache, beyond the trained length."""
    dims = Dims(D, H, max_len=8, n_layers=3)
    cached(make_model("layers", f"position.pattern={name} window:5 | rope", layers=3, dims=dims))
    cached(make_model(name, layers=3, dims=dims, kv_heads=1))


def test_a_scheme_that_cannot_be_wrapped_is_refused():
    own = ["position.scheme._target_=rope_lab.model.schemes.SharedKV", "~position.scheme.q"]
    with pytest.raises(ConfigError, match=re.escape("position.scheme: SharedKV differs between")):
        make_scheme("kv_shift", DIMS, *own, "~position.scheme.k")


def test_the_limit_of_a_wrapped_scheme_holds():
    learned = ["position.scheme=learned"]
    model = make_model("kv_shift", *learned, dims=Dims(D, H, max_len=8, n_layers=2))
    with pytest.raises(TooLong, match="20 positions are more than the 8"):
        model(torch.zeros(1, 20, dtype=torch.long))
