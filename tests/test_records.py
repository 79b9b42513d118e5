"""Run records and folders: user files, damage, checkpoints and locks."""

import json
import os
import pickle
import shutil
import threading
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
from conftest import TINY, flip, only_folder, tree
from trained import assert_same_end, command, run, stopped_run

from rope_lab import files, sample
from rope_lab.results.records.folders import read
from rope_lab.text import ConfigError
from rope_lab.train import checkpoint, run_folder
from rope_lab.train import loop as train
from rope_lab.train.stop import RunFailed

ELSEWHERE = "filelock/2\npid=1\nhost=elsewhere\nmode=lease\ntoken=00\nduration={}\n"


def again(folder: Path, *overrides: str) -> dict:
    return run([*TINY, f"out={folder.parent}", *overrides])


@pytest.fixture
def home(tmp_path) -> Path:
    """A user folder with a file that must not change."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "precious").write_text("mine")
    return tmp_path / "home"


@pytest.fixture
def stopped(tiny, tmp_path, monkeypatch) -> Path:
    """Folder of a run interrupted after step 4, with checkpoints of steps 3 and 4."""
    return stopped_run(tiny, tmp_path / "runs", monkeypatch)


# User files


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl", "weights.safetensors.tmp"])
def test_no_link_in_a_run_folder_is_written_through(folder, home, name):
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(home / "precious")
    if name == "run.json":
        (folder / "metrics.jsonl").unlink()
    with suppress(RunFailed, ConfigError):
        again(folder, "fresh=true")
    assert (home / "precious").read_text() == "mine"


def test_a_linked_run_folder_is_refused(folder, home, tmp_path):
    shutil.rmtree(folder)
    folder.symlink_to(home)
    before = tree(home)
    with pytest.raises(ConfigError, match="symbolic link"):
        again(folder)
    assert tree(home) == before
    (tmp_path / "scratch").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "scratch")
    assert run([*TINY, f"out={tmp_path / 'linked'}"])["status"] == "finished"
    assert only_folder(tmp_path / "scratch")


def test_starting_over_keeps_what_others_put_into_the_folder(folder):
    (folder / "plots").mkdir()
    theirs = {"notes.md", "checkpoint-best.pt", "mine.tmp", ".run.json.mine.tmp", "plots/mine.png"}
    for name in theirs:
        (folder / name).write_text("mine")
    killed = folder / ".run.json.0123456789abcdef.tmp"  # left by a killed write
    killed.write_text("half")
    again(folder, "fresh=true")
    assert {name for name, content in tree(folder).items() if content == b"mine"} == theirs
    assert not killed.exists()


# Damage


@pytest.mark.parametrize("damage", [b"{", None])
def test_a_damaged_record_of_a_finished_run_is_made_again(folder, finished, damage):
    path = folder / "run.json"
    path.unlink() if damage is None else path.write_bytes(damage)
    content = again(folder)
    assert content["status"] == "finished"
    assert len(content["provenance"]["earlier"]) == 1
    assert_same_end(finished, folder)


def test_a_changed_curve_is_refused(stopped):
    folder = stopped
    path, whole = folder / "metrics.jsonl", (folder / "metrics.jsonl").read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        ConfigError, match=r"metrics\.jsonl was changed or is gone: restore it, or fresh=true"
    ):
        again(folder)
    path.write_bytes(whole)
    assert again(folder)["status"] == "finished"


def test_a_record_of_another_format_is_one_line(folder, tmp_path):
    content = json.loads((folder / "run.json").read_text()) | {"format": 99}
    (folder / "run.json").write_text(json.dumps(content))
    before = tree(folder)
    done = command([*TINY, f"out={folder.parent}"], tmp_path)
    assert done.returncode == 2
    assert "run.json: has format 99, not 2" in done.stderr
    assert done.stderr.strip().count("\n") == 0
    assert tree(folder) == before


# Checkpoints


def test_after_a_damaged_checkpoint_the_one_before_resumes(stopped, finished, caplog):
    """Each of 40 flipped bits and truncations is detected; the run resumes from the previous
    checkpoint.
    """
    newest = checkpoint.checkpoints(stopped)[0]
    whole = newest.read_bytes()
    flipped = [
        whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        for at in range(0, len(whole), len(whole) // 30)
    ]
    for content in [*flipped, *(whole[: len(whole) * k // 10] for k in range(10))]:
        newest.write_bytes(content)
        caplog.clear()
        assert checkpoint.load(stopped)["step"] == 3
        assert f"{newest} is damaged and passed over" in caplog.text
    assert again(stopped)["status"] == "finished"
    assert_same_end(finished, stopped)
    assert len(checkpoint.checkpoints(stopped)) == checkpoint.KEPT


def test_without_a_whole_checkpoint_nothing_starts_from_zero_unless_asked(stopped):
    for path in checkpoint.checkpoints(stopped):
        path.write_bytes(path.read_bytes()[:-1])
    before = tree(stopped)
    with pytest.raises(
        ConfigError, match="all of its 2 checkpoints are damaged; fresh=true starts over"
    ):
        again(stopped)
    assert tree(stopped) == before
    for path in checkpoint.checkpoints(stopped):
        path.unlink()
    with pytest.raises(ConfigError, match="its checkpoints are gone: fresh=true starts over"):
        again(stopped)
    assert again(stopped, "fresh=true")["status"] == "finished"


@pytest.mark.parametrize(("key", "value"), [("run_id", "another"), ("task_version", 99)])
def test_a_checkpoint_of_another_run_is_one_line(stopped, key, value):
    checkpoint.save(stopped, 5, checkpoint.load(stopped) | {key: value})
    message = rf"\A.*its checkpoint has {key} {value}, not .*; fresh=true starts over.*\Z"
    with pytest.raises(ConfigError, match=message):
        again(stopped)


class Malicious:
    def __reduce__(self):
        return (os.system, ("touch executed",))


def test_a_checkpoint_cannot_run_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checkpoint.save(tmp_path, 3, {"step": 3, "evil": Malicious()})
    with pytest.raises(pickle.UnpicklingError):
        checkpoint.load(tmp_path)
    assert not (tmp_path / "executed").exists()


# One process at a time


def test_a_run_in_use_is_refused_until_its_end(folder):
    with (
        run_folder.RunFolder(folder),
        pytest.raises(ConfigError, match="in use: another process is training this run"),
    ):
        again(folder, "fresh=true")
    assert not (folder / ".lock").exists()
    with run_folder.RunFolder(folder):
        pass


def test_a_process_that_was_killed_is_followed_at_once(folder):
    """A lock with the id of a process that no longer exists."""
    with run_folder.RunFolder(folder) as held:
        lock = (folder / ".lock").read_text()
    assert held.lock.owner is None
    (folder / ".lock").write_text(lock.replace(f"pid={os.getpid()}", f"pid={2**22 - 7}"))
    with run_folder.RunFolder(folder):
        assert f"pid={os.getpid()}" in (folder / ".lock").read_text()


@pytest.mark.parametrize("alive", [True, False])
def test_a_lock_of_another_machine_counts_while_it_beats(folder, monkeypatch, alive):
    monkeypatch.setattr(files, "PATIENCE", 1.0)
    monkeypatch.setattr(files, "BEAT", 0.2)
    lock, over = folder / ".lock", threading.Event()
    lock.write_text(ELSEWHERE.format(1.0))

    def beat():
        while alive and not over.wait(0.1):
            os.utime(lock)

    beating = threading.Thread(target=beat)
    beating.start()
    with pytest.raises(ConfigError, match="in use") if alive else nullcontext():
        run_folder.RunFolder(folder).lock.release()
    over.set()
    beating.join()


def test_a_run_taken_over_ends_and_writes_no_more(tiny, tmp_path, monkeypatch):
    """E.g. after a machine slept for longer than the lock timeout."""
    lost = {}

    def taken_over(trainer, step, update=train.update):
        if step == 4:
            folder = only_folder(tmp_path / "runs")
            (folder / ".lock").write_text(ELSEWHERE.format(60.0))
            lost.update(tree(folder))
        return update(trainer, step)

    monkeypatch.setattr(train, "update", taken_over)
    with pytest.raises(RunFailed, match="another process trains this run"):
        run(tiny)
    after = tree(only_folder(tmp_path / "runs"))
    assert {name: content for name, content in after.items() if lost[name] != content}.keys() <= {
        "metrics.jsonl"
    }


def test_a_run_taken_over_leaves_the_records_of_the_other(folder):
    """Its own records were set aside by `fresh=true`, and it has no checkpoint."""
    lost = run_folder.RunFolder(folder)
    lost.set_aside()
    (folder / ".lock").write_text(ELSEWHERE.format(60.0))
    (folder / "run.json").write_text("of the other")
    with pytest.raises(RunFailed, match="another process trains this run"), lost:
        lost.log({"step": 1})
    assert (folder / "run.json").read_text() == "of the other"
    assert (folder / run_folder.ASIDE).is_dir()
    assert not (folder / "metrics.jsonl").exists()


@pytest.mark.parametrize("name", ["metrics.jsonl", "weights.safetensors"])
def test_readers_name_a_damaged_file_of_a_finished_run(folder, tmp_path, name):
    flip(folder / name)
    with pytest.raises(ConfigError, match=rf"{name}: was changed or damaged .*fresh=true"):
        again(folder)
    with pytest.raises(SystemExit, match=f"{name}: was changed or damaged"):
        sample.main([str(folder)])
    _, problems = read(folder.parent)
    assert name in problems[0]
    assert again(folder, "fresh=true")["status"] == "finished"


def test_a_run_from_before_there_were_digests_is_read(folder, capsys):
    content = run_folder.read(folder)
    del content["digests"]
    (folder / "run.json").write_bytes(files.as_json(files.sealed(content)))
    assert again(folder)["status"] == "finished"
    sample.main([str(folder)])
    assert "of 8 right" in capsys.readouterr().out
    assert read(folder.parent)[1] == []
