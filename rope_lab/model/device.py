"""What a device that computes on its own, such as a GPU, is given, when, and how much at once.

It is kept waiting by a copy from memory that is not pinned, which begins once the device has done all that it was told
(CUDA runtime API, API synchronization behavior), and by every number that Python reads of what it computes.
"""

import ctypes
import platform
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

UNPINNED = {"cpu", "mps"}
WITHOUT_FLOAT64 = {"mps"}
NEAR = 2**14  # tokens: on a CPU what a pass works out on the way should stay near the processor
MOST = 2**18  # tokens after which a GPU gains nothing by more
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h

Made = TypeVar("Made")


def keep_freed_memory() -> None:
    """Has glibc keep the memory that this process frees for what it allocates next.

    It would return large blocks to the system, which clears them page by page when the next step asks for as much: a
    fifth of a small model's step. This is for the whole process and cannot be taken back: what it once used, at most,
    it holds until it ends. Other C libraries are left as they are.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def cpu_name() -> str:
    """The processor's name, which begins with that of its maker."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def has_float64(device: torch.device) -> bool:
    return device.type not in WITHOUT_FLOAT64


def pinned(x: Tensor, device: torch.device) -> Tensor:
    """`x` in memory from which the device can copy by itself, where it is one that does."""
    return x if device.type in UNPINNED else x.pin_memory()


def send(x: Tensor, device: torch.device) -> Tensor:
    """`x` from the CPU on the device, which is not waited for where it copies by itself."""
    return pinned(x, device).to(device, non_blocking=device.type not in UNPINNED)


def ahead(make: Callable[[int], Made]) -> Callable[[int], Made]:
    """`make`, a function of k = 0, 1, … alone, that a thread already works out for k + 1 when it is asked for k."""
    thread, begun = ThreadPoolExecutor(1, "ahead"), dict[int, Future[Made]]()

    def made(k: int) -> Made:
        found = begun.pop(k, None) or thread.submit(make, k)
        begun.clear()
        begun[k + 1] = thread.submit(make, k + 1)
        return found.result()

    return made


def tokens_at_once(device: torch.device, bytes_of_token: int) -> int:
    """How many tokens a pass without gradients reads at most, each taking up so many bytes meanwhile."""
    return min(MOST, room(device, 0) // bytes_of_token) if device.type == "cuda" else NEAR


def room(device: torch.device, otherwise: int) -> int:
    """Bytes that what is computed side by side may take: an eighth of a GPU's memory, elsewhere `otherwise`."""
    return torch.cuda.get_device_properties(device).total_memory // 8 if device.type == "cuda" else otherwise
