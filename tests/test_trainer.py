"""What a run is built with: the compiler, and the cores that its process may use."""

import os

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


def test_only_cores_of_the_affinity_mask_count(monkeypatch, tmp_path):
    monkeypatch.setattr(trainer, "QUOTAS", ())
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5, 7}, raising=False)
    assert trainer.usable_cores() == 3


@pytest.mark.parametrize(
    ("version", "quota", "cores"),
    [
        (2, "150000 100000", 2),
        (2, "max 100000", 8),
        (1, "400000", 4),
        (1, "-1", 8),
        (2, "9900000 100000", 8),
    ],
)
def test_a_containers_quota_limits_the_cores(monkeypatch, tmp_path, version, quota, cores):
    file = tmp_path / {1: "cpu.cfs_quota_us", 2: "cpu.max"}[version]
    file.write_text(f"{quota}\n")
    (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
    monkeypatch.setattr(trainer, "QUOTAS", (tmp_path / "nothing", file))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    assert trainer.usable_cores() == cores
