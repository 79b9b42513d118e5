"""Failures of a run that are said in one line."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rope_lab.train.config import Config

OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED", "size calculation")


class RunFailed(Exception):
    """A run cannot continue; the message, one line, says what is wrong and what to do."""


@contextmanager
def in_one_line(cfg: Config) -> Iterator[None]:
    """Raises RunFailed if memory runs out within it, or if code that it calls exits as if all were done."""
    try:
        yield
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
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
        frame = [each for each in traceback.extract_tb(end.__traceback__) if each.filename[0] != "<"][-1]
        where = f"{Path(frame.filename).name}, line {frame.lineno}"
        raise RunFailed(f"{where}: exits Python with status 0 during the run; raise an error instead") from None
