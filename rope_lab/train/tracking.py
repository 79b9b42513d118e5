"""The W&B run beside a run folder: a copy of the records. Its failures are warnings."""

import json
import logging
import os
import re
import shlex
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rope_lab import files
from rope_lab.text import plain, short_path
from rope_lab.train.settings import Wandb

log = logging.getLogger(__name__)

PATIENCE = 60  # seconds that W&B may take for anything before training continues without it
OFFLINE = "wandb.json"  # in a run folder: the names of its offline records
LONGEST_NAME = 128  # of a W&B run
# Variables that keep W&B quiet: its telemetry looks an address up, even offline.
QUIET = {"WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}


class WandbRun:
    """The W&B run beside a run folder. Without settings, or disabled, it does nothing and does not
    import W&B.
    """

    def __init__(self, settings: Wandb | None, folder: Path, content: dict[str, Any]):
        self.run: Any = None
        self.folder = folder
        mode = mode_of(settings) if settings else "disabled"
        if mode != "disabled":
            with _as_guest():
                self.run = self._call(lambda: _begin(settings, mode, folder, content))

    @property
    def place(self) -> str:
        """The address of the W&B run, or the folder of its offline record; empty without one."""
        if self.run is None:
            return ""
        return self.run.url or short_path(Path(self.run.sync_dir))

    def log(self, record: dict[str, Any]) -> None:
        """Add a metric record."""
        if self.run is not None:
            self._call(lambda: self.run.log(record, step=record["step"]))

    def finish(self, content: dict[str, Any]) -> None:
        """Close the W&B run with the run's status; its earlier offline records are then removed.

        content: of the run's run.json
        """

        def end() -> None:
            self.run.summary.update(_summary(content))
            self.run.finish(exit_code=0 if content["status"] == "finished" else 1)
            is_empty = content["status"] == "interrupted" and not content["checkpoint"]
            if content["status"] != "failed" and not is_empty:
                remove_offline(self.folder, Path(self.run.sync_dir))

        if self.run is not None:
            self._call(end)

    def _call(self, action: Callable[[], Any]) -> Any:
        """The result of `action`. After an error or PATIENCE it is None; a warning is logged, and
        W&B is not used any more.
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
        except TimeoutError:
            reason = f"no answer within {PATIENCE} s"
        except Exception as error:
            reason = plain(str(error))
        self.run = None
        message = "W&B failed and is left out; metrics.jsonl is written all the same: %s"
        log.warning(message, reason)
        return None


def mode_of(settings: Wandb) -> str:
    """W&B's mode: `offline`, `online`, `disabled`."""
    return settings.mode or os.environ.get("WANDB_MODE") or "offline"


def home_of(out: Path) -> Path:
    """The folder in which W&B keeps the offline records of the runs in `out`."""
    return Path(os.environ.get("WANDB_DIR") or out)


def log_again(settings: Wandb, folder: Path, content: dict[str, Any]) -> None:
    """Log the records of an ended run, if the agent of a W&B sweep asked for the run.

    content: of the run's run.json
    """
    if not os.environ.get("WANDB_SWEEP_ID"):
        return
    run = WandbRun(settings, folder, content)
    for line in (folder / "metrics.jsonl").read_bytes().splitlines():
        run.log(json.loads(line))
    run.finish(content)


@contextmanager
def _as_guest() -> Iterator[None]:
    """A context in which W&B begins: with QUIET in the environment, unless the calling program uses
    W&B itself. Environment, `sys.exit` and `sys.excepthook` are restored after it.
    """
    exit_before, hook_before = sys.exit, sys.excepthook
    added = [] if "wandb" in sys.modules else [name for name in QUIET if name not in os.environ]
    os.environ.update({name: QUIET[name] for name in added})
    try:
        yield
    finally:
        sys.exit, sys.excepthook = exit_before, hook_before
        for name in added:
            os.environ.pop(name, None)


def _begin(settings: Wandb, mode: str, folder: Path, content: dict[str, Any]) -> Any:
    """Begin a W&B run beside those of the calling program, and note its offline record."""
    import wandb

    private = wandb.Settings(
        init_timeout=8,
        console="off",
        silent=True,
        disable_git=True,
        disable_code=True,
        host="",
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )
    config = content["config"] | {name: content[name] for name in ("run_id", "recipe_id")}
    run = wandb.init(
        mode=mode,
        project=settings.project or os.environ.get("WANDB_PROJECT") or "rope_lab",
        dir=home_of(folder.parent),
        config=config,
        settings=private,
        reinit="create_new",
        **_names(content),
    )
    if os.environ.get("WANDB_SWEEP_ID"):
        # The sweep fixes config.position to the name of the scheme; elsewhere it has its settings.
        run.config.update_locked(config, _allow_val_change=True)
    _note_offline(folder, Path(run.sync_dir))
    return run


def _names(content: dict[str, Any]) -> dict[str, Any]:
    """The names of a W&B run; W&B's own variables precede ours.

    Groups let W&B average the seeds of a scheme.
    """
    task, position, seed = content["task"], content["position"], content["seed"]
    run_id, scheme_id, recipe_id = content["run_id"], content["scheme_id"], content["recipe_id"]
    words = _own_settings(content)
    name = " ".join([f"{task}-{position}-s{seed}", *words, run_id])
    while words and len(name) > LONGEST_NAME:  # the last ones are likelier those of a sweep
        del words[0]
        name = " ".join([f"{task}-{position}-s{seed}", *words, run_id])
    group = [task[:40], position[:50], scheme_id, recipe_id]
    group += content["provenance"].get("plugin", {}).values()  # each code has its own mean
    tags = os.environ.get("WANDB_TAGS")
    return {
        "id": f"{position[:60]}-s{seed}-{run_id}",
        "name": os.environ.get("WANDB_NAME") or name[:LONGEST_NAME],
        "group": os.environ.get("WANDB_RUN_GROUP") or "-".join(group),
        "job_type": os.environ.get("WANDB_JOB_TYPE") or "train",
        # W&B takes at most 64 characters.
        "tags": tags.split(",") if tags else [task[:64], position[:64], content["scale"][:64]],
    }


def _own_settings(content: dict[str, Any]) -> list[str]:
    """The settings with which a run was made, without its task, scheme, scale and seed."""
    words = shlex.split(content["provenance"]["command"])
    named = ("task", "position", "scale", "seed")
    return [word for word in words if "=" in word and word.partition("=")[0] not in named]


def _summary(content: dict[str, Any]) -> dict[str, Any]:
    """The values that W&B shows of a run in its table of runs."""
    provenance = content["provenance"]
    about = {"status": content["status"], "parameters": content["parameters"]}
    about["commit"] = provenance["git"]["commit"]
    about["version"] = provenance["versions"].get("rope_lab")
    return content["metrics"] | content["progress"] | about


def _offline(folder: Path) -> list[str]:
    """The offline records that a run folder names, as paths from the folder that holds it."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        noted = json.loads((folder / OFFLINE).read_bytes())
        if noted["run"] == folder.name:  # otherwise a copy
            return noted["offline"]
    return []


def _note_offline(folder: Path, record: Path) -> None:
    """Add an offline record to those that the run folder names."""
    if record.name.startswith("offline-run-"):
        path = os.path.relpath(record, folder.parent)
        _write_offline(folder, [*_offline(folder), path])


def _write_offline(folder: Path, offline: list[str]) -> None:
    noted = {"run": folder.name, "offline": offline}
    files.write_whole(folder / OFFLINE, files.as_json(noted))


def remove_offline(folder: Path, keep: Path | None = None) -> list[Path]:
    """Remove the offline records that a run folder names, except `keep`. Returns those removed.

    Links are not followed, and only folders that W&B has made for offline runs are removed.
    """
    removed, left = [], []
    for path in _offline(folder):
        record = (folder.parent / path).absolute()
        if keep is not None and record.name == keep.name:
            left.append(path)
        elif _is_offline_record(record):
            shutil.rmtree(record)
            removed.append(record)
    if left:
        _write_offline(folder, left)
    else:
        (folder / OFFLINE).unlink(missing_ok=True)
    return removed


def _is_offline_record(path: Path) -> bool:
    """Whether a path is a folder that W&B has made for an offline run."""
    named = re.fullmatch(r"offline-run-\d{8}_\d{6}-.+", path.name)
    linked = path.is_symlink() or path.parent.is_symlink()
    return bool(named) and not linked and any(path.glob("run-*.wandb"))
