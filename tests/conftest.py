"""Shared fixtures: the names in conf/, the settings of a run that trains in a moment, and run
folders.

Torch takes 3 seconds of a core to import: only fixtures that need it import it, through trained.py.
"""

import atexit
import importlib.util
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from rope_lab import command

ROOT = Path(__file__).resolve().parent.parent
CONF = ROOT / "conf"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
SCHEMES = sorted(path.stem for path in (CONF / "position").glob("*.yaml"))
TASKS = sorted(path.stem for path in (CONF / "task").glob("*.yaml"))
RECIPES = sorted((path.parent.name, path.stem) for path in (CONF / "recipe").glob("*/*.yaml"))
# One scheme of each kind, for slow tests of all: see `schemes_by_class`.
KINDS = [
    *("alibi", "cope", "irope", "kv_shared", "learned", "path", "pope_roper"),
    *("randomized_rope", "roper", "selective_rope", "sinusoidal", "t5_bias"),
]
# Tasks of a corpus; the others generate their own text and grade it.
TEXTS = {"text", "packed_text"}
GENERATED = [recipe for recipe in RECIPES if recipe[0] not in TEXTS]

TINY = [
    *("model.d_model=16", "model.n_layers=1", "model.n_heads=2"),
    *(
        "train.steps=6",
        "train.batch_size=4",
        "train.seq_len=64",
        "train.warmup=2",
        "train.log_every=2",
    ),
    *("eval.every=3", "eval.problems=8", "eval.sequences=2", "wandb.mode=disabled"),
    *("threads=1", "device=cpu", "train.precision=float32"),
]


def fuzz(examples: int) -> int:
    """The number of random examples of a fuzz test: all `examples` under `make torture`, otherwise
    a tenth.
    """
    return examples if "FUZZ" in os.environ else examples // 10


def slow_except(fast: Iterable[str], names: Iterable[str]) -> list:
    """Parameters of a test: only the names in `fast` run in `make test`, the others are slow."""
    slow = pytest.mark.slow
    return [name if name in fast else pytest.param(name, marks=slow) for name in names]


def schemes_by_class(fast: Iterable[str]) -> list:
    """SCHEMES as parameters of a test: `fast` ones run in `make test`, the other KINDS and one
    scheme of each other class in `make test-slow`, the rest in `make torture`.
    """
    found, seen = [], {_class_of(name) for name in KINDS}
    for name in SCHEMES:
        if name in KINDS:
            found += slow_except(fast, [name])
            continue
        cls = _class_of(name)
        marks = pytest.mark.torture if cls in seen else pytest.mark.slow
        found.append(pytest.param(name, marks=marks))
        seen.add(cls)
    return found


def _class_of(scheme: str) -> str:
    return yaml.safe_load((CONF / "position" / f"{scheme}.yaml").read_text("utf-8"))["_target_"]


# Not the user's own cache.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="rope_lab-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)


@pytest.fixture
def tiny(tmp_path):
    """Overrides of a run that takes a moment, with its own output folder."""
    return [*TINY, f"out={tmp_path / 'runs'}"]


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    """The folder of a finished run of TINY; tests must not change it."""
    from trained import run

    out = tmp_path_factory.mktemp("finished")
    run([*TINY, f"out={out}"])
    return only_folder(out)


@pytest.fixture
def folder(finished, tmp_path) -> Path:
    """A copy of `finished` under the same name, in the folder `runs`."""
    return shutil.copytree(finished, tmp_path / "runs" / finished.name)


def script(name: str) -> ModuleType:
    """A file of scripts/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def only_folder(out: Path) -> Path:
    """The one run folder in `out`."""
    (folder,) = [path for path in out.iterdir() if (path / "run.json").exists()]
    return folder


@pytest.fixture
def undrawn(monkeypatch) -> None:
    """Pages and reports have no charts, which take most of their time."""
    from undrawn import draw_nothing

    draw_nothing(monkeypatch)


@pytest.fixture
def out(tmp_path) -> Path:
    """A folder of four runs of RoPE and four of RoPER, with synthetic records."""
    from builders import ROPE, ROPER, make_pairs

    return make_pairs(tmp_path, ROPE, ROPER)


@pytest.fixture
def write(tmp_path, monkeypatch) -> Iterator[Callable[[str, str], Path]]:
    """Write a user's files into the working directory; their modules are unloaded afterwards."""
    monkeypatch.chdir(tmp_path)

    def write(name: str, source: str) -> Path:
        (tmp_path / name).write_text(source)
        return tmp_path / name

    yield write
    for path in tmp_path.glob("*.py"):
        if getattr(sys.modules.get(path.stem), "__file__", None) == str(path.resolve()):
            del sys.modules[path.stem]


def tree(folder: Path) -> dict[str, bytes]:
    """Every path below a folder, with the content of files and the targets of links."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() or path.is_symlink()]
    return {
        str(p.relative_to(folder)): str(p.readlink()).encode() if p.is_symlink() else p.read_bytes()
        for p in paths
    }


def flip(path: Path) -> None:
    """Flip one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def one_line(said: str) -> str:
    """A pattern for a one-line message that contains this text."""
    return rf"\A.*{re.escape(said)}.*\Z"


@pytest.fixture(autouse=True)
def own_handlers(monkeypatch) -> Iterator[None]:
    """Restore signal handlers after each test, since a command leaves them ignored. SIGHUP has its
    default: under nohup it is ignored, and runs then ignore it too.
    """
    monkeypatch.setattr(command, "_ours", False)
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True, scope="session")
def unsynced() -> Iterator[None]:
    """Replace fsync by a no-op: it is slow, and no test cuts the machine's power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield
