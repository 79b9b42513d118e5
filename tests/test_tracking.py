"""W&B tracking: it changes no metric, respects W&B's own variables, and fails with a warning
only.
"""

import json
import os
import sys
import time
from types import SimpleNamespace

import pytest
from conftest import TINY, only_folder
from trained import metrics_of, run, spawn

from rope_lab.train import tracking

WANDB = [*TINY, "wandb.mode=null"]  # the default


def nothing(*_, **__):
    pass


@pytest.fixture
def begin(monkeypatch, tmp_path):
    """Train with a stub W&B with the methods in `calls`; return the arguments of `init` and the
    metrics.
    """
    monkeypatch.setattr(tracking, "PATIENCE", 0.2)

    def begin(*overrides: str, **calls) -> tuple[list[dict], list[dict]]:
        begun, usual = (
            [],
            {"log": nothing, "finish": nothing, "define_metric": nothing, "summary": {}},
        )
        answer = SimpleNamespace(**usual | calls)

        def init(**settings):
            begun.append(settings)
            answer.offline = settings["mode"] == "offline"
            return answer

        wandb = SimpleNamespace(init=calls.get("init", init), Settings=lambda **settings: settings)
        monkeypatch.setitem(sys.modules, "wandb", wandb)
        run([*WANDB, f"out={tmp_path / 'runs'}", *overrides])
        return begun, metrics_of(only_folder(tmp_path / "runs"))

    return begin


@pytest.mark.parametrize(
    ("variables", "overrides", "expected"),
    [
        ({}, [], ("offline", "rope_lab", None)),
        ({"WANDB_MODE": "disabled"}, [], None),
        ({"WANDB_MODE": "online"}, ["wandb.mode=offline"], ("offline", "rope_lab", None)),
        ({"WANDB_PROJECT": "mine"}, ["wandb.project=thesis"], ("offline", "thesis", None)),
        ({"WANDB_DIR": "elsewhere"}, [], ("offline", "rope_lab", "elsewhere")),
    ],
)
def test_wandbs_variables_count_unless_a_setting_is_given(
    begin, tmp_path, monkeypatch, variables, overrides, expected
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    begun = [(each["mode"], each["project"], str(each["dir"])) for each in begin(*overrides)[0]]
    mode, project, folder = expected or (None, None, None)
    assert begun == ([(mode, project, folder or str(tmp_path / "runs"))] if expected else [])


def test_wandb_reports_nothing_of_the_machine_unless_the_user_wants_it(begin, monkeypatch):
    monkeypatch.delenv("WANDB_ERROR_REPORTING", raising=False)
    ((begun,), _) = begin()
    assert begun["reinit"] == "create_new"  # theirs stays open
    assert begun["settings"]["x_disable_machine_info"]
    assert begun["settings"]["disable_git"]


def test_wandb_leaves_the_process_as_it_was(begin, monkeypatch):
    """Its telemetry looks up an address, even offline, unless a variable is set."""
    monkeypatch.delenv("WANDB_ERROR_REPORTING", raising=False)
    seen = []

    def init(**settings):
        seen.append(os.environ["WANDB_ERROR_REPORTING"])
        sys.exit = sys.excepthook = None
        return SimpleNamespace(log=nothing, finish=nothing, summary={})

    before = sys.exit, sys.excepthook
    begin(init=init)
    assert seen == ["false"]
    assert "WANDB_ERROR_REPORTING" not in os.environ
    assert (sys.exit, sys.excepthook) == before


def test_a_run_is_one_offline_run_of_wandb_however_often_it_is_made(begin, tmp_path):
    begin()
    run_id = json.loads((only_folder(tmp_path / "runs") / "run.json").read_text())["run_id"]
    folders = [
        tmp_path / "runs" / "wandb" / f"offline-run-2026-{name}"
        for name in (f"roper-s0-{run_id}", "0" * 12)
    ]
    for folder in folders:
        folder.mkdir(parents=True)
    begin("fresh=true")
    assert [folder.exists() for folder in folders] == [False, True]


def fail(*_, **__):
    raise RuntimeError("gone")


def hang(*_, **__):
    time.sleep(3600)


@pytest.mark.parametrize(
    ("call", "act", "said"),
    [("init", fail, "gone"), ("log", hang, "no answer within 0.2 s"), ("finish", fail, "gone")],
)
def test_wandb_that_fails_or_hangs_is_one_warning_and_changes_no_number(
    begin, finished, caplog, call, act, said
):
    _, metrics = begin(**{call: act})
    assert caplog.text.count(said) == 1
    assert metrics == metrics_of(finished)


def test_wandb_that_is_not_installed_is_a_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert run([*WANDB, f"out={tmp_path / 'runs'}"])["status"] == "finished"
    assert "W&B failed and is left out" in caplog.text


@pytest.mark.slow
def test_without_a_network_wandb_online_warns(tmp_path):
    environment = {
        "WANDB_BASE_URL": "http://127.0.0.1:9",
        "HOME": str(tmp_path / "home"),
        "WANDB_API_KEY": "a" * 40,
    }
    done = spawn([*WANDB, "out=runs", "wandb.mode=online"], tmp_path, **environment)
    assert done.returncode == 0
    assert "W&B failed and is left out" in done.stderr
    assert (
        json.loads((only_folder(tmp_path / "runs") / "run.json").read_text())["status"]
        == "finished"
    )
