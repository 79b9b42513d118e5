"""Checkpoints and the files beside them: whole or passed over, never half."""

import json
import multiprocessing
import os
import re
from pathlib import Path
from random import Random

import pytest
import torch

from rope_lab import files
from rope_lab.text import ConfigError
from rope_lab.train import checkpoint


def state(step: int) -> dict:
    return {"step": step, "weights": torch.full((100,), float(step)), "losses": [0.5, 0.25]}


@pytest.fixture
def folder(tmp_path):
    for step in (10, 20, 30):
        checkpoint.save(tmp_path, step, state(step))
    return tmp_path


def steps_in(folder: Path) -> list[int]:
    """The steps of the checkpoints in a folder in which nothing else lies."""
    names = [re.fullmatch(r"checkpoint-(\d{8})-[0-9a-f]{16}\.pt", path.name) for path in folder.iterdir()]
    return sorted(int(name[1]) for name in names)


def test_the_newest_are_kept_and_nothing_lies_beside_them(folder):
    assert steps_in(folder) == [20, 30]
    loaded = checkpoint.load(folder)
    assert loaded["step"] == 30
    assert torch.equal(loaded["weights"], state(30)["weights"])


def test_no_checkpoint_is_none(tmp_path):
    assert checkpoint.load(tmp_path) is None


def test_every_flipped_bit_and_every_truncation_is_noticed(folder, caplog):
    """100 bits anywhere in the file, 20 lengths: each time a warning, and the checkpoint before it."""
    newest = checkpoint.checkpoints(folder)[0]
    whole, random = newest.read_bytes(), Random(0)
    damaged = [whole[:length] for length in (0, *random.sample(range(len(whole)), 18), len(whole) - 1)]
    for bit in random.sample(range(8 * len(whole)), 100):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(flipped))
    assert len(damaged) == 120
    for content in damaged:
        newest.write_bytes(content)
        caplog.clear()
        assert checkpoint.load(folder)["step"] == 20
        assert f"{newest} is damaged and passed over" in caplog.text


def test_where_none_is_whole_nobody_begins_from_zero_in_silence(folder):
    for path in checkpoint.checkpoints(folder):
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ConfigError, match="none of its 2 checkpoints is whole"):
        checkpoint.load(folder)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failing_write_leaves_the_last_checkpoint_and_no_trace(folder, monkeypatch, call):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(folder, 40, state(40))
    assert steps_in(folder) == [20, 30]
    assert checkpoint.load(folder)["step"] == 30


def test_what_is_in_place_is_whole_and_synced_before_it_is_seen(tmp_path, monkeypatch):
    """The order of a safe write: the file's own sync, the rename, the folder's sync."""
    done = []
    for call, real in (("fsync", os.fsync), ("replace", os.replace)):
        monkeypatch.setattr(
            os, call, lambda *a, call=call, real=real: done.append((call, contents_of(tmp_path))) or real(*a)
        )
    files.write_whole(tmp_path / "file", b"content")
    (beside,) = done[0][1]
    assert files.TEMPORARY.fullmatch(beside)
    there = {beside: b"content"}
    assert done == [("fsync", there), ("replace", there), ("fsync", {"file": b"content"})]


def contents_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_checkpoint_that_cannot_be_read_is_passed_over(folder, monkeypatch, caplog):
    newest, read = checkpoint.checkpoints(folder)[0], Path.read_bytes

    def bad_sector(path):
        if path == newest:
            raise OSError(5, "Input/output error")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", bad_sector)
    assert checkpoint.load(folder)["step"] == 20
    assert "is damaged and passed over: Input/output error" in caplog.text


def test_damaged_checkpoints_of_this_and_later_steps_make_room_for_a_new_one(folder):
    damaged = checkpoint.checkpoints(folder)
    for path in damaged:
        path.write_bytes(b"")
    checkpoint.save(folder, 20, state(20) | {"seconds": 1.0})
    assert not any(path.exists() for path in damaged)
    assert checkpoint.load(folder)["step"] == 20


class Malicious:
    def __reduce__(self):
        return (os.system, ("touch executed",))


def test_a_checkpoint_cannot_run_code(tmp_path, monkeypatch):
    """Neither one that somebody put there nor one whose name says that its content is whole."""
    monkeypatch.chdir(tmp_path)
    checkpoint.save(tmp_path, 1, state(1))
    torch.save({"step": 2, "evil": Malicious()}, tmp_path / "checkpoint-00000002.pt")
    assert checkpoint.load(tmp_path)["step"] == 1
    checkpoint.save(tmp_path, 3, {"step": 3, "evil": Malicious()})
    with pytest.raises(ConfigError, match="more than tensors and plain Python"):
        checkpoint.load(tmp_path)
    assert not (tmp_path / "executed").exists()


def append(path: Path, process: int) -> None:
    for number in range(500):
        files.append_line(path, {"process": process, "number": number, "padding": "x" * (number % 97)})


def test_eight_processes_that_append_at_once_break_no_line(tmp_path):
    path = tmp_path / "lines.jsonl"
    with multiprocessing.get_context("fork").Pool(8) as pool:
        pool.starmap(append, [(path, process) for process in range(8)])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == 8 * 500
    for process in range(8):
        assert [line["number"] for line in lines if line["process"] == process] == list(range(500))


def test_no_line_is_appended_through_a_link(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "lines.jsonl").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic link"):
        files.append_line(tmp_path / "lines.jsonl", {"step": 1})
    assert (tmp_path / "precious").read_text() == "mine"
