"""Torch's global settings that change numbers: set for a run, and restored after it.

A caller of `fit`, or a file of the user's own, may have changed them for the whole process.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch


class Setting(NamedTuple):
    """A global setting: how it is read and written, and its value in a new process."""

    read: Callable[[], Any]
    write: Callable[[Any], None]
    default: Any


def _flag(owner: Any, name: str, default: bool) -> Setting:
    """An attribute of a module of `torch.backends`."""
    return Setting(lambda: getattr(owner, name), lambda value: setattr(owner, name, value), default)


def _read_deterministic() -> tuple[bool, bool]:
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    return torch.are_deterministic_algorithms_enabled(), warns


def _write_deterministic(value: tuple[bool, bool]) -> None:
    enabled, warns = value
    torch.use_deterministic_algorithms(enabled, warn_only=warns)


def _write_device(device: torch.device) -> None:
    is_default = device == torch.device("cpu")
    torch.set_default_device(None if is_default else device)


cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
SETTINGS = {
    "default dtype": Setting(torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    "default device": Setting(torch.get_default_device, _write_device, torch.device("cpu")),
    "deterministic algorithms": Setting(_read_deterministic, _write_deterministic, (False, False)),
    "float32 matmul precision": Setting(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"
    ),
    "reduced precision in bfloat16 matmul": _flag(
        cuda.matmul, "allow_bf16_reduced_precision_reduction", True
    ),
    "TF32 in cuDNN": _flag(cudnn, "allow_tf32", True),
    "cuDNN benchmark": _flag(cudnn, "benchmark", False),
    "cuDNN deterministic": _flag(cudnn, "deterministic", False),
}
CACHE = "TORCHINDUCTOR_CACHE_DIR"  # torch sets it when the first optimizer is made
THREADS = Setting(torch.get_num_threads, torch.set_num_threads, None)


@contextlib.contextmanager
def restored() -> Iterator[list[str]]:
    """A context after which torch's settings, threads, random state and CACHE are as before it.

    Yields a list; at the end it holds the names of the settings that were changed within.
    """
    settings = SETTINGS | {"number of threads": THREADS}
    before = {name: setting.read() for name, setting in settings.items()}
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    changed: list[str] = []
    cache = os.environ.get(CACHE)
    try:
        with torch.random.fork_rng(devices=gpus):
            yield changed
    finally:
        for name, setting in settings.items():
            if setting.read() != before[name]:
                changed.append(name)
                setting.write(before[name])
        if cache is None:
            os.environ.pop(CACHE, None)


@contextlib.contextmanager
def standard() -> Iterator[None]:
    """A context in which torch computes as in a new process, whatever was set before it.

    The number of threads stays; all that is set within is undone at the end.
    """
    with restored(), contextlib.ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for setting in SETTINGS.values():
            if setting.read() != setting.default:
                setting.write(setting.default)
        yield
