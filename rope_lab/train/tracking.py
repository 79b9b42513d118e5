"""The W&B run beside a run folder: a copy of the records; its failures are warnings."""

import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rope_lab.text import plain
from rope_lab.train.settings import Wandb

log = logging.getLogger(__name__)

PATIENCE = 60  # seconds that W&B may take for anything before training continues without it


class WandbRun:
    """The W&B run beside a run folder; without settings, or disabled, a no-op that does not import
    W&B.
    """

    def __init__(self, settings: Wandb | None, folder: Path, content: dict[str, Any]):
        self.run: Any = None
        mode = (
            settings.mode or os.environ.get("WANDB_MODE") or "offline" if settings else "disabled"
        )
        if mode != "disabled":
            with _as_guest():
                self.run = self._call(lambda: _begin(settings, mode, folder, content))

    def log(self, record: dict[str, Any]) -> None:
        if self.run is not None:
            self._call(lambda: self.run.log(record, step=record["step"]))

    def finish(self, content: dict[str, Any]) -> None:
        """Close the W&B run with the run's status."""

        def end() -> None:
            self.run.summary.update(
                content["metrics"] | content["progress"] | {"status": content["status"]}
            )
            self.run.finish(exit_code=0 if content["status"] == "finished" else 1)

        if self.run is not None:
            self._call(end)

    def _call(self, action: Callable[[], Any]) -> Any:
        """The result of `action`; after an error or PATIENCE None and a warning, and W&B is not
        used any more.
        """
        done: Future = Future()

        def work() -> None:
            try:
                done.set_result(action())
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        try:
            return done.result(PATIENCE)
        except Exception as error:
            self.run = None
            reason = (
                f"no answer within {PATIENCE} s"
                if isinstance(error, TimeoutError)
                else plain(str(error))
            )
            log.warning(
                "W&B failed and is left out; metrics.jsonl is written all the same: %s", reason
            )


@contextmanager
def _as_guest() -> Iterator[None]:
    """Within it W&B begins: without telemetry, which looks an address up even offline, and without
    replacing `sys.exit` and `sys.excepthook` of the calling program.
    """
    name, exit_before, hook_before = "WANDB_ERROR_REPORTING", sys.exit, sys.excepthook
    was_set = name in os.environ
    os.environ.setdefault(name, "false")
    try:
        yield
    finally:
        sys.exit, sys.excepthook = exit_before, hook_before
        if not was_set:
            del os.environ[name]


def _begin(settings: Wandb, mode: str, folder: Path, content: dict[str, Any]) -> Any:
    """Begin the W&B run; groups let W&B average the seeds of a scheme and overlay the schemes of a
    task.

    Earlier W&B files of the run are removed, since all its records are logged again.
    """
    task, position = content["task"], content["position"]
    home = Path(os.environ.get("WANDB_DIR") or folder.parent)
    for old in home.glob(f"wandb/offline-run-*-{content['run_id']}"):
        shutil.rmtree(old)
    import wandb

    private = {"disable_git": True, "disable_code": True, "host": "", "x_disable_meta": True}
    private |= {
        "x_disable_machine_info": True,
        "x_disable_stats": True,
        "x_save_requirements": False,
    }
    return wandb.init(
        mode=mode,
        project=settings.project or os.environ.get("WANDB_PROJECT") or "rope_lab",
        dir=home,
        id=f"{position[:60]}-s{content['seed']}-{content['run_id']}",  # begins with what lists in a terminal show
        name=folder.name,
        group=f"{task[:40]}-{position[:50]}-{content['scheme_id']}-{content['recipe_id']}",
        job_type="train",
        tags=[name[:64] for name in (task, position, content["scale"])],  # W&B takes no more
        config=content["config"] | {"run_id": content["run_id"], "recipe_id": content["recipe_id"]},
        settings=wandb.Settings(init_timeout=8, console="off", silent=True, **private),
        reinit="create_new",  # the program that called us may have a run of its own
    )
