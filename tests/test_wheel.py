"""Installation from a wheel: complete, independent of a user's `tasks` package, compatible with the
checkout.
"""

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
from conftest import ROOT, TINY
from programs import call as call_program
from programs import check_program, write_program
from sources import block

import rope_lab

INSTALL = ["--quiet", "--no-deps", "--no-index"]
# Calls commands in turn, as `rope-lab` does, but imports torch once. Its argument: their words.
IN_TURN = """
import json, sys
from rope_lab import __main__, command
command.begin()
sys.path.append("")
for words in json.loads(sys.argv[1]):
    try:
        __main__.run(words)
    except SystemExit as ending:
        assert not ending.code, (words, ending.code)
"""


def test_every_package_goes_into_the_wheel():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    there = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "rope_lab").rglob("__init__.py")
    }
    assert {name for name in listed["packages"] if ".bundle." not in name} == there
    bundled = {name for name in listed["packages"] if ".bundle." in name}
    assert set(listed["package-dir"]) == bundled | {"rope_lab.tasks"}
    for package in there:
        folder = ROOT / package.replace(".", "/")
        data = {
            path
            for pattern in listed["package-data"].get(package, [])
            for path in folder.glob(pattern)
        }
        assert {
            path for path in folder.iterdir() if path.is_file() and path.suffix != ".py"
        } <= data


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """A wheel built offline from a copy without a build folder."""
    source = tmp_path_factory.mktemp("source")
    for name in ("rope_lab", "tasks", "conf", "results"):
        shutil.copytree(
            ROOT / name, source / name, ignore=shutil.ignore_patterns("runs", "__pycache__")
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-build-isolation",
        *INSTALL,
        "-w",
        source / "dist",
        source,
    ]
    subprocess.run(build, check=True)
    (built,) = (source / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The bin folder of a clean environment with the wheel; our libraries are on its path."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    site = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    (Path(site) / "libraries.pth").write_text(
        "\n".join(path for path in sys.path if path.endswith("-packages"))
    )
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", *INSTALL, wheel], check=True
    )
    return folder / "bin"


def call(folder: Path, *words: str | Path) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {
        "COLUMNS": "80"
    }
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_program_of_others_works_with_the_wheel(installed, tmp_path):
    """With a package `tasks` and a W&B run of its own, and no kept runs."""
    write_program(tmp_path)
    python = installed / "python"
    check_program(call_program(tmp_path, "-m", "theirs.train", python=python, path=""))
    fitting = ["fitting.py", *TINY[:-3], "wandb.mode=offline", "threads=2"]
    done = call_program(tmp_path, *fitting, python=python, path="")
    assert done.returncode == 0, done.stderr
    code = "import rope_lab; print(rope_lab.__version__); rope_lab.results.load_kept()"
    done = call_program(tmp_path, "-c", code, python=python, path="")
    assert done.stdout.strip() == rope_lab.__version__
    assert "ConfigError: load_kept: an installed rope_lab holds no kept runs" in done.stderr


@pytest.mark.slow
def test_every_command_works_where_it_is_installed(wheel, installed, tmp_path):
    """In a folder with a user's `tasks` package; all output stays below that folder."""
    names = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"rope_lab"}
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "__init__.py").write_text("raise SystemExit('of others')")
    (tmp_path / "mine.py").write_text(block("Your own scheme", "python"))
    program, runs = installed / "rope-lab", tmp_path / "results" / "runs"
    assert {"train", "check"} <= set(call(tmp_path, program).split())
    call(tmp_path, program, "train", "position=mine.py", "seed=1", *TINY)
    call(tmp_path, program, "train", "-m", "hydra/launcher=joblib", "position=mine.py,rope", *TINY)
    call(
        tmp_path,
        installed / "python",
        "-m",
        "rope_lab",
        "train",
        "-m",
        "position=mine.py,rope",
        *TINY,
    )
    contents = [json.loads(path.read_text()) for path in runs.glob("*/run.json")]
    assert sorted(content["position"] for content in contents) == ["mine", "mine", "rope"]
    assert {content["provenance"]["git"]["commit"] for content in contents} == {None}
    (rope,) = runs.glob("*-rope-*")
    small = ["train.batch_size=2", "train.seq_len=64", "eval.problems=8"]
    others = [
        ["results"],
        ["report"],
        ["sample", str(rope)],
        ["probe", str(rope), "shift=1"],
        ["check", "position=mine.py", *small],
        ["sample", "task=substring_by_index"],
    ]
    shown = call(tmp_path, installed / "python", "-P", "-c", IN_TURN, json.dumps(others))
    assert "| mine" in (runs / "README.md").read_text()
    assert (runs / "report.html").exists()
    assert "of 8 right" in shown
    assert "all checks passed" in shown
    assert "«" in shown
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {
        "tasks",
        "mine.py",
        "results",
    }
    # By the checkout.
    assert "of 8 right" in call(ROOT, sys.executable, "-m", "rope_lab", "sample", rope)
