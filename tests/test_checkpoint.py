"""Checkpoints: whole or passed over, never half."""

import os

import pytest
import torch

from rope_lab import checkpoint


def state(step: int) -> dict:
    return {"step": step, "weights": torch.full((100,), float(step)), "losses": [0.5, 0.25]}


@pytest.fixture
def folder(tmp_path):
    for step in (10, 20, 30):
        checkpoint.save(tmp_path, step, state(step))
    return tmp_path


def test_the_newest_are_kept_and_nothing_lies_beside_them(folder):
    assert sorted(p.name for p in folder.iterdir()) == ["checkpoint-00000020.pt", "checkpoint-00000030.pt"]
    loaded = checkpoint.load(folder)
    assert loaded["step"] == 30
    assert torch.equal(loaded["weights"], state(30)["weights"])


def test_no_checkpoint_is_none(tmp_path):
    assert checkpoint.load(tmp_path) is None


def test_a_damaged_checkpoint_is_passed_over_with_a_warning(folder, caplog):
    newest = checkpoint.checkpoints(folder)[0]
    whole = newest.read_bytes()
    place = whole.index(state(30)["weights"].numpy().tobytes()[:64]) + 13
    flipped = bytearray(whole)
    flipped[place] ^= 1
    for damaged in (bytes(flipped), whole[: len(whole) // 2], b"", b"PK\x03\x04 not an archive"):
        newest.write_bytes(damaged)
        caplog.clear()
        assert checkpoint.load(folder)["step"] == 20
        assert "checkpoint-00000030.pt is damaged" in caplog.text


def test_a_failing_write_leaves_the_last_checkpoint_and_no_trace(folder, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(folder, 40, state(40))
    assert sorted(p.name for p in folder.iterdir()) == ["checkpoint-00000020.pt", "checkpoint-00000030.pt"]
    assert checkpoint.load(folder)["step"] == 30


class Malicious:
    def __reduce__(self):
        return (os.system, ("touch executed",))


def test_a_checkpoint_cannot_run_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"step": 1, "evil": Malicious()}, tmp_path / "checkpoint-00000001.pt")
    with pytest.raises(Exception, match=r"[Ww]eights.only"):
        checkpoint.load(tmp_path)
    assert not (tmp_path / "executed").exists()
