"""A run's folder: run.json (what it is and how it stands), metrics.jsonl (its curves), and W&B beside them.

The files are the source of truth; W&B gets a copy, and nothing that goes wrong there reaches the training.
"""

import functools
import hashlib
import importlib.metadata
import json
import logging
import os
import platform
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from rope_lab import config
from rope_lab.checkpoint import checkpoints
from rope_lab.config import ROOT, ConfigError
from rope_lab.files import (
    append_line,
    as_json,
    digest,
    is_sealed,
    make_folder,
    read_file,
    read_sealed,
    remove_temporary,
    sealed,
    sync_folder,
    write_whole,
)

log = logging.getLogger(__name__)

PATIENCE = 60  # seconds that anything asked of W&B may take before training goes on without it
METRICS, WEIGHTS = "metrics.jsonl", "weights.safetensors"
OURS = ("run.json", METRICS, WEIGHTS, "probes.json", "probes.md", "probes.svg")  # in a run's folder, beside checkpoints
READERS = {"rope_lab/sample.py", "rope_lab/probe.py"}  # no run passes through them, nor through rope_lab/results/
PACKAGES = ("torch", "numpy", "hydra-core", "omegaconf", "wandb")  # whose versions a run records


class Run:
    """An open run folder, claimed by this process alone while it is open. The claim dies with its process."""

    def __init__(self, folder: Path):
        """Makes and claims `folder`. Raises ConfigError where it cannot be written or another process has it."""
        self.folder = folder
        self._lock = FileLock(folder / ".lock")
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            make_folder(folder)
            self._lock.acquire(blocking=False)
        except Timeout:
            raise ConfigError(f"{folder} is in use: another process is training this run") from None
        except OSError as error:
            raise ConfigError(f"out={folder.parent}: cannot be written ({error.strerror}); set out=FOLDER") from None
        self.content: dict[str, Any] = read(folder) or {}  # nobody else writes it from here on

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_) -> None:
        self._lock.release()

    def clear(self) -> None:
        """Forgets everything recorded so far, first of all that there was a run; files of others stay."""
        (self.folder / "run.json").unlink(missing_ok=True)
        sync_folder(self.folder)
        for path in [*checkpoints(self.folder), *(self.folder / name for name in OURS)]:
            path.unlink(missing_ok=True)
        self.content = {}

    def begin(self, rows: list[dict[str, Any]], wandb: config.Wandb, **content: Any) -> None:
        """Says that the run is running and what it is; `rows`, what it has logged so far, become its metrics.jsonl."""
        remove_temporary(self.folder)
        self.rows = list(rows)
        self._write_rows()
        self.content = {"status": "running"} | content | {"metrics": {}}
        for row in rows:
            self.content["metrics"] |= _metrics(row)
        self._write()
        self.wandb = Wandb(wandb, self.folder, self.content)
        for row in rows:
            self.wandb.log(row)

    def log(self, row: dict[str, Any]) -> None:
        """Adds a line to metrics.jsonl, in one write, and to W&B."""
        append_line(self.folder / METRICS, row)
        self.rows.append(row)
        self.content["metrics"] |= _metrics(row)
        self.wandb.log(row)

    def end(self, status: str, **content: Any) -> None:
        """Says how the run ended."""
        self.content |= {"status": status} | content
        self.content["provenance"]["end"] = now()
        self._write_rows()  # synced before run.json says that all is there
        self.content["digests"] = digests_of(self.folder)
        self._write()
        self.wandb.finish(self.content)

    def _write_rows(self) -> None:
        lines = "".join(json.dumps(row, allow_nan=False) + "\n" for row in self.rows)
        write_whole(self.folder / METRICS, lines.encode())

    def _write(self) -> None:
        self.content = sealed(self.content)
        write_whole(self.folder / "run.json", as_json(self.content))


def read(folder: Path) -> dict[str, Any] | None:
    """What a run's run.json says; None where there is none, or it is not as this program has written it."""
    content = read_sealed(folder / "run.json") or {}
    parts = {"status": str, "config": dict, "progress": dict, "metrics": dict, "provenance": dict}
    if not all(isinstance(content.get(name), kind) for name, kind in parts.items()):
        return None
    within = {"code": str, "hardware": dict, "earlier": list}
    return content if all(isinstance(content["provenance"].get(name), kind) for name, kind in within.items()) else None


def digests_of(folder: Path) -> dict[str, str]:
    """The digest of each file that run.json answers for, of those that are there."""
    return {name: digest(read_file(folder / name)) for name in (METRICS, WEIGHTS) if (folder / name).exists()}


def is_whole(folder: Path, content: dict[str, Any]) -> bool:
    """Whether the files of a run that has ended, whose run.json says `content`, are what it says of them.

    Of a record made before there were digests: whether its curve is there up to its last step, if it has finished.
    """
    try:
        if is_sealed(content):
            return content.get("digests") == digests_of(folder)
        last = json.loads(read_file(folder / METRICS).splitlines()[-1])
        return content["status"] != "finished" or last["step"] == content["progress"]["steps"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return False


def _metrics(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if "/" in name}


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def provenance(hardware: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    """Where a run comes from: code, command, versions, and the `hardware` it ran on; `before`, that of its beginning.

    A resumed run has one of these for each time that it was begun: `earlier` holds all but the last.
    """
    earlier = [*before.get("earlier", []), {k: v for k, v in before.items() if k != "earlier"}] if before else []
    return {
        "code": code_hash(),
        "git": _git_state(),
        "command": shlex.join(["python", "-m", "rope_lab.train", *config.typed()]),
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        "platform": f"{platform.system()} {platform.machine()}",
        "hardware": hardware,
        "start": now(),
        "end": None,
        "earlier": earlier,
    }


@functools.cache
def code_hash() -> str:
    """A hash of the code that a run's numbers depend on: tasks/, and rope_lab/ but for what only reads runs.

    Taken when this module is imported, so that it is of the code that runs, whatever is edited since.
    """
    digest = hashlib.sha256()
    for path in sorted([*(ROOT / "rope_lab").glob("*.py"), *(ROOT / "tasks").rglob("*.py")]):
        name = path.relative_to(ROOT).as_posix()
        if name not in READERS:
            digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


code_hash()


def cpu_name() -> str:
    """The processor's name."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


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
            log.warning("W&B could not start: %s", _first_line(error))
        if self.run is None and settings.mode == "online":
            self._start_offline(settings, folder, content)

    def _start_offline(self, settings: config.Wandb, folder: Path, content: dict[str, Any]) -> None:
        try:
            # what is left of the attempt still holds the run's id
            _within(PATIENCE, lambda: sys.modules["wandb"].teardown(exit_code=1))
            self.run = _within(PATIENCE, lambda: _init_wandb(settings, "offline", folder, content))
        except Exception as error:
            log.warning("W&B cannot record offline either: %s", _first_line(error))
        else:
            log.warning("W&B records offline instead; upload it later with: wandb sync %s/offline-run-*", self.folder)

    def log(self, row: dict[str, Any]) -> None:
        self._try(lambda: self.run.log(row, step=row["step"]))

    def finish(self, content: dict[str, Any]) -> None:
        """Adds summary and tables to the W&B run and closes it with the run's status."""
        self._try(lambda: self._tables(content))
        self._try(lambda: self.run.summary.update(content["metrics"] | {"status": content["status"]}))
        self._try(lambda: self.run.finish(exit_code=0 if content["status"] == "finished" else 1))

    def _tables(self, content: dict[str, Any]) -> None:
        import wandb

        tables = {}
        if content.get("samples"):
            rows = content["samples"]
            tables["samples"] = wandb.Table(columns=list(rows[0]), data=[list(row.values()) for row in rows])
        for name, values in content.get("slices", {}).items():
            rows = [[int(value), *pair] for value, pair in values.items()]
            mean = "loss" if name in ("place", "length_loss") else "accuracy"
            tables[f"slices/{name}"] = wandb.Table(columns=[name, "count", mean], data=rows)
        step = content["progress"]["steps"]
        for (
            name,
            table,
        ) in tables.items():  # bound to the run, or W&B puts a copy of each into the user's home, and says so
            table.bind_to_run(self.run, name, step)
        if tables:
            self.run.log(tables, step=step)

    def _try(self, action: Callable[[], None]) -> None:
        if self.run is None:
            return
        try:
            _within(PATIENCE, action)
        except Exception as error:
            self.run = None
            log.warning("W&B failed and is left out from here on, metrics.jsonl goes on: %s", _first_line(error))


def _init_wandb(settings: config.Wandb, mode: str, folder: Path, content: dict[str, Any]):
    """The W&B run, grouped so that the seeds of one scheme can be averaged and the schemes of one task overlaid.

    A run has one id for ever: what W&B holds of it from before is replaced, since all its rows are logged again.
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
        id=content["run_id"],
        name=folder.name,
        group=f"{content['task']}-{content['position']}-{content['scheme_id']}-{content['recipe_id']}",
        job_type="train",
        tags=[content["task"], content["position"], content["scale"]],
        config=content["config"] | {"run_id": content["run_id"], "recipe_id": content["recipe_id"]},
        settings=wandb.Settings(init_timeout=8, console="off", **private),
        reinit="finish_previous",
    )
    run.define_metric("*", step_metric="step")
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


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _git_state() -> dict[str, Any]:
    """The commit of the checkout, and whether files differ from it; None is what git does not tell."""
    commit, changed = _git("rev-parse", "HEAD"), _git("status", "--porcelain")
    return {"commit": commit, "dirty": None if changed is None else bool(changed)}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(package: str) -> str | None:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None
