"""Children, runs that begin from trained ones: their settings, making them, and their bill."""

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rope_lab.continuing.parents import Parent
from rope_lab.experiments.launching import Asks, made, missing
from rope_lab.experiments.timing import bill_of
from rope_lab.launch.jobs import Job
from rope_lab.places import RUNS
from rope_lab.results.comparisons.continued import Key, Ways
from rope_lab.results.plans.bill import Bill
from rope_lab.text import ConfigError, Record, Settings, amount, flat, nested, show
from rope_lab.train import config
from rope_lab.train.load import parent_changed
from rope_lab.train.run_folder import out_folder, read

MOST_SHARE = 1000  # percent
WARMUP = 0.1  # of the further steps
Jobs = dict[Key, list[Job]]  # for each key a run from each parent


def child(
    parent: Parent, changed: Settings, label: str, folder: Path, allowed: Sequence[str] = ()
) -> Job:
    """The run that begins from a parent with other settings.

    allowed: files and packages of the user's own that the parent did not have
    """
    own = parent.content["config"]
    if "position" in changed:
        own = own | {"position": {}}
    settings = nested(flat(own) | {"train.processes": 1} | flat(changed))
    cfg = config.from_record(settings, [*parent.cfg.allowed_packages, *allowed])
    place = {"init_from": str(parent.folder), "out": str(folder / RUNS), "parent": None}
    return Job(replace(cfg, **place), f"{label} seed={parent.content['seed']}")


def further(steps: int, lr: float | None = None) -> Settings:
    """The settings of further training, with a warm-up of its own.

    lr: its highest learning rate; None: that of the parent
    """
    rate = {} if lr is None else {"train.lr": lr}
    return {"train.steps": steps, "train.warmup": round(WARMUP * steps)} | rate


def all_made(jobs: Jobs, folder: Path, launcher: Record, ask: Asks, command: str) -> Ways:
    """The runs of all jobs by key; those that are missing are made, each once though it may stand
    under several keys. Raises Stopped.
    """
    once: dict[str, Job] = {}
    for job in itertools.chain(*jobs.values()):
        once.setdefault(job.identity.run_id, _replacing(job))
    every = list(once.values())
    waiting = missing(every, folder)
    if waiting:
        ask(_bill(waiting, launcher, command))
    runs = made(every, folder, launcher, command, shows_scores=True)
    found: Ways = {}
    for key, those in jobs.items():
        found[key] = [runs[once[job.identity.run_id]] for job in those]
    return found


def _replacing(job: Job) -> Job:
    """A run that replaces an ended one if that began from weights that its parent has no longer."""
    content = read(out_folder(job.cfg) / job.identity.run_name)
    fresh = parent_changed(content, job.resolved)
    return replace(job, cfg=replace(job.cfg, fresh=fresh))


def _bill(jobs: Sequence[Job], launcher: Record, command: str) -> Bill:
    """Of these runs, from a few steps of one for each class of schemes and length of training."""
    kinds: dict[tuple[str, int], list[Job]] = {}
    for job in jobs:
        kind = job.cfg.position["_target_"], job.cfg.train.seq_len
        kinds.setdefault(kind, []).append(job)
    counts = {_typical(alike): len(alike) for alike in kinds.values()}
    return bill_of(command, counts, launcher)


def _typical(alike: Sequence[Job]) -> Job:
    """A run that takes as long as the mean of these, which differ in their steps."""
    longest = max(alike, key=lambda job: job.cfg.train.steps)
    train, evaluated = longest.cfg.train, longest.cfg.eval
    steps = round(statistics.mean(job.cfg.train.steps for job in alike))
    every = max(1, round(evaluated.every * steps / max(1, train.steps)))
    shorter = {"train": replace(train, steps=steps, warmup=0)}
    shorter |= {"eval": replace(evaluated, every=every)}
    return Job(replace(longest.cfg, **shorter), longest.label)


def steps_of(budget: str, parent: Parent) -> int:
    """The further steps of `5%`, a share of the parent's. Raises ConfigError."""
    share = amount(budget, "%")
    if share is None or share > MOST_SHARE:
        most = f"must be a share of the steps, 5%, and at most {MOST_SHARE}%"
        raise ConfigError(f"--budget {show(budget)}: {most}; --at-most 2h limits the time")
    steps = round(share / 100 * parent.cfg.train.steps)
    if share and not steps:
        less = f"is less than one of {parent.cfg.train.steps} steps"
        raise ConfigError(f"--budget {show(budget)}: {less}")
    return steps
