"""The cores that this process may use."""

import math
import os
from contextlib import suppress
from pathlib import Path

QUOTAS = Path("/sys/fs/cgroup/cpu.max"), Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")


def usable_cores() -> int:
    """The number of cores that this process may use: those of its affinity mask, as `taskset` sets
    it, and no more than a container's quota of CPU time.
    """
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    return min(cores, _quota(cores))


def _quota(otherwise: int) -> int:
    """The cores' worth of time that the container has, rounded up; `otherwise` without a limit.

    Control groups of version 2 say `max 100000`, or quota and period; of version 1 a file each.
    """
    for path in QUOTAS:
        with suppress(OSError, ValueError):
            words = path.read_text().split()
            if len(words) == 1:
                words.append(path.with_name("cpu.cfs_period_us").read_text())
            quota, period = int(words[0]), int(words[1])
            return math.ceil(quota / period) if quota > 0 else otherwise
    return otherwise


CORES = usable_cores()
