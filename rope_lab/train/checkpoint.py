"""What a run needs to resume exactly where it was, written so that a crash at any moment leaves the last one whole.

A checkpoint's name carries its step and a digest of its content, `checkpoint-00000250-4f0c….pt`: a single wrong bit
anywhere is noticed before it is loaded, which neither torch nor its archive's own checksums would see to.
"""

import io
import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rope_lab.files import digest, write_whole
from rope_lab.text import ConfigError
from rope_lab.train.memory import is_out_of_memory

log = logging.getLogger(__name__)

NAME = "checkpoint-" + 8 * "[0-9]" + "-" + 16 * "[0-9a-f]" + ".pt"
OVER = "fresh=true starts over"
KEPT = 2  # checkpoints: should the newest be damaged, there is one before it


def save(
    folder: Path,
    step: int,
    state: dict[str, Any],
    write: Callable[[Path, memoryview], None] = write_whole,
    remove: Callable[[Path], None] = Path.unlink,
) -> None:
    """Writes the checkpoint of `step`, then removes all but the newest `KEPT`. Raises OSError; the others then stay.

    Checkpoints of this and later steps go too: they were damaged, or they would have been resumed.
    """
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getbuffer()
    begin = f"checkpoint-{step:08d}-"
    path = folder / f"{begin}{digest(content)}.pt"
    write(path, content)
    found = checkpoints(folder)
    earlier = [other for other in found if other.name < begin]
    for other in {*found} - {path, *earlier[: KEPT - 1]}:
        remove(other)


def load(folder: Path, device: torch.device | str = "cpu") -> dict[str, Any] | None:
    """The newest checkpoint that is whole, or None where there is none; warns of each damaged one passed over.

    Raises ConfigError where there are checkpoints and none is whole, where one must not be read, or where a whole one
    holds more than tensors and plain Python: nothing in a checkpoint ever runs.
    """
    found = checkpoints(folder)
    for path in found:
        try:
            content = path.read_bytes()
        except PermissionError as error:
            raise ConfigError(f"{path} cannot be read ({error.strerror}); give this user the right to") from None
        except (OSError, MemoryError) as error:
            reason = error.strerror if isinstance(error, OSError) else "larger than memory"
            log.warning("%s is damaged and passed over: %s", path, reason)
            continue
        if path.stem.rpartition("-")[2] != digest(content):
            log.warning("%s is damaged and passed over: its content is not what its name says", path)
            continue
        try:
            return torch.load(io.BytesIO(content), map_location=device, weights_only=True)
        except pickle.UnpicklingError:
            raise ConfigError(f"{path} holds more than tensors and plain Python, which is not loaded; {OVER}") from None
        except (RuntimeError, ValueError, EOFError, LookupError, OSError) as error:
            if is_out_of_memory(error):
                raise
            raise ConfigError(
                f"{path} is what its digest says, and no checkpoint ({type(error).__name__}); {OVER}"
            ) from None
    if found:
        raise ConfigError(f"{folder}: none of its {len(found)} checkpoints is whole; {OVER}")
    return None


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run, newest first; links and whatever else is no regular file are none."""
    return sorted((p for p in folder.glob(NAME) if p.is_file() and not p.is_symlink()), reverse=True)
