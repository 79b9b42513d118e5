"""The runs of a sweep, composed from their overrides, and what their folders record."""

import functools
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rope_lab.identity import Identity
from rope_lab.text import ConfigError, Record, say
from rope_lab.train import config, provenance, run_folder
from rope_lab.train.config import Config
from rope_lab.train.instantiate import SWAPPED
from rope_lab.train.load import parent_changed
from rope_lab.train.overrides import key_of
from rope_lab.train.trainer import resolve


@dataclass(frozen=True, eq=False)
class Job:
    """A run of a sweep, and the settings that tell it from the others, `rope seed=1`."""

    cfg: Config
    label: str

    @property
    def name(self) -> str:
        return self.label or self.cfg.names.position

    @functools.cached_property  # for text a corpus is read
    def resolved(self) -> Config:
        """Its settings, as far as this machine can resolve them: a cluster may have other devices
        and texts.
        """
        with suppress(ConfigError):
            return resolve(self.cfg, here=False)
        return self.cfg

    @functools.cached_property
    def identity(self) -> Identity:
        return config.identity(self.resolved)

    def record(self) -> Record:
        """Its run.json as it is now; only a status without one, or if its parent was trained
        again.
        """
        content = run_folder.read(run_folder.out_folder(self.cfg) / self.identity.run_name)
        if content is None or parent_changed(content, self.resolved):
            return {"status": "not run"}
        return content

    def is_of_other_code(self, record: Record) -> bool:
        """Whether its record, or a part of it if it was resumed, is of other code than today's."""
        last = record["provenance"]
        now = provenance.code(self.cfg)
        parts = [*last["earlier"], last]
        return any(provenance.differences(each, now) or provenance.edited(each) for each in parts)


def compose_jobs(every: Sequence[list[str]]) -> list[Job]:
    """A job for each run, once for each folder of a run. Raises ConfigError.

    every: the overrides of each run
    """
    load = functools.cache(config.load)  # composing takes a tenth of a second
    jobs: dict[tuple[str, str], Job] = {}
    for words, label in zip(every, labels(every), strict=True):
        cfg = _compose(words, load)
        parent = cfg.init_from and str(Path(cfg.init_from).expanduser().absolute())
        job = Job(replace(cfg, out=str(run_folder.out_folder(cfg)), init_from=parent), label)
        jobs.setdefault((job.cfg.out, job.identity.run_id), job)
    repeated = len(every) - len(jobs)
    if repeated:
        say(f"{repeated} of {len(every)} runs are listed more than once, and launched once")
    return list(jobs.values())


def labels(every: Sequence[list[str]]) -> list[str]:
    """For each run the settings that not all runs share: `rope seed=1`."""
    settings = []
    for words in every:  # the last of two values counts
        settings.append(dict(word.partition("=")[::2] for word in words))
    if not settings:
        return []
    shared = set.intersection(*[set(of_run.items()) for of_run in settings])
    texts = []
    for of_run in settings:
        own = [(key, value) for key, value in of_run.items() if (key, value) not in shared]
        texts.append(" ".join(value if key in SWAPPED else f"{key}={value}" for key, value in own))
    return texts


def _compose(words: list[str], load: Callable[..., Config]) -> Config:
    """The configuration of a run. Runs that differ only in their seed are composed once."""
    others = [word for word in words if key_of(word) != "seed"]
    seeds = [word.partition("=")[2] for word in words if key_of(word) == "seed"]
    refers = any("${" in word for word in words)  # maybe to the seed
    if refers or not seeds or not re.fullmatch(r"\d{1,18}", seeds[-1]):
        return load(*words)
    return replace(load(*others), seed=int(seeds[-1]), overrides=tuple(words))
