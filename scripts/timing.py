"""What the scripts that time have in common: shapes, calls timed in turn, and what else the machine did meanwhile."""

import os
import re
import resource
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tqdm import tqdm

from rope_lab.train import config

BUSY = 0.05  # of a core: what others may use without a word
WIDE = 1.5  # how many times the median the slowest of some calls may take without a word


@dataclass(frozen=True)
class Shape:
    """A model and batch on which training steps are compared."""

    name: str
    overrides: tuple[str, ...]

    @property
    def cfg(self) -> config.Config:
        return config.load("wandb.mode=disabled", *self.overrides)


SHAPES = [
    Shape("quick", ("task=substring_by_index",)),
    Shape("0.6M", ("task=substring_by_prefix", "scale=paper")),
    Shape("20M", ("task=substring_by_index", "scale=paper", "train.batch_size=4")),
]
TEXT = [Shape("text 0.8M", ("task=text",)), Shape("text 3M", ("task=text", "scale=reduced"))]


def flop(cfg: config.Config, vocabulary: int) -> tuple[float, float]:
    """Of a training step's matrix products: those of its linear layers, and those with attention's.

    Attention's are counted up to the diagonal. Both are three times the forward pass, two for a product and a sum.
    """
    d, layers, t = cfg.model.d_model, cfg.model.n_layers, cfg.train
    tokens = t.batch_size * t.seq_len
    linear = 3 * 2 * tokens * (12 * d * d * layers + d * vocabulary)
    return linear, linear + 3 * 2 * 2 * tokens * (t.seq_len + 1) / 2 * d * layers


def spread(seconds: list[float], unit: float = 1e-3) -> str:
    return f"{median(seconds) / unit:.4g} ({min(seconds) / unit:.4g} to {max(seconds) / unit:.4g})"


def table(head: list[str], lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines])


def most_memory() -> int:
    """Peak memory of this process in KiB; on Linux without its parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\s*(\d+)", status.read_text())[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1)


def busy_seconds() -> float | None:
    """Core seconds that the machine has worked, for whom ever; None where nobody tells."""
    with suppress(OSError, ValueError):
        user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
        return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return None


def own_seconds() -> float:
    """Core seconds of this process and of those that it has waited for."""
    return sum(os.times()[:4])


@dataclass
class Watch:
    """Times calls, shows how far it is, and notices what disturbs them."""

    spreads: dict[str, float] = field(default_factory=dict)  # of each subject, the slowest call over the median
    began: float = field(default_factory=time.perf_counter)
    busy: float | None = field(default_factory=busy_seconds)
    own: float = field(default_factory=own_seconds)

    def compare(self, subjects: dict, repetitions: int, warm: int = 2, what: str = "") -> dict:
        """Seconds per call of each subject, timed alternately after `warm` calls of each."""
        seconds: dict = {name: [] for name in subjects}
        calls = [
            *((name, False) for name in subjects for _ in range(warm)),
            *([*((n, True) for n in subjects)] * repetitions),
        ]
        shown = tqdm(calls, what, leave=False, mininterval=0.1 if sys.stderr.isatty() else 30, dynamic_ncols=True)
        for name, counts in shown:
            shown.set_postfix_str(str(name), refresh=False)
            begun = time.perf_counter()
            subjects[name]()
            if counts:
                seconds[name].append(time.perf_counter() - begun)
        self.spreads |= {f"{what} {name}".strip(): max(each) / median(each) for name, each in seconds.items()}
        return seconds

    def took(self) -> float:
        """Seconds since it began."""
        return time.perf_counter() - self.began

    def disturbance(self) -> str | None:
        """What makes its figures doubtful, as a sentence: others at work, or calls of very different length."""
        found, now = [], busy_seconds()
        if now is not None and self.busy is not None:
            others = (now - self.busy - (own_seconds() - self.own)) / self.took()
            found += [f"others used {others:.2f} cores meanwhile"] if others > BUSY else []
        name = max(self.spreads, key=self.spreads.__getitem__, default=None)
        if name is not None and self.spreads[name] > WIDE:
            found.append(f"the slowest call of {name} took {self.spreads[name]:.1f} times the median")
        return "Disturbed: " + "; ".join(found) if found else None
