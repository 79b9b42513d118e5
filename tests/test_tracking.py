"""W&B tracking: it changes no metric, respects W&B's own variables, and fails with a warning
only.
"""

import builtins
import json
import os
import re
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import TINY, only_folder
from trained import metrics_of, run, spawn

from rope_lab import rm
from rope_lab.train import loop, tracking

WANDB = [*TINY, "wandb.mode=null"]  # the default


class Stub:
    """A W&B that keeps its calls; as W&B does, it makes a folder for an offline run."""

    def __init__(self, out: Path):
        self.out = out
        self.begun: list[dict] = []
        self.logged: list[dict] = []
        self.summary: dict = {}
        self.locked: dict = {}
        self.url = None
        self.config = SimpleNamespace(
            update_locked=lambda config, **_: self.locked.update(config),
        )

    def init(self, **settings):
        reported = os.environ.get("WANDB_ERROR_REPORTING")
        self.begun.append(settings | {"error_reporting": reported})
        name = f"offline-run-20260101_{len(self.begun):06}-{settings['id']}"
        if "WANDB_SWEEP_ID" in os.environ:  # W&B then takes an id of its own
            name = f"offline-run-20260101_{len(self.begun):06}-random"
        self.sync_dir = str(self.out / "wandb" / name)
        Path(self.sync_dir).mkdir(parents=True)
        (Path(self.sync_dir) / "run-1.wandb").touch()
        return self

    def log(self, record, step):
        self.logged.append(record)

    def finish(self, exit_code):
        pass

    def offline(self) -> list[str]:
        """The names of the offline records that are there."""
        return sorted(path.name for path in (self.out / "wandb").iterdir())


@pytest.fixture
def stub(monkeypatch, tmp_path) -> Stub:
    stub = Stub(tmp_path / "runs")
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    fake = SimpleNamespace(
        init=lambda **settings: stub.init(**settings), Settings=lambda **settings: settings
    )
    importing = builtins.__import__

    def import_stub(name, *rest):
        return fake if name == "wandb" else importing(name, *rest)

    monkeypatch.setattr(builtins, "__import__", import_stub)
    return stub


@pytest.fixture
def begin(monkeypatch, tmp_path, stub):
    """Train with a stub W&B with the methods in `calls`; return the arguments of `init` and the
    metrics.
    """
    monkeypatch.setattr(tracking, "PATIENCE", 0.2)

    def begin(*overrides: str, **calls) -> tuple[list[dict], list[dict]]:
        for name, call in calls.items():
            monkeypatch.setattr(stub, name, call)
        run([*WANDB, f"out={tmp_path / 'runs'}", *overrides])
        return stub.begun, metrics_of(only_folder(tmp_path / "runs"))

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


def test_wandb_reports_nothing_of_the_machine_unless_wanted(begin, monkeypatch):
    monkeypatch.delenv("WANDB_ERROR_REPORTING", raising=False)
    ((begun,), _) = begin()
    assert begun["reinit"] == "create_new"  # theirs stays open
    assert begun["settings"]["x_disable_machine_info"]
    assert begun["settings"]["disable_git"]
    assert "WANDB_ERROR_REPORTING" not in os.environ  # for what the caller does next


def test_wandb_variables_name_the_run(begin, monkeypatch):
    names = {"WANDB_NAME": "mine", "WANDB_RUN_GROUP": "group", "WANDB_JOB_TYPE": "trial"}
    for name, value in (names | {"WANDB_TAGS": "one,two"}).items():
        monkeypatch.setenv(name, value)
    ((begun,), _) = begin()
    shown = [begun[key] for key in ("name", "group", "job_type", "tags")]
    assert shown == ["mine", "group", "trial", ["one", "two"]]


def test_the_name_of_a_wandb_run_has_its_own_settings(begin):
    ((begun,), _) = begin("train.lr=0.004", "seed=1")
    assert begun["name"].startswith("substring_by_index-roper-s1 ")
    assert "train.lr=0.004" in begun["name"]
    assert len(begun["name"]) <= 128


def test_the_wandb_summary_has_size_commit_and_version(begin, stub):
    begin()
    assert {"parameters", "commit", "version", "status", "eval/loss"} <= stub.summary.keys()
    assert stub.summary["version"]


@pytest.mark.parametrize("sweep", [False, True])
def test_a_run_has_one_offline_record_however_often_made(begin, stub, monkeypatch, sweep):
    if sweep:
        monkeypatch.setenv("WANDB_SWEEP_ID", "sweep")
    begin()
    (first,) = stub.offline()
    theirs = stub.out / "wandb" / "offline-run-20260101_000000-theirs"
    theirs.mkdir()
    begin("fresh=true")
    kept = stub.offline()
    assert len(kept) == 2
    assert first not in kept
    assert theirs.name in kept


def test_an_offline_record_stays_if_wandb_cannot_begin_again(begin, stub):
    begin()
    before = stub.offline()
    begin("fresh=true", init=fail)
    assert stub.offline() == before


def test_an_offline_record_stays_while_the_next_one_fails(begin, stub, monkeypatch):
    begin()
    (first,) = stub.offline()
    with monkeypatch.context() as patch:
        patch.setattr(loop, "update", fail)
        with pytest.raises(RuntimeError):
            begin("fresh=true")
    assert first in stub.offline()
    begin("fresh=true")
    assert len(stub.offline()) == 1


def test_an_offline_record_stays_if_the_next_run_is_empty(begin, stub, monkeypatch):
    begin()
    (first,) = stub.offline()
    with monkeypatch.context() as patch:
        patch.setattr(loop, "has_to_stop", lambda stopping: True)
        begin("fresh=true")
    assert first in stub.offline()


def test_rm_deletes_the_offline_record_and_follows_no_link(begin, stub, tmp_path):
    begin()
    folder = only_folder(stub.out)
    (record,) = (stub.out / "wandb").iterdir()
    theirs = record.rename(tmp_path / record.name)
    record.symlink_to(theirs)
    shutil.copytree(folder, stub.out / "copy")
    rm.main(["--yes", str(stub.out / "copy")])
    rm.main(["--yes", str(folder)])
    assert theirs.exists()
    begin()
    record.unlink()
    assert len(stub.offline()) == 1
    rm.main(["--yes", str(only_folder(stub.out))])
    assert stub.offline() == []


def test_an_ended_run_that_an_agent_repeats_logs_its_metrics(begin, stub, monkeypatch):
    begin()
    begin()
    assert len(stub.begun) == 1
    monkeypatch.setenv("WANDB_SWEEP_ID", "sweep")
    logged = len(stub.logged)
    begin()
    again = stub.logged[logged:]
    assert again == stub.logged[:logged]
    assert "eval/accuracy" in again[-1]


def test_a_sweeps_config_has_the_schemes_settings(begin, stub, monkeypatch):
    monkeypatch.setenv("WANDB_SWEEP_ID", "sweep")
    ((begun,), _) = begin()
    assert begun["config"]["position"]["_target_"]
    assert stub.locked["position"] == begun["config"]["position"]


def test_the_screen_says_that_wandb_records(begin, capsys):
    begin()
    assert re.search("W&B records: .*offline-run-", capsys.readouterr().out)


def fail(*_, **__):
    raise RuntimeError("gone")


def hang(*_, **__):
    time.sleep(3600)


@pytest.mark.parametrize(
    ("call", "act", "said"),
    [("init", fail, "gone"), ("log", hang, "no answer within 0.2 s"), ("finish", fail, "gone")],
)
def test_wandb_that_fails_or_hangs_is_one_warning(begin, finished, caplog, call, act, said):
    _, metrics = begin(**{call: act})
    assert caplog.text.count(said) == 1
    assert metrics == metrics_of(finished)


@pytest.mark.slow
def test_the_runs_of_the_calling_program_stay_open(tmp_path, monkeypatch):
    """With W&B itself, offline."""
    wandb = pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    with wandb.init(mode="offline", project="theirs", dir=tmp_path) as theirs:
        run([*WANDB, f"out={tmp_path / 'runs'}"])
        assert wandb.run is theirs
        wandb.log({"x": 1})
    assert len(list((tmp_path / "runs" / "wandb").glob("offline-run-*-roper-s0-*"))) == 1


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
