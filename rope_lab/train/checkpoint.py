"""Checkpoints: files in a run's folder, each named by its step and the digest of its content.

A run resumes from them in `loop.begin_or_resume`, unless `run_folder.newest_checkpoint` refuses.
"""

import io
import logging
from pathlib import Path
from typing import Any

import torch

from rope_lab import files
from rope_lab.files import digest
from rope_lab.text import ConfigError

log = logging.getLogger(__name__)

# The step, a digest of the content.
CHECKPOINT = "checkpoint-" + 8 * "[0-9]" + "-" + 16 * "[0-9a-f]" + ".pt"
KEPT = 2  # the one before the newest serves if that is damaged
OVER = "fresh=true starts over"


def save(folder: Path, step: int, state: dict[str, Any]) -> None:
    """Write the checkpoint of `step`, then remove all but the newest `KEPT`. Raises OSError; the
    others then stay.

    Other checkpoints of this and later steps are removed too: they are damaged, or the run would
    have resumed from them.
    """
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getbuffer()
    begin = f"checkpoint-{step:08d}-"
    path = folder / f"{begin}{digest(content)}.pt"
    files.write_whole(path, content)
    paths = checkpoints(folder)
    earlier = [other for other in paths if other.name < begin]
    for other in {*paths} - {path, *earlier[: KEPT - 1]}:
        other.unlink()


def load(folder: Path) -> dict[str, Any] | None:
    """The newest undamaged checkpoint, on the CPU; None without any. Warns of newer, damaged ones.

    It is read without running code from it. Raises OSError, and ConfigError if all are damaged.
    """
    paths = checkpoints(folder)
    for path in paths:
        content = path.read_bytes()
        if path.stem.endswith(digest(content)):
            return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        log.warning(
            "%s is damaged and passed over: its content does not match the digest in its name", path
        )
    if paths:
        raise ConfigError(f"{folder}: all of its {len(paths)} checkpoints are damaged; {OVER}")
    return None


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoint files of a run, newest first; links are ignored."""
    return sorted(
        (p for p in folder.glob(CHECKPOINT) if p.is_file() and not p.is_symlink()), reverse=True
    )
