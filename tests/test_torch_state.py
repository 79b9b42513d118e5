"""Torch's global settings: a run computes under its own, and its caller finds theirs again."""

import os

import pytest
import torch
from conftest import TINY, only_folder
from trained import command, run

from rope_lab.train import torch_state
from rope_lab.train.run_folder import read

SCHEME = """
import torch
from rope_lab.model.positions import Rotary

torch.set_default_dtype(torch.float64)
torch.set_num_threads(2)
torch.manual_seed(5)

class Mine(Rotary):
    pass
"""
OTHERS = {
    "default dtype": torch.float64,
    "default device": torch.device("meta"),
    "deterministic algorithms": (True, True),
    "float32 matmul precision": "medium",
    "reduced precision in bfloat16 matmul": False,
    "TF32 in cuDNN": False,
    "cuDNN benchmark": True,
    "cuDNN deterministic": True,
}


def state() -> dict:
    return {name: setting.read() for name, setting in torch_state.SETTINGS.items()}


def test_a_run_computes_the_same_under_any_global_setting(tiny, finished):
    with torch_state.restored() as changed:
        for name, value in OTHERS.items():
            torch_state.SETTINGS[name].write(value)
        changed_by_caller = state()
        content = run(tiny)
        assert state() == changed_by_caller
    assert {*OTHERS} <= {*changed}
    assert content["metrics"] == read(finished)["metrics"]


@pytest.mark.parametrize(
    "context", [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)]
)
def test_a_run_computes_the_same_within_any_context(context, tiny, finished):
    with context():
        metrics = run([*tiny, "train.precision=float32"])["metrics"]
    assert metrics == read(finished)["metrics"]


def test_bfloat16_weights_are_not_kept_within_autocast(tiny, tmp_path):
    words = [*tiny, "train.precision=bfloat16"]
    alone = run(words)["metrics"]
    with torch.autocast("cpu", torch.bfloat16):
        assert run([*words, f"out={tmp_path / 'within'}"])["metrics"] == alone


def test_random_state_and_threads_are_the_callers_afterwards(tiny):
    before = torch.get_num_threads()
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    torch.set_num_threads(2)
    try:
        run([*tiny, "threads=1", "model.dropout=0.5"])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert torch.equal(torch.rand(3), expected)


def test_torchs_cache_folder_is_not_left_in_the_environment(monkeypatch):
    monkeypatch.delenv(torch_state.CACHE, raising=False)
    with torch_state.restored():
        os.environ[torch_state.CACHE] = "/tmp/torch"
    assert torch_state.CACHE not in os.environ
    monkeypatch.setenv(torch_state.CACHE, "theirs")
    with torch_state.restored():
        pass
    assert os.environ[torch_state.CACHE] == "theirs"


@pytest.mark.slow
def test_a_plug_in_changes_no_number_of_another_scheme(write, tmp_path, caplog):
    write("global_mine.py", SCHEME)
    sweep = ["-m", "position=./global_mine.py,rope", *TINY, "out=runs"]
    before = torch.get_num_threads()
    assert command(sweep, tmp_path).returncode == 0
    assert command(["position=rope", *TINY, "out=alone"], tmp_path).returncode == 0
    (rope,) = (tmp_path / "runs").glob("*-rope-*")
    assert read(rope)["metrics"] == read(only_folder(tmp_path / "alone"))["metrics"]
    assert torch.get_default_dtype() == torch.float32
    assert torch.get_num_threads() == before
    assert "global_mine.py: changes torch's default dtype" in caplog.text
