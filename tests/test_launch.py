"""Sweeps: launching each run once, the final summary and the exit status. Signals:
test_signals.py.
"""

import os
import re
import signal
import sys
from types import SimpleNamespace

import pytest
from conftest import TINY, only_folder
from trained import command, load, raising_signal_at

from rope_lab.launch import job, pool, sweep
from rope_lab.launch.jobs import compose_jobs
from rope_lab.results.records.folders import read
from rope_lab.text import ConfigError
from rope_lab.train import loop, provenance, run_folder, stop, trainer
from rope_lab.train.trainer import resolve

WILD = ["train.lr=1e30", "train.warmup=0", "train.clip=1e30", "train.steps=20"]


@pytest.fixture
def run(tmp_path):
    """Run a sweep in this process."""
    return lambda *words: command(["-m", *TINY, "out=runs", *words], tmp_path)


def test_a_sweep_continues_past_a_bad_cell(run, tmp_path):
    done = run("model.d_model=16,10", "position=rope,roper")
    assert done.returncode == 1
    assert done.stderr.count("even number") == 2
    assert "Traceback" not in done.stderr
    assert (
        "sweep: 2 of 4 runs finished\n  not run: model.d_model=10 rope; model.d_model=10 roper\n"
        in done.stdout
    )
    begun = [line for line in done.stdout.splitlines() if line.endswith(" · 6 steps")]
    assert begun == ["1/4 model.d_model=16 rope · 6 steps", "2/4 model.d_model=16 roper · 6 steps"]
    assert "the same command runs what is missing" in done.stdout
    again = run("model.d_model=16", "position=rope,roper")
    assert "2 of 2 runs have ended before\nsweep: 2 of 2 runs finished" in again.stdout
    assert (again.returncode, again.stderr) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]
    assert len(read(tmp_path / "runs")[0]) == 2


@pytest.mark.slow
def test_runs_of_other_code_are_named(run, monkeypatch):
    """And a mean is of runs of one code."""
    assert "other code" not in run("seed=0,1").stdout + run("seed=0,1").stdout
    monkeypatch.setattr(provenance, "NUMERICS", provenance.NUMERICS + 1)
    done = run("seed=0,1,2").stdout
    assert "2 of 3 runs have ended before\n  by other code than now" in done
    assert ": seed=0; seed=1\n" in done
    assert re.search(r"roper \(other code\) +2 ", done)
    assert re.search(r"roper +1 ", done)


@pytest.mark.slow
def test_the_same_run_twice_is_launched_once(run, tmp_path):
    done = run("seed=0,0,1", "position=rope,roper,rope")
    assert done.returncode == 0
    assert "5 of 9 runs are listed more than once, and launched once" in done.stdout
    assert done.stdout.count("finished after 6 steps") == 4
    assert "sweep: 4 of 4 runs finished" in done.stdout
    assert re.search(r"held-out loss +accuracy", done.stdout)
    assert "\n\n" not in done.stdout
    assert re.search(r"\nrope +2 +(\S+) +(\S+) +(\S+) +[\d.]+%", done.stdout)
    assert done.stdout.endswith("rope-lab report runs\n")
    assert "1 of 2 runs are listed more than once" in run("seed=2", "train.lr=2e-3,0.002").stdout
    assert "sweep: 2 of 2 runs finished" in run("out=one,other").stdout


def test_a_cluster_may_have_more_threads_than_this_machine(tmp_path, monkeypatch):
    given, settings = [], {"_target_": "rope_lab.launch.clusters.on_slurm", "cpus_per_task": 4096}
    on_slurm = lambda every, *_: given.extend(cfg.threads for cfg, _ in every)  # noqa: E731
    monkeypatch.setitem(sweep.LAUNCHERS, "on_slurm", on_slurm)
    jobs = compose_jobs(
        [[*TINY, "threads=null", f"out={tmp_path}"], [*TINY, "threads=999", f"out={tmp_path}"]]
    )
    assert sweep.launch(jobs, settings) == job.EXIT_FAILED  # none of them began
    assert given == [4096]


def test_runs_that_differ_in_seed_are_composed_once():
    words = [*TINY, "position=roper"]
    composed = compose_jobs([[*words, f"seed={seed}"] for seed in (0, 1)])
    assert [each.cfg for each in composed] == [
        load(*words, f"seed={s}", f"out={composed[0].cfg.out}") for s in (0, 1)
    ]
    assert composed[1].cfg.overrides == (*words, "seed=1")
    (alone,) = compose_jobs([["seed=3", "train.warmup=${seed}"]])
    assert alone.cfg.train.warmup == 3


def test_a_diverged_run_is_an_outcome_of_a_sweep(run):
    done = run(*WILD, "seed=0,1")
    assert done.returncode == 0
    assert "sweep: 0 of 2 runs finished\n  diverged: seed=0 at step " in done.stdout


def test_a_signal_ends_a_sweep_naming_waiting_runs(run, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "update", raising_signal_at(3, loop.update, signal.SIGINT))
    done = run("seed=range(0,7)")
    assert done.returncode == 128 + signal.SIGINT
    said = "  interrupted: seed=0 at step 3\n  not run: seed=1; seed=2; seed=3; and 3 more\n"
    assert f"sweep: 0 of 7 runs finished\n{said}" in done.stdout
    assert run_folder.read(only_folder(tmp_path / "runs"))["status"] == "interrupted"


def test_three_ctrl_c_to_a_sweep_give_no_traceback(run, monkeypatch):
    def pressed(runs, stopping, settings):
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(stop, "AT_ONCE", -1)
    monkeypatch.setitem(sweep.LAUNCHERS, "in_children", pressed)
    done = run("seed=0,1", "hydra/launcher=joblib")
    assert done.returncode == 128 + signal.SIGINT
    assert "not run: seed=0; seed=1" in done.stdout


@pytest.mark.slow
def test_a_restarted_sweep_does_not_ask_to_start_over(run, monkeypatch):
    assert run("seed=0,1").returncode == 0
    with monkeypatch.context() as patch:
        patch.setattr(loop, "update", raising_signal_at(3, loop.update, signal.SIGINT))
        done = run("seed=0,1", "fresh=true")
    assert "sweep: 0 of 2 runs finished" in done.stdout
    assert "the same command without fresh=true resumes it" in done.stdout
    assert "the same command without fresh=true runs what is missing" in done.stdout
    assert "  not run again, the earlier record stays: seed=1\n" in done.stdout
    assert "sweep: 2 of 2 runs finished" in run("seed=0,1").stdout
    done = run("seed=0,1", "fresh=true")
    assert (done.returncode, done.stdout.count("finished after 6 steps")) == (0, 2)
    assert "sweep: 2 of 2 runs finished" in done.stdout


@pytest.mark.slow
def test_a_launcher_without_package_or_cluster_is_one_line(run, monkeypatch):
    for launcher, package in (("ray", "ray"), ("submitit_slurm", "submitit")):
        monkeypatch.setitem(sys.modules, package, None)
        done = run(f"hydra/launcher={launcher}", "seed=0,1")
        assert (done.returncode, done.stderr) == (
            2,
            f"{package} is not installed; pip install {package}\n",
        )
    assert (
        "is not a launcher"
        in run("hydra/launcher=ray", "hydra.launcher._target_=a.B", "seed=0,1").stderr
    )


def test_a_launcher_that_takes_no_number_of_runs_says_so():
    with pytest.raises(ConfigError, match=r"--jobs, .*=basic takes no number of"):
        sweep.launcher_settings(["hydra/launcher=basic", "hydra.launcher.n_jobs=2"])


SETTLED = ["device=cpu", "train.precision=float32"]


@pytest.mark.parametrize(
    ("settings", "words", "left"),
    [
        ({"_target_": "a.on_slurm"}, SETTLED[:1], "train.precision=auto"),
        ({"_target_": "a.on_ray", "ray": {"init": {"address": "a:1"}}}, SETTLED[1:], "device=auto"),
    ],
)
def test_what_a_cluster_would_settle_is_asked_for(settings, words, left):
    jobs = compose_jobs([[*words, "seed=0"]])
    with pytest.raises(ConfigError, match=f"^{left}: is not known on this machine"):
        sweep._check_settled(jobs, settings)
    sweep._check_settled(jobs, {"_target_": "a.on_ray", "ray": {"init": {"address": None}}})
    sweep._check_settled(compose_jobs([SETTLED]), settings)


def test_runs_on_devices_elsewhere_have_the_ids_that_they_get(monkeypatch):
    """A machine without CUDA names the runs as one with it does."""
    words = ["position=rope", "device=cuda", "train.precision=bfloat16"]
    here = compose_jobs([words])[0].identity
    monkeypatch.setattr(trainer, "_devices", lambda: ["cuda", "cpu"])
    assert compose_jobs([words])[0].identity == here
    assert resolve(load(*words)).train.weight_decay_on == "all"


def test_a_slurm_that_is_not_here_is_one_line(run, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", "")
    done = run("hydra/launcher=submitit_slurm", *SETTLED, "seed=0,1")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    "setting",
    [
        "joblib.n_jobs",
        "submitit_local.cpus_per_task",
        "submitit_slurm.mem_gb",
        "submitit_slurm.timeout_min",
        "ray.ray.remote.max_retries",
    ],
)
def test_true_is_not_a_number_of_a_launcher(run, setting):
    launcher, _, key = setting.partition(".")
    done = run(f"hydra/launcher={launcher}", f"hydra.launcher.{key}=true", "seed=0,1")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"hydra.launcher.{key}=" in done.stderr


REFUSAL = """#!/bin/sh
echo 'sbatch: error: invalid partition specified: nope' >&2
echo 'sbatch: error: Batch job submission failed: Invalid partition name specified' >&2
exit 1
"""


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("partition=nope", "Invalid partition name"),
        ("timeout_min=abc", "timeout_min"),
        ("array_parallelism=abc", "submitit_slurm: "),
    ],
)
def test_a_job_that_slurm_refuses_is_one_line(run, tmp_path, monkeypatch, setting, said):
    pytest.importorskip("submitit")
    for program in ("sbatch", "srun"):
        (tmp_path / program).write_text(REFUSAL)
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    settled = [*SETTLED, f"hydra.launcher.{setting}"]
    done = run("hydra/launcher=submitit_slurm", *settled, "seed=0,1")
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_temporary_folder_with_a_long_path_is_named(run, tmp_path, monkeypatch):
    def refuse() -> None:  # as binding a socket does
        raise OSError("AF_UNIX path too long")

    monkeypatch.setattr(pool.command, "process_is_ours", lambda: True)
    monkeypatch.setattr(pool.forkserver, "ensure_running", refuse)
    monkeypatch.setattr(sweep.tempfile, "tempdir", str(tmp_path))
    done = run("seed=0,1", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    assert done.returncode == 2
    said = f"AF_UNIX path too long; set TMPDIR={tmp_path} to a shorter path\n"
    assert done.stderr == f"the runs cannot start: {said}"


def test_a_child_may_end_before_a_signal_reaches_it(monkeypatch):
    """Its process id is then unknown."""
    stopping = SimpleNamespace(caught=0)
    reader, writer = os.pipe()

    def start() -> None:
        stopping.caught = signal.SIGTERM

    def kill(*_: int) -> None:
        os.close(writer)
        raise ProcessLookupError

    child = SimpleNamespace(sentinel=reader, pid=1, start=start, join=lambda: os.close(reader))
    context = SimpleNamespace(Process=lambda **_: child)
    monkeypatch.setattr(pool, "context_of_children", lambda: context)
    monkeypatch.setattr(pool.os, "kill", kill)
    pool.in_children([(None, "")], stopping, {"at_once": 1})


def test_submitit_queues_a_run_again_once_it_is_saved(tiny, tmp_path, monkeypatch):
    """As on a cluster node that gets a signal."""
    (tmp_path / "runs").mkdir()
    heard, call = [], lambda: job.run_elsewhere(load(*tiny), "1/2 · ", "2000-01-01")
    before = signal.signal(
        signal.SIGUSR2, lambda *_: heard.append(run_folder.read(only_folder(tmp_path / "runs")))
    )
    with monkeypatch.context() as patch:
        patch.setattr(loop, "update", raising_signal_at(3, loop.update, signal.SIGUSR2))
        call()
    signal.signal(signal.SIGUSR2, before)
    assert [(content["status"], content["checkpoint"]) for content in heard] == [("interrupted", 3)]
    call()
    assert run_folder.read(only_folder(tmp_path / "runs"))["status"] == "finished"
