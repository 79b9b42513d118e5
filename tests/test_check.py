"""`rope-lab check`: our schemes and tasks pass it, and it names planted mistakes in a user's
code.
"""

import pytest
from conftest import ROOT, TASKS, TEXTS, schemes_by_class, slow_except
from sources import EMBED, START, TASK, block
from trained import command, load

from rope_lab.check import main
from rope_lab.checking import tasks
from rope_lab.checking.run import check
from rope_lab.train import config, trainer


def found_of(group: str, value: str, *settings: str, last: str = "") -> dict[str, tuple[str, str]]:
    """For each check of a scheme or a task, up to `last`: ok, note or WRONG, and its message."""
    compose, words = config.load if value.endswith(".py") else load, [f"{group}={value}"]
    words += [f"task.path={ROOT / 'rope_lab' / 'model'}"] if value in TEXTS else []
    words += ["train.seq_len=64", "train.batch_size=8"] if group == "position" else []
    words += ["device=cpu", "train.precision=float32", *settings]
    found = {}
    for kind, name, told in check(trainer.resolve(compose(*words)), group):
        found[name] = kind, told
        if name == last:
            break
    return found


@pytest.mark.parametrize("name", schemes_by_class(fast=["roper", "t5_bias"]))
def test_our_schemes_hold_what_is_asked_of_any(name):
    found = found_of("position", name, "train.seq_len=32", "model.d_model=32")
    assert len(found) == 11
    assert "WRONG" not in {kind for kind, _ in found.values()}


def test_a_float32_bias_may_stand_beside_a_sink():
    """Finite differences are taken in float64."""
    found = found_of("position", "alibi", "train.seq_len=32", "model.d_model=32", "model.sink=true")
    assert "WRONG" not in {kind for kind, _ in found.values()}


@pytest.mark.parametrize("name", slow_except(["substring_by_index"], TASKS))
def test_our_tasks_hold_what_is_asked_of_any(name, monkeypatch):
    monkeypatch.setattr(tasks, "BATCHES", 40)
    found = found_of("task", name)
    assert len(found) == 7
    assert "WRONG" not in {kind for kind, _ in found.values()}


def test_every_scheme_of_a_pattern_is_checked(write):
    """A mistake in the last layer of four is found."""
    write("own_late.py", START + HEADS + "qkv + qkv.roll(-1, 1)")
    found = found_of("position", "layers", "position.pattern=rope *3 | own_late.py")
    assert found["causality"][0] == "WRONG"


HEADINGS = ["Your own scheme", "Rotations and a bias", "Learned frequencies", "Content"]
COORDINATES = "Positions of a task's own"


@pytest.mark.parametrize(
    ("heading", "page"),
    [
        ("Your own task", "docs/extending.md"),
        ("Your own scheme", "README.md"),
        *(pytest.param(each, "docs/extending.md", marks=pytest.mark.slow) for each in HEADINGS),
    ],
)
def test_the_documented_examples_hold_it_too(write, tmp_path, heading, page):
    write("own.py", block(heading, "python", page))
    group = "task" if "task" in heading else "position"
    small = ["train.seq_len=64", "train.batch_size=8"]
    ended = command([f"{group}=own.py", "device=cpu", *small], tmp_path, main)
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.startswith(f"{group}=own\n")
    assert ended.stdout.endswith("all checks passed\n")


@pytest.mark.slow
def test_documented_coordinates_and_a_scheme_for_them_hold_it(write):
    """In 30 lines and in 10; its positions are token number and column."""
    write("below.py", block(COORDINATES, "python"))
    write("column.py", block(COORDINATES, "python", number=1))
    found = found_of("task", "below.py", "train.seq_len=24")
    assert {kind for kind, _ in found.values()} == {"ok"}
    assert found_of("position", "column.py", last="own positions")["own positions"][0] == "ok"
    small = ["train.seq_len=24", "eval.problems=8", "eval.sequences=2", "device=cpu"]
    words = ["task=below.py", "position=column.py", *small]
    problem = trainer.build(trainer.resolve(config.load(*words))).problems[0]
    letters = [*range(9)]  # of `/` and 8 letters
    columns = [0, *letters, *letters, 9, 10, 11][: problem.length]
    assert problem.positions.tolist() == [[n, column] for n, column in enumerate(columns)]


INIT = "    def __init__(self, dims):\n        super().__init__(dims)\n"
HEADS = "    def heads(self, qkv, at):\n        return "
BIAS = "    def bias(self, at_T, at_S):\n        return "
READ = "    def read(self, x, at, layer, cache):\n        return "
ZERO = INIT + "        self.w = nn.Parameter(torch.zeros(1))\n"
NEXT = "x + x.roll(-1, 1) if %s else x"
SCHEMES = "    pass\n\nfrom rope_lab.model import hooks, schemes\n"
NOTHING = f"{SCHEMES}class Own(schemes.Rotary):\n    pass"
UNUSED = f"""{SCHEMES}class Own(hooks.Wrapper):
    def __init__(self, dims):
        super().__init__(schemes.Rotary(dims, q=1, k=1))

    def output(self, o, at):
        return 2 * o"""
NEW_MISTAKES = [  # later tokens, other rows, caches and gradients in one condition alone
    (
        INIT + "        self.max_len = dims.max_len\n" + EMBED + NEXT % "x.shape[1] > 16",
        "training batch",
        "8 rows of 64 tokens in torch.float32 with gradients: the logits at position",
    ),
    (EMBED + NEXT % "x.shape[1] > 64", "training batch", "2 rows of 128 tokens"),
    (
        EMBED + NEXT % "x.shape[1] > 16 and not torch.is_grad_enabled()",
        "training batch",
        "in torch.float32 without gradients",
    ),
    (EMBED + NEXT % "self.training and x.shape[1] > 16", "training batch", "with gradients"),
    (
        EMBED + NEXT % "torch.is_autocast_enabled('cpu')",
        "training batch",
        "in torch.bfloat16 with gradients",
    ),
    (
        EMBED + "x + x.mean(0) if len(x) >= 8 else x",
        "training batch",
        "depend on another row of the batch",
    ),
    (
        EMBED + "x * (2 if x.dtype == torch.float32 and x.shape[1] == 1 else 1)",
        "float32 cache",
        "(torch.float32) from those of a full pass",
    ),
    (HEADS + "qkv.detach()", "derivatives", "the gradient of embedding.weight"),
    (HEADS + "torch.cat([qkv[:, :, :2], qkv[:, :, 2:].detach()], 2)", "derivatives", "detach"),
    (
        HEADS + "qkv.register_hook(lambda g: g.mul_(0.5)) and qkv if qkv.requires_grad else qkv",
        "derivatives",
        "changed in place",
    ),
    (
        "    def heads(self, qkv, at):\n        qkv.data.mul_(1.5)\n        return qkv",
        "derivatives",
        "changed in place",
    ),
]
MISTAKES = [  # a user's code, the check that fails, words of its message
    (
        "    def biases(self, at_T, at_S):\n        return None",
        "hooks",
        "biases is not a hook: did you mean bias?",
    ),
    (INIT, "hooks", "overrides none of embed, heads, output, bias, read, attention, in_layer"),
    (NOTHING, "effect", "has no effect"),
    (UNUSED, "hooks", "in_layer returns another scheme, so output would not be called"),
    (HEADS + "qkv[:, :, 0]", "shapes", "must be [2, 5, 3, 4, 16]"),
    (HEADS + "(*qkv.unbind(2)[:2], qkv[:, :, 2].double())", "training batch", "dtype"),
    (HEADS + "qkv.half()", "KV cache", "the logits at position"),
    (
        HEADS + "qkv if qkv.dtype != torch.bfloat16 else int('no bfloat16')",
        "training batch",
        "ValueError",
    ),
    *NEW_MISTAKES,
    (
        BIAS + "torch.zeros(2, 4, len(at_T), len(at_S))",
        "shapes",
        "must be broadcastable to [4, 5, 5]",
    ),
    (EMBED + "x + missing", "shapes", "own.py:8: NameError: name 'missing' is not defined"),
    (
        "    def embed(self, x, at):\n        assert x is None\n        return x",
        "shapes",
        ": AssertionError",
    ),
    (
        BIAS + "-(at_T[:, None] - at_S).clamp(min=0).log()[None]",
        "causality",
        "the logits are not finite",
    ),
    (EMBED + "x + torch.rand_like(x)", "causality", "two passes over the same tokens"),
    (EMBED + "x + x.mean(1, keepdim=True)", "causality", "position 0 depend on a later token"),
    (ZERO + EMBED + "x + self.w * x.mean(1, True)", "causality", "depend on a later token"),
    (HEADS + "qkv - qkv.mean(0)", "causality", "depend on another row of the batch"),
    (EMBED + "x + x.roll(1, 1) * (at > 0)[:, None]", "KV cache", "the logits at position 5 differ"),
    (
        BIAS + "-(at_T - at_T[0]).double()[None, :, None] * (at_S % 3)",
        "KV cache",
        "with a KV cache the logits",
    ),
    (
        EMBED + "x * torch.arange(1, x.shape[1] + 1)[:, None]",
        "KV cache",
        "must treat each token by its `at` alone",
    ),
    (
        INIT + "        self.w = torch.ones(64, requires_grad=True)\n" + EMBED + "x * self.w",
        "gradients",
        "w would be",
    ),
    (
        INIT + "        self.w = [nn.Parameter(torch.ones(64))]\n" + EMBED + "x * self.w[0]",
        "gradients",
        "neither trained nor",
    ),
    (INIT + "        self.w = {0: nn.Linear(1, 64)}\n" + EMBED + "x", "gradients", "nn.ModuleList"),
    (
        INIT + "        self.w = nn.Parameter(torch.ones(64))\n" + EMBED + "2 * x",
        "gradients",
        "w gets no gradient",
    ),
    (
        READ + "at, x.new_zeros(4, 1, 1, 1)",
        "shapes",
        "read returns [4, 1, 1, 1], must be broadcastable to",
    ),
    (READ + "at", "shapes", "ValueError"),
    (READ + "at, -x.mean(1)[:, None, None, :1] * at", "causality", "depend on a later token"),
    (
        READ + "at, -x[..., 0].cumsum(1)[:, None, None]",
        "KV cache",
        "or keep in the cache what it needs",
    ),
    (
        READ + "at, -so_far('x', x[..., 0].cumsum(1), cache)[:, None, None]",
        "KV cache",
        "the logits at position",
    ),
    (
        READ + "at, -x[..., 0].mean(0)[None, None, None]",
        "causality",
        "depend on another row of the batch",
    ),
    (
        INIT + "        self.t = nn.Embedding(dims.max_len, 64)\n" + EMBED + "x + self.t(at)",
        "training batch",
        "index out of",
    ),
    (
        EMBED + "x + (x.roll(-1, 1) if x.shape[1] > 20 else 0)",
        "training batch",
        "depend on a later token",
    ),
    (
        HEADS + "qkv * (1 + (qkv.shape[1] > 64))",
        "length",
        "with a KV cache the logits at position 0 differ",
    ),
]


def test_longer_problems_that_are_not_longer_are_noted(write):
    write("own.py", TASK.replace(DRAW, LENGTHS + DRAW))
    kind, told = found_of("task", "own.py")["lengths"]
    assert (kind, told.partition(":")[0]) == (
        "note",
        "problems of length 12 are not longer than those of 6",
    )
    write("bare.py", TASK.replace(DRAW, "    lengths, width = (6, 6), 6\n\n" + DRAW))
    assert found_of("task", "bare.py")["lengths"][0] == "note"


def test_an_effect_beyond_the_training_length_is_one(write):
    write("near.py", START + INIT + "        self.window = 64\n")
    assert found_of("position", "near.py", last="effect")["effect"] == ("ok", "")


def test_a_wrapper_may_serve_some_layers_itself(write):
    some = "\n\n    def in_layer(self, number):\n        return self if number % 2 else self.scheme"
    write("some.py", START + UNUSED.replace("return 2 * o", "return 2 * o" + some))
    assert found_of("position", "some.py:Own", last="hooks")["hooks"] == ("ok", "")


@pytest.mark.slow
def test_what_is_allowed_is_said(write):
    """A window, a hook as a static method, and a helper named almost like another hook."""
    far = "(at_T[:, None] - at_S > 3).double().mul(-1e9)[None]"
    static = f"    @staticmethod\n    def bias(at_T, at_S):\n        return {far}\n"
    write("own.py", START + static + "    def head(self):\n        return 0\n")
    found = found_of("position", "own.py", last="hooks")
    assert found["hooks"] == ("note", "head is not a hook: did you mean heads?")
    write("window.py", START + INIT + "        self.window = 4\n")
    assert found_of("position", "window.py", last="hooks")["hooks"] == ("ok", "")
    assert "does not serve 128 tokens" in found_of("position", "learned")["length"][1]


def test_a_misspelt_hook_of_a_subclass_is_named(write):
    """Its parent overrides the hook that was meant."""
    parent = "from rope_lab.model.schemes import XPos\n"
    for name, meant in (("ouput", "output"), ("drawn", "draw")):
        write(f"own_{name}.py", f"{parent}class Own(XPos):\n    def {name}(self, o): pass\n")
        assert found_of("position", f"own_{name}.py", last="hooks")["hooks"] == (
            "note",
            f"{name} is not a hook: did you mean {meant}?",
        )


DRAW, WRITE, BOTH = "    def draw", "    def write", 'join("?", letters, "="), join(letters, "#")'
GRADE = "    def grade(self, problem, completion):\n        return {'accuracy': %s}\n\n"
TEXT = "    def text(self, rng, rows, length, held_out=False):\n"
TEXT += "        return super().text(rng, rows, length, %s)\n\n"
LENGTHS = "    def __init__(self, n: int = 6):\n        super().__init__()\n"
LENGTHS += "        self.set_lengths(None, n=n)\n\n"
KEY = "    def split_key(self, drawn):\n        return np.arange(len(drawn))[:, None]\n\n"
WRONG_TASKS = [  # old code, new code, the check that fails, words of its message
    ("abcd", "abca", "format", "alphabet has a character twice"),
    ("rng.integers(4, size=(n, 6))", "self.letters", "format", "own.py:8: AttributeError"),
    ("?=#abcd", "?=abcd", "format", "alphabet lacks stop"),
    ("integers(4", "integers(5", "format", "write uses 'e', which alphabet lacks"),
    ("rng.integers(4, size=(n, 6))", "rng.random((n, 6))", "format", "draw"),
    (BOTH, 'join("?", letters, "="), letters', "format", "hold stop, '#', once, at its end"),
    (BOTH, BOTH.replace("join(letters,", 'join("#", letters,'), "format", "once, at its end"),
    (BOTH, BOTH.replace("letters,", "letters[:, 1:],", 1), "format", "more than one right"),
    ("rng.integers", "np.random.randint", "reproducibility", "must come from rng"),
    (DRAW, GRADE % True + DRAW, "problems", "is graded right, as is"),
    (
        DRAW,
        GRADE % "completion[0] == problem.completion[0]" + DRAW,
        "problems",
        "is graded right, as is",
    ),
    (DRAW, GRADE % False + DRAW, "problems", "is graded wrong"),
    ("rng.integers(4", "np.random.default_rng(0).integers(4", "variety", "of 80 rows"),
    (
        DRAW,
        TEXT.replace("(rng,", "(np.random.default_rng(0),") % "held_out" + DRAW,
        "variety",
        "of 80 rows of training text 2 differ",
    ),
    (WRITE, KEY + WRITE, "split", "training text has held-out problems"),
    (DRAW, TEXT % "True" + DRAW, "split", "training text has"),  # trains on held-out problems only
    (
        DRAW,
        TEXT % "held_out or rng.random() < 0.02" + DRAW,  # in one batch of fifty
        "split",
        "training text has",
    ),
]
PLANTED = [
    *(("position", START + body + "\n", name, words) for body, name, words in MISTAKES),
    *(("task", TASK.replace(old, new), name, words) for old, new, name, words in WRONG_TASKS),
]
SECONDS = {"changed in place", "the gradient of embedding.weight", "detach"}  # found by gradients


def planted() -> list:
    """The mistakes as parameters of a test: the first of each check runs in `make test`, the others
    in `make test-slow`; those that take seconds are torture.
    """
    found, seen = [], set()
    for mistake in PLANTED:
        _, _, check_name, words = mistake
        marks = [pytest.mark.slow] if check_name in seen else []
        if words in SECONDS:
            marks = [pytest.mark.torture]
        found.append(pytest.param(*mistake, marks=marks, id=words))
        seen.add(check_name)
    return found


@pytest.mark.parametrize(("group", "source", "name", "words"), planted())
def test_a_planted_mistake_is_named(write, group, source, name, words):
    assert source != TASK
    write("own.py", source)
    *before, (last, (kind, told)) = found_of(group, "own.py").items()
    assert (last, kind) == (name, "WRONG"), told
    assert words in told
    assert "WRONG" not in {kind for _, (kind, _) in before}


def test_an_answer_in_the_prompt_is_noted(write):
    write("own.py", TASK.replace(BOTH, 'join("?", letters, "="), join(letters[:, ::-1], "#")'))
    assert found_of("task", "own.py", last="problems")["problems"] == ("ok", "")
    reverse = 'join("?", letters, letters[:, ::-1], "="), join(letters[:, ::-1], "#")'
    write("leak.py", TASK.replace(BOTH, reverse))
    kind, told = found_of("task", "leak.py", last="problems")["problems"]
    assert (kind, "contains its answer" in told) == ("note", True)


def test_the_command_ends_as_it_finds(write, tmp_path):
    write("own.py", START + EMBED + "x + x.mean(1, keepdim=True)\n")
    asks = (
        ["position=own.py"],
        ["position=no.py"],
        ["seed=1"],
        ["position=alibi", "model.attention=linear"],
    )
    ends = [command(words, tmp_path, main) for words in asks]
    assert [end.returncode for end in ends] == [1, 2, 2, 2]
    assert "needs attention scores" in ends[3].stderr
    assert ends[0].stdout.endswith("not all checks passed\n")
    assert ends[1].stderr == f"position=no.py: there is no such file in {tmp_path}\n"
