"""The Makefile in folders with unusual names; a stub replaces Python."""

import shutil
import subprocess

import pytest
from conftest import ROOT

STUB = """#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; exit; fi
[ "$1" = -c ] && exit
pwd >> calls; for word; do echo "$word" >> calls; done
[ "$2 $3" != "rope_lab table" ]
"""
NAMES = ["My Projects", """it's "R&D"; $HOME (1)"""]


@pytest.fixture(params=NAMES)
def checkout(tmp_path, request):
    folder = tmp_path / request.param / "rope_lab"
    (folder / "rope_lab").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "rope_lab/__init__.py"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "stub").write_text(STUB)
    (folder / "stub").chmod(0o755)
    return folder


def make(*words: str, cwd) -> subprocess.CompletedProcess:
    return subprocess.run(["make", *words], cwd=cwd, capture_output=True, text=True)


def test_make_trains_and_cleans_in_a_folder_of_any_name(checkout, tmp_path):
    for name in ("My", "it", "a", "thesis"):
        (tmp_path / name).mkdir()
    before = set(tmp_path.iterdir())
    settings = ["seed=1", "task.path=it's my $text\\;.txt", "ARGS=-m 'a=1, 2'"]
    done = make(
        "-C",
        str(checkout),
        f"PYTHON={checkout / 'stub'}".replace("$", "$$"),
        "train",
        *settings,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    *_, pip, call = (checkout / "calls").read_text().split(f"{checkout}\n")
    assert pip.startswith("-m\npip\ninstall\n")
    first, *typed = call.split("\n-m\na=1, 2\n")
    assert first == "-m\nrope_lab.train"
    assert sorted("".join(typed).splitlines()) == ["seed=1", "task.path=it's my $text\\;.txt"]

    assert make("clean", cwd=checkout).returncode == 0
    assert not (checkout / ".venv").exists()
    assert (checkout / "pyproject.toml").exists()
    assert set(tmp_path.iterdir()) == before


def test_every_target_is_there_once():
    done = make("help", cwd=ROOT)
    assert done.stderr == "", "make warns of recipes that override others"
    named = [line.split()[1] for line in done.stdout.splitlines()]
    assert len(named) == len(set(named)) > 10
