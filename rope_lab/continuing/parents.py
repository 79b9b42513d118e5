"""Trained runs from which others begin, and longer texts for them."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rope_lab.results.records.catalogue import Catalogue, TaskReport
from rope_lab.text import ConfigError, Record, Settings, amount, flat, show
from rope_lab.train import config, provenance
from rope_lab.train.config import Config
from rope_lab.train.instantiate import config_errors
from rope_lab.train.load import record_of

MOST_TIMES = 1000  # the longest length of training


@dataclass(frozen=True)
class Parent:
    """A finished run: its folder, its settings, and its run.json."""

    folder: Path
    cfg: Config
    content: Record

    @property
    def settings(self) -> Settings:
        """All of its settings, `task.string_length`."""
        return flat(dataclasses.asdict(self.cfg))

    @functools.cached_property
    def report(self) -> TaskReport:
        """How its task is shown."""
        return Catalogue().report(self.cfg.names.task, self.content["metrics"], {})

    @functools.cached_property
    def longest_setting(self) -> str:
        """The setting that is the longest length of training, `task.string_length`. Raises
        ConfigError if it is unknown.
        """
        if setting := self.report.length["longest"]:
            return setting
        task = config.build_task(self.cfg)
        name = self.cfg.names.task
        if not task.longest_setting:
            raise ConfigError(f"task={name}: has no longest_setting; set_lengths, for one, sets it")
        setting = f"task.{task.longest_setting}"
        lengths = getattr(task, "lengths", None)
        longest = self.settings.get(setting)
        if longest is None or (lengths and longest != lengths[1]):
            wrong = f"{task.longest_setting} is no argument of the task, or has another value"
            raise ConfigError(f"task={name}: set_lengths: {wrong}")
        return setting


@dataclass(frozen=True)
class Target:
    """A longer text.

    times:   how many times as long as the longest one of training
    length:  in the task's unit, as in eval.lengths
    tokens:  of a text of that length; trained: of the longest text of training
    """

    times: float
    length: int
    tokens: int
    trained: int

    @property
    def name(self) -> str:
        return f"{self.times:g}x"

    @property
    def factor(self) -> float:
        """By how much positions grow."""
        return self.tokens / self.trained


def parents(folders: Sequence[str], allowed: list[str], device: str = "") -> list[Parent]:
    """The runs in folders, by seed. Raises ConfigError unless they differ in their seed alone, and
    have finished, with today's code of the user's own task and scheme.

    device: of the runs that will begin from them, if not theirs
    """
    found = [_parent(Path(folder).expanduser(), allowed, device) for folder in folders]
    first = found[0].content
    for each in found:
        content = each.content
        if content["status"] != "finished":
            said = f"this run is {content['status']}; finish it, or leave it out"
            raise ConfigError(f"{each.folder}: {said}")
        own_code = content["provenance"].get("plugin", {})
        if own_code != provenance.code(each.cfg)["plugin"]:
            said = "the code of its scheme or task has changed; go back to it, or train it again"
            raise ConfigError(f"{each.folder}: {said}")
        for key in ("recipe_id", "scheme_id"):
            if content[key] != first[key]:
                said = f"differs from {found[0].folder} in more than the seed; leave one out"
                raise ConfigError(f"{each.folder}: {said}")
    by_seed = {each.content["seed"]: each for each in found}
    if len(by_seed) < len(found):
        raise ConfigError("two of these runs have the same seed; leave one out")
    return [by_seed[seed] for seed in sorted(by_seed)]


def _parent(folder: Path, allowed: list[str], device: str) -> Parent:
    content = record_of(folder)
    if device:
        content = content | {"config": content["config"] | {"device": device}}
    return Parent(folder.absolute(), config.from_record(content["config"], allowed), content)


def targets(parent: Parent, lengths: str) -> tuple[int, list[Target]]:
    """The longest length of training, in the task's unit, and the longer ones that `2x,4x` names.
    Raises ConfigError.
    """
    trained_length = parent.settings[parent.longest_setting]
    task = config.build_task(parent.cfg)
    found = []
    for word in dict.fromkeys(lengths.split(",")):
        times = amount(word.strip(), "x")
        if times is None or not 1 < times <= MOST_TIMES:
            must = f"must be multiples above 1 and at most {MOST_TIMES}, 2x,4x,8x"
            raise ConfigError(f"--lengths {show(lengths)}: {must}")
        length = math.ceil(times * trained_length)
        with config_errors(f"--lengths {word}: "):
            tokens = task.of_length(length).max_length
        found.append(Target(times, length, tokens, task.max_length))
    return trained_length, sorted(found, key=lambda target: target.times)
