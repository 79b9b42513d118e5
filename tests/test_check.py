"""What is asked of every scheme and task, of ours and of the user's: ours hold it, and planted mistakes are named."""

import sys

import pytest
from conftest import ROOT, SCHEMES, TASKS
from test_readme import block
from trained import load

from rope_lab.check.__main__ import check, main
from rope_lab.check.findings import Finding
from rope_lab.train import config, trainer


def found_of(group: str, value: str) -> dict[str, Finding]:
    """The findings of a scheme or a task, by name."""
    compose, words = config.load if value.endswith(".py") else load, [f"{group}={value}"]
    words += [f"task.path={ROOT / 'rope_lab'}"] if value == "text" else []
    found = check(trainer.resolve(compose(*words, "device=cpu", "train.precision=float32")), group)
    return {finding.name: finding for finding in found}


def wrong(found: dict[str, Finding]) -> list[Finding]:
    return [finding for finding in found.values() if finding.kind == "WRONG"]


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes the user's file own.py, and forgets its module afterwards."""
    monkeypatch.chdir(tmp_path)
    yield (tmp_path / "own.py").write_text
    sys.modules.pop("own", None)


@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_of_ours_holds_what_is_asked_of_any(name):
    found = found_of("position", name)
    assert wrong(found) == []
    assert len(found) == 12


@pytest.mark.parametrize("name", TASKS)
def test_every_task_of_ours_holds_what_is_asked_of_any(name):
    found = found_of("task", name)
    assert wrong(found) == []
    assert len(found) == 7


@pytest.mark.parametrize(("group", "heading"), [("position", "Your own scheme"), ("task", "Your own task")])
def test_the_documented_examples_hold_it_too(write, capsys, group, heading):
    write(block(heading, "python"))
    with pytest.raises(SystemExit) as end:
        main([f"{group}=own.py", "device=cpu", "train.batch_size=2", "train.seq_len=64", "eval.problems=8"])
    shown = capsys.readouterr().out
    assert end.value.code == 0, shown
    assert shown.startswith(f"{group}=own\n")
    assert "WRONG" not in shown
    assert "speed" in shown


START = """import torch
from torch import nn
from rope_lab.model.hooks import PositionScheme

class Own(PositionScheme):
"""
INIT = "    def __init__(self, dims):\n        super().__init__(dims)\n"
HEADS, EMBED = "    def heads(self, qkv, at):\n        return ", "    def embed(self, x, at):\n        return "
MISTAKES = {  # what a user writes: the check that finds it, words of what it says, the line of own.py
    "a hook by another name": (
        "    def biases(self, at_T, at_S):\n        return -(at_T[:, None] - at_S)[None].double()",
        "hooks",
        "it is position=none; biases is no hook: did you mean bias?",
        6,
    ),
    "no hook": (INIT, "hooks", "overrides none of embed, heads, output, bias, in_layer", None),
    "queries alone": (HEADS + "qkv[:, :, 0]", "shapes and dtypes", "must be [2, 1, 3, 4, 16]", 6),
    "two of three": (HEADS + "(qkv[:, :, 0], qkv[:, :, 1])", "shapes and dtypes", "or three: q, k and v", 6),
    "half precision": (HEADS + "qkv.half()", "shapes and dtypes", "torch.float16 for torch.float32", 6),
    "a whole-number bias": (
        "    def bias(self, at_T, at_S):\n        return (at_S - at_T[:, None])[None]",
        "shapes and dtypes",
        "bias returns torch.int64",
        6,
    ),
    "a bias of every row": (
        "    def bias(self, at_T, at_S):\n        return torch.zeros(2, 4, len(at_T), len(at_S))",
        "shapes and dtypes",
        "must be [4, 1, 4]",
        6,
    ),
    "an error of its own": (EMBED + "x + missing", "shapes and dtypes", "NameError: name 'missing'", 7),
    "the mean of all": (EMBED + "x + x.mean(1, keepdim=True)", "causality", "position 0 depend on the token at", 6),
    "the mean of rows": (HEADS + "qkv - qkv.mean(0)", "causality", "rows of a batch depend on one another", 6),
    "a token shift": (
        EMBED + "x + torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)",
        "KV cache",
        "with a KV cache the logits at position 5 differ",
        6,
    ),
    "relative to the first": (
        "    def bias(self, at_T, at_S):\n        return -(at_T - at_T[0]).double()[None, :, None] * (at_S % 3)",
        "KV cache",
        "with a KV cache the logits",
        6,
    ),
    "positions of its own": (
        EMBED + "x + torch.outer(torch.arange(x.shape[1]), torch.arange(x.shape[2])).to(x)",
        "KV cache",
        "with a KV cache the logits at position 5 differ",
        6,
    ),
    "a value that grows on the way": (
        HEADS + "qkv * torch.arange(1, qkv.shape[1] + 1, device=qkv.device).to(qkv.dtype)[:, None, None, None]",
        "KV cache",
        "with a KV cache the logits at position 5 differ",
        6,
    ),
    "a tensor that is no parameter": (
        INIT + "        self.w = torch.ones(64, requires_grad=True)\n" + EMBED + "x * self.w.to(x.dtype)",
        "gradients",
        "self.w is a tensor and no nn.Parameter",
        6,
    ),
    "a parameter that nothing uses": (
        INIT + "        self.w = nn.Parameter(torch.ones(64))\n" + EMBED + "2 * x",
        "gradients",
        "the parameter w gets no gradient",
        6,
    ),
    "a detached half": (
        HEADS + "qkv + qkv.detach()",
        "gradients",
        "through heads is not that of finite differences",
        6,
    ),
    "a counter": (
        INIT + "        self.n = 0\n" + EMBED + "x + self.count()\n    def count(self):\n        self.n += 1\n"
        "        return self.n",
        "state",
        "embed returns other numbers when it is called again",
        9,
    ),
    "random numbers": (EMBED + "x + torch.rand_like(x)", "state", "random numbers belong into draw", 6),
    "in place": (EMBED + "x.add_(1) if not x.requires_grad else x + 1", "state", "embed changes what it is given", 6),
    "a table left behind": (
        INIT + "        self.tables = [torch.randn(512, 64)]\n" + EMBED + "x + self.tables[0][at].to(x.dtype)",
        "device",
        "embed needs a tensor that stays on the CPU",
        9,
    ),
    "a table that ends": (
        INIT + "        self.table = nn.Embedding(dims.max_len, dims.d_model)\n" + EMBED + "x + self.table(at)",
        "length",
        "set self.max_len",
        None,
    ),
    "half of an odd width": (
        HEADS + "torch.cat(torch.stack(qkv.unflatten(-1, (2, -1)).unbind(-2)).unbind(0), dim=-1)",
        "odd widths",
        "RuntimeError",
        7,
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_named_with_its_line(write, mistake):
    body, check, told, line = MISTAKES[mistake]
    write(START + body + "\n")
    found = found_of("position", "own.py")[check]
    assert found.kind == "WRONG"
    assert told in found.told
    assert line is None or found.where == f"own.py:{line}"


def test_hooks_are_found_however_they_are_defined(write):
    """As a static method, and beside a helper that has nearly the name of another hook, which is a note."""
    static = "    @staticmethod\n    def bias(at_T, at_S):\n        return -(at_T[:, None] - at_S)[None].double()\n"
    write(START + static + "    def head(self):\n        return 0\n")
    assert (found := found_of("position", "own.py")["hooks"]).kind == "note"
    assert found.told == "head is no hook: did you mean heads?"


def test_what_is_allowed_is_said(write):
    """A window, and a scheme of absolute positions."""
    far = "-torch.inf * (at_T[:, None] - at_S > 3).double()"
    write(START + f"    def bias(self, at_T, at_S):\n        return ({far}).nan_to_num(0.0, neginf=-torch.inf)[None]\n")
    found = found_of("position", "own.py")
    assert wrong(found) == []
    assert "does not see" in found["causality"].told
    assert found_of("position", "sinusoidal")["shift"].told.startswith("absolute")
    assert found_of("position", "rope")["shift"].told.startswith("relative")
    assert "serves no 256 tokens" in found_of("position", "learned")["length"].told
    assert "adds to attention scores" in found_of("position", "alibi")["linear attention"].told


TASK = """import numpy as np
from tasks.base import PackedTask, join

class Own(PackedTask):
    alphabet = "?=#abcd"

    def draw(self, rng, n):
        return rng.integers(4, size=(n, 6))

    def write(self, drawn):
        letters = (drawn + ord("a")).astype("uint8")
        return join("?", letters, "="), join(letters, "#")
"""
DRAW, WRITE, BOTH = "    def draw", "    def write", 'join("?", letters, "="), join(letters, "#")'
GRADE = "    def grade(self, problem, completion):\n        return {'accuracy': %s}\n\n"
WRONG_TASKS = {  # what is put in the place of what: the check that finds it, words of what it says, the line
    "a letter twice": ("abcd", "abca", "format", "alphabet has a character twice", None),
    "no stop": ("?=#abcd", "?=abcd", "format", "alphabet lacks stop", None),
    "a letter too many": ("integers(4", "integers(5", "format", "write uses 'e', which alphabet lacks", 10),
    "no whole numbers": ("rng.integers(4, size=(n, 6))", "rng.random((n, 6))", "format", "float64", 7),
    "too few": ("(n, 6)", "(n // 2, 6)", "format", "must be [2000, columns]", 7),
    "no stop at the end": (BOTH, 'join("?", letters, "="), letters', "format", "hold stop, '#', once, at its end", 10),
    "a stop within": (BOTH, BOTH.replace("join(letters,", 'join("#", letters,'), "format", "once, at its end", 10),
    "two answers": (BOTH, BOTH.replace("letters,", "letters[:, 1:],", 1), "format", "more than one right", 10),
    "numpy's own numbers": ("rng.integers", "np.random.randint", "reproducibility", "must come from rng", None),
    "a grade of everything": (DRAW, GRADE % True + DRAW, "problems", "is graded right, as is", 7),
    "a grade of nothing": (DRAW, GRADE % False + DRAW, "problems", "own completion is graded {'accuracy': False}", 7),
    "a split by what is not written": (
        WRITE,
        "    def split_key(self, drawn):\n        return np.arange(len(drawn))[:, None]\n\n" + WRITE,
        "split",
        "is held out, and in training text",
        None,
    ),
}


@pytest.mark.parametrize("mistake", WRONG_TASKS)
def test_a_planted_mistake_of_a_task_is_named(write, mistake):
    old, new, check, told, line = WRONG_TASKS[mistake]
    assert old in TASK
    write(TASK.replace(old, new))
    found = found_of("task", "own.py")[check]
    assert found.kind == "WRONG"
    assert told in found.told
    assert line is None or found.where == f"own.py:{line}"


def test_the_task_without_a_mistake_is_right(write):
    write(TASK)
    assert wrong(found_of("task", "own.py")) == []


def test_the_command_ends_as_it_finds(write, capsys):
    write(START + MISTAKES["the mean of all"][0])
    with pytest.raises(SystemExit) as end:
        main(["position=own.py", "train.steps=2", "train.batch_size=2", "train.seq_len=64"])
    assert end.value.code == 1
    assert "of these are wrong" in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        main(["position=missing.py"])
    assert end.value.code == 2
    assert capsys.readouterr().err == "position=missing.py: there is no such file\n"
    with pytest.raises(SystemExit) as end:
        main(["seed=1"])
    assert end.value.code == 2
