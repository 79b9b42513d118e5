"""Launchers before their first run, and jobs in processes that are not their children; real ones: test_clusters.py."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import TINY
from hydra.core.hydra_config import HydraConfig
from hydra.errors import CompactHydraException
from omegaconf import OmegaConf
from trained import command

from rope_lab.launch import clusters, sweep
from rope_lab.launch.signals import Stop
from rope_lab.text import ConfigError

SLURM, LOCAL = "hydra_plugins.hydra_submitit_launcher.submitit_launcher.SlurmLauncher", "x.y.LocalLauncher"


@pytest.mark.parametrize(
    ("launcher", "remedy"),
    [
        ("ray", "make ray"),
        ("submitit_slurm", "pip install"),
        ("submitit_local", "pip install"),
        ("joblib", "make setup"),
    ],
)
def test_a_launcher_that_is_not_installed_is_one_line_with_the_remedy(tmp_path, monkeypatch, launcher, remedy):
    monkeypatch.setattr(clusters.importlib.util, "find_spec", lambda name: None)
    done = command([*TINY, "-m", f"hydra/launcher={launcher}", "seed=0,1", "out=runs"], tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "is not installed" in done.stderr
    assert remedy in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_machine_without_slurm_is_named(monkeypatch):
    monkeypatch.setattr(clusters.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match="has no sbatch"):
        clusters.begin(OmegaConf.create({"_target_": SLURM}))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:99999999"])
def test_an_address_at_which_nothing_answers_is_named(address):
    with pytest.raises(ConfigError, match="no Ray answers there"):
        clusters._check_answers(address)


@pytest.mark.parametrize(
    ("launcher", "threads"),
    [({"cpus_per_task": 3}, 3), ({"ray": {"remote": {"num_cpus": 0.5}}}, 1), ({"cpus_per_task": None}, None)],
)
def test_a_run_has_as_many_threads_as_cpus(launcher, threads):
    assert clusters.threads(OmegaConf.create(launcher)) == threads


@pytest.fixture
def job(tmp_path, monkeypatch):
    """As if the present process had been begun for a job of a sweep, whose launcher is of this class."""

    def prepare(launcher: str) -> Path:
        launcher = OmegaConf.create({"_target_": launcher})
        callbacks = SimpleNamespace(report=SimpleNamespace(outcomes="outcomes.jsonl"))
        here = {"sweep": SimpleNamespace(dir=str(tmp_path)), "runtime": SimpleNamespace(cwd=str(tmp_path))}
        hydra = SimpleNamespace(launcher=launcher, callbacks=callbacks, **here)
        monkeypatch.setattr(HydraConfig, "get", staticmethod(lambda: hydra))
        (tmp_path / "outcomes.jsonl").write_text(f'{{"runs": 2, "differ": [], "launcher": {os.getppid()}}}\n')
        return tmp_path / "outcomes.jsonl"

    monkeypatch.chdir(tmp_path)
    return prepare


def stopping_job(begun: list[Stop], number: int = 0) -> Callable[[Stop], None]:
    """A job that ends as a run does that has been told to stop; a signal comes to it."""

    def run(stopping: Stop) -> None:
        begun.append(stopping)
        with stopping:
            if number:
                os.kill(os.getpid(), number)
            if stopping.caught:
                sys.exit(128 + stopping.caught)

    return run


def test_a_folder_that_a_machine_does_not_see_is_named(job):
    job(SLURM).unlink()
    begun = []
    with pytest.raises(CompactHydraException, match="does not see what the launcher wrote there; set out="):
        sweep.run_elsewhere(stopping_job(begun))
    assert not begun


def test_a_sweep_that_is_told_to_stop_begins_no_job_and_stops_those_that_run(job):
    outcomes, begun = job(SLURM), []
    sweep.run_elsewhere(lambda stopping: (sweep.stop_file(outcomes).touch(), stopping_job(begun)(stopping)))
    assert begun[0].caught == signal.SIGHUP
    sweep.run_elsewhere(stopping_job(begun))
    assert len(begun) == 1


def test_only_where_nobody_else_looks_after_jobs_does_the_end_of_the_launcher_stop_them(job):
    begun = []
    for launcher in (LOCAL, SLURM):
        outcomes = job(launcher)
        sweep.run_elsewhere(stopping_job(begun))
        outcomes.write_text(outcomes.read_text().replace(str(os.getppid()), str(2**22 + 1)))  # no process has that
        sweep.run_elsewhere(stopping_job(begun))
    assert [stopping.caught for stopping in begun] == [0, signal.SIGHUP, 0, 0]


@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGTERM])
def test_what_slurm_wants_of_a_job_it_gets_once_its_run_is_saved(job, number):
    """submitit's handler queues it again, at the signal that comes before a time limit."""
    job(SLURM)
    heard, begun = [], []
    before = signal.signal(signal.SIGUSR2, lambda *_: heard.append(len(begun)))
    try:
        with pytest.raises(SystemExit) as exit:
            sweep.run_elsewhere(stopping_job(begun, number))
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert exit.value.code == 128 + number
    assert heard == ([1] if number == signal.SIGUSR2 else [])
