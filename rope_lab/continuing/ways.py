"""The ways to read longer texts with a trained model: each is a run that begins from it.

Without further training a run has no steps. With it, methods that change distances are trained at
the new length, as their authors do, and DroPE at the old one; the control, the scheme as it is, is
trained at both.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from rope_lab.continuing.children import Jobs, child, further
from rope_lab.continuing.parents import Parent, Target
from rope_lab.places import CONF
from rope_lab.results.comparisons.continued import AS_IS, WINDOWS, Key
from rope_lab.text import Settings

SCALINGS = {
    "position interpolation": "linear",
    "NTK-aware": "ntk",
    "NTK by parts": "ntk_by_parts",
    "YaRN": "yarn",
}
REMAPPED = {"ReRoPE": "rerope", "SelfExtend": "self_extend", "dual chunks": "dual_chunk"}
# Files of conf/ with the schemes of REMAPPED and of DroPE.
OF_REMAPPED, OF_NONE = Path("position/rope_remapped.yaml"), Path("position/none.yaml")
OF_SCALING = ("scaling", "factor", "original", "window")  # settings that REMAPPED do not have
FAR = 2 / 3  # of the training length: SelfExtend's longest distance (its authors: ½ to ⅔)


@dataclass(frozen=True)
class Way:
    """A way to read a longer text.

    name:     in tables
    position: the settings of its scheme; changed: others that it changes
    at_old_length: where it is trained further
    """

    name: str
    position: Settings
    changed: Settings = field(default_factory=dict)
    at_old_length: bool = False


def ways(parent: Parent, target: Target) -> list[Way]:
    """The ways that the parent's scheme has: all for rotary schemes of the class `Rotary`."""
    own = parent.cfg.position
    found = [Way(AS_IS, own)]
    is_rotary = own.get("scaling") == "none"
    has_window = bool(own.get("window"))
    if is_rotary:
        for name, scaling in SCALINGS.items():
            scaled = {"scaling": scaling, "factor": target.factor, "original": target.trained}
            found.append(Way(name, own | scaled))
    if has_window:  # the others would see more tokens than the control
        return found
    if is_rotary and own["_target_"].startswith("rope_lab."):  # not a subclass of the user's own
        found += _remapped(own, target)
    # `every`: a window in some layers alone.
    if own.get("window", 0) is None and "every" not in own:
        found.append(Way(WINDOWS, own | {"window": target.trained}))
    if is_rotary:
        none = {"_target_": _class_of(OF_NONE)}
        dropped = {"names.position": OF_NONE.stem}
        found.append(Way("DroPE", none, dropped, at_old_length=True))
        if not parent.cfg.model.qk_norm:
            normed = dropped | {"model.qk_norm": True}
            found.append(Way("DroPE, q and k norms", none, normed, at_old_length=True))
    return found


def _remapped(own: Settings, target: Target) -> list[Way]:
    kept = {key: value for key, value in own.items() if key not in OF_SCALING}
    kept |= {"_target_": _class_of(OF_REMAPPED), "original": target.trained}
    near = max(1, target.trained // 4)
    group = math.ceil((target.tokens - near) / max(1, FAR * target.trained - near))
    found = []
    for name, method in REMAPPED.items():
        of_method = {"method": method}
        if method == "self_extend":
            of_method |= {"near": near, "group": max(2, group)}
        found.append(Way(name, kept | of_method, {"names.position": OF_REMAPPED.stem}))
    return found


def _class_of(file: Path) -> str:
    """The class of a scheme of conf/, with its module."""
    return yaml.safe_load((CONF / file).read_text("utf-8"))["_target_"]


def lengths_of(parent: Parent, trained: int, targets: Sequence[Target]) -> list[int]:
    """The lengths that every run is evaluated at: that of training and the longer ones. Of a loss
    by position also the half of each, and a quarter of the first.
    """
    lengths = {trained, *(target.length for target in targets)}
    if not parent.report.measure.share:
        lengths |= {length // 2 for length in lengths} | {trained // 4}
    return sorted(length for length in lengths if length > 0)


def jobs(
    every: Sequence[Parent],
    trained: int,
    targets: Sequence[Target],
    steps: int,
    folder: Path,
    lr: float | None = None,
) -> Jobs:
    """The runs of each way at each longer length, a run for each parent.

    trained: the longest length of training; steps, lr: of further training. A run that serves
    several lengths stands under each of them.
    """
    lengths = lengths_of(every[0], trained, targets)
    found: Jobs = {}
    for target in targets:
        for key, changed in _keys(every[0], target, further(steps, lr)):
            changed |= {"eval.lengths": lengths, "eval.every": max(steps, 1)}
            found[key] = [child(parent, changed, key.label, folder) for parent in every]
    return found


def _keys(parent: Parent, target: Target, training: Settings) -> list[tuple[Key, Settings]]:
    """The ways to read one length, without and with further training, and their settings.

    training: the settings of further training
    """
    steps = training["train.steps"]
    untrained, trained = [], []
    for way in ways(parent, target):
        key = Key(target.name, target.length, way.name)
        changed = way.changed | {"position": way.position}
        untrained.append((key, changed | {"train.steps": 0}))
        trained_further = changed | training
        if way.at_old_length or way.name == AS_IS:
            trained.append((replace(key, steps=steps, at=target.trained), trained_further))
        if not way.at_old_length:
            longer = trained_further | _longer(parent, target)
            trained.append((replace(key, steps=steps, at=target.tokens), longer))
    return untrained + trained if steps else untrained


def _longer(parent: Parent, target: Target) -> Settings:
    """The settings of training at a longer length: as many tokens per step, rounded up to whole
    sequences.
    """
    train, task = parent.cfg.train, parent.cfg.task
    sequences = math.ceil(train.batch_size / target.times / train.accumulate)
    changed: Settings = {
        parent.longest_setting: target.length,
        "train.seq_len": math.ceil(target.times * train.seq_len),
        "train.batch_size": sequences * train.accumulate,
    }
    if "context" in task:
        changed["task.context"] = changed["train.seq_len"]
    return changed
