"""What older records call things: every reader passes through here, so that they are read as if written today."""

import functools
import re
from typing import Any

# Settings that were added after runs had been kept, and the value that earlier runs had. At that value a run is the
# run it was without the setting. A scheme within another scheme has the settings of `position` too.
BACKFILLED: dict[str, Any] = {
    "model.init": "pytorch",
    "model.attention": "softmax",
    "train.accumulate": 1,
    "train.processes": 1,
    "eval.lengths": [],
    "eval.problems_at_end": None,
    "task.shortest": None,
    "task.distinct": False,
    "position.value_fraction": 1.0,
    "position.value_base": None,
    "position.pairs": "neighbours",
    "position.delta_init": 0.0,
    "train.weight_decay_on": "all",
    "train.min_lr": 0.0,
}

# Old name → new name.
SETTINGS: dict[str, str] = {
    "position.reach": "position.scale_base",
    "position.furthest": "position.max_distance",
}
CLASSES: dict[str, str] = {}  # import paths, as `_target_` has them
MOVED = re.compile(r"^rope_lab\.(?=(more_)?positions\.)")  # modules that stand in rope_lab.model since
SLICES = {"place": "answer_position"}
PROBES = {"still=": "ablate="}  # how a probe begins, in its reports
OUTCOMES = {"waves": "wavelengths"}  # keys of what a probe found

NESTED = re.compile(r"position\.(?:\w+\.)+(?=\w+$)")


@functools.cache
def general(key: str) -> str:
    """A setting of a scheme within another, `position.scheme.base`, as one of any scheme: `position.base`."""
    return NESTED.sub("position.", key) if key.count(".") > 1 else key


def renamed(settings: dict[str, Any]) -> dict[str, Any]:
    """Flat settings (`train.lr`) of any age under today's names."""
    found = {}
    for key, value in settings.items():
        new = SETTINGS.get(general(key))
        if new:
            key = key.rpartition(".")[0] + "." + new.rpartition(".")[2]
        if key.endswith("_target_") and isinstance(value, str):
            value = MOVED.sub("rope_lab.model.", CLASSES.get(value, value))
        found[key] = value
    return found
