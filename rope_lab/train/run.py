"""A run's folder: run.json, metrics.jsonl, checkpoints and final weights, written by one process at
a time.

run.json describes the run and its status, and once it has ended the digest of metrics.jsonl, a line
per metric record. A checkpoint says how much of metrics.jsonl belongs to it: the rest is cut off at
a resume.
"""

import json
import logging
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from filelock import SoftFileLease, Timeout

from rope_lab import files
from rope_lab.files import digest
from rope_lab.places import RESULTS
from rope_lab.text import ConfigError
from rope_lab.train import checkpoint, provenance
from rope_lab.train.checkpoint import OVER
from rope_lab.train.settings import Config, Wandb
from rope_lab.train.stop import RunFailed
from rope_lab.train.tracking import WandbRun

log = logging.getLogger(__name__)

METRICS, WEIGHTS, CODER = "metrics.jsonl", "weights.safetensors", "coder.txt"
PROBES = ("probes.json", "probes.md", "probes.svg")
OURS = ("run.json", METRICS, WEIGHTS, CODER, *PROBES)  # in a run's folder, beside checkpoints
FORMAT = 4  # of checkpoints
BEAT, PATIENCE = (
    10.0,
    60.0,
)  # seconds between two signs of life of a run; seconds without one until others take over


def out_folder(cfg: Config) -> Path:
    """The folder that holds run folders."""
    return Path(os.path.expanduser(cfg.out or RESULTS / "runs")).resolve()


def claim(folder: Path) -> SoftFileLease:
    """Make a run folder and lock it for this process. Raises ConfigError if it cannot be written,
    or is in use.
    """
    lock = SoftFileLease(
        folder / ".lock", lease_duration=PATIENCE, heartbeat_interval=BEAT, thread_local=False
    )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        files.make_folder(folder)
        owner = lock.owner
        elsewhere = Path(lock.lock_file).exists() and (
            owner is None or owner.hostname != socket.gethostname()
        )
        if elsewhere:
            log.warning(
                "%s: another machine has this run, or died with it; wait %g s to see",
                folder,
                PATIENCE,
            )
        return lock.acquire(timeout=PATIENCE + BEAT if elsewhere else 0).lock
    except Timeout:
        raise ConfigError(f"{folder} is in use: another process is training this run") from None
    except OSError as error:
        raise ConfigError(
            f"out={folder.parent}: cannot be written ({error.strerror}); set out=FOLDER"
        ) from None


class RunFolder:
    """The record of a run, and its folder.

    content: of run.json
    metrics: every metric record so far
    """

    def __init__(self, folder: Path, recorded: bool = True):
        """Lock `folder`; unless `recorded`, nothing is written. Raises ConfigError."""
        self.folder = folder
        self.lock = claim(folder) if recorded else None
        self.content: dict[str, Any] = {}
        self.metrics: list[dict[str, Any]] = []

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *_: object) -> None:
        if self.lock:
            with suppress(OSError):
                self.lock.release()

    def clear(self) -> None:
        """Delete all records of the run, run.json first; other files stay. Raises OSError."""
        if not self.lock:
            return
        first, *others = (self.folder / name for name in OURS)
        for path in (first, *checkpoint.checkpoints(self.folder), *others):
            path.unlink(missing_ok=True)
        files.remove_temporary(self.folder)

    def begin(
        self, metrics: list[dict[str, Any]], wandb: Wandb, kept: str | None, **content: Any
    ) -> None:
        """Record the run's description and that it is running; `metrics`: its records so far;
        `kept`: of its task.
        """
        self.metrics = list(metrics)
        self.content = {"status": "running"} | content
        if self.lock:
            files.remove_temporary(self.folder)
        if kept is not None:
            self._write(CODER, kept.encode())
        self._write(METRICS, self._lines())
        self._write_content()
        self.wandb = WandbRun(wandb if self.lock else None, self.folder, self.content)
        for record in metrics:
            self.wandb.log(record)

    def log(self, record: dict[str, Any]) -> None:
        """Add a metric record: a line of metrics.jsonl, and a step of W&B."""
        if self.lock:  # a full disk may cut a line off: a resume replaces it
            with open(self.folder / METRICS, "ab") as file:
                file.write(_line(record))
        self.metrics.append(record)
        self.wandb.log(record)

    def save(self, step: int, **state: Any) -> None:
        """Write the checkpoint of `step`. Raises OSError; earlier checkpoints then stay."""
        lines = self._lines()
        self._write(METRICS, lines)  # synced before a checkpoint that needs it
        about = {
            "format": FORMAT,
            "step": step,
            "metrics": {"size": len(lines), "digest": digest(lines)},
        }
        about |= {name: self.content[name] for name in ("run_id", "provenance")}
        if self.lock:
            checkpoint.save(self.folder, step, about | state)
        self.content["checkpoint"] = step

    def export(self, weights: dict[str, torch.Tensor], alphabet: str | list[str]) -> None:
        """Write the final weights as WEIGHTS, for other programs to load."""
        about = {"run_id": self.content["run_id"], "config": json.dumps(self.content["config"])}
        about["alphabet"] = as_text(alphabet)
        weights = {name: weight.cpu().contiguous() for name, weight in weights.items()}
        self._write(WEIGHTS, safetensors.torch.save(weights, about))

    def end(self, status: str, **content: Any) -> None:
        """Record how the run ended."""
        self.content |= {"status": status} | content
        self.content["provenance"]["end"] = provenance.now()
        self._write(METRICS, self._lines())  # synced before run.json says that all is there
        self.content["digests"] = {METRICS: digest(self._lines())}
        self._write_content()
        self.wandb.finish(self.content)

    def _lines(self) -> bytes:
        return b"".join(map(_line, self.metrics))

    def _write_content(self) -> None:
        latest = {
            name: value for record in self.metrics for name, value in record.items() if "/" in name
        }
        self.content = files.sealed(self.content | {"metrics": latest})
        self._write("run.json", files.as_json(self.content))

    def _write(self, name: str, content: bytes) -> None:
        """Write a file. Raises OSError, or RunFailed if another process has taken over."""
        if not self.lock:
            return
        owner = self.lock.owner
        if owner is not None and owner.token != self.lock.token:
            raise RunFailed(
                f"{self.folder}: another process trains this run, after {PATIENCE:g} s without life here"
            )
        files.write_whole(self.folder / name, content)


def as_text(alphabet: str | list[str]) -> str:
    """An alphabet as metadata of WEIGHTS."""
    return alphabet if isinstance(alphabet, str) else json.dumps(alphabet)


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, allow_nan=False).encode() + b"\n"


def read(folder: Path) -> dict[str, Any] | None:
    """Content of a run's run.json; None if there is none, or it is damaged. Raises ConfigError at
    another format.
    """
    content = files.read_sealed(folder / "run.json")
    return content if content and "provenance" in content else None


def ended(folder: Path, run_id: str, code: dict[str, Any]) -> dict[str, Any] | None:
    """Content of run.json if the run in `folder` has ended; warns if it was run by other code than
    `code`.
    """
    content = read(folder)
    if (
        content is None
        or content["run_id"] != run_id
        or content["status"] not in ("finished", "diverged")
    ):
        return None
    if other := provenance.differences(content["provenance"], code):
        log.warning("it was run by other code, %s: fresh=true runs it with today's", other)
    return content


def outdated(content: dict[str, Any], code: dict[str, Any]) -> bool:
    """Whether a run has ended by other code of the user's own files than `code`; content: of its
    run.json, or empty.
    """
    has_ended = content.get("status") in ("finished", "diverged")
    return has_ended and content["provenance"]["plugin"] != code["plugin"]


def last(
    folder: Path, run_id: str, version: int, code: dict[str, Any] | None
) -> dict[str, Any] | None:
    """The newest whole checkpoint of a run, with its metric records and run.json's provenance; None
    if there are none.

    Raises ConfigError if none can be trusted, or it is of another run, task `version` or code than
    `code`, if given.
    """
    before, saved = read(folder), checkpoint.load(folder)
    if saved is None:
        if before and before["checkpoint"]:
            raise ConfigError(f"{folder}: its checkpoints are gone: {OVER}")
        return None
    for name, value in {"format": FORMAT, "run_id": run_id, "task_version": version}.items():
        if saved.get(name) != value:
            raise ConfigError(
                f"{folder}: its checkpoint has {name} {saved.get(name)}, not {value}; {OVER}"
            )
    if other := code and provenance.differences(saved["provenance"], code):
        raise ConfigError(
            f"{folder} was begun by other code, {other}: {OVER}, other_code=true resumes all the same"
        )
    content = b""
    with suppress(OSError):
        content = (folder / METRICS).read_bytes()[: saved["metrics"]["size"]]
    if digest(content) != saved["metrics"]["digest"]:
        raise ConfigError(f"{folder}: {METRICS} was changed or is gone: restore it, or {OVER}")
    records = [json.loads(line) for line in content.splitlines()]
    return saved | {"records": records, "provenance": (before or saved)["provenance"]}
