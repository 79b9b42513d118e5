"""A run's folder, the sole owner of what is recorded: run.json, metrics.jsonl, checkpoints and final weights.

run.json says what the run is and how it stands, with the digests of the other files; metrics.jsonl holds a metric
record a line. A checkpoint holds all metric records too, so that the other files can be made again if they are harmed.
"""

import errno
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from rope_lab import files
from rope_lab.files import digest, read_file
from rope_lab.identity import Identity, differences, identify
from rope_lab.model.transformer import Transformer
from rope_lab.places import RESULTS
from rope_lab.text import ConfigError, show
from rope_lab.train import checkpoint, config, memory, provenance
from rope_lab.train.lease import Held, Lease
from rope_lab.train.memory import is_out_of_memory
from rope_lab.train.tracking import Wandb
from rope_lab.train.trainer import build_model
from tasks.base import Task

log = logging.getLogger(__name__)

METRICS, WEIGHTS = "metrics.jsonl", "weights.safetensors"
OURS = ("run.json", METRICS, WEIGHTS, "probes.json", "probes.md", "probes.svg")  # in a run's folder, beside checkpoints
FORMAT = 3  # of checkpoints


def out_folder(cfg: config.Config) -> Path:
    """The folder that holds run folders."""
    if not cfg.out:
        return (RESULTS / "runs").absolute()
    try:
        return Path(cfg.out).expanduser().resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"out={cfg.out}: {error}; set out=FOLDER") from None


class Run:
    """An open run folder, claimed by this process alone while it is open (see `rope_lab/train/lease.py`).

    content: what run.json says
    metrics: every metric record so far, as metrics.jsonl has them
    """

    def __init__(self, folder: Path):
        """Makes and claims `folder`. Raises ConfigError where it cannot be written or another process has it."""
        self.folder = folder
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            files.make_folder(folder)
            self.lease = Lease(folder)
        except Held as error:
            raise ConfigError(str(error)) from None
        except OSError as error:
            raise ConfigError(f"out={folder.parent}: cannot be written ({error.strerror}); set out=FOLDER") from None
        self.content: dict[str, Any] = read(folder) or {}  # nobody else writes it from here on
        self.metrics: list[dict[str, Any]] = []

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_) -> None:
        self.lease.release()

    def clear(self) -> None:
        """Deletes everything recorded so far, first of all that there was a run; files of others stay.

        Raises OSError, and nothing is deleted then, where a folder stands in the place of a file.
        """
        ours = [*checkpoint.checkpoints(self.folder), *(self.folder / name for name in OURS)]
        for path in ours:
            if path.is_dir() and not path.is_symlink():
                raise OSError(errno.EISDIR, f"{path.name} is a folder", str(path))
        self.lease.remove(self.folder / "run.json")
        files.sync_folder(self.folder)
        for path in ours:
            self.lease.remove(path)
        self.content = {}

    def begin(self, metrics: list[dict[str, Any]], wandb: config.Wandb, **content: Any) -> None:
        """Records that the run is running and what it is; `metrics`: its records so far."""
        files.remove_temporary(self.folder)
        self.metrics = list(metrics)
        self._write_metrics()
        self.content = {"status": "running"} | content | {"metrics": {}}
        for record in metrics:
            self.content["metrics"] |= _latest(record)
        self._write()
        self.wandb = Wandb(wandb, self.folder, self.content)
        if not getattr(self.wandb.run, "offline", True):
            self.content["wandb"] = self.wandb.run.url
            self._write()
        for record in metrics:
            self.wandb.log(record)

    def log(self, record: dict[str, Any]) -> None:
        """Adds a metric record: a line of metrics.jsonl, in one write, and a step of W&B."""
        self.lease.append(self.folder / METRICS, record)
        self.metrics.append(record)
        self.content["metrics"] |= _latest(record)
        self.wandb.log(record)

    def save(self, step: int, identity: Identity, version: int, **state: Any) -> None:
        """Writes the checkpoint of `step`. Raises OSError; those before it then stay."""
        told = {"format": FORMAT, "step": step, "identity": asdict(identity), "task_version": version}
        whole = told | state | {"metrics": self.metrics, "provenance": self.content["provenance"]}
        checkpoint.save(self.folder, step, whole, self.lease.write, self.lease.remove)

    def export(self, weights: dict[str, torch.Tensor], alphabet: str | list[str]) -> None:
        """Writes the final weights as WEIGHTS, for other programs to load."""
        about = {
            "run_id": self.content["run_id"],
            "config": json.dumps(self.content["config"]),
            "alphabet": alphabet if isinstance(alphabet, str) else json.dumps(alphabet),
        }
        weights = {name: weight.cpu().contiguous() for name, weight in weights.items()}
        self.lease.write(self.folder / WEIGHTS, safetensors.torch.save(weights, about))

    def end(self, status: str, **content: Any) -> None:
        """Records how the run ended."""
        self.content |= {"status": status} | content
        self.content["provenance"]["end"] = provenance.now()
        self._write_metrics()  # synced before run.json says that all is there
        self.content["digests"] = digests_of(self.folder)
        self._write()
        self.wandb.finish(self.content)

    def _write_metrics(self) -> None:
        lines = "".join(json.dumps(record, allow_nan=False) + "\n" for record in self.metrics)
        self.lease.write(self.folder / METRICS, lines.encode())

    def _write(self) -> None:
        self.content = files.sealed(self.content)
        self.lease.write(self.folder / "run.json", files.as_json(self.content))


def _latest(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if "/" in name}


def read(folder: Path) -> dict[str, Any] | None:
    """What a run's run.json says; None where there is none, or it is not as this program has written it."""
    content = files.read_sealed(folder / "run.json") or {}
    parts = {"status": str, "config": dict, "progress": dict, "metrics": dict, "provenance": dict}
    if not all(isinstance(content.get(name), kind) for name, kind in parts.items()):
        return None
    within = {"code": str, "hardware": dict, "earlier": list}
    return content if all(isinstance(content["provenance"].get(name), kind) for name, kind in within.items()) else None


def identity_of(content: dict[str, Any]) -> Identity | None:
    """The identity of the run that a run.json describes, of any age; None where it describes none."""
    try:
        settings, hardware = content["config"], content["provenance"]["hardware"]
        names = settings["names"]
        return identify(names["task"], names["position"], settings["seed"], settings | {"device": hardware["device"]})
    except (LookupError, TypeError, AttributeError):
        return None


def ended(folder: Path, identity: Identity, code: str) -> dict[str, Any] | None:
    """What run.json says of the run in `folder` if that has ended and its files are whole.

    Raises ConfigError where the folder holds the record of another run.
    """
    content = read(folder)
    if content is None:
        return None
    found = identity_of(content)
    if found != identity:
        other = content.get("run_id") if found is None else found.run_name
        raise ConfigError(
            f"{folder}: its run.json is of another run ({other}): give the folder its name back, "
            "or fresh=true starts over"
        )
    if content["status"] not in ("finished", "diverged"):
        return None
    if not is_whole(folder, content):
        log.warning("%s: its files are not what run.json says of them; they are made again", folder)
        return None
    before = content["provenance"]["code"]
    if before != code:
        log.warning("it was run by other code (%s, now %s): fresh=true runs it with today's", before, code)
    return content


def begun_since(folder: Path, moment: str) -> bool:
    """Whether the run in `folder` was begun, or resumed, at this moment or later; both by one clock."""
    content = read(folder)
    return content is not None and str(content["provenance"].get("start") or "") >= moment


def digests_of(folder: Path) -> dict[str, str]:
    """The digest of each file that run.json answers for, of those that are there."""
    return {name: digest(read_file(folder / name)) for name in (METRICS, WEIGHTS) if (folder / name).exists()}


def is_whole(folder: Path, content: dict[str, Any]) -> bool:
    """Whether the files of a run that has ended, whose run.json says `content`, are what it says of them.

    Of a record made before there were digests: whether its curve is there up to its last step, if it has finished.
    """
    try:
        if files.is_sealed(content):
            return content.get("digests") == digests_of(folder)
        last = json.loads(read_file(folder / METRICS).splitlines()[-1])
        return content["status"] != "finished" or last["step"] == content["progress"]["steps"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError, MemoryError):
        return False


def load_checkpoint(
    folder: Path, identity: Identity, version: int, device: torch.device | str = "cpu"
) -> dict[str, Any] | None:
    """The newest whole checkpoint of the run, or None where there is none.

    Raises ConfigError where there are checkpoints and none can be trusted, or it is of other settings.
    """
    saved = checkpoint.load(folder, device)
    if saved is None:
        return None
    with fitting(folder):
        saved = _todays(saved)
        for part in ("model", "optimizer", "provenance"):
            saved[part].keys()
        json.dumps(saved["provenance"], allow_nan=False)
        saved["provenance"]["code"], list(saved["provenance"].get("earlier", []))
        different = differences(Identity(**saved["identity"]), identity)
        if saved["task_version"] != version:
            different += f"task version {saved['task_version']} (now {version})"
        if different:
            raise ConfigError(f"{folder}: its checkpoint is of other settings: {different}; fresh=true starts over")
        check_progress(saved, identity.settings["train.steps"])
    return saved


def check_progress(saved: dict[str, Any], steps: int) -> None:
    """Raises TypeError where a run of so many `steps` cannot be as far as a checkpoint says."""
    step, seconds, metrics = saved["step"], saved["seconds"], saved["metrics"]
    if type(step) is not int or not 0 <= step <= steps:
        raise TypeError(f"step {show(step)} of {steps}")
    numbers = [seconds, *saved["losses"], *(value for record in metrics for value in record.values())]
    if not all(type(number) in (int, float) and abs(number) <= sys.float_info.max for number in numbers):
        raise TypeError("a number that is none, or not finite")
    logged = [-1, *(record["step"] for record in metrics), steps + 1]
    if seconds < 0 or not all(before < after for before, after in pairwise(logged)):
        raise TypeError("seconds or steps that go back")


def _todays(saved: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint of any format as one of today's."""
    if saved.get("format", 2) not in (2, FORMAT):
        raise LookupError(f"format {saved['format']} (now {FORMAT})")
    if "format" in saved:
        return saved
    state, origin = saved["state"], saved["origin"]
    identity = identify(origin["names"]["task"], origin["names"]["position"], origin["seed"], origin)
    return saved | {
        "identity": asdict(identity),
        "task_version": origin["task_version"],
        "step": state["step"],
        "seconds": state["seconds"],
        "losses": state["losses"],
        "metrics": state["rows"],
    }


def load_run(folder: Path, allowed_packages: list[str]) -> tuple[config.Config, Task, Transformer, dict[str, Any]]:
    """A run's configuration, task, model with its last weights, and run.json. Raises ConfigError.

    In place of what run.json says of `progress` stands that of these weights. Warns where the code has changed since.
    No code of other packages than rope_lab, tasks and `allowed_packages` runs, whatever the folder says.
    """
    content = read(folder)
    if content is None:
        near = files.newest_run(folder)
        hint = f"did you mean {near}?" if near else "`python -m rope_lab.train` makes one, in results/runs"
        raise ConfigError(f"{folder}: is no run's folder, it has no readable run.json; {hint}")
    cfg = config.from_record(content["config"], allowed_packages)
    task = config.build_task(cfg)
    memory.check_read(cfg, task)
    model = build_model(cfg, len(task.alphabet))
    saved = load_checkpoint(folder, config.identity(cfg), task.version)
    if saved is None:
        raise ConfigError(f"{folder}: has no checkpoint yet")
    code, now = saved["provenance"]["code"], provenance.code_digest(cfg)
    if code != now:
        log.warning("%s is of other code (%s, now %s), which may have computed otherwise", folder, code, now)
    with fitting(folder):
        model.load_state_dict(saved["model"])
        return cfg, task, model, content | {"progress": {"steps": int(saved["step"])}}


@contextmanager
def fitting(folder: Path) -> Iterator[None]:
    """Raises what a checkpoint lacks, or has of another shape, as a ConfigError."""
    try:
        yield
    except (RuntimeError, LookupError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, ConfigError) or is_out_of_memory(error):
            raise
        what = f"{type(error).__name__}: {(str(error).splitlines() or [''])[-1].strip()}"
        raise ConfigError(f"{folder}: its checkpoint holds no such run ({what}); fresh=true starts over") from None
