"""The files of a run's folder: their names, their lock, and an earlier run's, set aside.

With `fresh=true` a folder goes through these states, from each of which `settle` continues:

  records in .moving        they are being set aside; settle brings them back
  .aside, no checkpoint     the new run has nothing to resume from; settle brings them back
  .aside and a checkpoint   the new run counts; settle deletes the earlier one
"""

import logging
import os
import socket
from pathlib import Path

from filelock import SoftFileLease, Timeout

from rope_lab import files
from rope_lab.text import ConfigError
from rope_lab.train import checkpoint

log = logging.getLogger(__name__)

METRICS, WEIGHTS, CODER = "metrics.jsonl", "weights.safetensors", "coder.txt"
PROBES = ("probes.json", "probes.md", "probes.svg")
OURS = ("run.json", METRICS, WEIGHTS, CODER, *PROBES)  # in a run's folder, beside checkpoints
# Within a run's folder: the records of the run that `fresh=true` replaces, and the same while they
# are moved there or back.
ASIDE, MOVING = ".aside", ".moving"


def claim(folder: Path) -> SoftFileLease:
    """Make a run folder and lock it for this process. Raises ConfigError if it cannot be written,
    or is in use.
    """
    lock = files.lease(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        files.make_folder(folder)
        owner = lock.owner
        elsewhere = Path(lock.lock_file).exists() and (
            owner is None or owner.hostname != socket.gethostname()
        )
        if elsewhere:
            log.warning(
                "%s: another machine has this run, or died with it; wait %g s to see",
                folder,
                files.PATIENCE,
            )
        return lock.acquire(timeout=files.PATIENCE + files.BEAT if elsewhere else 0).lock
    except Timeout:
        raise ConfigError(f"{folder} is in use: another process is training this run") from None
    except OSError as error:
        raise ConfigError(
            f"out={folder.parent}: cannot be written ({error.strerror}); set out=FOLDER"
        ) from None


def set_aside(folder: Path) -> None:
    """Move all records in a run's folder to ASIDE; other files stay. Raises OSError."""
    paths = _records(folder)
    if not paths:
        return
    moving = folder / MOVING
    files.make_folder(moving)
    for path in paths:
        os.replace(path, moving / path.name)
    os.replace(moving, folder / ASIDE)


def settle(folder: Path) -> None:
    """Bring back what is in ASIDE, or delete it if the new run has a checkpoint. Raises OSError."""
    aside, moving = folder / ASIDE, folder / MOVING
    if checkpoint.checkpoints(folder):
        delete_aside(folder)
    if is_folder(aside):
        delete_records(folder)
        os.replace(aside, moving)
        log.warning("%s: the new run had no checkpoint; the earlier one is back", folder)
    if is_folder(moving):
        for path in _records(moving):
            os.replace(path, folder / path.name)
        moving.rmdir()


def _records(folder: Path) -> list[Path]:
    """The files in a folder that a run has written, run.json first."""
    named = [folder / name for name in OURS if os.path.lexists(folder / name)]
    return [*named[:1], *checkpoint.checkpoints(folder), *named[1:]]


def is_folder(folder: Path) -> bool:
    """Whether it is a folder and not a link to one, which only somebody else can have made."""
    return folder.is_dir() and not folder.is_symlink()


def delete_records(folder: Path) -> None:
    for path in _records(folder):
        path.unlink(missing_ok=True)


def delete_aside(folder: Path) -> None:
    aside = folder / ASIDE
    if is_folder(aside):
        delete_records(aside)
        aside.rmdir()
