"""What is too much: refused in one line before anything is allocated or written, and survived where memory runs out."""

import json
import math
import re
from random import Random

import numpy as np
import pytest
import torch
import yaml
from conftest import SCHEMES, TASKS, TINY, fuzz, only_folder
from hydra.errors import HydraException
from trained import command, load, run

from rope_lab import files, sample, text
from rope_lab.text import ConfigError
from rope_lab.train import checkpoint, config, memory, trainer
from rope_lab.train import loop as train
from tasks.arithmetic_addition import MOST_DIGITS, ArithmeticAddition
from tasks.base import LONGEST_ANSWER, PackedTask, join
from tasks.substring_by_index import MOST_LETTERS, SubstringByIndex

GIB = 2**30
THERE = 16 * GIB  # of memory, whatever machine the tests run on

# overrides, and what the message has to name
TOO_MUCH = [
    (["train.batch_size=1000000000"], ["train.batch_size=1000000000", "lower"]),
    (["train.batch_size=100000"], ["train.batch_size=100000", "train.seq_len=128", "lower"]),
    (["model.d_model=60000"], ["model.d_model=60000", "129,607,860,045 parameters", "1,931.3 GiB", "lower"]),
    (["model.d_model=60000", "train.precision=bfloat16"], ["model.d_model=60000"]),
    (["model.d_model=1000000", "model.n_heads=1000000", "position=alibi"], ["model.d_model=1000000", "lower"]),
    (["model.d_model=1000000000000"], ["model.d_model=1000000000000", "1000000"]),
    (["model.n_layers=1000000"], ["model.n_layers=1000000", "10000"]),
    (["model.n_layers=10000", "model.d_model=1024"], ["model.n_layers=10000", "lower"]),
    (["model.n_heads=1000000000000"], ["model.n_heads=1000000000000"]),
    (["train.seq_len=1000000000"], ["train.seq_len=1000000000", "lower"]),
    (["train.seq_len=1000000"], ["train.seq_len=1000000", "lower"]),
    (["train.seq_len=1000000000000"], ["train.seq_len=1000000000000"]),
    (["train.steps=1000000000000000"], ["train.steps=1000000000000000", "99999999"]),
    (["seed=1000000000000000000000000000000"], ["seed=1000000000000000000000000000000", "less than"]),
    (["train.warmup=1000000000000000000000000000000"], ["train.warmup="]),
    (["train.log_every=1000000000000000000000000000000"], ["train.log_every="]),
    (["eval.every=1000000000000000000000000000000"], ["eval.every="]),
    (["eval.problems=10000000"], ["eval.problems=10000000", "1000000"]),
    (["eval.problems_at_end=10000000"], ["eval.problems_at_end=10000000", "1000000"]),
    (["eval.problems=600", "task.string_length=2", "task.letters=abcdefgh"], ["eval.problems=600", "more than"]),
    (["eval.sequences=1000000000"], ["eval.sequences=1000000000", "1000000"]),
    (["eval.sequences=1000000", "train.seq_len=1024", "train.batch_size=1"], ["eval.sequences=1000000", "lower"]),
    (["eval.lengths=[1000000000]"], ["eval.lengths=1000000000", "1000000"]),
    (["eval.lengths=[40000]"], ["eval.lengths=[40000]", "string_length=40000", "32,765"]),
    (["eval.lengths=[0,5]"], ["eval.lengths=0", "equal to 1"]),
    (["task=arithmetic_addition", "eval.lengths=[1000]"], ["eval.lengths=[1000]", "digits=1000", "999"]),
    (
        ["task=substring_by_prefix", "eval.lengths=[1000000]", "eval.sequences=1000"],
        ["eval.lengths=[1000000]", "lower"],
    ),
    (
        ["eval.problems=1", f"eval.lengths={[*range(32_700, 32_800)]}".replace(" ", "")],
        ["eval.lengths=[32700, 3", "…", "32,765"],
    ),
    (["task.string_length=40000", "train.seq_len=100000"], ["task.string_length=40000", "32,765"]),
    (["task.string_length=32766", "train.seq_len=100000"], ["task.string_length=32766", "32,765"]),
    (["task.string_length=1000000000"], ["task.string_length=1000000000", "below"]),
    (["task=arithmetic_addition", "task.digits=1000"], ["task.digits=1000", "999"]),
    (["task=substring_by_prefix", "task.copy_length=32768"], ["task.copy_length=32768", "32,767"]),
    (["task=substring_by_prefix", "task.first_length=100000000"], ["task.context=128"]),
    (["task=substring_by_prefix", "task.gap_max=100000000"], ["task.context=128"]),
    (["task=substring_by_prefix", "task.context=100000000"], ["train.seq_len=128"]),
    (["position=learned", "train.seq_len=2000000", "model.d_model=4096"], ["train.seq_len=2000000"]),
    (["position=randomized_rope", "position.longest=1000000000000"], ["position.longest=1000000000000"]),
    (["position=randomized_rope", "position.longest=10000001"], ["position.longest=10000001", "10,000,000"]),
    (
        ["position=t5_bias", "position.buckets=999999999", "position.max_distance=999999999"],
        ["position.buckets=999999999"],
    ),
    (["position=t5_bias", "position.max_distance=1000000000000"], ["position.max_distance=1000000000000", "below"]),
    (["position=fire", "position.c=inf"], ["position.c=inf", "finite"]),
    (["position=rope", "position.q=1000000000000000000"], ["position.q=1000000000000000000", "below"]),
    (["position=rope", "position.base=nan"], ["position.base=nan", "finite"]),
    (["position=rope", "position.base=1" + 400 * "0"], ["position.base=1000", "finite"]),
    (["position=xpos", "position.scale_base=1e-300"], ["position=xpos", "128"]),
    (["seed=1" + 5000 * "0"], ["seed=1000", "cannot be read"]),
    (["train.lr=1" + 400 * "0"], ["train.lr=1000", "too large"]),
    (["allowed_packages=${train}"], ["allowed_packages=", "list"]),
]


@pytest.fixture(autouse=True)
def sixteen_gibibytes(monkeypatch):
    monkeypatch.setattr(memory, "memory", lambda device: THERE)


@pytest.mark.parametrize(("overrides", "named"), TOO_MUCH, ids=[" ".join(o)[:60] for o, _ in TOO_MUCH])
def test_what_is_too_much_is_refused_in_one_line_before_anything_is_written(overrides, named, tmp_path, capsys, caplog):
    out = tmp_path / "runs"
    with pytest.raises(ConfigError) as refused:
        train.train(config.load("wandb.mode=disabled", "device=cpu", f"out={out}", *overrides))
    message = str(refused.value)
    assert all(name in message for name in named), message
    assert "\n" not in message
    assert len(message) < 500
    assert not out.exists()
    assert capsys.readouterr().out == caplog.text == ""  # one line in all


NUMBERS = [
    "1000000000",
    "1000000000000",
    "1000000000000000000000",
    "-1000000000",
    "0",
    "1e308",
    "1e-308",
    "nan",
    "inf",
]


def numeric_settings() -> list[tuple[str, str]]:
    """Every number among the settings, with what has to be chosen before it is there."""
    found = [("", f"{group}.{key}") for group in ("model", "train", "eval") for key in numbers_in(load(), group)]
    found += [("", "seed"), ("", "threads"), ("", "eval.problems_at_end"), ("", "eval.lengths")]
    for group, names in (("task", TASKS), ("position", SCHEMES)):
        for name in names:
            node = yaml.safe_load((config.CONF / group / f"{name}.yaml").read_text())
            found += [(f"{group}={name}", f"{group}.{key}") for key, value in text.flat(node).items() if number(value)]
    return found


def number(value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def numbers_in(cfg: config.Config, group: str) -> list[str]:
    return [key for key, value in vars(getattr(cfg, group)).items() if number(value)]


@pytest.mark.fuzz
def test_any_number_anywhere_is_either_right_or_said_in_one_line():
    """Whatever absurd number a setting is given, the run is built or refused; nothing else, nothing slow."""
    random, outcomes = Random(1), []
    every = [(chosen, key, value) for chosen, key in numeric_settings() for value in NUMBERS]
    for chosen, key, value in random.sample(every, fuzz(300)):
        override = f"{key}=[{value}]" if key == "eval.lengths" else f"{key}={value}"
        try:
            cfg = config.load(*TINY, *filter(None, [chosen]), override)
            trainer.build(trainer.resolve(cfg))
        except ConfigError as error:
            outcomes.append(str(error))
        except HydraException:
            outcomes.append("Hydra's")
        else:
            outcomes.append("right")
    assert not [outcome for outcome in outcomes if "\n" in outcome]
    assert outcomes.count("right") > len(outcomes) // 12
    assert len([outcome for outcome in outcomes if "must be" in outcome]) > len(outcomes) // 3


@pytest.mark.parametrize(
    "settings",
    [
        *([f"position={name}"] for name in SCHEMES),
        ["position=learned", "model.n_layers=3", "model.norm=post"],
        ["position=roper", "model.attention=linear"],
    ],
    ids=" ".join,
)
def test_parameters_are_counted_without_being_made(settings):
    cfg = load(*TINY, *settings)
    model = trainer.build_model(cfg, 40)
    of_scheme = sum(p.numel() for p in model.position.parameters())
    everything = sum(p.numel() for p in model.parameters())
    assert memory.parameters(cfg, 40) == (everything - of_scheme, of_scheme)


SHAPES = [
    [],
    ["train.precision=bfloat16"],
    ["model.n_layers=4", "model.norm=post", "model.dropout=0.1"],
    ["train.seq_len=512", "model.n_heads=4"],
    ["model.attention=linear"],
    ["position=alibi", "train.seq_len=256"],
    ["position=none", "model.d_model=64"],
]


@pytest.mark.parametrize("shape", SHAPES, ids=" ".join)
def test_a_step_keeps_at_least_what_is_said_and_not_many_times_that(shape):
    """Measured as what autograd saves for the way backward, each storage once."""
    cfg = load(*TINY, *shape)
    made = trainer.build(trainer.resolve(cfg))
    storages = {}

    def note(tensor):
        storages[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    weights = {p.untyped_storage().data_ptr() for p in made.model.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        train.update(made, 0)
    saved = sum(t.untyped_storage().nbytes() for pointer, t in storages.items() if pointer not in weights)
    assert 1 <= 1.2 * saved / memory.step_bytes(cfg, len(made.task.alphabet), made.device) < 6


def test_what_may_not_fit_is_a_warning_and_what_fits_is_none(caplog):
    """From half of the memory on: a run takes more than the least of it."""
    for batch_size, said in ((16, 0), (1000, 0), (10_000, 1)):
        caplog.clear()
        cfg = config.load(f"train.batch_size={batch_size}", "train.precision=float32", "device=cpu")
        memory.check(cfg, config.build_task(cfg), torch.device("cpu"))
        assert caplog.text.count(f"train.batch_size={batch_size}") == said
    assert "it may run out" in caplog.text


@pytest.mark.parametrize(
    "most",
    ["", "eval.problems=1000000", "eval.problems_at_end=1000000", "eval.sequences=100000", "eval.lengths=[999999]"],
)
def test_a_run_that_mostly_evaluates_is_a_warning(most, caplog):
    """It names the setting that makes it so."""
    cfg = config.load(*filter(None, [most]), "device=cpu")
    memory.check(cfg, config.build_task(cfg), torch.device("cpu"))
    assert f"{most}: evaluations read" in caplog.text if most else not caplog.text


@pytest.mark.parametrize(
    ("device", "overrides", "hours"),
    [
        ("cpu", ["scale=paper"], range(10, 100)),
        ("cuda", ["scale=paper"], None),
        ("cpu", ["scale=reduced"], None),
        ("cpu", ["train.steps=99999999"], range(100, 10_000)),
        ("cpu", ["model.n_layers=10000", "model.d_model=16", "train.batch_size=4", "train.seq_len=64"], None),
        ("cuda", ["model.n_layers=10000", "train.batch_size=1", "train.steps=10000"], range(20, 100)),
    ],
)
def test_a_run_that_takes_days_is_a_warning(device, overrides, hours, caplog, monkeypatch):
    cfg = config.load(*overrides, "threads=1", "train.precision=float32")
    memory.check(cfg, config.build_task(cfg), torch.device(device))
    found = re.search(r"train\.steps=.* model\.n_layers=.*: about ([\d,]+) hours", caplog.text)
    assert (found is None) if hours is None else (int(found[1].replace(",", "")) in hours)


def test_what_is_read_needs_its_weights_alone(tmp_path, monkeypatch):
    """A record whose model does not fit is refused in a line; the memory that training takes is not asked for."""
    run([*TINY, f"out={tmp_path}"])
    folder = only_folder(tmp_path)
    content = json.loads((folder / "run.json").read_text())
    sample.main([str(folder), "-n", "1"])
    monkeypatch.setattr(memory, "memory", lambda device: 8 * content["parameters"])
    sample.main([str(folder), "-n", "1"])
    with pytest.raises(SystemExit, match=r"-n 1000000000: .*at most"):
        sample.main([str(folder), "-n", "1000000000"])
    for group, key, value in (("eval", "sequences", 1000), ("model", "d_model", 600_000)):
        content["config"][group][key] = value
        (folder / "run.json").write_bytes(files.as_json(files.sealed(content)))
        with pytest.raises(SystemExit, match=rf"{group}\.{key}={value} .*at least .*: lower one"):
            sample.main([str(folder), "-n", "1"])


@pytest.mark.parametrize(
    ("line", "limit_file"),
    [
        ("0::/slurm/job_7/step_0", "slurm/job_7/memory.max"),
        ("0::/", "memory.max"),
        ("4:memory:/slurm/job_7", "memory/slurm/memory.limit_in_bytes"),
        ("4:memory:/docker/abc", "memory/memory.limit_in_bytes"),
    ],
)
def test_the_limit_of_a_control_group_or_of_one_above_it_counts(tmp_path, line, limit_file):
    proc, root = tmp_path / "cgroup", tmp_path / "fs"
    proc.write_text(f"9:name=systemd:/\n{line}\n1:cpu:/\n")
    for group in ("slurm/job_7/step_0", "memory/slurm/job_7"):
        (root / group).mkdir(parents=True)
        (root / group / "memory.max").write_text("max\n")
    (root / limit_file).write_text(f"{3 * GIB}\n")
    assert min(memory._group_limits(proc, root)) == 3 * GIB
    assert list(memory._group_limits(tmp_path / "nothing", root)) == []


def test_the_memory_of_this_machine_and_of_a_gpu(monkeypatch):
    monkeypatch.undo()
    assert 2**28 < memory.memory(torch.device("cpu")) < 2**50
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: type("", (), {"total_memory": 5 * GIB}))
    assert memory.memory(torch.device("cuda")) == 5 * GIB


def really_out_of_memory():
    torch.empty(2**50)


def said(error: Exception):
    def fail():
        raise error

    return fail


OUT_OF_MEMORY = [
    really_out_of_memory,
    said(MemoryError()),
    said(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has\na total capacity of …")),
    said(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")),
]


@pytest.mark.parametrize("fail", OUT_OF_MEMORY, ids=["cpu", "python", "cuda", "cublas"])
def test_memory_that_runs_out_ends_a_run_as_failed_with_what_to_lower(tiny, tmp_path, monkeypatch, fail):
    update = train.update
    monkeypatch.setattr(train, "update", lambda made, step: fail() if step == 4 else update(made, step))
    with pytest.raises(memory.OutOfMemory) as failed:
        run(tiny)
    folder = only_folder(tmp_path / "runs")
    content = json.loads((folder / "run.json").read_text())
    assert content["status"] == "failed"
    assert content["error"] == f"OutOfMemory: {failed.value}"
    for setting in ("train.batch_size=4", "train.seq_len=64", "model.d_model=16"):
        assert setting in content["error"]
    assert "\n" not in content["error"]
    assert checkpoint.load(folder)["step"] == 3
    monkeypatch.setattr(train, "update", update)
    assert run(tiny)["status"] == "finished"


@pytest.mark.parametrize("where", ["build", "begin", "evaluate_now", "Run.save", "write_samples"])
def test_memory_may_run_out_anywhere(tiny, tmp_path, monkeypatch, where):
    monkeypatch.setattr(f"rope_lab.train.{where}", lambda *_, **__: really_out_of_memory())
    with pytest.raises(memory.OutOfMemory):
        run(tiny)
    assert (tmp_path / "runs").exists() == (where != "build")


def test_memory_that_runs_out_while_a_checkpoint_is_read_does_not_make_it_a_bad_one(tiny, tmp_path, monkeypatch):
    """Nobody is told to start over."""
    monkeypatch.setattr(train.Run, "export", said(KeyboardInterrupt()))
    with pytest.raises((KeyboardInterrupt, TypeError)):
        run(tiny)
    monkeypatch.undo()
    monkeypatch.setattr(torch, "load", lambda *_, **__: really_out_of_memory())
    with pytest.raises(memory.OutOfMemory):
        run(tiny)


HUNGRY = """
import gc, weakref
import torch
from rope_lab.model.positions import PositionScheme

BEFORE = []

class Hungry(PositionScheme):
    '''Runs out of memory in step 4; says whether the one before it is still held.'''

    def __init__(self, dims, meal: int = 0):
        super().__init__(dims)
        self.steps = 0
        gc.collect()
        if torch.get_default_device().type == "cpu":
            print("held:", sum(ref() is not None for ref in BEFORE))
            BEFORE.append(weakref.ref(self))

    def embed(self, x, at):
        self.steps += self.training
        if self.steps == 4:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return x
"""


def test_memory_that_runs_out_through_the_command_line(tmp_path, monkeypatch):
    """One line and exit status 1; in a sweep the memory is given back before the next run."""
    (tmp_path / "hungry.py").write_text(HUNGRY)
    monkeypatch.syspath_prepend(tmp_path)
    overrides = [*TINY, "out=runs", "position=none", "position._target_=hungry.Hungry", "allowed_packages=[hungry]"]
    done = command(overrides, tmp_path)
    assert done.returncode == train.EXIT_FAILED
    assert done.stderr.count("\n") == 1
    assert "train.batch_size=4" in done.stderr
    done = command(["-m", *overrides, "seed=1,2"], tmp_path)
    assert done.returncode == train.EXIT_FAILED
    assert "Traceback" not in done.stderr
    assert done.stdout.count("held: 0") == 2
    assert "held: 1" not in done.stdout
    statuses = [json.loads(path.read_text())["status"] for path in tmp_path.glob("runs/*/run.json")]
    assert statuses == ["failed"] * 3


class Wordy(PackedTask):
    """Its answers are longer than 16 bits can count."""

    alphabet = "?=ab#"

    def draw(self, rng, n):
        return rng.integers(2, size=(n, 8))

    def write(self, drawn):
        letters = (drawn + ord("a")).astype(np.uint8)
        return join("?", letters, "="), join(np.tile(letters, (1, LONGEST_ANSWER // 8 + 1)), "#")


def test_answer_positions_never_wrap():
    """The longest answers that there may be are counted to their end, and longer ones are refused."""
    rng = np.random.default_rng(0)
    task = SubstringByIndex(MOST_LETTERS)
    text = task.text(rng, 1, task.max_length)
    assert text.answer_position.max() == text.counted.sum() > 0
    assert (text.answer_position >= 0).all()
    assert (ArithmeticAddition(MOST_DIGITS).text(rng, 1, 40_000).answer_position >= 0).all()
    with pytest.raises(ValueError, match="32,767 is the most"):
        Wordy().text(rng, 1, 40_000)


def test_problems_that_are_not_there_are_not_looked_for_without_end(monkeypatch):
    """A million of 16,000: it is clear after a few times as many draws."""
    task, writes = SubstringByIndex(4, "abcdefghijklmnop"), []
    write = task.write
    monkeypatch.setattr(task, "write", lambda drawn: writes.append(len(drawn)) or write(drawn))
    with pytest.raises(ValueError, match="more than the task has"):
        task.problems(np.random.default_rng(0), 1_000_000)
    assert 16_000 < sum(writes) < 4 * 16_000
    assert math.isclose(len(task.problems(np.random.default_rng(0), 10_000)), 10_000)
