"""What the tests share: every scheme and task of conf/, and settings small enough to train in a second."""

import sys
from pathlib import Path

import pytest

from rope_lab import config
from rope_lab.positions import Dims, PositionScheme

SCHEMES = sorted(path.stem for path in (config.CONF / "position").glob("*.yaml"))
TASKS = sorted(path.stem for path in (config.CONF / "task").glob("*.yaml"))
RECIPES = sorted((path.parent.name, path.stem) for path in (config.CONF / "recipe").glob("*/*.yaml"))

TINY = [
    *("model.d_model=16", "model.n_layers=1", "model.n_heads=2"),
    *("train.steps=6", "train.batch_size=4", "train.seq_len=64", "train.warmup=2", "train.log_every=2"),
    *("eval.every=3", "eval.problems=8", "eval.sequences=2", "wandb.mode=disabled"),
    *("threads=1", "device=cpu", "train.precision=float32"),
]


def make_scheme(name: str, dims: Dims, *overrides: str) -> PositionScheme:
    """The scheme of conf/position/`name`.yaml."""
    return config.build_position(config.load(f"position={name}", *overrides), dims)


@pytest.fixture
def tiny(tmp_path):
    """Overrides of a run that takes a second and records in a folder of its own."""
    return [*TINY, f"out={tmp_path / 'runs'}"]


@pytest.fixture(autouse=True)
def neutral_command_line(monkeypatch):
    """Runs record the command that made them, which should not be the test runner's."""
    monkeypatch.setattr(sys, "argv", ["rope_lab.train"])


def only_folder(out: Path) -> Path:
    """The one run folder in `out`."""
    (folder,) = [path for path in out.iterdir() if (path / "run.json").exists()]
    return folder
