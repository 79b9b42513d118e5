"""Settings: an error is one line with key, value and remedy, and comes before anything is
written.
"""

import dataclasses
import inspect
import json
import sys

import pytest
import yaml
from conftest import ROOT, SCHEMES, TASKS, TINY, one_line
from trained import load, run

from rope_lab import files, sample
from rope_lab.model.schemes import Dims
from rope_lab.shipped import shipped, with_class_names
from rope_lab.text import ConfigError, flat
from rope_lab.train import config, instantiate, overrides, run_folder
from rope_lab.train.loop import train

# overrides: words of the message
BAD = {
    "train.lr=nan": "train.lr=nan: must be a finite",
    "train.steps=true": "train.steps=true: must be a valid integer",
    "model.dropout=false": "model.dropout=false: must be a valid number",
    "eval.problems_at_end=true": "must be a valid integer",
    "eval.lengths=[true,5]": "must be a list in rising order",
    "position.base=true": "position.base=true: must be a valid number",
    "task.string_length=true": "task.string_length=true: must be a valid integer",
    "train.steps=0": "train.steps=0: must be at least 1; 0 evaluates the run of init_from=",
    "train.decay=exponential": "must be 'none', 'linear'",
    "model.dropout=1.0": "model.dropout=1.0: must be less than 1",
    "device=cuda:0": "must be 'auto', 'cpu', 'cuda'",
    "out=": "out=: must have at least 1 character",
    "+model.deep.er=5": "model.deep",
    "~seed": "seed: not set",
    "model.kv_heads=3": "must divide model.n_heads=4",
    "model.d_model=18": "must be divisible by model.n_heads=4",
    "position.fraction=0.3": "position.fraction=0.3",
    "position=randomized_rope position.scheme=rop": "position.scheme: rop: there is no such scheme",
    "train.seq_len=10": "train.seq_len=10: too short",
    "task.string_length=six": "task.string_length=six: must be a valid integer",
    "task.string_length=2 task.letters=abcdefgh eval.problems=100": "eval.problems=100",
    "task.letters={_target_:os.system,command:ls}": "must be a plain value",
    "task._target_=tasks.nothing.Nothing": "cannot be imported, ",
    "task._target_=tasks.base.PackedTask": "must be a Task that is not abstract",
    "task._target_=rope_lab.model.schemes.Rotary": "must be a Task",
    "position._target_=rope_lab.model.rotation.angles": "must be a PositionScheme",
    "position._target_=torch.nn.Linear": (
        "is not in rope_lab or tasks; name your file, position=./torch.py"
    ),
    "position=randomized_rope position.scheme._target_=os.system": "--allow os.py",
    "~position._target_": "position._target_=None",
    "seed=${seed}": "Recursive",
    "position=learned train.seq_len=64 task.string_length=6 eval.lengths=[6,60]": (
        "positions are more than the 64"
    ),
    "task=mqar eval.lengths=[64,65]": "length=65: must be an even number",
    "task=substring_by_prefix eval.lengths=[20]": "context=20: must be a whole",
    "eval.lengths=[26,13]": "must be a list in rising order",
    "eval.lengths=[13,abc]": "must be a list in rising order",
    "threads=4096": "threads=4096: this process may use",
    "eval.problems_at_end=5": "problems_at_end=5: must be at least eval.problems=",
    "model.attention=linear position=alibi": "model.attention=linear: Alibi needs attention scores",
    "task.loss_on='a\x1b[31m\nb'": "\\x1b[31m",
}


@pytest.mark.parametrize("line", BAD, ids=[line[:60] for line in BAD])
def test_a_bad_setting_is_one_line_and_writes_nothing(line, tmp_path):
    words = [line] if "\n" in line else line.split()
    with pytest.raises(ConfigError, match=one_line(BAD[line])):
        train(config.load("wandb.mode=disabled", "device=cpu", f"out={tmp_path / 'runs'}", *words))
    assert not (tmp_path / "runs").exists()


COMPOSED = [
    "task=substring_by_prefix train.seq_len=99 train.warmup=${seed} eval.lengths=[3,4]",
    "position=randomized_rope position.scheme.q=3 model={d_model:8} train.more=1",
    "~eval.lengths eval.lengths=[5]",
]


def test_settings_are_those_that_hydra_composes():
    """Also of files chosen before, which are not composed again."""
    for line in COMPOSED:
        composed, values, _ = overrides.for_hydra(line.split())
        names, expected = config._chosen(tuple(composed))
        for _ in range(2):
            chosen, settings = config._with_values(composed, values)
            assert chosen == names
            assert settings == expected


def test_every_setting_can_be_given_by_its_name():
    cfg, rest = (
        load(),
        (
            "names",
            "parent",
            "overrides",
            "allowed_packages",
            "shows_scores",
            "plan",
            "out",
            "task",
            "position",
        ),
    )
    settings = {
        k: v for k, v in flat(dataclasses.asdict(cfg)).items() if k.partition(".")[0] not in rest
    }
    assert (
        config.load(
            *(f"{key}={json.dumps(value)}".replace('"', "") for key, value in settings.items())
        )
        == cfg
    )


def test_a_folder_that_cannot_be_written(tmp_path):
    """A file takes the folder's place: this fails for root too, unlike missing permissions."""
    (tmp_path / "runs").write_text("")
    with pytest.raises(ConfigError, match=r"out=.*runs: cannot be written .*; set out="):
        run([*TINY, f"out={tmp_path / 'runs'}"])


def test_a_task_alone_takes_its_own_recipe():
    for name in ("arithmetic_addition", "text"):
        assert load(f"task={name}", "scale=quick").train == load(f"task={name}").train
    paper = load("task=substring_by_prefix", "scale=paper", "train.lr=7")
    assert (paper.train.steps * 16, paper.train.lr, paper.task["context"]) == (65_536, 7, 512)


@pytest.mark.parametrize(
    "name", [*(f"task/{name}" for name in TASKS), *(f"position/{name}" for name in SCHEMES)]
)
def test_a_yaml_says_only_what_differs_from_its_class(name):
    node = yaml.safe_load((config.CONF / f"{name}.yaml").read_text())
    (cls, *_) = instantiate.classes(node)
    defaults = {
        key: p.default for key, p in inspect.signature(cls).parameters.items() if key != "dims"
    }
    assert not [key for key, value in node.items() if key != "_target_" and defaults[key] == value]
    if name.startswith("position/"):  # results read the same without importing torch
        assert shipped(name) == with_class_names(flat(load(name.replace("/", "=")).position))


def test_a_record_gives_back_its_configuration():
    cfg = config.load("position=randomized_rope", "task=substring_by_prefix", "seed=3")
    read = config.from_record(json.loads(json.dumps(config.recorded(cfg))))
    assert config.recorded(read) == config.recorded(cfg)
    assert (read.out, read.wandb.mode, read.overrides) == (None, "disabled", ())
    assert config.build_position(read, Dims(64, 4, 8)).scheme.theta.keys() == {"q", "k"}
    with pytest.raises(ConfigError, match=r"model.n_layers: not set"):
        config.from_record(config.recorded(cfg) | {"model": {"d_model": 4}})
    for word in ("parent.steps=5", "overrides=x"):  # in a record, but not of the user
        with pytest.raises(ConfigError, match=r"\w+: there is no such setting; --help"):
            config.load(word)
    with pytest.raises(ConfigError, match=r"train.stepz=1: there is no such setting"):
        config.from_record(
            config.recorded(cfg) | {"train": config.recorded(cfg)["train"] | {"stepz": 1}}
        )


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """A package on the path; yields a file that exists only after its import."""
    package, mark = tmp_path / "elsewhere" / "stranger.py", tmp_path / "imported"
    package.parent.mkdir()
    package.write_text(f"open({str(mark)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(str(package.parent))
    yield mark
    sys.modules.pop("stranger", None)


@pytest.mark.parametrize("group", ["position", "task"])
def test_nothing_that_a_run_folder_says_runs_code(stranger, folder, group):
    content = json.loads((folder / "run.json").read_text())
    content["config"][group] = {"_target_": "stranger.Strange"}
    content["config"]["allowed_packages"] = ["stranger"]
    (folder / "run.json").write_bytes(files.as_json(files.sealed(content)))
    with pytest.raises(SystemExit, match=r"_target_=stranger\.Strange: .*--allow"):
        sample.main([str(folder)])
    assert not stranger.exists()


def test_relative_folders(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert run_folder.out_folder(config.load()) == ROOT / "results" / "runs"
    assert run_folder.out_folder(config.load("out=here")) == tmp_path / "here"


def test_true_in_a_list_is_not_a_number():
    assert instantiate.check_type("task.sizes", [1, 2], list[int]) == [1, 2]
    with pytest.raises(ConfigError, match="valid integer"):
        instantiate.check_type("task.sizes", [1, True], list[int])
