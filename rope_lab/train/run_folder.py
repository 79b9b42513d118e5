"""A run's folder: run.json, metrics.jsonl, checkpoints and final weights, written by one process at
a time.

run.json describes the run and its status, and once it has ended the digest of metrics.jsonl, a line
per metric record. A checkpoint says how much of metrics.jsonl belongs to it: the rest is cut off at
a resume.
"""

import json
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from rope_lab import files
from rope_lab.files import digest
from rope_lab.places import RESULTS, RUNS
from rope_lab.text import ConfigError
from rope_lab.train import checkpoint, provenance, run_files
from rope_lab.train.checkpoint import OVER
from rope_lab.train.run_files import (
    ASIDE,
    CODER,
    METRICS,
    MOVING,
    WEIGHTS,
    claim,
)
from rope_lab.train.settings import Config, Wandb
from rope_lab.train.stop import RunFailed
from rope_lab.train.tracking import WandbRun

log = logging.getLogger(__name__)

FORMAT = 4  # of checkpoints
OUTCOMES = ("finished", "diverged")  # the status of a run that is not trained any further


def out_folder(cfg: Config) -> Path:
    """The folder that holds run folders."""
    return Path(os.path.expanduser(cfg.out or RESULTS / RUNS)).resolve()


class RunFolder:
    """The record of a run, and its folder.

    content: of run.json
    metrics: every metric record so far

    The records of an earlier run stay in ASIDE until this one has a checkpoint or an outcome; if it
    ends before that, they come back.
    """

    def __init__(self, folder: Path, recorded: bool = True):
        """Lock `folder`; unless `recorded`, nothing is written. Raises ConfigError."""
        self.folder = folder
        self.lock = claim(folder) if recorded else None
        self.content: dict[str, Any] = {}
        self.metrics: list[dict[str, Any]] = []
        self.digests: dict[str, str] = {}  # of files that are written once
        if self.lock:
            run_files.settle(self.folder)

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *_: object) -> None:
        if self.lock:
            with suppress(OSError, RunFailed):
                self._check_owner()
                run_files.settle(self.folder)
            with suppress(OSError):
                self.lock.release()

    def clear(self) -> None:
        """Delete all records of the run, run.json first; other files stay. Raises OSError."""
        if self.lock:
            run_files.delete_records(self.folder)
            run_files.delete_aside(self.folder)
            files.remove_temporary(self.folder)

    def set_aside(self) -> None:
        """Move all records of the run to ASIDE; other files stay. Raises OSError."""
        if self.lock:
            run_files.set_aside(self.folder)

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
            self.digests[CODER] = digest(kept.encode())
        self._write(METRICS, self._lines())
        self._write_content()
        self.wandb = WandbRun(wandb if self.lock else None, self.folder, self.content)
        for record in metrics:
            self.wandb.log(record)

    def log(self, record: dict[str, Any]) -> None:
        """Add a metric record: a line of metrics.jsonl, and a step of W&B."""
        self._check_owner()
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
            run_files.delete_aside(self.folder)
        self.content["checkpoint"] = step

    def export(self, weights: dict[str, torch.Tensor], alphabet: str | list[str]) -> None:
        """Write the final weights as WEIGHTS, for other programs to load."""
        about = {"run_id": self.content["run_id"], "config": json.dumps(self.content["config"])}
        about["alphabet"] = as_text(alphabet)
        weights = {name: weight.cpu().contiguous() for name, weight in weights.items()}
        content = safetensors.torch.save(weights, about)
        self._write(WEIGHTS, content)
        self.digests[WEIGHTS] = digest(content)

    def end(self, status: str, **content: Any) -> None:
        """Record how the run ended. Raises ValueError, and records nothing, if a number of
        `content` is not finite.
        """
        json.dumps(content, allow_nan=False)
        self.content |= {"status": status} | content
        self.content["provenance"]["end"] = provenance.now()
        self._write(METRICS, self._lines())  # synced before run.json says that all is there
        self.content["digests"] = {METRICS: digest(self._lines())} | self.digests
        self._write_content()
        if self.lock and status in OUTCOMES:
            run_files.delete_aside(self.folder)
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
        """Write a file. Raises OSError and RunFailed."""
        self._check_owner()
        if self.lock:
            files.write_whole(self.folder / name, content)

    def _check_owner(self) -> None:
        """Raises RunFailed if another process has taken the run over."""
        if not self.lock:
            return
        owner = self.lock.owner
        if owner is not None and owner.token != self.lock.token:
            raise RunFailed(
                f"{self.folder}: another process trains this run, after {files.PATIENCE:g} s "
                "without a sign of life here"
            )


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


def check_files(folder: Path, content: dict[str, Any]) -> None:
    """Raise ConfigError if a file of a run that has ended does not match its digest in run.json,
    of which `content` is.
    """
    digests = content.get("digests", {}) if content["status"] in OUTCOMES else {}
    if names := files.damaged(folder, digests):
        raise ConfigError(
            f"{folder / names[0]}: was changed or damaged after the run ended: "
            f"restore it, or {OVER}"
        )


def ended(folder: Path, run_id: str, code: dict[str, Any]) -> dict[str, Any] | None:
    """Content of run.json if the run in `folder` has ended; warns if it was run by other code than
    `code`. Raises ConfigError if one of its files is damaged.
    """
    content = read(folder)
    if content is None or content["run_id"] != run_id or content["status"] not in OUTCOMES:
        return None
    check_files(folder, content)
    before = content["provenance"]
    if other := provenance.differences(before, code) or provenance.edited(before):
        log.warning("it was run by other code, %s: fresh=true runs it with today's", other)
    return content


def launched_by(folder: Path, launch: str) -> bool:
    """Whether a launch of this name, not empty, has begun or resumed the run in a folder."""
    content = read(folder)
    if not launch or content is None:
        return False
    latest = content["provenance"]
    return any(part.get("launch") == launch for part in [latest, *latest.get("earlier", [])])


def bring_back(folder: Path) -> None:
    """Settle a folder that a killed run has left with records set aside. Raises ConfigError."""
    if any(run_files.is_folder(folder / name) for name in (ASIDE, MOVING)):
        with RunFolder(folder):
            pass


def newest_checkpoint(
    folder: Path, run_id: str, version: int, code: dict[str, Any] | None
) -> dict[str, Any] | None:
    """The newest whole checkpoint of a run, with its metric records and run.json's provenance; None
    if there are none.

    Raises ConfigError if none can be trusted, or it is of another run, task `version` or code than
    `code`, if given.
    """
    before = read(folder)
    saved = checkpoint.load(folder)
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
            f"{folder} was started with different code, {other}: {OVER}, "
            "other_code=true resumes all the same"
        )
    if other := provenance.edited(saved["provenance"]):
        log.warning("it resumes with other code than it began with, %s: %s", other, OVER)
    content = b""
    with suppress(OSError):
        content = (folder / METRICS).read_bytes()[: saved["metrics"]["size"]]
    if digest(content) != saved["metrics"]["digest"]:
        raise ConfigError(f"{folder}: {METRICS} was changed or is gone: restore it, or {OVER}")
    records = [json.loads(line) for line in content.splitlines()]
    return saved | {"records": records, "provenance": (before or saved)["provenance"]}
