"""When runs stop: signals, and launchers that are no more, tried on real processes."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from conftest import TINY, only_folder
from trained import load, run

from rope_lab.launch import signals, sweep
from rope_lab.launch.signals import LAUNCHER, SIGNALS, Stop
from rope_lab.train import checkpoint, config
from rope_lab.train import loop as train
from rope_lab.train import run as runs

LONG = [*TINY, "out=runs", "train.steps=1000000", "eval.every=500000"]
WORKERS = ["-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "seed=0,1,2,3"]


def started(command: list[str], folder: Path, runs: int) -> subprocess.Popen:
    """A command in a process group of its own, in whose output so many runs have been evaluated.

    It hears a SIGHUP even where these tests run under nohup.
    """
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with open(folder / "out", "w") as out, open(folder / "err", "w") as err:
        process = subprocess.Popen(
            [sys.executable, *command], cwd=folder, stdout=out, stderr=err, start_new_session=True
        )
    signal.signal(signal.SIGHUP, before)
    while (folder / "out").read_text().count("step ") < runs:
        assert process.poll() is None, (folder / "err").read_text()
        time.sleep(0.05)
    return process


def wait_for_all(process: subprocess.Popen) -> int:
    """The exit status of a process, once it and everything in its group has ended."""
    status = process.wait()
    while subprocess.run(["pgrep", "-g", str(process.pid)], stdout=subprocess.DEVNULL).returncode == 0:
        time.sleep(0.05)
    return status


def assert_saved(out: Path, interrupted: int, finished: int = 0) -> None:
    """So many runs ended how, and those that were interrupted have a checkpoint of their last step."""
    contents = {path.parent: runs.read(path.parent) for path in out.glob("*/run.json")}
    assert sorted(c["status"] for c in contents.values()) == ["finished"] * finished + ["interrupted"] * interrupted
    for folder, content in contents.items():
        assert checkpoint.load(folder)["step"] == content["progress"]["steps"] > 0


@pytest.mark.parametrize("to_all", [True, pytest.param(False, marks=pytest.mark.torture)], ids=["to all", "to one"])
def test_a_signal_ends_a_sweep_with_workers_and_each_of_its_runs_is_saved(tmp_path, to_all):
    """Ctrl-C reaches the launcher and its workers, `kill` the launcher alone; more signals while they save do no harm.

    Two runs have finished by then. They had their share of the cores, and the user's folder stays as it was.
    """
    sweep = ["train.steps=6,7,1000000,1000001", "hydra.sweep.dir=.", "threads=null"]
    (tmp_path / "outcomes.jsonl").write_text("mine")
    process = started(["-m", "rope_lab.train", *WORKERS[:-1], *LONG, *sweep], tmp_path, runs=6)
    first, *more = (signal.SIGINT, signal.SIGTERM) if to_all else (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
    for number in (first, *more):
        os.killpg(process.pid, number) if to_all else process.send_signal(number)
        time.sleep(0.05)
    assert wait_for_all(process) == 128 + first
    assert (tmp_path / "err").read_text() == ""
    said = (tmp_path / "out").read_text()
    assert "sweep: 2 of 4 runs finished" in said
    assert said.count("  interrupted: ") == 2
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "outcomes.jsonl", "multirun.yaml", "out", "err"}
    assert (tmp_path / "outcomes.jsonl").read_text() == "mine"
    contents = [runs.read(path.parent) for path in tmp_path.glob("runs/*/run.json")]
    assert {c["provenance"]["hardware"]["threads"] for c in contents} == {max(1, (os.cpu_count() or 1) // 2)}
    assert_saved(tmp_path / "runs", interrupted=2, finished=2)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
def test_a_launcher_passes_a_signal_on_until_no_worker_has_a_job(tmp_path, monkeypatch):
    """A worker begins, and saves what it has done, while the signal is passed on again and again."""
    monkeypatch.setenv(LAUNCHER, str(os.getpid()))
    jobs, saved = tmp_path / "jobs", tmp_path / "saved"

    def work():
        with Stop() as stopping, signals.under_way(jobs):
            began.set()
            for _ in range(1000):
                time.sleep(0 if stopping.caught else 0.01)
            time.sleep(0.3)
            saved.write_text(str(stopping.caught))

    fork = multiprocessing.get_context("fork")
    began = fork.Event()
    worker = fork.Process(target=work)
    worker.start()
    began.wait()
    signals.end_workers(signal.SIGTERM, jobs)
    assert int(saved.read_text()) == signal.SIGTERM
    worker.join()
    assert worker.exitcode == 0


def test_workers_whose_launcher_is_killed_save_their_runs_and_take_no_more(tmp_path):
    process = started(["-m", "rope_lab.train", *WORKERS, *LONG], tmp_path, runs=2)
    process.kill()
    wait_for_all(process)
    assert_saved(tmp_path / "runs", interrupted=2)


@pytest.fixture(scope="module")
def patience(tmp_path_factory) -> float:
    """Seconds until a sweep has two runs under way here."""
    began, folder = time.monotonic(), tmp_path_factory.mktemp("patience")
    process = started(["-m", "rope_lab.train", *WORKERS, *LONG], folder, runs=2)
    process.terminate()
    wait_for_all(process)
    return time.monotonic() - began


@pytest.mark.torture
@pytest.mark.parametrize("trial", range(60))
def test_a_sweep_that_is_signalled_at_a_random_moment_leaves_no_run_running(tmp_path, patience, trial):
    """Before, while and after its workers begin; the launcher, one worker, or all at once; once or more often."""
    random = Random(trial)
    process = started(["-m", "rope_lab.train", *WORKERS, *LONG], tmp_path, runs=0)
    time.sleep(random.uniform(1, 1.5 * patience))
    workers = subprocess.run(["pgrep", "-g", str(process.pid), "-f", "LokyProcess"], capture_output=True, text=True)
    workers = [int(line) for line in workers.stdout.split()]
    number = random.choice([*SIGNALS, signal.SIGKILL])
    target = random.choice(["launcher", "all", "worker"] if workers and number != signal.SIGKILL else ["launcher"])
    sent = [number, *random.choices(SIGNALS, k=random.randrange(3))]
    for again in sent:
        with suppress(ProcessLookupError):
            if target == "all":
                os.killpg(process.pid, again)
            else:
                os.kill(random.choice(workers) if target == "worker" else process.pid, again)
            time.sleep(random.uniform(0, 0.5))
    status = wait_for_all(process)
    contents = [runs.read(path.parent) for path in (tmp_path / "runs").glob("*/run.json")]
    print(f"{signal.Signals(number).name} to {target}: {[content['progress']['steps'] for content in contents]}")
    assert status in {end for which in sent for end in (-which, 128 + which)}
    assert {content["status"] for content in contents} <= {"interrupted"}
    assert len(contents) <= 2
    assert all(content["checkpoint"] == content["progress"]["steps"] for content in contents)
    if number != signal.SIGKILL:
        assert (tmp_path / "err").read_text() == ""


TABLE = [str(config.ROOT / "scripts" / "table.py"), "linear", "--jobs", "2", *LONG]


@pytest.mark.torture
def test_runs_of_a_table_whose_script_is_killed_save_themselves(tmp_path):
    process = started(TABLE, tmp_path, runs=2)
    process.kill()
    wait_for_all(process)
    assert_saved(tmp_path / "runs", interrupted=2)


@pytest.mark.parametrize("to_all", [pytest.param(True, marks=pytest.mark.torture), False], ids=["to all", "to one"])
def test_a_signal_to_a_table_lets_its_runs_save_themselves_and_says_what_is_missing(tmp_path, to_all):
    process = started(TABLE, tmp_path, runs=2)
    os.killpg(process.pid, signal.SIGINT) if to_all else process.terminate()
    assert wait_for_all(process) == 128 + (signal.SIGINT if to_all else signal.SIGTERM)
    assert (tmp_path / "err").read_text() == ""
    said = (tmp_path / "out").read_text()
    assert said.count("(interrupted at step ") == 2
    assert said.count("(not begun)") == 28
    assert_saved(tmp_path / "runs", interrupted=2)


@pytest.mark.torture
def test_when_the_time_of_a_table_is_up_its_runs_save_themselves_and_no_other_begins(tmp_path):
    process = started([*TABLE, "--minutes", "0.5"], tmp_path, runs=2)
    assert wait_for_all(process) == 1
    assert (tmp_path / "err").read_text() == ""
    assert (tmp_path / "out").read_text().count("(not begun)") == 28
    assert_saved(tmp_path / "runs", interrupted=2)


@pytest.mark.parametrize("named", [True, False])
def test_only_the_end_of_a_launcher_stops_a_run(named):
    """Not that of a shell, from which a run may have been started in the background."""
    child = "import os, time; from rope_lab.launch.signals import Stop\n"
    child += "stop, parent = Stop(), int(os.environ['PARENT'])\nprint(stop.caught)\n"
    child += "while os.getppid() == parent: time.sleep(0.01)\nprint(stop.caught)"
    parent = "import os, subprocess, sys, time; here = str(os.getpid())\n"
    parent += f"subprocess.Popen([sys.executable, '-c', {child!r}], env=os.environ | {{'PARENT': here"
    parent += f", {LAUNCHER!r}: here}})\n" if named else "})\n"
    parent += "time.sleep(0.5)"
    done = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, cwd=config.ROOT)
    assert done.stdout.split() == ["0", str(int(signal.SIGHUP)) if named else "0"]


def test_workers_begin_with_signals_held_back():
    """A Ctrl-C while they import torch would otherwise end one of them with a traceback, and loky kill the others."""
    code = "import os, signal, time; from rope_lab.launch import signals; signals.lead()\n"
    code += "from joblib.externals.loky import get_reusable_executor\n"
    code += "begun = get_reusable_executor(2).submit(signal.pthread_sigmask, signal.SIG_BLOCK, []).result()\n"
    code += "print(set(signals.SIGNALS) <= begun)\n"
    code += "signal.signal(signal.SIGTERM, lambda *_: print('heard', flush=True))\n"
    code += "os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.2)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=config.ROOT)
    assert done.stdout.split() == ["True", "heard"]


def test_signals_that_a_parent_has_held_back_are_heard():
    """A process begins with those held back that were so in the process that starts it."""
    code = f"import os, signal, time; signal.pthread_sigmask(signal.SIG_BLOCK, {[int(n) for n in SIGNALS]})\n"
    code += "from rope_lab.launch import guard\n"  # whose threads then have them held back too
    code += "def act(): os.kill(os.getpid(), signal.SIGTERM); time.sleep(1); print('deaf')\n"
    code += "guard.guarded(act)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=config.ROOT)
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "")


QUEUE = """
import threading, time
from joblib.externals.loky.backend import get_context, resource_tracker
from joblib.externals.loky.backend.synchronize import SemLock
from rope_lab.launch import guard as launch

class Slow:
    def __getattr__(self, name):
        return getattr(resource_tracker, name)
    def unregister(self, *args):
        print(threading.current_thread().name)
        time.sleep(0.3)
        resource_tracker.unregister(*args)

def act():
    queue = get_context("loky").Queue()
    queue.put(0)
    while queue._buffer:
        time.sleep(0.01)
    queue._sem = queue._wlock = None
    queue.close()

SemLock._cleanup.__globals__["resource_tracker"] = Slow()
launch.guarded(act)
"""


def test_python_ends_no_thread_of_a_sweep_while_it_removes_a_semaphore():
    """The last to hold a queue's semaphores may be its thread: loky's tracker would call one a leak."""
    done = subprocess.run([sys.executable, "-c", QUEUE], capture_output=True, text=True, cwd=config.ROOT)
    assert "QueueFeederThread" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


def test_a_hangup_that_is_ignored_stays_ignored():
    for before in (signal.SIG_IGN, signal.SIG_DFL):
        kept = signal.signal(signal.SIGHUP, before)
        try:
            with Stop() as stopping:
                os.kill(os.getpid(), signal.SIGHUP)
            assert stopping.caught == (0 if before == signal.SIG_IGN else signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) == before
        finally:
            signal.signal(signal.SIGHUP, kept)


def test_a_signal_whose_exit_is_swallowed_still_stops_the_next_run(monkeypatch):
    monkeypatch.setattr(signals, "_asked", 0)
    with suppress(SystemExit):
        signals.leave(signal.SIGTERM)
    with Stop() as stopping:
        assert stopping.caught == signal.SIGTERM


def test_an_exit_that_is_swallowed_is_asked_for_again(tmp_path):
    """As by a library's `except BaseException`, in which two of sixty sweeps hung for ever."""
    code = "import signal, sys, time; from rope_lab.launch import signals\nsignals.AGAIN = 0.2\n"
    code += "try: signals.leave(signal.SIGTERM)\nexcept SystemExit: pass\n"
    code += "try: time.sleep(60)\nfinally: signals.left(); time.sleep(0.5); print('in order')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=config.ROOT, timeout=30)
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "in order\n")


class StopAtLook(Stop):
    """As if a signal came right before `caught` is read for the n-th time."""

    def __init__(self, n: int):
        super().__init__()
        self.left = n

    @property
    def caught(self) -> int:
        self.left -= 1
        return signal.SIGTERM if self.left <= 0 else 0


@pytest.mark.parametrize("n", range(1, 7))
def test_whenever_a_signal_comes_the_last_step_is_saved(tiny, tmp_path, n):
    with pytest.raises(SystemExit):
        train.train(load(*tiny, "eval.every=100"), StopAtLook(n))
    content = runs.read(only_folder(tmp_path / "runs"))
    assert content["status"] == "interrupted"
    assert content["checkpoint"] == content["progress"]["steps"] == n - 1
    assert run([*tiny, "eval.every=100"])["status"] == "finished"


SLOW_IMPORTS = [  # a command, and something that it imports
    (["-m", "rope_lab.train"], "hydra"),
    (["-m", "rope_lab.sample"], "torch"),
    (["-m", "rope_lab.probe"], "matplotlib"),
    (["-m", "rope_lab.results"], "numpy"),
    (["-m", "tasks.substring_by_index"], "numpy"),
    ([str(config.ROOT / "scripts" / "table.py")], "omegaconf"),
]


@pytest.mark.parametrize(("command", "library"), SLOW_IMPORTS)
def test_ctrl_c_during_imports_is_no_traceback(tmp_path, command, library):
    (tmp_path / f"{library}.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)")
    path = os.pathsep.join([str(tmp_path), str(config.ROOT)])
    environment = os.environ | {"PYTHONPATH": path}
    with subprocess.Popen(
        [sys.executable, *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == ""
    assert process.returncode == 128 + signal.SIGINT


def test_outcomes_that_were_torn_are_said_and_harm_nothing(tmp_path):
    path = tmp_path / "outcomes.jsonl"
    lines = [{"job": n, "overrides": f"seed={n}", "outcome": "finished" if n else "interrupted"} for n in range(3)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_bytes(text.encode()[:-20] + b"\xff")
    said = sweep.summary(path)
    assert "1 of 2 runs finished" in said
    assert "1 of its outcomes cannot be read" in said
    assert "  interrupted: seed=0" in said


def test_every_signal_that_stops_is_held_back_and_caught():
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP} == set(SIGNALS)
