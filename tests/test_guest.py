"""Other programs that import rope_lab: their process, their names and their W&B run stay theirs."""

import signal
import sys
import threading

import numpy as np
import pytest
import torch
from conftest import ROOT, TINY
from programs import call, check_program, write_program
from sources import block
from trained import command, raising_signal_at

import rope_lab
from rope_lab.experiments.asking import asks
from rope_lab.experiments.launching import Stopped
from rope_lab.results.plans.bill import Bill
from rope_lab.tasks.task import Task
from rope_lab.text import ConfigError, filled
from rope_lab.train import loop


def test_a_program_that_imports_us_keeps_its_process(tmp_path):
    write_program(tmp_path)
    check_program(call(tmp_path, "-m", "theirs.train"))


@pytest.mark.slow
def test_a_program_that_fits_keeps_its_wandb_run(tmp_path):
    """And a process that it forks afterwards is refused: torch would wait forever."""
    write_program(tmp_path)
    done = call(tmp_path, "fitting.py", *TINY[:-3], "wandb.mode=offline", "threads=2")
    assert done.returncode == 0, done.stderr
    assert "do not survive a fork" in done.stdout


@pytest.mark.slow
def test_a_program_that_sweeps_keeps_its_own_server(tmp_path):
    """Whose children can be stopped: with signals blocked, leaving a pool would wait forever."""
    words = [word for word in TINY if not word.startswith("seed=")]
    (tmp_path / "program.py").write_text(f"""
import multiprocessing
import signal

from rope_lab.launch import sweep
from rope_lab.launch.jobs import compose_jobs

if __name__ == "__main__":
    jobs = compose_jobs([[*{words}, "out=runs", f"seed={{seed}}"] for seed in (0, 1)])
    assert sweep.launch(jobs, sweep.side_by_side([], 2)) == 0
    with multiprocessing.get_context("forkserver").Pool(1) as pool:
        print(pool.apply(signal.pthread_sigmask, (signal.SIG_BLOCK, [])))
""")
    done = call(tmp_path, "program.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("set()\n")


def test_a_clone_is_the_package_in_the_folder_around_it(tmp_path):
    (tmp_path / "rope_lab").symlink_to(ROOT)
    code = "import rope_lab; from rope_lab.tasks.base import PackedTask as T; print(T.__module__)"
    done = call(tmp_path, "-c", code, path="")
    assert done.stdout.strip() == "rope_lab.tasks.base", done.stderr


def test_tasks_are_one_module_under_both_names():
    import tasks
    from tasks import needle
    from tasks.task import Task as Same

    assert Same is Task
    assert needle is tasks.needle
    assert needle is sys.modules["rope_lab.tasks.needle"]
    assert issubclass(needle.Needle, Task)


@pytest.mark.parametrize("name", ["tasks", "rope_lab.tasks"])
def test_a_task_of_ones_own_is_based_on_either_name(name, write):
    source = block("Your own task", "python")
    assert "from rope_lab.tasks.base import" in source
    folder = write("backwards.py", source.replace("rope_lab.tasks", name)).parent
    done = command(["task=./backwards.py", *TINY, "out=runs"], folder)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def fit(tmp_path):
    return lambda **settings: rope_lab.fit(*TINY, out=tmp_path / "my runs", **settings)


def test_fit_restores_random_state_and_threads(fit):
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    run = fit(train={"steps": 3, "lr": 1e-3}, seed=2, position="roper")
    assert torch.equal(torch.rand(2), expected)
    assert torch.get_num_threads() == threads + 1
    torch.set_num_threads(threads)
    assert run.config.train.lr == 1e-3
    assert repr(run).startswith("<substring_by_index-roper-s2-")
    assert len(repr(run)) < 100
    assert run.folder.parent.name == "my runs"
    assert isinstance(run.sample(run.record["samples"][0]["prompt"]), str)
    with pytest.raises(ConfigError, match="alphabet"):
        run.sample("é")
    with pytest.raises(ConfigError, match="temperature=0: must be above 0"):
        run.sample(run.record["samples"][0]["prompt"], temperature=0)


def test_fits_in_threads_give_the_numbers_of_fits_in_turn(fit, tmp_path):
    found = {}

    def train(seed: int, out: str) -> None:
        run = rope_lab.fit(*TINY, seed=seed, out=tmp_path / out, **{"model.dropout": 0.5})
        found[out, seed] = run.metrics

    threads = [threading.Thread(target=train, args=(seed, "at once")) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(2):
        train(seed, "in turn")
        assert found["at once", seed] == found["in turn", seed]


def test_fit_calls_the_callers_handler_once_the_run_is_saved(fit, monkeypatch):
    monkeypatch.setattr(loop, "update", raising_signal_at(2, loop.update, signal.SIGUSR1))
    calls, before = [], signal.getsignal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, lambda number, frame: calls.append(number))
    with pytest.raises(KeyboardInterrupt):
        fit()
    assert calls == [signal.SIGUSR1]
    signal.signal(signal.SIGUSR1, before)


def test_several_runs_at_once_are_answered_with_the_command(fit):
    for seeds in ([0, 1], range(2), np.arange(2)):
        with pytest.raises(ConfigError, match="rope-lab sweep seed="):
            fit(seed=seeds)


def test_a_process_of_torchrun_is_answered_with_the_command(fit, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="with torchrun use"):
        fit()


def test_numbers_of_numpy_are_settings(fit):
    assert fit(seed=np.int64(3), train={"lr": np.float32(0.5)}).config.seed == 3


def test_a_class_as_a_setting_is_answered_with_its_file(fit):
    with pytest.raises(ConfigError, match="by its file"):
        fit(position=torch.nn.Module)


def test_the_package_shows_its_interface(tmp_path):
    code = """
import rope_lab, sys
print(dir(rope_lab), {"torch", "pandas"} & {*sys.modules})
"""
    done = call(tmp_path, "-c", code)
    names = ["ConfigError", "Stopped", "__version__", "compare", "fit", "results", "scheme"]
    names.append("tasks")
    assert done.stdout.strip() == f"{names} set()", done.stderr
    assert (ROOT / "rope_lab" / "py.typed").exists()


@pytest.mark.slow
def test_kept_runs_are_one_frame():
    assert len(rope_lab.results.load_kept()) > 1000


def test_a_scheme_by_name_is_a_module_with_its_settings():
    pope = rope_lab.scheme("pope", d_model=64, n_heads=4)
    assert isinstance(pope, torch.nn.Module)
    with pytest.raises(ConfigError, match="scale_base=-1"):
        rope_lab.scheme("xpos", d_model=64, n_heads=4, scale_base=-1)
    with pytest.raises(ConfigError, match="must be divisible by"):
        rope_lab.scheme("pope", d_model=64, n_heads=5)
    with pytest.raises(ConfigError, match="did you mean rope"):
        rope_lab.scheme("roppe", d_model=64, n_heads=4)
    with pytest.raises(ConfigError, match="max_len=0"):
        rope_lab.scheme("learned", d_model=64, n_heads=4, max_len=0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: rope_lab.fit({"position": "rope"}),
        lambda: rope_lab.compare("roper", "rope", "needle", {"train.steps": 5}),
        lambda: rope_lab.compare("roper", "rope", "needle", search=(3, 2)),
    ],
)
def test_what_is_no_text_is_refused_with_the_form(call):
    with pytest.raises(ConfigError, match=r"must be (NAME=VALUE|rates x seeds)"):
        call()


def test_a_process_without_streams_has_no_terminal(monkeypatch):
    """As that of a window, or of a service."""
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stdin", None)
    assert filled("a b " * 100) == "a b " * 100
    with pytest.raises(Stopped, match="yes=True"):
        asks(yes=False, budget=None)(Bill("search", 1, 1.0, "", 1))
