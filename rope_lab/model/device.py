"""Moving data to an accelerator without waiting for it, and sizes that fit its memory.

A copy from memory that is not pinned waits until the device has finished its queue (CUDA runtime
API, API synchronization behavior); so does every number that Python reads from it.
"""

import ctypes
import functools
import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

UNPINNED = {"cpu", "mps"}
WITHOUT_FLOAT64 = {"mps"}
NEAR = 2**14  # tokens of a pass on a CPU, so that its intermediate results stay in the caches
MOST = 2**18  # tokens of a pass on a GPU; more make it no faster
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for later allocations of this process; a no-op with other C
    libraries.

    By default large blocks go back to the system, which clears them page by page at the next
    allocation: a fifth of a small model's step. The setting cannot be undone: the process may hold
                as much memory as it once used until it ends.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def cpu_name() -> str:
    """The processor's name; it begins with the maker's."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def has_float64(device: torch.device) -> bool:
    return device.type not in WITHOUT_FLOAT64


def pinned(x: Tensor, device: torch.device) -> Tensor:
    """`x` in pinned memory if the device copies from it by itself, else `x`."""
    return x if device.type in UNPINNED else x.pin_memory()


def send(x: Tensor, device: torch.device) -> Tensor:
    """`x` on the device, asynchronously if that supports it; in float32 if it has no float64."""
    if x.dtype == torch.float64 and not has_float64(device):
        x = x.float()
    return pinned(x, device).to(device, non_blocking=device.type not in UNPINNED)


def ahead(make: Callable[[int], Any]) -> Callable[[int], Any]:
    """`make`, to be called with k = 0, 1, …: a thread prepares k + 1 while k is used."""
    thread = ThreadPoolExecutor(1, "ahead")
    begun = functools.lru_cache(2)(lambda k: thread.submit(make, k))

    def made(k: int) -> Any:
        now = begun(k)
        _ = begun(k + 1)
        return now.result()

    return made


def room(device: torch.device, otherwise: int) -> int:
    """Bytes for intermediate results: an eighth of a GPU's memory; `otherwise` elsewhere."""
    return (
        torch.cuda.get_device_properties(device).total_memory // 8
        if device.type == "cuda"
        else otherwise
    )
