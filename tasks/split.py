"""The train/held-out split: a stable hash of a problem decides on which side it is, on every
machine and for ever.
"""

from collections.abc import Callable

import numpy as np

from rope_lab.text import ConfigError

HASH_CLASSES = 16  # a problem is held out if its hash falls into the first of these classes
HELD_OUT_SHARE = 1 / HASH_CLASSES


def is_held_out(columns: np.ndarray) -> np.ndarray:
    """The held-out ones among rows of integers [n, columns]: bool [n]."""
    factors = np.cumprod(np.full(columns.shape[1], 0x9E3779B97F4A7C15, dtype=np.uint64))
    mixed = ((columns.astype(np.uint64) + np.uint64(1)) * factors).sum(axis=1, dtype=np.uint64)
    finalizer = (30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)  # of splitmix64
    for shift, factor in finalizer:
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed % np.uint64(HASH_CLASSES) == 0


def draw_side(
    held_out: bool,
    n: int,
    draw: Callable[[int], np.ndarray],
    key: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """At least `n` rows, all held out or none. Raises ConfigError if hardly any are such.

    draw: rows [m, columns], given how many are missing; key: the columns of rows that are hashed
    """
    kept, total = [], 0
    for _ in range(100):
        drawn = draw(n - total)
        kept.append(drawn[is_held_out(key(drawn)) == held_out])
        total += len(kept[-1])
        if total >= n:
            return np.concatenate(kept)
    side = "evaluation" if held_out else "training"
    raise ConfigError(
        f"the task is too small, hardly any problems belong to {side}: make its problems larger"
    )
