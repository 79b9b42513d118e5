"""Runs stopped by signals or a killed parent, in real processes."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from conftest import ROOT, TINY, only_folder
from trained import command, metrics_of

from rope_lab import files
from rope_lab.train import checkpoint, loop, run_folder, stop
from rope_lab.train.stop import SIGNALS, Stop

LONG = [*TINY, "out=runs", "train.steps=1000000", "eval.every=500000"]
SWEEP = ["rope_lab.train", "-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", *LONG]
TABLE = [
    "rope_lab",
    "table",
    "quick",
    "--jobs",
    "2",
    *(word for word in LONG if word != "train.seq_len=64"),
]


def started(command: list[str], folder: Path, shown: int) -> subprocess.Popen:
    """Start `python -m …` in a new process group; return after `shown` evaluations."""
    words = [sys.executable, "-m", *command]
    with open(folder / "out", "w") as out, open(folder / "err", "w") as err:
        process = subprocess.Popen(
            words, cwd=folder, stdout=out, stderr=err, start_new_session=True
        )
    while (folder / "out").read_text().count("step ") < shown:
        assert process.poll() is None, (folder / "err").read_text()
        time.sleep(0.05)
    return process


def wait_for_all(process: subprocess.Popen, folder: Path) -> tuple[int, str]:
    """Exit status and stderr of a process, after its whole group has ended."""
    status = process.wait(120)
    while (
        subprocess.run(["pgrep", "-g", str(process.pid)], stdout=subprocess.DEVNULL).returncode == 0
    ):
        time.sleep(0.05)
    return status, (folder / "err").read_text()


def children(process: subprocess.Popen) -> list[int]:
    """Ids of the worker processes in the group of `process`."""
    done = subprocess.run(
        ["pgrep", "-g", str(process.pid), "-f", "forkserver"], capture_output=True, text=True
    )
    _, *found = [int(line) for line in done.stdout.split()] or [0]
    return found


def trainer_of(out: Path, steps: int) -> int:
    """The id of the process that trains the run of so many steps, once it has begun."""
    while True:
        for path in out.glob("*/run.json"):
            content = run_folder.read(path.parent)
            if content and content["config"]["train"]["steps"] == steps:
                return files.lease(path.parent).owner.pid
        time.sleep(0.05)


def assert_saved(out: Path, interrupted: int, finished: int = 0) -> None:
    """Assert the number of runs of each status, and that each has a checkpoint of its last step."""
    contents = {path.parent: run_folder.read(path.parent) for path in out.glob("*/run.json")}
    assert (
        sorted(c["status"] for c in contents.values())
        == ["finished"] * finished + ["interrupted"] * interrupted
    )
    for folder, content in contents.items():
        assert checkpoint.load(folder)["step"] == content["progress"]["steps"] > 0


@pytest.mark.slow
def test_a_signal_ends_a_run_with_a_checkpoint(tmp_path):
    """No stray files in the working directory; W&B, which is slow, is not imported."""
    (tmp_path / "wandb.py").write_text("raise AssertionError")
    process = started(["rope_lab.train", *LONG], tmp_path, shown=1)
    time.sleep(0.5)
    process.terminate()
    assert wait_for_all(process, tmp_path) == (128 + signal.SIGTERM, "")
    assert "interrupted after" in (tmp_path / "out").read_text()
    assert {path.name for path in tmp_path.iterdir()} - {"wandb.py"} == {"out", "err", "runs"}
    assert_saved(tmp_path / "runs", interrupted=1)
    command = run_folder.read(only_folder(tmp_path / "runs"))["provenance"]["command"]
    assert command.startswith("python -m rope_lab.train model.d_model=16")


@pytest.mark.slow
def test_a_signal_to_all_ends_a_sweep_with_saved_runs(tmp_path, finished):
    """Like Ctrl-C; more signals while saving do no harm. A run finished before has the same metrics
    as alone.
    """
    process = started(
        [*SWEEP, "train.steps=6,7,1000000,1000001", "eval.every=3"], tmp_path, shown=9
    )
    while (
        sum("train/loss" in path.read_text() for path in tmp_path.glob("runs/*/metrics.jsonl")) < 4
    ):
        time.sleep(0.05)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGTERM):
        os.killpg(process.pid, number)
        time.sleep(0.05)
    assert wait_for_all(process, tmp_path) == (128 + signal.SIGINT, "")
    said = (tmp_path / "out").read_text()
    assert "sweep: 2 of 4 runs finished" in said
    assert said.partition("  interrupted: ")[2].partition("\n")[0].count(" at step ") == 2
    assert metrics_of(tmp_path / "runs" / finished.name) == metrics_of(finished)
    assert_saved(tmp_path / "runs", interrupted=2, finished=2)


@pytest.mark.slow
def test_a_signal_to_a_table_is_passed_on(tmp_path):
    process = started(TABLE, tmp_path, shown=2)
    process.terminate()
    assert wait_for_all(process, tmp_path) == (128 + signal.SIGTERM, "")
    said = (tmp_path / "out").read_text()
    assert said.partition("  interrupted: ")[2].partition("\n")[0].count(" at step ") == 2
    assert said.partition("  not run: ")[2].partition("\n")[0].endswith("; and 103 more")
    assert_saved(tmp_path / "runs", interrupted=2)


@pytest.mark.slow
def test_a_signal_to_one_run_stops_that_run_alone(tmp_path):
    process = started([*SWEEP, "train.steps=600,1000000"], tmp_path, shown=2)
    os.kill(trainer_of(tmp_path / "runs", steps=1_000_000), signal.SIGTERM)
    assert wait_for_all(process, tmp_path) == (1, "")
    assert "  interrupted: " in (tmp_path / "out").read_text()
    assert_saved(tmp_path / "runs", interrupted=1, finished=1)


@pytest.mark.slow
def test_runs_whose_parent_is_killed_save_themselves(tmp_path):
    process = started([*SWEEP, "seed=0,1,2,3"], tmp_path, shown=2)
    process.kill()
    wait_for_all(process, tmp_path)
    assert_saved(tmp_path / "runs", interrupted=2)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_processes_that_time_steps_end_with_their_parent(tmp_path, number):
    slow = ["model.d_model=1024", "model.n_layers=16", "train.batch_size=256"]  # minutes a step
    process = started([*TABLE, "--bill", *slow], tmp_path, shown=0)
    while len(children(process)) < 2:
        time.sleep(0.05)
    time.sleep(1)
    if number == signal.SIGINT:  # as the terminal sends it, to all
        os.killpg(process.pid, number)
    else:
        process.kill()
    status, said = wait_for_all(process, tmp_path)
    assert status == (130 if number == signal.SIGINT else -signal.SIGKILL)
    assert "Traceback" not in said


@pytest.mark.torture
def test_sweeps_signalled_at_random_leave_no_run_running(tmp_path):
    """Before, during and after the start of runs; sent to the parent or the group, once or several
    times.
    """
    began = time.monotonic()
    process = started([*SWEEP, "seed=0,1,2,3"], tmp_path, shown=2)
    process.terminate()
    wait_for_all(process, tmp_path)
    patience = time.monotonic() - began
    for trial in range(30):
        random, folder = Random(trial), tmp_path / str(trial)
        folder.mkdir()
        process = started([*SWEEP, "seed=0,1,2,3"], folder, shown=0)
        time.sleep(random.uniform(1, 1.5 * patience))
        number, there = random.choice([*SIGNALS, signal.SIGKILL]), children(process)
        target = random.choice(["parent", "all"]) if number != signal.SIGKILL else "parent"
        sent = [number, *random.choices(SIGNALS, k=random.randrange(3))]
        for again in sent:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, again) if target == "all" else os.kill(process.pid, again)
                time.sleep(random.uniform(0, 0.5))
        status, err = wait_for_all(process, folder)
        contents = [run_folder.read(path.parent) for path in (folder / "runs").glob("*/run.json")]
        steps = [content["progress"]["steps"] for content in contents]
        sent_name = signal.Signals(number).name
        print(f"{trial}: {sent_name} to {target} of {len(there)} children: {status} {steps}")
        assert status in {end for which in sent for end in (-which, 128 + which)}
        assert {content["status"] for content in contents} <= {"interrupted"}
        assert len(contents) <= 2
        assert all(content["checkpoint"] == content["progress"]["steps"] for content in contents)
        assert err == "" or number == signal.SIGKILL


def test_a_hangup_that_is_ignored_stays_ignored():
    for before in (signal.SIG_IGN, signal.SIG_DFL):
        kept = signal.signal(signal.SIGHUP, before)
        try:
            with Stop() as stopping, stopping:
                os.kill(os.getpid(), signal.SIGHUP)
            assert stopping.caught == (0 if before == signal.SIG_IGN else signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) == before
        finally:
            signal.signal(signal.SIGHUP, kept)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "imported"),
    [
        ("train", "hydra"),
        *((name, "torch") for name in ("sample", "probe", "check")),
        *((name, "pandas") for name in ("results", "report")),
    ],
)
def test_ctrl_c_during_imports_is_no_traceback(tmp_path, name, imported):
    slow = "import time\nprint('importing', flush=True)\ntime.sleep(60)"
    (tmp_path / f"{imported}.py").write_text(slow)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    command, pipe = [sys.executable, "-m", f"rope_lab.{name}"], subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == ""
    assert process.returncode == 128 + signal.SIGINT


def press_ctrl_c(times: int):
    """An `update` that does not end, in which Ctrl-C is pressed so often."""

    def stuck(trainer, step):
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        raise AssertionError

    return stuck


def test_the_third_ctrl_c_ends_an_endless_step(tmp_path, monkeypatch):
    monkeypatch.setattr(stop, "AT_ONCE", -1)
    monkeypatch.setattr(loop, "update", press_ctrl_c(3))
    done = command([*TINY, "out=runs"], tmp_path)
    assert done.returncode == 128 + signal.SIGINT
    assert done.stderr == "stopped within a step: the last checkpoint stays valid\n"
    assert run_folder.read(only_folder(tmp_path / "runs"))["status"] == "interrupted"


def test_signals_that_come_at_once_are_one_press():
    with Stop() as stopping:
        for _ in range(5):
            signal.raise_signal(signal.SIGINT)
    assert stopping.caught == signal.SIGINT
