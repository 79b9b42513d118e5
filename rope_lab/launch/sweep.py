"""Sweeps: a list of runs is composed, launched and reported. A grid (`-m`) and a table are both such lists."""

import functools
import re
import shlex
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from rope_lab.identity import Identity
from rope_lab.launch import clusters, pool
from rope_lab.launch.job import EXIT_FAILED, Job
from rope_lab.text import ConfigError, say, short_path
from rope_lab.train import config
from rope_lab.train import run as runs
from rope_lab.train.config import CORES, Config
from rope_lab.train.console import SHOWN, program
from rope_lab.train.failures import same_command
from rope_lab.train.instantiate import SWAPPED, is_own
from rope_lab.train.signals import Stop
from rope_lab.train.trainer import resolve

ENDS = ("finished", "diverged")
Contents = clusters.Contents


def launcher_settings(words: Sequence[str]) -> dict[str, Any]:
    """The settings of the launcher that Hydra's own overrides choose. Raises ConfigError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a preset has the name of a plug-in of Hydra's, which may be installed
            return OmegaConf.to_container(config.compose(words).hydra.launcher, resolve=True)
    except (ConfigError, ValueError) as error:  # ValueError: of hydra.launcher=null
        raise ConfigError(f"{error}; look at {' '.join(words)}") from None


def compose_jobs(every: Sequence[list[str]]) -> list[Job]:
    """A job for each run, once for each run id. Raises ConfigError."""
    said = [dict(word.split("=", 1) for word in words if "=" in word) for words in every]
    keys = {key for each in said for key in each}
    differ = {key for key in keys if len({each.get(key) for each in said}) > 1}
    jobs: dict[str, Job] = {}
    for words, values in zip(every, said, strict=True):
        seed = values.get("seed", "")
        if re.fullmatch(r"\d{1,18}", seed) and "${" not in "".join(words):  # runs of other seeds are composed with it
            cfg = _load(*(word for word in words if not word.startswith("seed=")))
            cfg = replace(cfg, seed=int(seed), overrides=tuple(words))
        else:
            cfg = _load(*words)
        parent = cfg.init_from and str(Path(cfg.init_from).expanduser().absolute())
        cfg = replace(cfg, out=str(runs.out_folder(cfg)), init_from=parent)
        own = {key: value for key, value in values.items() if key in differ}
        label = (value if key in SWAPPED else f"{key}={value}" for key, value in own.items())
        jobs.setdefault(identity(cfg).run_id, Job(cfg, " ".join(label)))
    if len(jobs) < len(every):
        say(f"{len(every) - len(jobs)} of {len(every)} runs are listed more than once, and launched once")
    return list(jobs.values())


@functools.cache  # a tenth of a second each
def _load(*words: str) -> Config:
    return config.load(*words)


def identity(cfg: Config) -> Identity:
    """The identity of a run, as far as this machine can resolve its settings: a cluster may have other devices."""
    with suppress(ConfigError):
        cfg = resolve(cfg)
    return config.identity(cfg)


def folder_of(cfg: Config) -> Path:
    return runs.out_folder(cfg) / identity(cfg).run_name


def recorded(folder: Path) -> dict[str, Any]:
    """Content of run.json, {} if there is none; the status is `damaged` if the other files of an ended run differ."""
    content = runs.read(folder) or {}
    if content.get("status") in ENDS and not runs.is_whole(folder, content):
        return content | {"status": "damaged"}
    return content


def launch(jobs: Sequence[Job], settings: dict[str, Any], name: str = "sweep", begin: bool = True) -> int:
    """Runs what has not ended, reports on all jobs, and returns an exit status: 0 if all have ended.

    settings: of the launcher
    begin:    False: only report

    Raises ConfigError if the launcher cannot begin.
    """
    folders = [folder_of(job.cfg) for job in jobs]
    contents = dict(enumerate(map(recorded, folders)))
    waiting = [i for i, job in enumerate(jobs) if job.cfg.fresh or contents[i].get("status") not in ENDS]
    if len(waiting) < len(jobs):
        say(f"{len(jobs) - len(waiting)} of {len(jobs)} runs have ended before")
    with Stop() as stopping:
        if waiting and begin:
            returned = _begin([jobs[i] for i in waiting], settings, stopping)
            for n, i in enumerate(waiting):
                content = returned.get(n) or recorded(folders[i])
                contents[i] = {} if jobs[i].cfg.fresh and content == contents[i] else content  # if it was not begun
        say(summary(jobs, contents, name))
    if stopping.caught:
        return 128 + stopping.caught
    return 0 if all(content.get("status") in ENDS for content in contents.values()) else EXIT_FAILED


def _begin(jobs: list[Job], settings: dict[str, Any], stopping: Stop) -> Contents:
    """Hands jobs to the launcher that `_target_` names. Returns when no run is under way."""
    launcher, out = settings["_target_"].rpartition(".")[2], runs.out_folder(jobs[0].cfg)
    cpus = settings.get("cpus_per_task") or settings.get("ray", {}).get("remote", {}).get("num_cpus")
    at_once = settings.get("n_jobs", max(1, int(CORES // (cpus or CORES))))
    if at_once not in range(-1, 1000) or at_once == 0:
        raise ConfigError(f"hydra.launcher.n_jobs={at_once}: must be a number of runs, -1 for one per core")
    at_once = CORES if at_once == -1 else at_once
    if cpus or at_once > 1:
        jobs = [replace(job, threads=max(1, int(cpus or CORES // at_once))) for job in jobs]
    if launcher == "BasicLauncher":
        return pool.in_turn(jobs, stopping)
    if launcher not in ("in_children", "on_ray", "on_slurm"):
        raise ConfigError(f"{settings['_target_']}: is not a launcher of rope_lab's; docs/clusters.md names them")
    try:
        logs = None
        if "submitit_folder" in settings:
            logs = Path(settings["submitit_folder"] or out / "sweeps" / datetime.now().strftime("%Y%m%d-%H%M%S"))
            say(f"the output of the runs is in {short_path(logs)}")
        (logs or out).mkdir(parents=True, exist_ok=True)  # a machine that does not see `out` is noticed
        if launcher == "in_children":
            return pool.in_children(jobs, stopping, at_once, logs)
        return getattr(clusters, launcher)(jobs, stopping, settings, logs)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed; docs/clusters.md says how") from None
    except OSError as error:
        raise ConfigError(f"{error.filename}: cannot be used ({error.strerror}); set out=FOLDER") from None


def summary(jobs: Sequence[Job], contents: Contents, name: str) -> str:
    """How many runs have finished, a line for each that has not, the means of the others, and what to do next."""
    finished = [i for i in range(len(jobs)) if contents[i].get("status") == "finished"]
    lines = [f"{name}: {len(finished)} of {len(jobs)} runs finished"]
    for i in range(len(jobs)):
        if i not in finished:
            content = contents[i]
            how = content.get("status", "not run").replace("running", "still running, or killed,")
            how += f" at step {content['progress']['steps']}" if "progress" in content else ""
            how += f", {content['error']}" if "error" in content else ""
            lines.append(f"  {how}: {jobs[i].label or ' '.join(jobs[i].cfg.overrides)}")
    rows: dict[str, list[dict[str, Any]]] = {}
    for i in finished:
        row = " ".join(word for word in jobs[i].label.split() if not word.startswith("seed="))
        rows.setdefault(row or jobs[i].cfg.names.position, []).append(contents[i]["metrics"])
    for row, its in rows.items():
        values = {key: [metrics[key] for metrics in its if key in metrics] for key in SHOWN}
        means = " · ".join(_mean(key, numbers) for key, numbers in values.items() if numbers)
        lines.append(f"  {row:<{max(map(len, rows))}}  {len(its)} run{'s' * (len(its) > 1)} · {means}")
    if any(content.get("status") not in ENDS for content in contents.values()):
        lines.append(f"{same_command(any(job.cfg.fresh for job in jobs))} runs what is missing")
    if finished:
        out = shlex.quote(short_path(Path(jobs[0].cfg.out)))
        own = {jobs[i].cfg.names.position for i in finished if is_own(jobs[i].cfg.position)}
        contender = f" --contender {shlex.quote(*own)}" if len(own) == 1 else ""
        lines.append(f"tables and figures: {program('rope-lab')} results {out}{contender}")
        lines.append(f"verdicts and charts: {program('rope-lab')} report {out}{contender}")
    return "\n".join(lines)


def _mean(key: str, values: list[float]) -> str:
    title, form = SHOWN[key]
    ends = f" (min {min(values):{form}} to max {max(values):{form}})" if len(values) > 1 else ""
    return f"{title} {sum(values) / len(values):{form}}{ends}"
