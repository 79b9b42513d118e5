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


def test_every_flipped_bit_is_noticed(tmp_path):
    """Bits all over a small checkpoint: the one before it is loaded, or, where the bit matters not, the same."""
    for step in (1, 2):
        checkpoint.save(tmp_path, step, {"step": step, "weights": torch.full((3,), float(step))})
    newest = checkpoint.checkpoints(tmp_path)[0]
    whole = newest.read_bytes()
    noticed = 0
    for bit in range(0, 8 * len(whole), 7 * 13):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        newest.write_bytes(bytes(damaged))
        loaded = checkpoint.load(tmp_path)
        noticed += loaded["step"] == 1
        assert torch.equal(loaded["weights"], torch.full((3,), float(loaded["step"])))
    assert noticed > 10


def test_a_checkpoint_is_not_dropped_for_damaged_ones_of_later_steps(folder):
    for path in checkpoint.checkpoints(folder):
        path.write_bytes(b"")
    checkpoint.save(folder, 3, state(3))
    assert checkpoint.load(folder)["step"] == 3


class Malicious:
    def __reduce__(self):
        return (os.system, ("touch executed",))


def test_a_checkpoint_cannot_run_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"step": 1, "evil": Malicious()}, tmp_path / "checkpoint-00000001.pt")
    with pytest.raises(Exception, match=r"[Ww]eights.only"):
        checkpoint.load(tmp_path)
    assert not (tmp_path / "executed").exists()
