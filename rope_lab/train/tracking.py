"""W&B beside a run's folder: it gets a copy of what the files hold, and a failure there is a warning."""

import logging
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rope_lab.threads import in_thread
from rope_lab.train import config

log = logging.getLogger(__name__)

PATIENCE = 60  # seconds that W&B may take for anything before training continues without it


class Wandb:
    """The W&B run beside a run folder; without settings, or disabled, a no-op that does not import W&B."""

    def __init__(self, settings: config.Wandb | None, folder: Path, content: dict[str, Any]):
        self.run: Any = None
        mode = settings.mode or mode_of_environment() if settings else "disabled"
        if mode != "disabled":
            self.run = self._call(partial(_begin, settings, mode, folder, content), "could not start")
        if mode == "online" and self.run is None:
            self.run = self._call(partial(_begin, settings, "offline", folder, content, again=True), "could not start")
            if self.run is not None:
                log.warning("W&B records offline instead; wandb sync %s/offline-run-* uploads it", files_beside(folder))

    def log(self, record: dict[str, Any]) -> None:
        if self.run is not None:
            self._call(lambda: self.run.log(record, step=record["step"]), "failed and is left out")

    def finish(self, content: dict[str, Any]) -> None:
        """Add summary and tables to the W&B run and close it with the run's status."""

        def end() -> None:
            self.run.summary.update(content["metrics"] | content["progress"] | {"status": content["status"]})
            self.run.summary.update(_tables(self.run, content))  # logged at a step, their sizes would become charts
            self.run.finish(exit_code=0 if content["status"] == "finished" else 1)

        if self.run is not None:
            self._call(end, "failed and is left out")

    def _call(self, action: Callable[[], Any], failure: str) -> Any:
        """The result of `action`; at an error or after PATIENCE None, with a warning, and W&B is left out."""
        try:
            return in_thread(action).result(PATIENCE)
        except Exception as error:
            self.run = None
            reason = (
                f"no answer within {PATIENCE} s" if isinstance(error, TimeoutError) else " ".join(str(error).split())
            )
            named = [
                name for name in os.environ if name.startswith("WANDB_") and f" {name[6:].lower()} " in f" {reason} "
            ]
            said = f"{', '.join(named)}: {reason}" if named else reason
            log.warning("W&B %s; metrics.jsonl is written all the same: %s", failure, said)


def mode_of_environment() -> str:
    """The mode that W&B's own variables ask for, offline without them."""
    if os.environ.get("WANDB_DISABLED", "").lower() in ("true", "t", "yes", "y", "on", "1"):
        return "disabled"
    return os.environ.get("WANDB_MODE") or "offline"


def files_beside(folder: Path) -> Path:
    """The folder of W&B's files: in WANDB_DIR, or beside the run folders."""
    return Path(os.environ.get("WANDB_DIR") or folder.parent) / "wandb"


def _tables(run: Any, content: dict[str, Any]) -> dict[str, Any]:
    import wandb

    tables = {}
    if samples := content.get("samples"):
        tables["samples"] = wandb.Table(columns=list(samples[0]), data=[list(each.values()) for each in samples])
    for name, values in content.get("slices", {}).items():
        mean = "loss" if name in ("answer_position", "length_loss") else "accuracy"
        data = [[int(value), *pair] for value, pair in values.items()]
        tables[f"slices/{name}"] = wandb.Table(columns=[name, "count", mean], data=data)
    for name, table in tables.items():
        table.bind_to_run(run, name, "summary")  # or W&B puts a copy of each into the user's home
    return tables


def _begin(settings: config.Wandb, mode: str, folder: Path, content: dict[str, Any], again: bool = False) -> Any:
    """The W&B run, grouped so that the seeds of one scheme can be averaged and the schemes of one task overlaid.

    What W&B's files hold of the run from before is replaced, since all its records are logged again.
    """
    task, position = content["task"], content["position"]
    for old in files_beside(folder).glob(f"offline-run-*-{content['run_id']}"):
        shutil.rmtree(old)
    os.environ.setdefault("WANDB_SILENT", "true")
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # its telemetry looks an address up, offline too
    import wandb

    if again:  # the attempt before still holds the run's id
        wandb.teardown(exit_code=1)
    # nothing of the machine, its user or the checkout: run.json has what repeats the run
    private = {"disable_git": True, "disable_code": True, "host": "", "x_disable_meta": True}
    private |= {"x_disable_machine_info": True, "x_disable_stats": True, "x_save_requirements": False}
    return wandb.init(
        mode=mode,
        project=settings.project or os.environ.get("WANDB_PROJECT") or "rope_lab",
        entity=settings.entity,
        dir=files_beside(folder).parent,
        id=f"{position[:60]}-s{content['seed']}-{content['run_id']}",  # begins with what lists in a terminal show
        name=folder.name,
        group=f"{task[:40]}-{position[:50]}-{content['scheme_id']}-{content['recipe_id']}",
        job_type="train",
        tags=[name[:64] for name in (task, position, content["scale"])],  # W&B takes no more
        config=content["config"] | {"run_id": content["run_id"], "recipe_id": content["recipe_id"]},
        settings=wandb.Settings(init_timeout=8, console="off", **private),
        reinit="finish_previous",
    )
