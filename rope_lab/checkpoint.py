"""What a run needs to go on exactly where it was, written so that a crash at any moment leaves the last one whole."""

import logging
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

log = logging.getLogger(__name__)

KEPT = 2  # checkpoints: should the newest be damaged, there is one before it


def save(folder: Path, step: int, state: dict[str, Any]) -> None:
    """Writes the checkpoint of `step` beside the others, then removes all but the newest `KEPT`."""
    path = folder / f"checkpoint-{step:08d}.pt"
    for later in checkpoints(folder):
        if later > path:  # damaged, or it would have been resumed
            later.unlink()
    beside = path.with_suffix(".tmp")
    try:
        with open(beside, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    _sync(folder)
    for old in checkpoints(folder)[KEPT:]:
        old.unlink()


def load(folder: Path, device: torch.device | str = "cpu") -> dict[str, Any] | None:
    """The newest checkpoint that is whole, or None where there is none; warns of each damaged one passed over."""
    for path in checkpoints(folder):
        try:
            _check(path)
            return torch.load(path, map_location=device, weights_only=True)
        except pickle.UnpicklingError:  # whole, but not ours: it asks for more than tensors and plain Python
            raise
        except Exception as error:  # zip, zlib and torch have many ways to say it
            log.warning("%s is damaged (%s: %s) and passed over", path, type(error).__name__, error)
    return None


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run, newest first."""
    return sorted(folder.glob("checkpoint-*.pt"), reverse=True)


def _check(path: Path) -> None:
    """Raises where an archive is not whole. torch does not look: it loads most files with a flipped bit in silence."""
    with zipfile.ZipFile(path) as archive:
        bad = archive.testzip()
    if bad:
        raise zipfile.BadZipFile(f"wrong checksum of {bad}")


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
