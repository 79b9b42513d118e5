"""Shapes to time, calls timed in turn, and floating-point operations."""

import itertools
import time
from collections.abc import Callable, Hashable, Sequence

import numpy as np
import torch
from tqdm import tqdm

from rope_lab.train import config
from rope_lab.train.trainer import Trainer, resolve, update

SHAPES = {
    "quick": ("task=substring_by_index", "scale=quick"),
    "0.6M": ("task=substring_by_prefix", "scale=paper"),
    "20M": ("task=substring_by_index", "scale=paper", "train.batch_size=4"),
    "text 0.8M": ("task=text", "scale=quick"),
    "text 3M": ("task=text", "scale=reduced"),
}
FEW_PROBLEMS = ("eval.problems=2", "eval.problems_at_end=null", "eval.sequences=2")
WARM = 2  # calls of each that are not counted


def load(*settings: str) -> config.Config:
    return resolve(config.load("wandb.mode=disabled", *settings))


def training_step(trainer: Trainer) -> Callable[[], object]:
    """A step as training takes it: with its next batch, and the check for finite numbers."""
    steps = itertools.count()
    return lambda: update(trainer, next(steps))


def alternate(calls: dict[Hashable, Callable], repeats: int, device: str) -> dict[Hashable, list[float]]:
    """Seconds of each call: one of each in turn, `repeats` times."""
    seconds: dict[Hashable, list[float]] = {name: [] for name in calls}
    for repeat in tqdm(range(-WARM, repeats), "repeats", leave=False, disable=None):
        for name, call in calls.items():
            begun = time.perf_counter()
            call()
            if device != "cpu":
                torch.accelerator.synchronize()
            if repeat >= 0:
                seconds[name].append(time.perf_counter() - begun)
    return seconds


def flop(cfg: config.Config) -> float:
    """Floating-point operations of a training step's matrix products; attention's are counted up to the diagonal.

    Three times the forward pass, and two for a product and a sum.
    """
    d, layers, t = cfg.model.d_model, cfg.model.n_layers, cfg.train
    vocabulary = len(config.build_task(cfg).alphabet)
    weights = 12 * d * d * layers + d * vocabulary
    attention = 2 * (t.seq_len + 1) / 2 * d * layers
    return 3 * 2 * t.batch_size * t.seq_len * (weights + attention)


def matrix_rate(device: str, precision: str) -> float:
    """FLOP/s of products of square matrices."""
    width = 1024 if device == "cpu" else 8192
    a, b = (torch.randn(width, width, device=device, dtype=getattr(torch, precision)) for _ in range(2))
    return 2 * width**3 / np.median(alternate({"": lambda: a @ b}, 9, device)[""])


def spread(values: Sequence[float]) -> str:
    return f"{np.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def table(head: list[str], lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines])
