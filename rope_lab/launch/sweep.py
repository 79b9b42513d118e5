"""Sweeps: launch and report a list of runs, from a grid (`-m`) or a table."""

import functools
import tempfile
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from omegaconf import DictConfig, OmegaConf
from pydantic import PositiveFloat, PositiveInt

from rope_lab.cores import CORES
from rope_lab.files import check_writable
from rope_lab.launch import clusters, pool, summary
from rope_lab.launch.job import EXIT_FAILED
from rope_lab.launch.jobs import Job
from rope_lab.shipped import shipped
from rope_lab.text import (
    ConfigError,
    Record,
    filled,
    first_three,
    flat,
    of_system,
    say,
    short_path,
    show,
)
from rope_lab.train import config, tracking
from rope_lab.train.config import Config
from rope_lab.train.instantiate import check_type
from rope_lab.train.overrides import check_launcher, key_of
from rope_lab.train.run_folder import OUTCOMES
from rope_lab.train.stop import Stop

JOBS = "hydra.launcher.n_jobs"
LAUNCHERS = {
    "BasicLauncher": pool.in_turn,
    "in_children": pool.in_children,
    "on_ray": clusters.on_ray,
    "on_slurm": clusters.on_slurm,
}


def launcher_settings(words: Sequence[str]) -> Record:
    """The settings of the launcher that Hydra's own overrides choose. Raises ConfigError."""
    for word in words:
        check_launcher(word)
    _check_jobs(words)
    try:
        with warnings.catch_warnings():
            # A preset has the name of a plug-in of Hydra's, which may be installed.
            warnings.simplefilter("ignore")
            hydra = _settings_of_hydra(tuple(words))
            settings = OmegaConf.to_container(hydra.launcher, resolve=True)
    except (ConfigError, ValueError) as error:  # ValueError: of hydra.launcher=null
        raise ConfigError(f"{error}; look at {' '.join(words)}") from None
    given = flat(settings)
    preset = shipped("hydra/launcher/" + hydra.runtime.choices["hydra/launcher"])
    for key, default in preset.items():
        if isinstance(given.get(key), bool) and not isinstance(default, bool):
            raise ConfigError(f"hydra.launcher.{key}={show(given[key])}: must not be true or false")
    return settings


@functools.cache  # composing takes a tenth of a second
def _settings_of_hydra(words: tuple[str, ...]) -> DictConfig:
    return config.compose(words).hydra


def _check_jobs(words: Sequence[str]) -> None:
    """Raise ConfigError for a number of parallel runs with a launcher that takes none."""
    chosen = [word.partition("=")[2] for word in words if word.startswith("hydra/launcher=")]
    launcher = chosen[-1] if chosen else "basic"
    if JOBS in map(key_of, words) and "n_jobs" not in shipped(f"hydra/launcher/{launcher}"):
        takes_none = f"hydra/launcher={launcher} takes no number of parallel runs"
        raise ConfigError(f"--jobs, {JOBS}: {takes_none}; leave one of them out")


def side_by_side(words: Sequence[str], jobs: int | None = None) -> Record:
    """The settings of the launcher that Hydra's own overrides choose or, if they choose none, of
    the one that runs side by side here. Raises ConfigError.

    jobs: how many; None: as the overrides say, or as many as there are cores
    """
    own = list(words) if jobs is None else [*words, f"{JOBS}={jobs}"]
    if not any(word.startswith("hydra/launcher=") for word in words):
        own.insert(0, "hydra/launcher=joblib")
    return launcher_settings(own)


def launch(
    jobs: Sequence[Job],
    settings: Record,
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
    records = {job: job.record() for job in jobs}
    ended = [job for job in jobs if records[job]["status"] in OUTCOMES and not job.cfg.fresh]
    waiting = [job for job in jobs if job not in ended]
    if ended:
        say(f"{len(ended)} of {len(jobs)} runs have ended before")
    other = [job.name for job in ended if job.is_of_other_code(records[job])]
    if other:
        again = "by other code than now, fresh=true runs them again"
        say(filled(f"  {again}: {first_three(other)}", indent="    "))
    with Stop() as stopping:
        if waiting and begin:
            _check_settled(waiting, settings)
            _say_wandb(waiting[0].cfg)
            with suppress(KeyboardInterrupt):  # the third: of a cluster that does not answer
                _begin(waiting, settings, stopping, shows_scores)
            for job in waiting:
                before = records[job]
                now = job.record()
                has_begun = now != before or not job.cfg.fresh
                not_again = summary.NOT_AGAIN if before["status"] in OUTCOMES else "not run"
                records[job] = now if has_begun else {"status": not_again}
        all_ended = all(record["status"] in OUTCOMES for record in records.values())
        say(summary.text(records, name, not begin, shows_scores or all_ended))
    if stopping.caught:
        return 128 + stopping.caught
    return 0 if all_ended else EXIT_FAILED


def _check_settled(jobs: Sequence[Job], settings: Record) -> None:
    """Raise ConfigError for `auto` on a cluster: its machines may settle it otherwise than this
    one, which would then look for other runs than they make.
    """
    address = settings.get("ray", {}).get("init", {}).get("address")
    if not address and not settings["_target_"].endswith("on_slurm"):
        return
    for job in jobs:
        values = {"device": job.cfg.device, "train.precision": job.cfg.train.precision}
        if left := [key for key, value in values.items() if value == "auto"]:
            remedy = "name the cluster's, device=cuda train.precision=bfloat16"
            raise ConfigError(f"{' and '.join(left)}=auto: is not known on this machine; {remedy}")


def _say_wandb(cfg: Config) -> None:
    """Say that W&B records the runs of a sweep."""
    mode = tracking.mode_of(cfg.wandb)
    if mode == "offline":
        say(f"W&B records: {short_path(tracking.home_of(Path(cfg.out)) / 'wandb')}")
    elif mode != "disabled":
        say(f"W&B records: {mode}")


def _begin(jobs: Sequence[Job], settings: Record, stopping: Stop, shows_scores: bool) -> None:
    """Hand runs to the launcher that `_target_` names. Returns when none is under way."""
    target = settings["_target_"]
    launcher = LAUNCHERS.get(target.rpartition(".")[2])
    if launcher is None:
        raise ConfigError(f"{target}: is not a launcher; choose one by hydra/launcher=")
    at_once, threads = shares(settings)
    every = []
    for place, job in enumerate(jobs, start=1):
        cfg = replace(job.cfg, threads=job.cfg.threads or threads, shows_scores=shows_scores)
        number = f"{place}/{len(jobs)} {job.label}".strip()
        every.append((cfg, f"{number} · "))  # the prefix of its lines
    try:
        # Made here, so that a machine of a cluster notices if it does not see the folder.
        for out in {job.cfg.out for job in jobs}:
            check_writable(Path(out).absolute())
            Path(out).mkdir(parents=True, exist_ok=True)
        launcher(every, stopping, settings | {"at_once": at_once})
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed; pip install {error.name}") from None
    except OSError as error:
        remedy = "choose another folder, out=FOLDER or --out FOLDER"
        if error.errno is None:  # Python's own: the path of a socket is too long
            remedy = f"set TMPDIR={tempfile.gettempdir()} to a shorter path"
        raise ConfigError(f"the runs cannot start: {of_system(error)}; {remedy}") from None


def shares(settings: Record) -> tuple[int, int | None]:
    """How many runs go side by side, and the threads of each; None: as many as torch takes.

    Raises ConfigError.
    """
    of_ray = settings.get("ray", {}).get("remote", {}).get("num_cpus")
    cpus = settings.get("cpus_per_task") or of_ray
    if cpus:
        cpus = check_type("hydra.launcher: CPUs per run", cpus, PositiveFloat)
        return max(1, int(CORES // cpus)), max(1, int(cpus))
    at_once = settings.get("n_jobs", 1)
    at_once = check_type("hydra.launcher.n_jobs", at_once, Literal[-1] | PositiveInt)
    if at_once == -1:
        at_once = CORES
    return at_once, max(1, CORES // at_once) if at_once > 1 else None
