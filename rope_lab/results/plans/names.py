"""The names of a scheme, and how one follows from another:

    word    ./mine.py                         as `position=` takes it
    planned ./mine.py position.base=100       in plan.yaml and tables of runs: with its own settings
    record  mine                              in run records, `position`
    arm     mine (base=100, train.lr=0.004)   in results: a side of a comparison
    scheme  mine (base=100)                   an arm at any learning rate

A task has a word and a name in records too.
"""

import functools
from pathlib import Path

from omegaconf import OmegaConf

from rope_lab.text import Settings, flat

RATE = "train.lr="  # begins an override; also within the name of an arm


def recorded_name(word: str) -> str:
    """The name in records of a scheme or a task: `mine` of `./mine.py`, `mine-Steep` of
    `./mine.py:Steep`.
    """
    file, _, cls = word.partition(".py:")
    return "-".join(filter(None, [Path(file).stem, cls]))


def position_of(planned: str) -> str:
    """The name in records of a planned scheme: `rope` of `rope position.base=100`."""
    return recorded_name(planned.split()[0])


@functools.cache
def own_settings(planned: str) -> Settings:
    """The settings of a planned scheme: `rope position.base=100`. Not to be changed."""
    return flat(OmegaConf.to_container(OmegaConf.from_dotlist(planned.split()[1:])))


def arm_name(planned: str) -> str:
    """The arm of a planned scheme: `rope (base=100)` of `rope position.base=100`."""
    name, *settings = planned.split()
    shown = ", ".join(setting.removeprefix("position.") for setting in settings)
    return recorded_name(name) + (f" ({shown})" if shown else "")


def scheme_of(arm: str) -> str:
    """An arm without a learning rate of its own: `rope (base=100)` of
    `rope (base=100, train.lr=1e-3)`.
    """
    name, _, settings = arm.partition(" (")
    every = settings.removesuffix(")").split(", ")
    own = ", ".join(each for each in every if not each.startswith(RATE))
    return f"{name} ({own})" if own else name
