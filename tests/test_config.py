"""Settings: what is wrong is said in one line that names key, value and remedy, before anything is written."""

import math
import os
import subprocess
import sys

import pytest
import torch
from conftest import TASKS, TINY
from hydra.errors import HydraException

from rope_lab import config
from rope_lab.config import ConfigError
from rope_lab.train import train

# overrides, and what the message has to name
BAD = [
    (["train.lr=nan"], ["train.lr=nan", "train.lr=1e-3"]),
    (["train.lr=-1"], ["train.lr=-1", "above 0"]),
    (["train.lr=inf"], ["train.lr=inf"]),
    (["seed=-1"], ["seed=-1", "0 or more"]),
    (["train.steps=0"], ["train.steps=0", "at least 1"]),
    (["train.clip=0"], ["train.clip=0"]),
    (["train.decay=exponential"], ["train.decay=exponential", "linear"]),
    (["train.precision=float16"], ["train.precision=float16", "bfloat16"]),
    (["model.norm=both"], ["model.norm=both", "pre or post"]),
    (["model.dropout=1.0"], ["model.dropout=1.0"]),
    (["+foo=1"], ["foo=1", "no such setting"]),
    (["+train.stepz=5"], ["train.stepz=5", "train.steps"]),
    (["+model.deep.er=5"], ["model.deep", "no such setting"]),
    (["+task.strin_length=4"], ["task.strin_length=4", "task.string_length"]),
    (["+position.bse=4"], ["position.bse=4", "position.base"]),
    (["+wandb.mod=online"], ["wandb.mod=online", "wandb.mode"]),
    (["task.string_length=six"], ["task.string_length=six", "whole number"]),
    (["task.string_length=0"], ["task.string_length=0", "at least 1"]),
    (["task.loss_on=some"], ["task.loss_on=some", "answer"]),
    (["task.letters=aa"], ["task.letters=aa", "different"]),
    (["task._target_=tasks.nothing.Nothing"], ["task._target_=tasks.nothing.Nothing"]),
    (["position._target_=rope_lab.positions.Nothing"], ["position._target_=rope_lab.positions.Nothing"]),
    (["position.pairs=thirds"], ["position.pairs=thirds", "interleaved"]),
    (["position.fraction=0.3"], ["position.fraction=0.3", "even"]),
    (["model.d_model=18"], ["model.d_model=18", "model.n_heads=4"]),
    (["model.d_model=12"], ["model.d_model=12", "even"]),  # a head of 3 features under rotary
    (["position=sinusoidal", "model.d_model=9", "model.n_heads=3"], ["model.d_model=9", "even"]),
    (["train.seq_len=10"], ["train.seq_len=10", "train.seq_len"]),
    (["task.string_length=1", "task.letters=ab"], ["task.string_length=1", "too small", "larger"]),
    (["task.string_length=2", "task.letters=abcdefgh", "eval.problems=100"], ["eval.problems=100", "more than"]),
    (["device=tpu"], ["device=tpu", "auto, cpu"]),
    (["threads=0"], ["threads=0"]),
    (["threads=100000"], ["threads=100000", "cores"]),
    (["out="], ["out=", "must name a folder"]),
    (["recipe=substring_by_index/paper"], ["recipe=substring_by_index/paper", "scale="]),
    (["position._partial_=false"], ["position._partial_=false", "conf/position"]),
    (["position=sinusoidal", "position.base=0"], ["position.base=0", "above 1"]),
    (["task=substring_by_prefix", "task.context=512"], ["train.seq_len=128", "512 tokens"]),
    (["task=substring_by_prefix", "task.first_length=1", "task.copy_length=2"], ["task.first_length=1", "raise"]),
    (["~seed"], ["seed: not set"]),
    (["wandb.mode=on"], ["wandb.mode=on", "offline"]),
]


@pytest.mark.parametrize(("overrides", "named"), BAD, ids=[" ".join(o) for o, _ in BAD])
def test_bad_settings(overrides, named, tmp_path):
    out = tmp_path / "runs"
    with pytest.raises(ConfigError) as caught:
        train(config.load("wandb.mode=disabled", "device=cpu", f"out={out}", *overrides))
    message = str(caught.value)
    assert all(name in message for name in named), message
    assert "\n" not in message
    assert not out.exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_a_device_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"device=cuda: .*device=cpu"):
        train(config.load("device=cuda", f"out={tmp_path / 'runs'}"))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "overrides",
    [
        ["train.stepz=5"],
        ["train.lr=abc"],
        ["train.steps=1.5"],
        ["scale=papr"],
        ["task=adition"],
        ["nonsense"],
    ],
)
def test_what_does_not_compose_is_hydras_to_say(overrides):
    with pytest.raises(HydraException):
        config.load(*overrides)


# overrides, and what stderr has to name, through the command line
COMMANDS = [
    (["train.stepz=5"], "train.stepz"),
    (["+train.stepz=5"], "train.steps"),
    (["train.lr=nan"], "train.lr=nan"),
    (["train.lr=abc"], "train.lr"),
    (["position=ropr"], "roper"),
]


@pytest.mark.parametrize(("overrides", "named"), COMMANDS, ids=[" ".join(o) for o, _ in COMMANDS])
def test_bad_settings_through_the_command_line(overrides, named, tmp_path):
    done = run_command([*overrides, "out=runs"], tmp_path)
    assert done.returncode != 0
    assert named in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written(tmp_path):
    """A file stands where the folder should be: it fails for root too, as permissions would not."""
    (tmp_path / "runs").write_text("")
    with pytest.raises(ConfigError, match=r"out=.*runs: cannot be written .*; set out="):
        train(config.load(*TINY, f"out={tmp_path / 'runs'}"))


def run_command(overrides: list[str], folder) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONWARNINGS": ""}
    command = [sys.executable, "-m", "rope_lab.train", *overrides]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def test_a_task_alone_takes_its_own_recipe():
    lengths = {name: config.load(f"task={name}").train for name in TASKS}
    for name in TASKS:
        assert config.load(f"task={name}", "scale=quick").train == lengths[name]
    assert config.load("task=substring_by_prefix", "scale=paper").train.steps * 16 == 65_536
    assert config.load("task=substring_by_prefix", "scale=paper", "train.steps=7").train.steps == 7


def test_a_task_without_a_recipe_has_the_defaults_and_no_paper_scale(tmp_path, monkeypatch):
    conf = tmp_path / "conf"
    subprocess.run(["cp", "-r", str(config.CONF), str(conf)], check=True)
    (conf / "task" / "mine.yaml").write_text((conf / "task" / "substring_by_index.yaml").read_text())
    monkeypatch.setattr(config, "CONF", conf)
    assert config.load("task=mine", "task.string_length=6").train.steps == 1000
    with pytest.raises(ConfigError, match=r"scale=paper: there is no conf/recipe/mine/paper\.yaml"):
        config.load("task=mine", "scale=paper")


def identity(*overrides: str, device: str = "cpu") -> dict:
    return config.identity(config.load(*overrides), device)


def test_identity_changes_with_what_changes_the_record_and_with_nothing_else():
    base = config.run_id(identity())
    for same in (
        ["threads=1"],
        ["wandb.mode=disabled"],
        ["out=/elsewhere"],
        ["fresh=true"],
        ["device=cpu"],
        ["position.base=10000"],
    ):
        assert config.run_id(identity(*same)) == base, same
    others = [["seed=1"], ["position=rope"], ["train.lr=1e-3"], ["eval.problems=5"], ["task.string_length=7"]]
    others += [["model.n_layers=2"], ["position.base=500"], ["model.dropout=0.1"]]
    ids = {config.run_id(identity(*o)) for o in others} | {config.run_id(identity(device="cuda"))}
    assert base not in ids
    assert len(ids) == len(others) + 1


def test_runs_may_be_compared_across_schemes_and_seeds_alone():
    base = config.recipe_id(identity())
    assert config.recipe_id(identity("position=rope", "seed=4")) == base
    assert config.scheme_id(identity("position=rope", "seed=4")) == config.scheme_id(identity("position=rope"))
    assert config.scheme_id(identity("position.q=0")) != config.scheme_id(identity())
    for other in (["train.lr=1e-3"], ["eval.problems=5"], ["task=arithmetic_addition"], ["train.precision=bfloat16"]):
        assert config.recipe_id(identity(*other)) != base, other


def test_a_record_gives_back_its_configuration():
    import dataclasses
    import json

    cfg = config.load("position=rope", "task=substring_by_prefix", "seed=3")
    assert config.from_record(json.loads(json.dumps(dataclasses.asdict(cfg)))) == cfg
    with pytest.raises(ConfigError, match=r"model.n_layers: not set"):
        config.from_record(dataclasses.asdict(cfg) | {"model": {"d_model": 4}})


def test_relative_folders(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert config.out_folder(config.load()) == config.ROOT / "results" / "runs"
    assert config.out_folder(config.load("out=here")) == tmp_path / "here"


def test_learning_rate_schedule():
    from rope_lab.train import learning_rate

    t = config.load("train.lr=1.0", "train.steps=100", "train.warmup=10", "train.decay=linear").train
    assert [learning_rate(t, s) for s in (0, 4, 9, 10)] == pytest.approx([0.1, 0.5, 1.0, 1.0])
    assert [learning_rate(t, s) for s in (55, 99)] == pytest.approx([0.5, 1 / 90])
    t.decay = "cosine"
    assert learning_rate(t, 55) == pytest.approx(0.5)
    assert learning_rate(t, 32) == pytest.approx((1 + math.cos(math.pi * 22 / 90)) / 2)
    t.decay = "none"
    assert learning_rate(t, 99) == 1.0
