"""The commit that a run records, and what is said if our own code was edited since."""

import shutil
import subprocess
from dataclasses import replace

import pytest
from conftest import TINY
from trained import command, load, run, stopped_run

from rope_lab.train import provenance


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout without .git, inside of another repository."""
    theirs = tmp_path / "theirs"
    ours = theirs / "vendor"
    for folder in ("model", "train", "tasks"):
        (ours / folder).mkdir(parents=True)
    who = ["-c", "user.name=a", "-c", "user.email=a"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "theirs"]):
        subprocess.run(["git", *who, *words], cwd=theirs, check=True)
    monkeypatch.setattr(provenance, "ROOT", ours)
    provenance.git_state.cache_clear()
    yield ours
    provenance.git_state.cache_clear()


def commit_of(folder) -> str:
    return subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=folder, text=True).strip()


def test_a_checkout_within_another_repository_has_no_commit(checkout, caplog):
    state = provenance.git_state()
    assert (state["commit"], state["dirty"]) == (None, None)
    assert state["reason"] in caplog.text


def test_the_environment_does_not_name_our_repository(checkout, monkeypatch):
    who = ["-c", "user.name=a", "-c", "user.email=a"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "ours"]):
        subprocess.run(["git", *who, *words], cwd=checkout, check=True)
    monkeypatch.setenv("GIT_DIR", str(checkout.parent / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(checkout.parent))
    state = provenance.git_state()
    monkeypatch.delenv("GIT_DIR"), monkeypatch.delenv("GIT_WORK_TREE")
    assert state == {"commit": commit_of(checkout), "dirty": False}
    assert commit_of(checkout) != commit_of(checkout.parent)


def test_why_git_does_not_answer_is_said_without_paths(checkout, monkeypatch, caplog):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "true")
    reason = provenance.git_state()["reason"]
    assert "dubious ownership" in reason
    assert str(checkout.parent) not in reason
    assert "dubious ownership" in caplog.text


def edit_our_code(monkeypatch) -> None:
    monkeypatch.setattr(provenance, "source", lambda: "0123456789ab")


def test_a_run_returned_under_edited_code_says_so(tmp_path, caplog, monkeypatch):
    words = [*TINY, "out=runs"]
    command(words, tmp_path)
    assert "already finished" in command(words, tmp_path).stdout
    assert "other code" not in caplog.text
    edit_our_code(monkeypatch)
    assert "already finished" in command(words, tmp_path).stdout
    assert "it was run by other code, commit" in caplog.text
    assert "other code" in command(["-m", *words], tmp_path).stdout


def test_a_run_resumed_under_edited_code_says_so(tiny, tmp_path, caplog, monkeypatch):
    stopped_run(tiny, tmp_path / "runs", monkeypatch)
    edit_our_code(monkeypatch)
    content = run(tiny)
    assert content["status"] == "finished"
    assert "it resumes with other code than it began with" in caplog.text
    earlier, now = content["provenance"]["earlier"][0]["source"], content["provenance"]["source"]
    assert earlier != now == "0123456789ab"


def test_an_edit_of_a_scheme_of_ours_changes_the_digest(tmp_path, monkeypatch):
    copy = shutil.copytree(provenance.HERE / "model", tmp_path / "model")
    before = provenance.source()
    monkeypatch.setattr(provenance, "HERE", tmp_path)
    shutil.copytree(provenance.ROOT / "rope_lab" / "train", tmp_path / "train")
    try:
        provenance.source.cache_clear()
        assert provenance.source() == before
        with open(copy / "positions.py", "a") as file:
            file.write("# edited")
        provenance.source.cache_clear()
        assert provenance.source() != before
    finally:
        provenance.source.cache_clear()


def test_folders_are_not_in_the_command_of_a_run():
    words = ["init_from=/home/me/runs/RUN", "++init_from=/home/me/runs/RUN", "seed=1"]
    cfg = replace(load(), overrides=tuple(words))
    assert provenance.typed(cfg) == ["init_from=RUN", "++init_from=RUN", "seed=1"]
