"""Command-line overrides: each mistake gets a one-line message with the remedy, before anything
runs.
"""

import shlex

import pytest
from conftest import one_line
from trained import command

from rope_lab.text import ConfigError
from rope_lab.train import config
from rope_lab.train.overrides import expand, read_arguments

# command line: part of the expected message
MISTAKES = {
    # names
    "positon=rope": "did you mean position?",
    "lr=1e-3": "did you mean train.lr?",
    "size=3": "did you mean train.batch_size?",
    "train.stepz=5": "did you mean train.steps?",
    "epochs=3": "--help",
    "wandb=off": "wandb.mode",
    "train=5": "train is a group of settings: train.optimizer, ",
    # choices
    "position=rop": "did you mean rope?",
    "position=RoPE": "did you mean rope?",
    "position=sin": "sinusoidal or sinusoidal_product?",
    "position=": "there are abacus, alibi, ",
    "position=temp": "did you mean position=./temp.py?",
    "position=./temp": "did you mean position=./temp.py?",
    "position=./nothing.py": "position=./nothing.py: there is no such file in /",
    "task=additions": "did you mean addition?",
    "scale=small": "there are full_width, length, paper, quick, reduced",
    "scale=paper task=indirect_indexing": "task=indirect_indexing has quick",
    "-m position=rope,rop": "no such scheme; did you mean rope?",
    "~position": "did you mean none?",
    "+position=rope": "position",
    # settings of a task or scheme
    "position=alibi position.q=1": "position.q=1: no such setting; Alibi has no settings",
    "position.qq=1": "did you mean position.q?",
    "task.string_lenght=3": "did you mean task.string_length?",
    # syntax
    "position = rope": "position: cannot be read; write NAME=VALUE without spaces",
    "-m seed=0, 1": "write NAME=VALUE without spaces",
    "eval.lengths=[6, 8, 10] seed=1": "write NAME=VALUE without spaces",
    "--position rope": "write position=…",
    "--batch-size 4": "write train.batch_size=…",
    "-n 5": "-n: there is no such option",
    "rope": "write NAME=VALUE",
    "help": "--help",
    "'out=a=b'": "in quotes, \"NAME='VALUE'\"",
    # several values
    "position=rope,roper": "several values are a sweep: rope-lab sweep ",
    "seed=0 seed=1 seed=2": "rope-lab sweep seed=A,B",
    "seed=1 ++seed=2": "seed is given twice",
    "out=/data/a,b": "a path with a comma is written \"out='/data/a,b'\"",
    "seed=[0,1]": "rope-lab sweep seed=0,1",
    "eval.lengths=6,8": "a list is written eval.lengths=[6,8]",
    "-m 'train.lr=interval(0,1)'": "Can only enumerate",
    "-m 'position=glob(x*z)'": "names no values; write a list",
    # values
    "seed=a": "seed=a: must be a valid integer",
    "train.lr=fast train.steps=-1": "train.steps=-1: must be greater than or equal to 0",
    "eval.lengths=null": "[] for none",
    "wandb.mode=on": "'offline'",
    "pos=rope": "did you mean position?",
    # of Hydra's own
    "hydra.run.dir=x": "out=FOLDER names the folder of runs",
    "hydra/launcher=ray": "write -m, or rope-lab sweep",
}


def answer(line: str) -> list[config.Config]:
    """Configurations of a command line. Raises ConfigError."""
    options, words = read_arguments(shlex.split(line))
    return [config.load(*run) for run in (expand(words) if "-m" in options else [words])]


@pytest.mark.parametrize("line", MISTAKES, ids=[line[:60] for line in MISTAKES])
def test_a_mistake_is_answered_with_the_remedy_in_one_line(line, tmp_path, monkeypatch):
    (tmp_path / "temp.py").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=one_line(MISTAKES[line])) as caught:
        answer(line)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("train.steps=1e3", "train.steps", 1000),
        ("eval.lengths=26", "eval.lengths", [26]),
        ("position.v=2.0", "position.v", 2),
        ("'eval.lengths=[6, 8]'", "eval.lengths", [6, 8]),
        ("task.letters=123", "task.letters", "123"),
        ("out=/home/jürgen/läufe", "out", "/home/jürgen/läufe"),
    ],
)
def test_a_number_may_be_written_in_other_ways(line, key, value):
    (found,) = answer(line)
    for part in key.split("."):
        found = found[part] if isinstance(found, dict) else getattr(found, part)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("line", "runs"),
    [
        ("position=rope -m seed=0,1", [("rope", 0), ("rope", 1)]),
        ("'seed=range(1,3)' 'position=glob([rope,roper*],exclude=[*fast,*axis])' --multirun",
         [("rope", 1), ("roper", 1), ("roper_double_rotation", 1), ("rope", 2), ("roper", 2),
          ("roper_double_rotation", 2)]),
        ("-m 'position=choice(rope,alibi)'", [("rope", 0), ("alibi", 0)]),
    ],
)  # fmt: skip
def test_a_sweep_is_every_combination_of_its_values(line, runs):
    assert [(cfg.names.position, cfg.seed) for cfg in answer(line)] == runs


def test_options_may_stand_anywhere(tmp_path):
    shown = command(["train.lr=0.5", "--help", "position=rope"], tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "train.lr=0.5 " in shown.stdout
    assert "position.q=1\n" in shown.stdout
    assert "seed=0 " in command(["-m", "--help", "seed=1,2"], tmp_path).stdout
    assert not list(tmp_path.iterdir())


def test_a_mistake_through_the_command_line_writes_nothing(tmp_path):
    of_hydra = ["hydra/launcher=jobli", "hydra.launcher=null", "hydra.launcher.nothing=5"]
    of_hydra += ["hydra.sweep.dir=x", "hydra.job.chdir=true", "+hydra.verbose=true"]
    for line in (
        "position=ropr",
        "-m position=rope,null",
        "train.lr=nan",
        *(f"-m {w} seed=0,1" for w in of_hydra),
    ):
        done = command([*line.split(), "out=runs"], tmp_path)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
