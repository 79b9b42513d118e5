"""The trained runs whose texts are to become longer, and those lengths."""

import dataclasses
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rope_lab.results.records.catalogue import Catalogue, TaskReport
from rope_lab.text import FIND_RUNS, ConfigError, Record, flat, show
from rope_lab.train import config, run_folder
from rope_lab.train.config import Config
from rope_lab.train.instantiate import config_errors

MOST_TIMES = 1000  # the longest length of training
TIMES = re.compile(r"(\d+(?:\.\d+)?)x")


@dataclass(frozen=True)
class Parent:
    """A finished run: its folder, its settings, and its run.json."""

    folder: Path
    cfg: Config
    content: Record


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


def parents(folders: Sequence[str], allowed: list[str]) -> list[Parent]:
    """The runs in folders, by seed. Raises ConfigError unless they differ in their seed alone, and
    have finished.
    """
    found = [_parent(Path(folder).expanduser(), allowed) for folder in folders]
    first = found[0].content
    for each in found:
        content = each.content
        if content["status"] != "finished":
            said = f"this run is {content['status']}; finish it, or leave it out"
            raise ConfigError(f"{each.folder}: {said}")
        for key in ("recipe_id", "scheme_id"):
            if content[key] != first[key]:
                said = f"differs from {found[0].folder} in more than the seed; leave one out"
                raise ConfigError(f"{each.folder}: {said}")
    by_seed = {each.content["seed"]: each for each in found}
    if len(by_seed) < len(found):
        raise ConfigError("two of these runs have the same seed; leave one out")
    return [by_seed[seed] for seed in sorted(by_seed)]


def _parent(folder: Path, allowed: list[str]) -> Parent:
    content = run_folder.read(folder)
    if content is None:
        raise ConfigError(f"{folder}: is not a run folder; {FIND_RUNS}")
    return Parent(folder.absolute(), config.from_record(content["config"], allowed), content)


def targets(parent: Parent, lengths: str) -> tuple[int, list[Target]]:
    """The longest length of training, in the task's unit, and the longer ones that `2x,4x` names.
    Raises ConfigError.
    """
    longest = longest_setting(parent.cfg)
    trained_length = flat(dataclasses.asdict(parent.cfg))[longest]
    task = config.build_task(parent.cfg)
    found = []
    for word in dict.fromkeys(lengths.split(",")):
        times = TIMES.fullmatch(word.strip())
        if times is None or not 1 < float(times[1]) <= MOST_TIMES:
            must = f"must be multiples above 1 and at most {MOST_TIMES}, 2x,4x,8x"
            raise ConfigError(f"--lengths {show(lengths)}: {must}")
        length = math.ceil(float(times[1]) * trained_length)
        with config_errors(f"--lengths {word}: "):
            tokens = task.of_length(length).max_length
        found.append(Target(float(times[1]), length, tokens, task.max_length))
    return trained_length, sorted(found, key=lambda target: target.times)


def report_of(cfg: Config) -> TaskReport:
    """How the task of a run is shown."""
    return Catalogue().report(cfg.names.task, {"eval/loss"}, {})


def longest_setting(cfg: Config) -> str:
    """The setting that is the longest length of training, `task.string_length`. Raises ConfigError
    if the task has no lengths.
    """
    if setting := report_of(cfg).length["longest"]:
        return setting
    argument = getattr(config.build_task(cfg), "longest_setting", "")
    if not argument:
        raise ConfigError(
            f"task={cfg.names.task}: its problems have no length; it needs set_lengths"
        )
    return f"task.{argument}"
