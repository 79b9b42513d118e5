"""What a run is built with: the compiler."""

import pytest
import torch
from trained import load

from rope_lab.text import ConfigError
from rope_lab.train import trainer

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # from torch.compile


@pytest.mark.slow
def test_a_missing_compiler_is_one_line(tiny, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(torch._inductor.config.cpp, "cxx", ("no-such-compiler",))
    torch._dynamo.reset()
    with pytest.raises(ConfigError, match=r"\Atrain\.compile=true: torch cannot compile, .*\Z"):
        trainer.build(load(*tiny, "train.compile=true"))


@pytest.mark.slow
def test_a_compiler_that_is_turned_off_is_one_line(tiny, monkeypatch):
    monkeypatch.setattr(torch._dynamo.config, "disable", True)
    with pytest.raises(ConfigError, match=r"TORCHDYNAMO_DISABLE=1; train\.compile=false trains"):
        trainer.build(load(*tiny, "train.compile=true"))
