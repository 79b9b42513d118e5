"""Privacy: records reveal no paths, user, host name or secrets, and foreign records read no
environment variables.
"""

import json
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, TINY, only_folder
from trained import command, load, run, spawn

from rope_lab.train import config, run_folder

SCRATCH = "scratch-of-alice"
SECRET = "hunter2-of-alice"


@pytest.fixture(
    scope="module", params=["disabled", pytest.param("offline", marks=pytest.mark.slow)]
)
def private(request, tmp_path_factory) -> Path:
    """Runs folder after one run, with W&B disabled or offline, in an environment that must not leak
    into it.
    """
    folder = tmp_path_factory.mktemp("elsewhere")
    environment = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "remote.origin.url",
        "GIT_CONFIG_VALUE_0": f"https://alice:{SECRET}@example.org/x.git",
        "HOME": str(folder / "home-of-alice"),
        "SEED": "7",
        "SCRATCH": str(folder / SCRATCH),
        "SECRET": SECRET,
        "USER": "alice-a",
    }
    out = ["out=${oc.env:SCRATCH}/runs", f"wandb.mode={request.param}"]
    with pytest.MonkeyPatch.context() as patch:
        for key, value in environment.items():
            patch.setenv(key, value)
        call = spawn if request.param == "offline" else command
        done = call([*TINY, "eval.problems=9", *out, "seed=${oc.env:SEED}"], folder)
    assert (done.returncode, done.stderr) == (0, "")
    return folder / SCRATCH / "runs"


def test_records_name_no_machine_user_or_checkout(private):
    """Checks all files except W&B's own logs, which are never uploaded."""
    remote = subprocess.run(
        ["git", "remote", "-v"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    telling = [
        str(ROOT),
        str(Path.home()),
        str(private),
        SCRATCH,
        SECRET,
        "alice",
        sys.executable,
        *remote[1:2],
    ]
    telling += [platform.node()] if len(platform.node()) > 4 else []  # `vm` occurs in many files
    paths = [path for path in private.rglob("*") if path.is_file() and "logs" not in path.parts]
    assert {"run.json", "metrics.jsonl", "weights.safetensors"} < {path.name for path in paths}
    for path in paths:
        if not path.is_symlink():
            content = path.read_bytes()
            assert not [word for word in telling if word.encode() in content], path
    assert not list(private.rglob("requirements.txt"))


@pytest.mark.parametrize(
    "private", [pytest.param("offline", marks=pytest.mark.slow)], indirect=True
)
def test_wandb_records_offline_what_the_run_records(private):
    (file,) = private.glob("wandb/offline-run-*/run-*.wandb")
    assert file.name == f"run-roper-s7-{run_folder.read(only_folder(private))['run_id']}.wandb"
    inspect = [str(Path(sys.executable).parent / "wandb"), "leet", "inspect", str(file.parent)]
    inspected = subprocess.run([*inspect, "--summary"], capture_output=True, text=True)
    for line in (
        r"state +finished",
        r"eval/token_accuracy +\d",
        r"_step +6",
        r"model\.d_model +16",
    ):
        assert re.search(line, inspected.stdout)
    records = subprocess.run(
        [*inspect, "--json"], capture_output=True, text=True
    ).stdout.splitlines()
    rows = [
        record["history"]["item"]
        for record in map(json.loads, records)
        if record["type"] == "history"
    ]
    assert {"eval/accuracy", "eval/loss", "train/loss"} <= {name for row in rows for name in row}


def test_what_repeats_a_run_is_recorded(private):
    """Settings typed as ${…} are recorded as values; the command as typed, without output
    options.
    """
    folder = only_folder(private)
    content = run_folder.read(folder)
    assert content["seed"] == content["config"]["seed"] == 7
    assert content["config"].keys() == config.recorded(load()).keys()
    assert not content["config"].keys() & {"out", "wandb", "threads", "fresh"}
    typed = content["provenance"]["command"]
    assert "eval.problems=9 'seed=${oc.env:SEED}'" in typed
    assert not [key for key in ("out=", "wandb.", "hydra.") if key in typed]
    repeated = run([*TINY, "eval.problems=9", "seed=7", f"out={private.parent / 'again'}"])
    assert repeated["run_id"] == content["run_id"]
    assert repeated["metrics"] == content["metrics"]


def test_machine_values_in_records_are_neither_read_nor_resolved(monkeypatch):
    monkeypatch.setenv("SECRET", SECRET)
    record = config.recorded(load()) | {
        "threads": 4096,
        "out": "/theirs",
        "fresh": True,
        "allowed_packages": ["os"],
    }
    record |= {"wandb": {"mode": "online", "project": "theirs"}}
    record["task"] = record["task"] | {"letters": "${oc.env:SECRET}"}
    cfg = config.from_record(record)
    assert (cfg.threads, cfg.out, cfg.fresh, cfg.allowed_packages) == (None, None, False, [])
    assert (cfg.wandb.mode, cfg.wandb.project) == ("disabled", None)
    assert SECRET not in str(cfg)
