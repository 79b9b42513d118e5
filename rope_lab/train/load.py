"""A recorded run, read back: its configuration, task and model with its last weights."""

import logging
from pathlib import Path
from typing import Any

from rope_lab.model.transformer import Transformer
from rope_lab.places import newest_run
from rope_lab.text import ConfigError
from rope_lab.train import checkpoint, config, provenance
from rope_lab.train.run import CODER, read
from rope_lab.train.trainer import build_model
from tasks.base import Task

log = logging.getLogger(__name__)


def load_run(folder: Path, allowed_packages: list[str]) -> tuple[config.Config, Task, Transformer, dict[str, Any]]:
    """A run's configuration, task, model with its last weights, and run.json. Raises ConfigError.

    Its `progress` is that of these weights. Warns if the code has changed since. No code of other packages than
    rope_lab, tasks and `allowed_packages` runs, whatever the folder says.
    """
    content = read(folder)
    if content is None:
        near = newest_run(folder)
        hint = f"did you mean {near}?" if near else "`rope-lab train` makes one, in results/runs"
        raise ConfigError(f"{folder}: is not a run folder, it has no readable run.json; {hint}")
    cfg = config.from_record(content["config"], allowed_packages)
    kept = folder / CODER
    task = config.build_task(cfg, kept.read_bytes().decode() if kept.exists() else None)
    model = build_model(cfg, len(task.alphabet))
    saved = checkpoint.load(folder)
    if saved is None:
        raise ConfigError(f"{folder}: has no checkpoint yet")
    if other := provenance.differences(saved["provenance"], provenance.code(cfg)):
        log.warning("%s: was run by other code, %s, whose results may differ", folder, other)
    try:
        model.load_state_dict(saved["model"])
    except RuntimeError as error:
        raise ConfigError(f"{folder}: does not fit today's model: {str(error).splitlines()[-1].strip()}") from None
    return cfg, task, model, content | {"progress": {"steps": saved["step"]}}
