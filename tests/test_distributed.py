"""One run on several devices: two processes as torchrun starts them, and gradient accumulation in
one process.
"""

import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from conftest import ROOT, TINY, only_folder
from trained import assert_same_end, command, load, metrics_of, raising_signal_at, run

from rope_lab.train import checkpoint, data, distributed, run_folder
from rope_lab.train import loop as train
from rope_lab.train.trainer import build, resolve, update

LONG = [
    *TINY,
    "train.steps=8",
    "train.log_every=1",
    "eval.every=4",
    "eval.problems=9",
    "eval.sequences=3",
]
LENGTHS = ["eval.lengths=[5,9]"]
WRITTEN = [
    *TINY,
    "task=arithmetic_addition",
    "train.seq_len=200",
    "model.dropout=0.2",
    "eval.problems=5",
]
AXES = [*TINY, "task=addition", "position=axial_roper"]
WILD = [*TINY, "train.lr=1e30", "train.warmup=0", "train.clip=1e30"]
CUT = 6  # the step after which a run is interrupted
SEVERAL = pytest.mark.xdist_group("several")  # on one worker, so that `several` runs only once


def started(*words: str) -> subprocess.Popen:
    """Start Python in this folder, with one thread; its output is piped."""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "",
        "OMP_NUM_THREADS": "1",
    }
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, *words], cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True
    )


def fork_ranks() -> tuple[int, int]:
    """Fork a second rank, so that torch is imported once; this rank, and the id of the other.

    Each has the environment of a process of torchrun.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    other = os.fork()
    rank = 0 if other else 1
    launched = {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    launched |= {"RANK": rank, "LOCAL_RANK": rank}
    launched |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in launched.items()})
    return rank, other


def as_rank(out: Path) -> None:
    """The program of each process of `several`: train each run in turn and write how it ended
    here.
    """
    ended, plain = {}, update

    def tried(label: str, name: str, overrides: list[str]) -> None:
        ended[label] = train.train(load(*overrides, f"out={out / name}"))["status"]

    with distributed.joined("cpu"):
        rank, group = distributed.rank(), weakref.ref(dist.group.WORLD)
        tried("whole", "whole", [*LONG, *LENGTHS])
        tried("returned", "whole", [*LONG, *LENGTHS])
        train.update = raising_signal_at(CUT, plain) if rank == 1 else plain
        tried("cut", "cut", [*LONG, *LENGTHS])
        train.update = plain
        tried("resumed", "cut", [*LONG, *LENGTHS])
        tried("written", "written", WRITTEN)
        tried("axes", "axes", AXES)
        tried("wild", "wild", WILD)
        (out / f"{rank}.json").write_text(json.dumps(ended))
    assert group() is None, "threads of the group live on, and may abort Python at its end"


@pytest.fixture(scope="module")
def several(tmp_path_factory) -> Path:
    """A folder with the runs of two processes, made by `as_rank`."""
    out = tmp_path_factory.mktemp("several")
    process = started(__file__, str(out))
    printed = process.communicate(timeout=300)
    assert process.returncode == 0, printed
    return out


def nearly(out: Path) -> list:
    """The metrics of the run in `out`, up to rounding."""
    return [pytest.approx(each, rel=1e-5, abs=1e-9) for each in metrics_of(only_folder(out))]


def ended(several: Path, rank: int) -> dict:
    return json.loads((several / f"{rank}.json").read_text())


@pytest.mark.slow
@SEVERAL
def test_two_processes_train_as_one_does(several, tmp_path):
    """The same batches, the same mean over all counted tokens; only the order of sums differs."""
    alone = run([*LONG, *LENGTHS, f"out={tmp_path}"])
    folder = only_folder(several / "whole")
    assert metrics_of(folder) == nearly(tmp_path)
    together = run_folder.read(folder)
    assert together["slices"]["length"] == alone["slices"]["length"]
    assert together["status"] == "finished"
    assert len(metrics_of(folder)) == 9
    ours, theirs = checkpoint.load(folder)["model"], checkpoint.load(only_folder(tmp_path))["model"]
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-4) for name in theirs)
    assert together["config"]["train"]["processes"] == 2
    assert together["run_id"] != alone["run_id"]
    assert together["recipe_id"] != alone["recipe_id"]


@pytest.mark.slow
@SEVERAL
def test_a_signal_to_one_process_saves_all_and_they_resume(
    several,
):
    """Rank 1 gets the signal."""
    for rank in (0, 1):
        assert (ended(several, rank)["cut"], ended(several, rank)["resumed"]) == (
            "interrupted",
            "finished",
        )
    cut = only_folder(several / "cut")
    assert run_folder.read(cut)["provenance"]["earlier"]
    assert_same_end(cut, only_folder(several / "whole"))


@pytest.mark.slow
@SEVERAL
def test_all_end_with_a_finished_or_diverged_run(several):
    for rank in (0, 1):
        assert (ended(several, rank)["returned"], ended(several, rank)["wild"]) == (
            "finished",
            "diverged",
        )
    assert run_folder.read(only_folder(several / "wild"))["status"] == "diverged"


@pytest.mark.slow
@SEVERAL
def test_dropout_and_records_equal_those_of_micro_batches(several, tmp_path):
    """Dropout masks depend on the part of the batch, not on the process that reads it."""
    run([*WRITTEN, "train.accumulate=2", f"out={tmp_path}"])
    assert metrics_of(only_folder(several / "written")) == nearly(tmp_path)


@pytest.mark.slow
@SEVERAL
def test_each_process_has_the_positions_of_its_rows(several, tmp_path):
    run([*AXES, f"out={tmp_path}"])
    assert metrics_of(only_folder(several / "axes")) == nearly(tmp_path)


@pytest.mark.slow
def test_a_killed_process_ends_the_run_with_its_checkpoint(tmp_path):
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    endless = [*LONG, "train.steps=100000", "eval.every=5", f"out={tmp_path}"]
    process = started(*torchrun, "-m", "rope_lab.train", *endless)
    try:
        until = time.monotonic() + 120
        while not (saved := list(tmp_path.glob("*/checkpoint-*.pt"))) and time.monotonic() < until:
            time.sleep(0.2)
        ranks = subprocess.run(
            ["pgrep", "-P", str(process.pid)], capture_output=True, text=True
        ).stdout.split()
        (second,) = (
            int(pid) for pid in ranks if b"\0RANK=1\0" in Path(f"/proc/{pid}/environ").read_bytes()
        )
        os.kill(second, signal.SIGKILL)
        _, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    content = run_folder.read(saved[0].parent)
    assert (process.returncode, content["status"]) == (1, "failed")
    assert content["checkpoint"] == checkpoint.load(saved[0].parent)["step"] > 0
    assert stderr.count("another process of this run has ended") == 1


@pytest.mark.parametrize(
    ("processes", "wrong", "said"),
    [
        (2, ["-m", "seed=0,1"], "torchrun trains one run"),
        (2, ["train.lr=0"], "train.lr=0: "),
        (1, ["train.processes=2"], "torchrun --nproc-per-node 2"),
        (1, ["train.accumulate=3"], "train.batch_size=4: must be divisible by train.accumulate=3"),
        (
            1,
            ["train.accumulate=2", "train.compile=reduce-overhead"],
            "train.compile=reduce-overhead: ",
        ),
    ],
)
def test_bad_input_is_one_line_of_the_first_process(
    processes, wrong, said, tiny, tmp_path, monkeypatch
):
    """The error comes before processes join: under torchrun, each rank runs alone here."""
    for rank in range(processes):
        if processes > 1:
            started = {
                "TORCHELASTIC_RUN_ID": "none",
                "WORLD_SIZE": 2,
                "LOCAL_WORLD_SIZE": 2,
                "LOCAL_RANK": rank,
            }
            for name, value in started.items():
                monkeypatch.setenv(name, str(value))
        shown = command([*tiny, *wrong], tmp_path)
        assert (shown.returncode, shown.stdout, shown.stderr.count("\n")) == (
            (0, "", 0) if rank else (2, "", 1)
        )
        assert rank or said in shown.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "task",
    [
        ["position=randomized_rope"],
        ["task=arithmetic_addition", "train.seq_len=200"],
        ["task=addition", "position=abacus"],
    ],
)
def test_micro_batches_make_the_step_of_the_whole_batch(task):
    """Parts of a batch differ in counted tokens: the mean of their means would be another loss."""
    whole, parts = (build(resolve(load(*TINY, *task, f"train.accumulate={n}"))) for n in (1, 4))
    counted = (whole.batches(0).targets_BT != data.IGNORED).sum(1)
    assert len(counted.unique()) > 1
    for step in range(2):
        ours, theirs = update(parts, step), update(whole, step)
        assert ours == pytest.approx(theirs, rel=1e-5)
        for a, b in zip(parts.model.parameters(), whole.model.parameters(), strict=True):
            assert torch.allclose(a.grad, b.grad, rtol=1e-3, atol=1e-6)


if __name__ == "__main__":
    own_rank, other_rank = fork_ranks()
    with contextlib.redirect_stdout(io.StringIO()):
        as_rank(Path(sys.argv[1]))
    if own_rank == 0:
        _, ending = os.waitpid(other_rank, 0)
        sys.exit(os.waitstatus_to_exitcode(ending))
