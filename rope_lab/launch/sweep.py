"""Sweeps: compose, launch and report a list of runs, from a grid (`-m`) or a table."""

import functools
import re
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from rope_lab.identity import Identity
from rope_lab.launch import clusters, pool, summary
from rope_lab.launch.job import EXIT_FAILED
from rope_lab.launch.summary import JobOutcome
from rope_lab.text import ConfigError, first_three, of_system, say, short_path
from rope_lab.train import config, tracking
from rope_lab.train import run as runs
from rope_lab.train.config import Config
from rope_lab.train.instantiate import SWAPPED
from rope_lab.train.load import parent_changed
from rope_lab.train.overrides import check_launcher
from rope_lab.train.stop import Stop
from rope_lab.train.trainer import CORES, resolve


@dataclass(frozen=True, eq=False)
class Job:
    """A run of a sweep, and the settings that tell it from the others, `rope seed=1`."""

    cfg: Config
    label: str

    @functools.cached_property  # for text a corpus is read
    def resolved(self) -> Config:
        """Its settings, as far as this machine can resolve them: a cluster may have other
        devices.
        """
        with suppress(ConfigError):
            return resolve(self.cfg)
        return self.cfg

    @functools.cached_property
    def identity(self) -> Identity:
        return config.identity(self.resolved)

    def outcome(self) -> JobOutcome:
        """What its run folder records now: nothing if its parent was trained again."""
        content = runs.read(runs.out_folder(self.cfg) / self.identity.run_name)
        if content is None or parent_changed(content, self.resolved):
            content = {}
        return JobOutcome(self.cfg, self.label, content)


def launcher_settings(words: Sequence[str]) -> dict[str, Any]:
    """The settings of the launcher that Hydra's own overrides choose. Raises ConfigError."""
    for word in words:
        check_launcher(word)
    try:
        with warnings.catch_warnings():
            # A preset has the name of a plug-in of Hydra's, which may be installed.
            warnings.simplefilter("ignore")
            return OmegaConf.to_container(config.compose(words).hydra.launcher, resolve=True)
    except (ConfigError, ValueError) as error:  # ValueError: of hydra.launcher=null
        raise ConfigError(f"{error}; look at {' '.join(words)}") from None


def compose_jobs(every: Sequence[list[str]]) -> list[Job]:
    """A job for each run, once for each run id. Raises ConfigError.

    every: the overrides of each run
    """
    load = functools.cache(config.load)  # composing takes a tenth of a second
    jobs: dict[str, Job] = {}
    for words, label in zip(every, labels(every), strict=True):
        cfg = _compose(words, load)
        parent = cfg.init_from and str(Path(cfg.init_from).expanduser().absolute())
        job = Job(replace(cfg, out=str(runs.out_folder(cfg)), init_from=parent), label)
        jobs.setdefault(job.identity.run_id, job)
    repeated = len(every) - len(jobs)
    if repeated:
        say(f"{repeated} of {len(every)} runs are listed more than once, and launched once")
    return list(jobs.values())


def labels(every: Sequence[list[str]]) -> list[str]:
    """For each run the settings that not all runs share: `rope seed=1`."""
    settings = []
    for words in every:
        settings.append(dict(word.split("=", 1) for word in words if "=" in word))
    shared = set.intersection(*(set(of_run.items()) for of_run in settings)) if settings else set()
    texts = []
    for of_run in settings:
        own = [(key, value) for key, value in of_run.items() if (key, value) not in shared]
        texts.append(" ".join(value if key in SWAPPED else f"{key}={value}" for key, value in own))
    return texts


def _compose(words: list[str], load: Callable[..., Config]) -> Config:
    """The configuration of a run. Runs that differ only in their seed are composed once."""
    others = [word for word in words if not word.startswith("seed=")]
    seeds = [word.removeprefix("seed=") for word in words if word.startswith("seed=")]
    refers = any("${" in word for word in words)  # maybe to the seed
    if refers or not seeds or not re.fullmatch(r"\d{1,18}", seeds[-1]):
        return load(*words)
    return replace(load(*others), seed=int(seeds[-1]), overrides=tuple(words))


def launch(
    jobs: Sequence[Job],
    settings: dict[str, Any],
    name: str = "sweep",
    begin: bool = True,
    shows_scores: bool = True,
) -> int:
    """Run the jobs that have not ended, report on all, and return an exit status: 0 if all have
    ended.

    settings:     of the launcher
    begin:        False: only report
    shows_scores: False: print no metric before all runs have ended, as for a planned comparison

    Raises ConfigError if the launcher cannot begin.
    """
    outcomes = {job: job.outcome() for job in jobs}
    ended = [job for job in jobs if outcomes[job].ended and not job.cfg.fresh]
    waiting = [job for job in jobs if job not in ended]
    if ended:
        say(f"{len(ended)} of {len(jobs)} runs have ended before")
    other = [outcomes[job].name for job in ended if outcomes[job].is_of_other_code]
    if other:
        say(f"  by other code than now, fresh=true runs them again: {first_three(other)}")
    with Stop() as stopping:
        if waiting and begin:
            _say_wandb(waiting[0].cfg)
            _begin(_with_prefixes(waiting, shows_scores), settings, stopping)
            for job in waiting:
                before, now = outcomes[job], job.outcome()
                if job.cfg.fresh and now.content == before.content:  # it did not begin
                    now = replace(now, content={})
                outcomes[job] = now
        all_ended = all(outcome.ended for outcome in outcomes.values())
        say(
            summary.text(
                list(outcomes.values()), name, not begin, shows_scores=shows_scores or all_ended
            )
        )
    if stopping.caught:
        return 128 + stopping.caught
    return 0 if all_ended else EXIT_FAILED


def _say_wandb(cfg: Config) -> None:
    """Say that W&B records the runs of a sweep."""
    mode = tracking.mode_of(cfg.wandb)
    if mode == "offline":
        say(f"W&B records: {short_path(tracking.home_of(Path(cfg.out)) / 'wandb')}")
    elif mode != "disabled":
        say(f"W&B records: {mode}")


def _with_prefixes(jobs: Sequence[Job], shows_scores: bool) -> list[tuple[Config, str]]:
    """The configuration of each job, and the prefix of its lines: `2/8 rope seed=1 · `."""
    prefixed = []
    for place, job in enumerate(jobs, start=1):
        number = f"{place}/{len(jobs)} {job.label}".strip()
        prefixed.append((replace(job.cfg, shows_scores=shows_scores), f"{number} · "))
    return prefixed


def _begin(every: pool.Runs, settings: dict[str, Any], stopping: Stop) -> None:
    """Hand runs to the launcher that `_target_` names. Returns when none is under way."""
    launcher = settings["_target_"].rpartition(".")[2]
    at_once, threads = shares(settings)
    every = [(replace(cfg, threads=cfg.threads or threads), prefix) for cfg, prefix in every]
    try:
        # Made here, so that a machine of a cluster notices if it does not see the folder.
        Path(every[0][0].out).mkdir(parents=True, exist_ok=True)
        if launcher == "BasicLauncher":
            pool.in_turn(every, stopping)
        elif launcher == "in_children":
            pool.in_children(every, stopping, at_once)
        elif launcher in ("on_ray", "on_slurm"):
            getattr(clusters, launcher)(every, stopping, settings)
        else:
            raise ConfigError(
                f"{settings['_target_']}: is not a launcher; docs/clusters.md lists them"
            )
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed; docs/clusters.md says how") from None
    except OSError as error:
        remedy = "; set out=FOLDER" if error.filename else ""
        raise ConfigError(f"the runs cannot start: {of_system(error)}{remedy}") from None


def shares(settings: dict[str, Any]) -> tuple[int, int | None]:
    """How many runs go side by side, and the threads of each; None: as many as torch takes.

    Raises ConfigError.
    """
    at_once = settings.get("n_jobs", 1)
    if at_once != -1 and at_once not in range(1, 1000):
        raise ConfigError(
            f"hydra.launcher.n_jobs={at_once}: must be a number of runs, -1 for one per core"
        )
    of_ray = settings.get("ray", {}).get("remote", {}).get("num_cpus")
    cpus = settings.get("cpus_per_task") or of_ray
    if cpus:
        if not isinstance(cpus, int | float) or cpus <= 0:
            raise ConfigError(f"hydra.launcher: {cpus} CPUs per run: must be a number above 0")
        return max(1, int(CORES // cpus)), max(1, int(cpus))
    if at_once == -1:
        at_once = CORES
    return at_once, max(1, CORES // at_once) if at_once > 1 else None
