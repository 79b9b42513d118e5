"""Where a run comes from: code, command, versions, hardware. What it takes to repeat the run, and nothing private."""

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import inspect
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from rope_lab.places import IN_CHECKOUT, ROOT
from rope_lab.train import instantiate
from rope_lab.train.config import Config

MODEL = ("attention", "cpu_attention", "cpu_linear", "hooks", "transformer", "positions", "rotation", "device")
TRAIN = ("data", "evaluate", "generate", "trainer")
CORE = (
    *(f"model.{name}" for name in MODEL),
    *(f"train.{name}" for name in TRAIN),
)
SHARED = ("train.distributed",)  # and those of a run of several processes
LIBRARIES = ("torch", "numpy", "abc", "builtins", "typing", "collections")  # whose versions stand for their code
PACKAGES = ("torch", "numpy", "hydra-core", "omegaconf", "wandb")  # whose versions a run records


def provenance(cfg: Config, device: torch.device, before: dict[str, Any] | None) -> dict[str, Any]:
    """Code, command, versions and hardware of a run on `device`; `before`, those of its beginning.

    A resumed run has one of these for each time that it was begun: `earlier` holds all but the last.
    """
    n = cfg.train.processes
    started = ["torchrun", "--nproc-per-node", str(n)] if n > 1 else ["python"]
    earlier = [*before.get("earlier", []), {k: v for k, v in before.items() if k != "earlier"}] if before else []
    return {
        "code": code_digest(cfg),
        "git": git_state(),
        "command": shlex.join([*started, "-m", "rope_lab.train", *typed(cfg)]),
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        "platform": f"{platform.system()} {platform.machine()}",
        "hardware": hardware(device),
        "start": now(),
        "end": None,
        "earlier": earlier,
    }


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def code_digest(cfg: Config) -> str:
    """A digest of the code that the run's numbers depend on: CORE, SHARED, and the modules of its task.

    Of a scheme that stands in none of these the digest of its modules follows, `4f0c…+91d3…`: such a run is paired with
    those of one CORE. Comments, docstrings and layout do not count, nor does the version of Python.
    """
    core = {f"rope_lab.{name}" for name in CORE + SHARED * (cfg.train.processes > 1)} | _modules(cfg.task)
    plugin = _modules(cfg.position) - core
    return "+".join(digest_of(each) for each in (core, plugin) if each)


def _modules(node: dict[str, Any]) -> set[str]:
    """The modules of the classes that `node` names and of those that they inherit from.

    Also those of the same package that these import as modules, and of a user's package all that its modules use.
    """
    modules = {base.__module__ for cls in instantiate.classes(node) for base in cls.__mro__}
    modules = {name for name in modules if name.partition(".")[0] not in LIBRARIES}
    used = {each.__name__ for name in modules for each in vars(sys.modules[name]).values() if inspect.ismodule(each)}
    packages = {name.partition(".")[0] for name in modules}
    return _closed(modules | {name for name in used if name.partition(".")[0] in packages})


def _closed(modules: set[str]) -> set[str]:
    """`modules`, and what those of them that are not ours import of their own packages, as modules or from them."""
    found, todo = set(modules), [name for name in modules if name.partition(".")[0] not in instantiate.PACKAGES]
    while todo:
        name = todo.pop()
        for each in vars(sys.modules[name]).values():
            of = each.__name__ if inspect.ismodule(each) else getattr(each, "__module__", None)
            if of in sys.modules and of not in found and of.partition(".")[0] == name.partition(".")[0]:
                found.add(of)
                todo.append(of)
    return found


def digest_of(modules: Iterable[str]) -> str:
    """A digest of the code of modules, in 12 hexadecimal digits."""
    trees = "\n".join(f"{name} {_tree_of(name)}" for name in sorted(modules))
    return hashlib.sha256(trees.encode()).hexdigest()[:12]


@functools.cache  # of the code that runs, whatever is edited since
def _tree_of(module: str) -> str:
    path = getattr(sys.modules.get(module), "__file__", None) or importlib.util.find_spec(module).origin
    return canonical(Path(path).read_text("utf-8"))


def canonical(source: str) -> str:
    """The syntax tree of Python source as text, without docstrings; the same in every version of Python."""
    return _canonical(ast.parse(source))


def _canonical(node: Any) -> str:
    if isinstance(node, list):
        return "[" + ",".join(map(_canonical, node)) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    parts = []
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            value = value[1:] if ast.get_docstring(node, clean=False) is not None else value
        if value not in (None, []) and name != "kind":  # which versions of Python have or leave out
            parts.append(f"{name}={_canonical(value)}")
    return f"{type(node).__name__}({','.join(parts)})"


for _name in CORE + SHARED:
    _tree_of(f"rope_lab.{_name}")


def hardware(device: torch.device) -> dict[str, Any]:
    """What a run computes with: the numbers may differ in their last digits on another."""
    backends = torch.backends
    return {
        "device": device.type,
        "name": torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda,
        "tf32": {"matmul": backends.cuda.matmul.allow_tf32, "cudnn": backends.cudnn.allow_tf32},
        "bfloat16_reduction": backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def cpu_name() -> str:
    """The processor's name."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def typed(cfg: Config) -> list[str]:
    """The overrides that repeat a run, as they were typed; none of a run that is not of overrides.

    Not those of `out`, `wandb`, Hydra and `task.path`, which say where things lie, nor how long it may take, nor
    `fresh`, which deletes what was there. The file of a plug-in is named without its folder.
    """
    repeats = re.compile(r"[~+]*(?!(?:out|stop_at|fresh|wandb|hydra|task\.path|allowed_packages=.*\.py)\b)\w[\w./@]*=")
    words = [word for word in cfg.overrides if repeats.match(word)]
    return [re.sub(r"^((?:task|position)=).*/(?=.*\.py)", r"\1", word) for word in words]


def git_state() -> dict[str, Any]:
    """The commit of the checkout, and whether files differ from it; None is what git does not tell."""
    if not IN_CHECKOUT:  # whatever repository it was installed into is another
        return {"commit": None, "dirty": None}
    commit, changed = _git("rev-parse", "HEAD"), _git("status", "--porcelain")
    return {"commit": commit, "dirty": None if changed is None else bool(changed)}


@functools.cache  # of the code that runs, whatever is committed since
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
