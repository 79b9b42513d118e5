"""W&B beside a run's folder: it gets a copy of what the files hold, and nothing that goes wrong there reaches a run."""

import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from rope_lab.text import first_line
from rope_lab.train import config

log = logging.getLogger(__name__)

PATIENCE = 60  # seconds that anything asked of W&B may take before training continues without it

# Charts come in alphabetical order, in the terminal viewer too: what is looked at less goes into a section behind
# eval/ and train/. The web page hides the last three, which it offers as x axes all the same.
SECTION = "various/"
SECONDARY = ("eval/score", "eval/token_accuracy", "train/grad_norm", "train/lr", "seconds", "sequences", "tokens")


class Wandb:
    """The W&B run beside a run folder. Not imported where it is disabled; whatever fails there is a warning.

    `folder` holds the files of this W&B run and of all others beside it.
    """

    def __init__(self, settings: config.Wandb, folder: Path, content: dict[str, Any]):
        self.run = None
        self.folder = folder.parent / "wandb"
        if settings.mode == "disabled":
            return
        try:
            self.run = _within(PATIENCE, lambda: _init_wandb(settings, settings.mode, folder, content))
        except Exception as error:
            log.warning("W&B could not start: %s", first_line(error))
        if self.run is None and settings.mode == "online":
            self._start_offline(settings, folder, content)

    def _start_offline(self, settings: config.Wandb, folder: Path, content: dict[str, Any]) -> None:
        try:
            # what is left of the attempt still holds the run's id
            _within(PATIENCE, lambda: sys.modules["wandb"].teardown(exit_code=1))
            self.run = _within(PATIENCE, lambda: _init_wandb(settings, "offline", folder, content))
        except Exception as error:
            log.warning("W&B cannot record offline either: %s", first_line(error))
        else:
            log.warning("W&B records offline instead; upload it later with: wandb sync %s/offline-run-*", self.folder)

    def log(self, row: dict[str, Any]) -> None:
        charts = {chart(name): value for name, value in row.items() if name != "step"}
        self._try(lambda: self.run.log(charts, step=row["step"]))

    def finish(self, content: dict[str, Any]) -> None:
        """Adds summary and tables to the W&B run and closes it with the run's status."""
        self._try(lambda: self._tables(content))
        found = content["metrics"] | content["progress"] | {"status": content["status"]}
        self._try(lambda: self.run.summary.update(found))
        self._try(lambda: self.run.finish(exit_code=0 if content["status"] == "finished" else 1))

    def _tables(self, content: dict[str, Any]) -> None:
        import wandb

        tables = {}
        if content.get("samples"):
            rows = content["samples"]
            tables["samples"] = wandb.Table(columns=list(rows[0]), data=[list(row.values()) for row in rows])
        for name, values in content.get("slices", {}).items():
            rows = [[int(value), *pair] for value, pair in values.items()]
            mean = "loss" if name in ("answer_position", "length_loss") else "accuracy"
            tables[f"slices/{name}"] = wandb.Table(columns=[name, "count", mean], data=rows)
        for name, table in tables.items():
            # bound to the run, or W&B puts a copy of each into the user's home, and says so
            table.bind_to_run(self.run, name, "summary")
        self.run.summary.update(tables)  # logged at a step, their sizes would become charts

    def _try(self, action: Callable[[], None]) -> None:
        if self.run is None:
            return
        try:
            _within(PATIENCE, action)
        except Exception as error:
            self.run = None
            log.warning("W&B failed and is left out; metrics.jsonl is still written: %s", first_line(error))


def chart(name: str) -> str:
    """What a metric of a record is called in W&B's charts; its summary has all of them by their own names."""
    return SECTION + name.replace("/", "_") if name in SECONDARY else name


def _init_wandb(settings: config.Wandb, mode: str, folder: Path, content: dict[str, Any]):
    """The W&B run, grouped so that the seeds of one scheme can be averaged and the schemes of one task overlaid.

    A run has one id for ever, which begins with what a list of runs in a terminal shows: scheme and seed. What W&B
    holds of it from before is replaced, since all its rows are logged again.
    """
    for old in (folder.parent / "wandb").glob(f"offline-run-*-{content['run_id']}"):
        shutil.rmtree(old)
    os.environ.setdefault("WANDB_SILENT", "true")
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # its telemetry asks for an address, offline too
    import wandb

    # nothing of the machine, its user or the checkout: run.json has what repeats the run
    private = {"disable_git": True, "disable_code": True, "host": "", "x_disable_meta": True}
    private |= {"x_disable_machine_info": True, "x_disable_stats": True, "x_save_requirements": False}
    run = wandb.init(
        mode=mode,
        project=settings.project,
        entity=settings.entity,
        dir=folder.parent,
        id=f"{content['position'][:60]}-s{content['seed']}-{content['run_id']}",
        name=folder.name,
        group=f"{content['task']}-{content['position']}-{content['scheme_id']}-{content['recipe_id']}",
        job_type="train",
        tags=[content["task"], content["position"], content["scale"]],
        config=content["config"] | {"run_id": content["run_id"], "recipe_id": content["recipe_id"]},
        settings=wandb.Settings(init_timeout=8, console="off", **private),
        reinit="finish_previous",
    )
    run.define_metric(f"{SECTION}*", summary="none")
    for name in ("seconds", "sequences", "tokens"):
        run.define_metric(chart(name), summary="none", hidden=True)
    return run


def _within(seconds: float, action: Callable[[], Any]) -> Any:
    """What `action` returns. Raises TimeoutError where it takes longer: its thread is then left alone."""
    done: Future = Future()

    def work():
        try:
            done.set_result(action())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    try:
        return done.result(seconds)
    except TimeoutError:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
