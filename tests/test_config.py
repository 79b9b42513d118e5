"""Settings: what is wrong is said in one line that names key, value and remedy, before anything is written."""

import dataclasses
import json
import math
import os
import shutil
import sys
from contextlib import suppress
from random import Random

import pytest
import torch
from conftest import TASKS, TINY, fuzz, only_folder, random_examples, walk
from hydra.errors import HydraException
from hypothesis import given
from hypothesis import strategies as st
from trained import command, load, run

from rope_lab import files
from rope_lab.model.positions import Dims
from rope_lab.text import ConfigError
from rope_lab.train import config
from rope_lab.train import run as runs
from rope_lab.train.loop import train
from rope_lab.train.overrides import check_overrides

# overrides, and what the message has to name
BAD = [
    (["train.lr=nan"], ["train.lr=nan", "finite"]),
    (["train.lr=-1"], ["train.lr=-1", "greater than 0"]),
    (["train.lr=inf"], ["train.lr=inf"]),
    (["seed=-1"], ["seed=-1", "equal to 0"]),
    (["train.steps=0"], ["train.steps=0", "equal to 1"]),
    (["train.clip=0"], ["train.clip=0"]),
    (["train.decay=exponential"], ["train.decay=exponential", "linear"]),
    (["train.precision=float16"], ["train.precision=float16", "bfloat16"]),
    (["model.norm=both"], ["model.norm=both", "'pre' or 'post'"]),
    (["model.init=zero"], ["model.init=zero", "xavier"]),
    (["model.dropout=1.0"], ["model.dropout=1.0"]),
    (["+foo=1"], ["foo=1", "no such setting"]),
    (["+train.stepz=5"], ["train.stepz=5", "train.steps"]),
    (["+model.deep.er=5"], ["model.deep", "no such setting"]),
    (["+task.strin_length=4"], ["task.strin_length=4", "task.string_length"]),
    (["+position.bse=4"], ["position.bse=4", "position.base"]),
    (["+wandb.mod=online"], ["wandb.mod=online", "wandb.mode"]),
    (["task.string_length=six"], ["task.string_length=six", "integer"]),
    (["task.string_length=0"], ["task.string_length=0", "at least 1"]),
    (["task.loss_on=some"], ["task.loss_on=some", "answer"]),
    (["task.letters=aa"], ["task.letters=aa", "different"]),
    (["task._target_=tasks.nothing.Nothing"], ["task._target_=tasks.nothing.Nothing"]),
    (["position._target_=rope_lab.model.positions.Nothing"], ["position._target_=rope_lab.model.positions.Nothing"]),
    (["position.fraction=0.3"], ["position.fraction=0.3", "even"]),
    (["model.d_model=18"], ["model.d_model=18", "model.n_heads=4"]),
    (["model.d_model=12"], ["model.d_model=12", "even"]),  # a head of 3 features under rotary
    (["position=sinusoidal", "model.d_model=9", "model.n_heads=3"], ["model.d_model=9", "even"]),
    (["train.seq_len=10"], ["train.seq_len=10", "train.seq_len"]),
    (["task.string_length=1", "task.letters=ab"], ["task.string_length=1", "too small", "larger"]),
    (["task.string_length=2", "task.letters=abcdefgh", "eval.problems=100"], ["eval.problems=100", "more than"]),
    (["device=tpu"], ["device=tpu", "'cpu'"]),
    (["position=xpos", "position.reach=64"], ["position.reach=64", "position.scale_base"]),
    (["position=t5_bias", "+position.furthest=64"], ["position.furthest=64", "position.max_distance"]),
    (["train.stepz=5"], ["train.stepz=5", "did you mean train.steps?"]),
    (["train=5"], ["train=5"]),
    (["threads=0"], ["threads=0"]),
    (["train.lr=abc"], ["train.lr=abc", "number"]),
    (["train.steps=1.5"], ["train.steps=1.5", "integer"]),
    (["train.steps=true"], ["train.steps=true", "number"]),
    (["threads=100000"], ["threads=100000", "less than"]),
    (["out="], ["out=", "empty"]),
    (["recipe=substring_by_index/paper"], ["recipe=substring_by_index/paper", "scale="]),
    (["position._partial_=false"], ["position._partial_=false", "conf/position"]),
    (["position=sinusoidal", "position.base=0"], ["position.base=0", "above 1"]),
    (["task=substring_by_prefix", "task.context=512"], ["train.seq_len=128", "512 tokens"]),
    (["task=substring_by_prefix", "task.first_length=1", "task.copy_length=2"], ["task.first_length=1", "raise"]),
    (["~seed"], ["seed: not set"]),
    (["task=null"], ["task=null", "conf/task/"]),
    (["position=[1,2]"], ["position=[1,2]", "sweep"]),
    (["scale=5"], ["scale=5", "conf/scale/"]),
    (["seed=${nothing}"], ["seed", "nothing"]),
    (["train.lr=${train}"], ["train.lr"]),
    (["task.letters=???"], ["task.letters", "not set"]),
    (["task._target_=os.system"], ["task._target_=os.system", "allowed_packages=[os]"]),
    (["position._target_=torch.nn.Linear"], ["position._target_=torch.nn.Linear", "allowed_packages=[torch]"]),
    (["task._target_=rope_lab.train.run.Run"], ["rope_lab.train.run.Run", "must be a Task"]),
    (["task._target_=rope_lab.train.provenance.subprocess.run"], ["rope_lab.train.provenance.subprocess"]),
    (["task.letters={_target_:os.system,command:ls}"], ["task.letters", "must be a plain value"]),
    (["task.letters=[{_target_:os.system,command:ls}]"], ["task.letters", "must be a plain value"]),
    (["task.letters=[[{a:{_partial_:true}}]]"], ["task.letters", "must be a plain value"]),
    (["position=randomized_rope", "position.scheme=rope"], ["position.scheme=rope", "must be a scheme"]),
    (["position=randomized_rope", "position.scheme=null"], ["position.scheme=null", "must be a scheme"]),
    (["position=randomized_rope", "position.scheme._target_=os.system"], ["position.scheme._target_", "[os]"]),
    (["position=randomized_rope", "position.longest=5"], ["position.longest=5", "train.seq_len"]),
    (["position=../position/rope"], ["position=../position/rope", "did you mean rope?"]),
    (["position=learned", "train.seq_len=0"], ["train.seq_len=0"]),
    (["wandb.mode=on"], ["wandb.mode=on", "offline"]),
    (["task._target_=tasks.base.Task"], ["task._target_=tasks.base.Task", "conf/task/"]),
    (["task._target_=tasks.base.PackedTask"], ["task._target_=tasks.base.PackedTask", "no whole Task"]),
    (["task._target_=builtins.dict"], ["task._target_=builtins.dict", "[builtins]"]),
    (["task._target_=rope_lab.model.positions.Rotary"], ["rope_lab.model.positions.Rotary", "must be a Task"]),
    (
        ["position._target_=rope_lab.model.positions.angles"],
        ["rope_lab.model.positions.angles", "must be a PositionScheme"],
    ),
    (
        ["position._target_=rope_lab.model.positions.Dims"],
        ["rope_lab.model.positions.Dims", "must be a PositionScheme"],
    ),
    (["position._target_=rope_lab.model.positions.nn.Linear"], ["rope_lab.model.positions.nn.Linear"]),
    (["position._target_=rope_lab.model.positions.torch.nn.Linear"], ["rope_lab.model.positions.torch.nn.Linear"]),
    (["position._target_=rope_lab.probe.Changed"], ["rope_lab.probe.Changed", "no whole PositionScheme"]),
    (["position._target_=rope_lab." + 3000 * "a" + ".B"], ["position._target_=rope_lab.aaa", "…"]),
    (["position._target_="], ["position._target_=", "must name a class"]),
    (["position._target_=5"], ["position._target_=5", "must name a class"]),
    (["position._target_=[a]"], ["position._target_=", "must name a class"]),
    (["~position._target_"], ["position._target_", "must name a class, as the files in conf/position/ do"]),
    (["position=randomized_rope", "position.scheme._target_=5"], ["position.scheme._target_=5", "conf/position/ do"]),
    (["position=randomized_rope", "~position.scheme._target_"], ["position.scheme._target_", "must name a class"]),
    (["seed=${seed}"], ["seed", "Recursive"]),
    (["train.lr=${train.beta1}", "train.beta1=${train.lr}"], ["train.lr", "Recursive"]),
    (["position=randomized_rope", "position.scheme=${position}"], ["position.scheme", "parent"]),
    (["position.base={" + "a:{" * 300 + "}" * 300 + "}"], ["position.base=", "nested too deeply"]),
    (["scale=../scale/quick"], ["scale=../scale/quick"]),
    (["threads=-1"], ["threads=-1"]),
    (["threads=9999999999999999999999"], ["threads=9999999999999999999999", "less than"]),
    (["device=cuda:0"], ["device=cuda:0", "'cuda' or 'mps'"]),
    (["device="], ["device="]),
    (["device=5"], ["device=5"]),
    (["out='~nobody-of-that-name/runs'"], ["out="]),
    (["task.loss_on='a\x1b[31m\nb'"], ["task.loss_on=", "\\x1b[31m"]),
]


@pytest.mark.parametrize(("overrides", "named"), BAD, ids=[" ".join(o)[:80] for o, _ in BAD])
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


# overrides, and what stderr has to name, through the command line
COMMANDS = [
    (["train.stepz=5"], "train.stepz"),
    (["+train.stepz=5"], "train.steps"),
    (["train.lr=nan"], "train.lr=nan"),
    (["train.lr=abc"], "train.lr"),
    (["position=ropr"], "roper"),
    (["position=null"], "position=null"),
    (["-m", "position=rope,null"], "position=null"),
    (["--config-dir", "conf", "position=deep"], "more than 16"),
]


@pytest.mark.parametrize(("overrides", "named"), COMMANDS, ids=[" ".join(overrides) for overrides, _ in COMMANDS])
def test_bad_settings_through_the_command_line(overrides, named, tmp_path):
    (tmp_path / "conf" / "position").mkdir(parents=True)
    (tmp_path / "conf" / "position" / "deep.yaml").write_text(json.dumps(nested(500)))
    done = command([*overrides, "out=runs"], tmp_path)
    assert done.returncode != 0
    assert named in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / "conf"]


def test_a_folder_that_cannot_be_written(tmp_path):
    """A file stands where the folder should be: it fails for root too, as permissions would not."""
    (tmp_path / "runs").write_text("")
    with pytest.raises(ConfigError, match=r"out=.*runs: cannot be written .*; set out="):
        run([*TINY, f"out={tmp_path / 'runs'}"])


def test_a_task_alone_takes_its_own_recipe():
    for name in TASKS:
        assert load(f"task={name}", "scale=quick").train == load(f"task={name}").train
    assert load("task=substring_by_prefix", "scale=paper").train.steps * 16 == 65_536
    assert load("task=substring_by_prefix", "scale=paper", "train.steps=7").train.steps == 7


def test_a_task_without_a_recipe_has_the_defaults_and_no_paper_scale(tmp_path, monkeypatch):
    conf = tmp_path / "conf"
    shutil.copytree(config.CONF, conf)
    (conf / "task" / "mine.yaml").write_text((conf / "task" / "substring_by_index.yaml").read_text())
    monkeypatch.setattr(config, "CONF", conf)
    assert config.load("task=mine", "task.string_length=6").train.steps == 1000
    with pytest.raises(ConfigError, match=r"scale=paper: there is no conf/recipe/mine/paper\.yaml"):
        config.load("task=mine", "scale=paper")


def test_a_record_gives_back_its_configuration():
    cfg = config.load("position=rope", "task=substring_by_prefix", "seed=3")
    read = config.from_record(json.loads(json.dumps(config.recorded(cfg))))
    assert config.recorded(read) == config.recorded(cfg)
    assert config.from_record(dataclasses.asdict(cfg)) == read  # as records were before they left some settings out
    with pytest.raises(ConfigError, match=r"model.n_layers: not set"):
        config.from_record(dataclasses.asdict(cfg) | {"model": {"d_model": 4}})


def nested(times: int) -> dict:
    """A scheme within so many others."""
    scheme = {"_target_": "rope_lab.model.positions.Rotary", "_partial_": True, "q": 1, "k": 1}
    for _ in range(times):
        scheme = {"_target_": "rope_lab.model.positions.Randomized", "_partial_": True, "scheme": scheme}
    return scheme


@pytest.mark.parametrize("times", [17, 500, 5000])
def test_schemes_within_one_another_without_end_are_said_in_one_line(times, tmp_path):
    """In a record, and in a yaml; what Hydra cannot read is found before it tries."""
    with pytest.raises(ConfigError, match=r"nested too deeply|more than 16 schemes"):
        config.from_record(config.recorded(load()) | {"position": nested(times)})
    (tmp_path / "position").mkdir()
    (tmp_path / "position" / "deep.yaml").write_text("{a: " * times + "}" * times)
    with pytest.raises(ConfigError, match=r"deep\.yaml: more than 16 groups"):
        check_overrides(["position=deep"], [tmp_path], {})


def test_some_schemes_within_one_another_are_fine(tmp_path):
    cfg = config.from_record(config.recorded(load()) | {"position": nested(10)})
    assert config.build_position(cfg, Dims(64, 4, 8)).scheme.scheme.longest == 2048


def test_a_yaml_within_itself_is_said_in_one_line(tmp_path):
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "loop.yaml").write_text("&whole {letters: *whole}")
    with pytest.raises(ConfigError, match=r"loop\.yaml: more than 16 groups"):
        check_overrides(["task=loop"], [tmp_path], {})
    (tmp_path / "task" / "loop.yaml").write_text("{letters: &letters ab, x: *letters")  # and a mistake for Hydra to say
    check_overrides(["task=loop"], [tmp_path], {})


@pytest.mark.parametrize("kind", ["pipe", "latin"])
def test_a_yaml_that_cannot_be_read_is_said_in_one_line(kind, tmp_path):
    path = tmp_path / "task" / "odd.yaml"
    path.parent.mkdir()
    os.mkfifo(path) if kind == "pipe" else path.write_bytes(b"caf\xe9: 1")
    with pytest.raises(ConfigError, match=r"odd\.yaml: (is not a regular file|holds a byte)"):
        check_overrides(["task=odd"], [tmp_path], {})


@pytest.mark.parametrize("override", ["~task", "~position", "~scale", "~position=roper"])
def test_a_group_that_a_run_needs_cannot_be_taken_away(override):
    with pytest.raises(ConfigError, match="a run needs one"):
        config.load(override)


@pytest.mark.parametrize("name", ["../x", "", "a" * 101, "a\nb", "\x1b[31m", "a/b"])
def test_a_record_whose_names_are_none_is_refused(name):
    plain = config.recorded(load())
    plain["names"] = plain["names"] | {"scale": name}
    with pytest.raises(ConfigError) as refused:
        config.from_record(plain)
    assert "scale=" in str(refused.value)
    assert str(refused.value).isprintable()


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """A package on the path that leaves a mark where it is imported, with a scheme in it."""
    package = tmp_path / "elsewhere" / "stranger.py"
    package.parent.mkdir()
    mark = tmp_path / "imported"
    package.write_text(
        f"open({str(mark)!r}, 'w').close()\nfrom rope_lab.model.positions import PositionScheme\n"
        "class Strange(PositionScheme):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(package.parent))
    yield mark
    sys.modules.pop("stranger", None)


def test_code_of_other_packages_runs_only_where_the_user_allows_it(stranger, tiny, tmp_path):
    strange = [*tiny, "position=none", "position._target_=stranger.Strange"]
    with pytest.raises(ConfigError, match=r"position\._target_=stranger\.Strange: .*allowed_packages=\[stranger\]"):
        run(strange)
    assert not stranger.exists()
    assert run([*strange, "allowed_packages=[stranger]"])["status"] == "finished"
    assert stranger.exists()


def test_nothing_that_a_run_folder_says_runs_code(stranger, tiny, tmp_path):
    """A run.json that names a stranger's class, and even allows it, is refused; the reader may allow it."""
    from rope_lab import sample

    run(tiny)
    folder = only_folder(tmp_path / "runs")
    content = json.loads((folder / "run.json").read_text())
    for group, target in (("position", "stranger.Strange"), ("task", "os.system"), ("task", "subprocess.run")):
        evil = json.loads(json.dumps(content))
        evil["config"][group] = {"_target_": target, "_partial_": True}
        evil["config"]["allowed_packages"] = ["stranger", "os", "subprocess"]
        nested = {"_target_": "rope_lab.model.positions.Randomized", "_partial_": True, "longest": 2048}
        if target == "subprocess.run":  # a class of ours that is handed the stranger's, in a list
            evil["config"][group] = content["config"][group]
            evil["config"]["position"] = nested | {"scheme": [{"_target_": "stranger.Strange"}]}
        (folder / "run.json").write_bytes(files.as_json(files.sealed(evil)))
        with pytest.raises(SystemExit, match=r"_target_=.*allowed_packages=|must be a scheme"):
            sample.main([str(folder)])
        assert not stranger.exists()


KEYS = ["task", "position", "scale", "recipe", "seed", "device", "threads", "out", "fresh", "model", "train", "eval"]
KEYS += ["model.d_model", "train.lr", "train.compile", "train.warmup", "task.loss_on", "task.string_length"]
KEYS += ["task._target_", "task._partial_", "position._target_", "position.base", "wandb", "wandb.entity"]
KEYS += [
    "allowed_packages",
    "hydra",
    "+x",
    "~train",
    "~task",
    "+train.x",
    "++seed",
    "schema",
    "",
    "train.stepz",
    "modl",
]
WORDS = ["null", "", "-1", "1e400", "nan", "[]", "{}", "[1,2]", "{a:1}", "true", "abc", "1.5", "${seed}", "${nope}"]
WORDS += ["???", "'", "\\", "${oc.env:NOPE}", "9" * 30, "é", "a,b", "~", "${model}", "{_target_:os.system}", "\0", "=="]


@pytest.mark.fuzz
def test_whatever_is_set_to_whatever_is_either_right_or_said_in_one_line():
    """Keys with words of all kinds: a configuration, a ConfigError of one line, or Hydra's own short message."""
    random, outcomes = Random(0), []
    for override in random.sample([f"{key}={word}" for key in KEYS for word in WORDS], fuzz(400)):
        try:
            config.load(override)
        except (ConfigError, HydraException) as error:
            outcomes.append(str(error) if isinstance(error, ConfigError) else "Hydra's")
        else:
            outcomes.append("right")
    assert not [outcome for outcome in outcomes if "\n" in outcome]
    assert 0 < outcomes.count("right") < len(outcomes) / 2
    assert outcomes.count("Hydra's") < len(outcomes) / 4


@random_examples(1000)
@given(edits=st.lists(st.tuples(st.integers(0, 2**20), st.sampled_from(["delete", "null", "list", "text", "number"]))))
def test_a_damaged_record_is_a_config_error(edits):
    """Leaves and groups of a recorded configuration are dropped or replaced at random."""
    plain = dataclasses.asdict(PLAIN)
    for number, how in edits:
        places = list(walk(plain))
        if not places:
            break
        group, key = places[number % len(places)]
        if how == "delete":
            del group[key]
        else:
            group[key] = {"null": None, "list": [1], "text": "x", "number": -7}[how]
    with suppress(ConfigError):
        assert config.from_record(plain).model.d_model == plain["model"]["d_model"]


PLAIN = load()


def test_relative_folders(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert runs.out_folder(config.load()) == config.ROOT / "results" / "runs"
    assert runs.out_folder(config.load("out=here")) == tmp_path / "here"


def test_learning_rate_schedule():
    from rope_lab.train.trainer import learning_rate

    t = config.load("train.lr=1.0", "train.steps=100", "train.warmup=10", "train.decay=linear").train
    assert [learning_rate(t, s) for s in (0, 4, 9, 10)] == pytest.approx([0.1, 0.5, 1.0, 1.0])
    assert [learning_rate(t, s) for s in (55, 99)] == pytest.approx([0.5, 1 / 90])
    t.decay = "cosine"
    assert learning_rate(t, 55) == pytest.approx(0.5)
    assert learning_rate(t, 32) == pytest.approx((1 + math.cos(math.pi * 22 / 90)) / 2)
    t.decay = "none"
    assert learning_rate(t, 99) == 1.0
