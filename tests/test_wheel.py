"""Installed from a wheel the package is whole, does not touch `tasks` of others, and computes as its checkout does."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT, TINY, only_folder
from test_readme import block
from trained import load

from rope_lab import COMMAND
from rope_lab.train import provenance


def test_every_package_goes_into_the_wheel():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    there = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "rope_lab").rglob("__init__.py")}
    assert {name for name in listed["packages"] if ".bundle." not in name} == there
    assert set(listed["package-dir"]) == {name for name in listed["packages"] if ".bundle." in name}
    other = {path.name for path in (ROOT / "rope_lab" / "report").iterdir() if path.is_file() and path.suffix != ".py"}
    assert {path.name for path in (ROOT / "rope_lab" / "report").glob("page.*")} >= other


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy without a build folder or a network."""
    source = tmp_path_factory.mktemp("source")
    for name in ("rope_lab", "tasks", "conf", "results"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("runs", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    quiet = ["--quiet", "--no-build-isolation", "--no-deps", "--no-index"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *quiet, "-w", source / "dist", source], check=True)
    (built,) = (source / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The programs of a clean environment with the wheel in it, and our libraries from where they are."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    site = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    (Path(site) / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    quiet = ["--quiet", "--no-deps", "--no-index"]
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", *quiet, wheel], check=True)
    return folder / "bin"


def call(folder: Path, *words: str | Path) -> subprocess.CompletedProcess:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"COLUMNS": "80"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.torture
def test_a_wheel_has_one_top_level_name(wheel):
    names = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"rope_lab"}


@pytest.mark.torture
def test_every_command_works_where_it_is_installed(installed, tmp_path):
    """In a folder with a package `tasks` of the user's; what comes out lies below that folder."""
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "__init__.py").write_text("raise SystemExit('of others')")
    (tmp_path / "mine.py").write_text(block("Your own scheme", "python"))
    program = installed / "rope-lab"
    shown = call(tmp_path, program).stdout
    assert {line.split()[1] for line in shown.splitlines()} >= {
        "train",
        "results",
        "report",
        "sample",
        "probe",
        "check",
    }
    call(tmp_path, program, "train", "position=mine.py", "seed=1", *TINY)
    call(tmp_path, program, "train", "-m", "hydra/launcher=joblib", "position=mine.py,rope", *TINY)
    call(tmp_path, installed / "python", "-m", "rope_lab.train", "-m", "position=mine.py,rope", *TINY)
    runs = tmp_path / "results" / "runs"
    contents = [json.loads(path.read_text()) for path in runs.glob("*/run.json")]
    assert sorted(content["position"] for content in contents) == ["mine", "mine", "rope"]
    assert {content["provenance"]["git"]["commit"] for content in contents} == {None}
    codes = {content["provenance"]["code"] for content in contents if content["position"] == "rope"}
    assert codes == {provenance.code_digest(load("position=rope"))}  # paired with runs of the checkout
    (rope,) = runs.glob("*-rope-*")
    call(tmp_path, program, "results")
    assert "| mine" in (runs / "README.md").read_text()
    call(tmp_path, program, "report")
    assert (runs / "report.html").exists()
    assert "of 8 right" in call(tmp_path, program, "sample", rope).stdout
    call(tmp_path, program, "probe", rope, "shift=1")
    small = ["train.batch_size=2", "train.seq_len=64", "eval.problems=8"]
    assert "all checks passed" in call(tmp_path, program, "check", "position=mine.py", *small).stdout
    assert "evaluation problems" in call(tmp_path, program, "tasks.substring_by_index").stdout
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"tasks", "mine.py", "results"}


@pytest.mark.torture
def test_a_program_keeps_its_own_tasks_beside_our_schemes(installed, tmp_path):
    (tmp_path / "tasks.py").write_text("mine = 1")
    code = "import rope_lab.model.positions, rope_lab.results; rope_lab.results.load; import tasks; print(tasks.mine)"
    (tmp_path / "program.py").write_text(code)
    assert call(tmp_path, installed / "python", "program.py").stdout == "1\n"
    (tmp_path / "program.py").write_text("import rope_lab, tasks.base; print(tasks.base.Problem.__name__)")
    worker = ["env", f"{COMMAND}=yes", installed / "python", "program.py"]
    assert call(tmp_path, *worker).stdout == "Problem\n"
    (tmp_path / "tasks.py").unlink()
    (tmp_path / "program.py").write_text("from rope_lab import config; print(config.load('seed=3').seed)")
    assert call(tmp_path, installed / "python", "program.py").stdout == "3\n"


@pytest.mark.torture
def test_a_run_of_an_installation_is_read_by_the_checkout(installed, tmp_path):
    call(tmp_path, installed / "rope-lab", "train", *TINY)
    folder = only_folder(tmp_path / "results" / "runs")
    done = subprocess.run(
        [sys.executable, "-m", "rope_lab.sample", str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    assert "of 8 right" in done.stdout
    assert done.stderr == ""
