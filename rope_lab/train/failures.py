"""Failures of a run that are said in one line."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rope_lab.train.config import Config

OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED", "size calculation")


def same_command(fresh: bool) -> str:
    """The command to repeat; not with `fresh=true`, which would delete what there is."""
    return "the same command" + " without fresh=true" * fresh


class RunFailed(Exception):
    """A run cannot continue; the message, one line, says what is wrong and what to do."""


@contextmanager
def in_one_line(cfg: Config, folder: Path) -> Iterator[None]:
    """Raises RunFailed if memory runs out within it, or files cannot be written or read."""
    try:
        yield
    except OSError as error:
        raise RunFailed(
            f"{folder} cannot be used any more ({error.strerror or error}): its last checkpoint stays good; "
            f"fix the cause and run {same_command(cfg.fresh)} again"
        ) from error
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(said in str(error) for said in OUT_OF_MEMORY):
            raise
        m, t, e = cfg.model, cfg.train, cfg.eval
        raise RunFailed(
            f"out of memory on {cfg.device}: lower train.batch_size={t.batch_size}, train.seq_len={t.seq_len}, "
            f"model.d_model={m.d_model} or model.n_layers={m.n_layers}"
            + (", or eval.lengths" if e.lengths else "")
            + f", or raise train.accumulate={t.accumulate}"
        ) from None
