"""The origin of a run: code, command, versions, hardware; enough to repeat it, and nothing
private.
"""

import functools
import importlib.metadata
import os
import platform
import re
import shlex
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import torch

from rope_lab.identity import NUMERICS
from rope_lab.model.device import cpu_name
from rope_lab.places import IN_CHECKOUT, ROOT
from rope_lab.train import instantiate, plugin
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
    """Our code's numerics and, as `plugin`, a digest of the code of a user's own task or
    scheme.
    """
    own = {}
    for group in instantiate.SWAPPED:
        if modules := instantiate.own_modules(getattr(cfg, group)):
            own[group] = plugin.code_digest(modules)
    return {"numerics": NUMERICS, "plugin": own}


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
