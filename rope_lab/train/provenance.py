"""The origin of a run: code, command, versions, hardware; enough to repeat it, and nothing
private.
"""

import functools
import importlib.metadata
import logging
import os
import platform
import re
import shlex
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from rope_lab.files import digest
from rope_lab.identity import NUMERICS
from rope_lab.model.device import cpu_name
from rope_lab.places import HERE, IN_CHECKOUT, ROOT, TASKS
from rope_lab.train import instantiate, pattern, plugin
from rope_lab.train.settings import Config

log = logging.getLogger(__name__)

CODE = ("rope_lab", "tasks", "conf")  # folders that decide what a run computes
PACKAGES = ("rope_lab", "numpy", "hydra-core", "omegaconf", "wandb")  # whose versions a run records
# Variables that make git speak of another repository than that of its working directory.
OTHER_REPOSITORY = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"),
    *("GIT_NAMESPACE", "GIT_PREFIX"),
)


def provenance(cfg: Config, device: torch.device, before: dict[str, Any] | None) -> dict[str, Any]:
    """Code, command, versions and hardware of a run on `device`; before: those of its earlier
    parts.

    A resumed run has one for each part: `earlier` holds all but the last.
    """
    n = cfg.train.processes
    started = ["torchrun", "--nproc-per-node", str(n)] if n > 1 else ["python"]
    earlier = (
        [*before.get("earlier", []), {k: v for k, v in before.items() if k != "earlier"}]
        if before
        else []
    )
    return {
        **code(cfg),
        "source": source(),
        "git": git_state(),
        "command": shlex.join([*started, "-m", "rope_lab.train", *typed(cfg)]),
        "versions": {"python": platform.python_version(), "torch": str(torch.__version__)}
        | {name: importlib.metadata.version(name) for name in PACKAGES},
        "platform": f"{platform.system()} {platform.machine()}",
        "hardware": hardware(device),
        "plan": cfg.plan,
        "start": now(),
        "end": None,
        "earlier": earlier,
    }


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def code(cfg: Config) -> dict[str, Any]:
    """Our code's numerics and, as `plugin`, a digest of the code of a user's own task or scheme;
    `files`: name and digest of each of its files.
    """
    own: dict[str, str] = {}
    files: list[str] = []
    for group in instantiate.SWAPPED:
        if modules := instantiate.own_modules(getattr(cfg, group)):
            own[group] = plugin.code_digest(modules)
            files += plugin.code_lines(modules)
    return {"numerics": NUMERICS, "plugin": own, "files": sorted(set(files))}


def differences(provenance: dict[str, Any], now: dict[str, Any]) -> str:
    """The differences of a record's provenance from today's `code`: `numerics 2 (now 3)`; empty
    without any.
    """
    before, today = _code_by_part(provenance), _code_by_part(now)
    unlike = [name for name in before | today if before.get(name) != today.get(name)]
    return ", ".join(f"{name} {before.get(name)} (now {today.get(name)})" for name in unlike)


def _code_by_part(record: dict[str, Any]) -> dict[str, Any]:
    """The numerics and digests of a record, by the names of messages."""
    own = record.get("plugin", {})
    digests = {f"code of the {group}": digest for group, digest in own.items()}
    return {"numerics": record.get("numerics")} | digests


def hardware(device: torch.device) -> dict[str, Any]:
    """The hardware and its settings; the last digits of numbers depend on them."""
    backends = torch.backends
    return {
        "device": device.type,
        "name": torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda,
        "tf32": {"matmul": backends.cuda.matmul.allow_tf32, "cudnn": backends.cudnn.allow_tf32},
    }


def typed(cfg: Config) -> list[str]:
    """The overrides that repeat a run, as they were typed; empty if it was made without any.

    Without `out`, `wandb`, `task.path` and Hydra's own, which are local, and `fresh`, which deletes
    records. Files of plug-ins and a parent's folder are named without their paths.
    """
    repeats = re.compile(r"[~+]*(?!(?:out|fresh|wandb|hydra|task\.path)\b)\w[\w./@]*(?:=|$)")
    words = [word for word in cfg.overrides if repeats.match(word)]
    local = re.compile(r"^([~+]*(?:task|position|init_from)=['\"]?).*/(?=[^'\"])")
    words = [local.sub(r"\1", word) for word in words]
    return [pattern.without_folders(word) for word in words]


@functools.cache  # of the code that runs, whatever is committed since
def git_state() -> dict[str, Any]:
    """The commit of the checkout, and whether CODE differs from it.

    Both are None if that is unknown; in a checkout `reason` then says why, and a warning too.
    """
    unknown = {"commit": None, "dirty": None}
    if not IN_CHECKOUT:  # whatever repository it was installed into is another
        return unknown
    try:
        top = Path(_git("rev-parse", "--show-toplevel").strip()).resolve()
        if top == ROOT:
            changed = _git("status", "--porcelain", "--", *CODE)
            return {"commit": _git("rev-parse", "HEAD").strip(), "dirty": bool(changed)}
        reason = "rope_lab is inside of another repository"
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip().partition("\n")[0].removeprefix("fatal: ")
    except (OSError, subprocess.SubprocessError) as error:
        reason = f"git cannot be run ({type(error).__name__})"
    log.warning("the commit of rope_lab's code is unknown and not recorded: %s", reason)
    without_paths = re.sub(r"['\"]?/.*", "…", reason)
    return unknown | {"reason": without_paths}


def _git(*words: str) -> str:
    """The output of a git command about the checkout, whatever repository the environment names."""
    environment = {key: value for key, value in os.environ.items() if key not in OTHER_REPOSITORY}
    return subprocess.run(
        ["git", *words],
        cwd=ROOT,
        env=environment | {"LC_ALL": "C"},
        capture_output=True,
        text=True,
        timeout=10,
        check=True,
    ).stdout


@functools.cache  # of the code that runs, whatever is edited since
def source() -> str:
    """A digest of our own code that decides what a run computes."""
    folders = (HERE / "model", HERE / "train", TASKS)
    paths = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    lines = [f"{path.parent.name}/{path.name} {digest(path.read_bytes())}" for path in paths]
    return digest("\n".join(lines).encode())[:12]


def edited(provenance: dict[str, Any]) -> str:
    """How our own code differs from that of a record: `commit 1a2b3c4 (now 1a2b3c4 with changes)`;
    empty if it does not, or if the record does not say.
    """
    if provenance.get("source") in (None, source()):
        return ""
    return f"commit {_commit(provenance['git'])} (now {_commit(git_state())})"


def _commit(git: dict[str, Any]) -> str:
    changes = " with changes" if git["dirty"] else ""
    return f"{(git['commit'] or 'unknown')[:7]}{changes}"
