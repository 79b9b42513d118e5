"""The origin of a run: code, command, versions, hardware; enough to repeat it, and nothing
private.
"""

import functools
import hashlib
import importlib.metadata
import os
import platform
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from rope_lab.files import digest
from rope_lab.identity import NUMERICS
from rope_lab.model.device import cpu_name
from rope_lab.places import IN_CHECKOUT, ROOT
from rope_lab.train import instantiate
from rope_lab.train.config import Config

CODE = ("rope_lab", "tasks", "conf")  # folders that decide what a run computes
PACKAGES = ("numpy", "hydra-core", "omegaconf", "wandb")  # whose versions a run records


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
        "git": git_state(),
        "command": shlex.join([*started, "-m", "rope_lab.train", *typed(cfg)]),
        "versions": {"python": platform.python_version(), "torch": str(torch.__version__)}
        | {name: importlib.metadata.version(name) for name in PACKAGES},
        "platform": f"{platform.system()} {platform.machine()}",
        "hardware": hardware(device),
        "start": now(),
        "end": None,
        "earlier": earlier,
    }


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def code(cfg: Config) -> dict[str, Any]:
    """Our code's numerics and, as `plugin`, a digest of the files of a user's own task or
    scheme; `files`: name and digest of each.
    """
    own: dict[str, str] = {}
    every: set[str] = set()
    for group in instantiate.SWAPPED:
        if modules := instantiate.own_modules(getattr(cfg, group)):
            files = sorted(line for name in modules for line in files_of(name))
            own[group] = digest("\n".join(files).encode())[:12]
            every.update(files)
    return {"numerics": NUMERICS, "plugin": own, "files": sorted(every)}


def differences(provenance: dict[str, Any], now: dict[str, Any]) -> str:
    """The differences of a record's provenance from today's `code`: `numerics 2 (now 3)`; empty
    without any.
    """
    before, today = (
        {"numerics": each.get("numerics")}
        | {f"code of the {k}": v for k, v in each.get("plugin", {}).items()}
        for each in (provenance, now)
    )
    unlike = [name for name in before | today if before.get(name) != today.get(name)]
    return ", ".join(f"{name} {before.get(name)} (now {today.get(name)})" for name in unlike)


@functools.cache  # of the code that runs, whatever is edited since
def files_of(module: str) -> list[str]:
    """Name and digest of a user's file and of those of its folder that it imports, of a package
    all.
    """
    folder = Path(sys.modules[module].__file__).resolve().parent
    waiting, seen, digests = [module], set(instantiate.PACKAGES), {}
    while waiting:
        name = waiting.pop()
        file = folder / f"{name}.py"
        for path in [file] if file.is_file() else sorted((folder / name).rglob("*.py")):
            if name not in seen:
                source = path.read_bytes()
                digests[path] = f"{path.relative_to(folder)} {hashlib.sha256(source).hexdigest()}"
                waiting += _imports(source)
        seen.add(name)
    return list(digests.values())


def _imports(source: bytes) -> set[str]:
    """The packages, or modules of no package, that a file imports."""
    lines = re.findall(
        r"^[ \t]*(?:from|import)[ \t]+(.+)", source.decode(errors="replace"), re.MULTILINE
    )
    return {
        name
        for line in lines
        for name in re.findall(r"(?:^|,\s*)(\w+)", line.partition(" import ")[0])
    }


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
    return [re.sub(r"^((?:task|position|init_from)=).*/(?=.)", r"\1", word) for word in words]


@functools.cache  # of the code that runs, whatever is committed since
def git_state() -> dict[str, Any]:
    """The commit of the checkout, and whether CODE differs from it; None if git is unavailable."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, timeout=10, check=True
        ).stdout

    if IN_CHECKOUT:  # else whatever repository it was installed into is another
        with suppress(OSError, subprocess.SubprocessError):
            changed = git("status", "--porcelain", "--", *CODE)
            return {"commit": git("rev-parse", "HEAD").strip(), "dirty": bool(changed)}
    return {"commit": None, "dirty": None}
