"""Sweeps: compose, launch and report a list of runs, from a grid (`-m`) or a table."""

import functools
import re
import shlex
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from rope_lab.identity import Identity
from rope_lab.launch import clusters, pool
from rope_lab.launch.job import EXIT_FAILED
from rope_lab.text import ConfigError, first_three, say, short_path
from rope_lab.train import config, provenance
from rope_lab.train import run as runs
from rope_lab.train.config import Config
from rope_lab.train.console import SHOWN
from rope_lab.train.instantiate import SWAPPED
from rope_lab.train.stop import Stop, same_command
from rope_lab.train.trainer import CORES, resolve

ENDS = ("finished", "diverged")


@dataclass(frozen=True, eq=False)
class Job:
    """A run of a sweep, and the settings that tell it from the others, `rope seed=1`."""

    cfg: Config
    label: str

    @functools.cached_property  # for text a corpus is read
    def identity(self) -> Identity:
        """Its identity, as far as this machine can resolve its settings: a cluster may have other
        devices.
        """
        with suppress(ConfigError):
            return config.identity(resolve(self.cfg))
        return config.identity(self.cfg)

    def read(self) -> dict[str, Any]:
        """Content of its run.json; empty if there is none."""
        return runs.read(runs.out_folder(self.cfg) / self.identity.run_name) or {}

    def has_ended(self, content: dict[str, Any]) -> bool:
        """Whether it has an outcome, by the user's own files as they are now."""
        outdated = runs.outdated(content, provenance.code(self.cfg))
        return content.get("status") in ENDS and not outdated


def launcher_settings(words: Sequence[str]) -> dict[str, Any]:
    """The settings of the launcher that Hydra's own overrides choose. Raises ConfigError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # a preset has the name of a plug-in of Hydra's, which may be installed
            return OmegaConf.to_container(config.compose(words).hydra.launcher, resolve=True)
    except (ConfigError, ValueError) as error:  # ValueError: of hydra.launcher=null
        raise ConfigError(f"{error}; look at {' '.join(words)}") from None


def compose_jobs(every: Sequence[list[str]]) -> list[Job]:
    """A job for each run, once for each run id. Raises ConfigError."""
    said = [dict(word.split("=", 1) for word in words if "=" in word) for words in every]
    same = set.intersection(*(set(values.items()) for values in said)) if said else set()
    jobs: dict[str, Job] = {}
    load = functools.cache(config.load)  # a tenth of a second each
    for words, values in zip(every, said, strict=True):
        seed = values.get("seed", "")
        if re.fullmatch(r"\d{1,18}", seed) and "${" not in "".join(
            words
        ):  # runs of other seeds are composed with it
            cfg = load(*(word for word in words if not word.startswith("seed=")))
            cfg = replace(cfg, seed=int(seed), overrides=tuple(words))
        else:
            cfg = load(*words)
        parent = cfg.init_from and str(Path(cfg.init_from).expanduser().absolute())
        label = (
            value if key in SWAPPED else f"{key}={value}"
            for key, value in values.items()
            if (key, value) not in same
        )
        job = Job(replace(cfg, out=str(runs.out_folder(cfg)), init_from=parent), " ".join(label))
        jobs.setdefault(job.identity.run_id, job)
    if len(jobs) < len(every):
        say(
            f"{len(every) - len(jobs)} of {len(every)} runs are listed more than once, and launched once"
        )
    return list(jobs.values())


def launch(
    jobs: Sequence[Job], settings: dict[str, Any], name: str = "sweep", begin: bool = True
) -> int:
    """Run the jobs that have not ended, report on all, and return an exit status: 0 if all have
    ended.

    settings: of the launcher
    begin:    False: only report

    Raises ConfigError if the launcher cannot begin.
    """
    contents = {job: job.read() for job in jobs}
    ended = [job for job in jobs if not job.cfg.fresh and job.has_ended(contents[job])]
    waiting = [job for job in jobs if job not in ended]
    if ended:
        say(f"{len(ended)} of {len(jobs)} runs have ended before")
    if other := [
        job
        for job in ended
        if provenance.differences(contents[job]["provenance"], provenance.code(job.cfg))
    ]:
        named = first_three([job.label or job.cfg.names.position for job in other])
        say(f"  by other code than now, fresh=true runs them again: {named}")
    with Stop() as stopping:
        if waiting and begin:
            _begin(waiting, settings, stopping)
            for job in waiting:
                content = job.read()
                did_not_begin = job.cfg.fresh and content == contents[job]
                contents[job] = {} if did_not_begin else content
        for job, content in contents.items():  # no mean is of two codes
            if runs.outdated(content, provenance.code(job.cfg)):
                contents[job] = {}
        say(summary(contents, name, every=not begin))
    if stopping.caught:
        return 128 + stopping.caught
    return 0 if all(content.get("status") in ENDS for content in contents.values()) else EXIT_FAILED


def _begin(jobs: Sequence[Job], settings: dict[str, Any], stopping: Stop) -> None:
    """Hand runs to the launcher that `_target_` names. Returns when none is under way."""
    launcher, at_once, threads = (
        settings["_target_"].rpartition(".")[2],
        settings.get("n_jobs", 1),
        None,
    )
    if at_once != -1 and at_once not in range(1, 1000):
        raise ConfigError(
            f"hydra.launcher.n_jobs={at_once}: must be a number of runs, -1 for one per core"
        )
    at_once = CORES if at_once == -1 else at_once
    if cpus := settings.get("cpus_per_task") or settings.get("ray", {}).get("remote", {}).get(
        "num_cpus"
    ):
        if not isinstance(cpus, int | float) or cpus <= 0:
            raise ConfigError(f"hydra.launcher: {cpus} CPUs a run: must be a number above 0")
        at_once, threads = max(1, int(CORES // cpus)), max(1, int(cpus))
    elif at_once > 1:
        threads = max(1, CORES // at_once)
    every = []
    for i, job in enumerate(jobs):
        prefix = f"{i + 1}/{len(jobs)} {job.label}".strip() + " · "
        every.append((replace(job.cfg, threads=job.cfg.threads or threads), prefix))
    try:
        Path(jobs[0].cfg.out).mkdir(
            parents=True, exist_ok=True
        )  # a machine that does not see it is noticed
        if launcher == "BasicLauncher":
            pool.in_turn(every, stopping)
        elif launcher == "in_children":
            pool.in_children(every, stopping, at_once)
        elif launcher in ("on_ray", "on_slurm"):
            getattr(clusters, launcher)(every, stopping, settings)
        else:
            raise ConfigError(
                f"{settings['_target_']}: is not a launcher of rope_lab's; docs/clusters.md names them"
            )
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed; docs/clusters.md says how") from None
    except OSError as error:
        raise ConfigError(
            f"{error.filename}: cannot be used ({error.strerror}); set out=FOLDER"
        ) from None


def summary(contents: dict[Job, dict[str, Any]], name: str, every: bool) -> str:
    """The number of finished runs, a few of the others or `every`, means of the finished, and the
    next step.
    """
    others: dict[str, list[str]] = {}  # by status
    rows: dict[str, list[dict[str, float]]] = {}  # metrics of runs that differ in their seed alone
    for job, content in contents.items():
        status = content.get("status", "not run")
        if status == "finished":
            row = " ".join(word for word in job.label.split() if not word.startswith("seed="))
            rows.setdefault(row or job.cfg.names.position, []).append(content["metrics"])
            continue
        how = job.label or " ".join(job.cfg.overrides)
        how += f" at step {content['progress']['steps']}" if "progress" in content else ""
        how += f", {content['error']}" if "error" in content else ""
        others.setdefault(status.replace("running", "still running, or killed"), []).append(how)
    lines = [f"{name}: {sum(map(len, rows.values()))} of {len(contents)} runs finished"]
    for status, each in others.items():
        lines.append(
            "\n    ".join([f"  {status}:", *each]) if every else f"  {status}: {first_three(each)}"
        )
    for row, its in rows.items():
        line = f"  {row:<{max(map(len, rows))}}  {len(its)} run{'s' * (len(its) > 1)}"
        for key, (title, form) in SHOWN.items():
            if values := [metrics[key] for metrics in its if key in metrics]:
                line += f" · {title} {sum(values) / len(values):{form}}"
                line += (
                    f" (min {min(values):{form}} to max {max(values):{form}})"
                    if len(values) > 1
                    else ""
                )
        lines.append(line)
    if any(content.get("status") not in ENDS for content in contents.values()):
        lines.append(f"{same_command(any(job.cfg.fresh for job in contents))} runs what is missing")
    if rows:
        out = shlex.quote(short_path(Path(next(iter(contents)).cfg.out)))
        lines.append(f"tables and figures: rope-lab results {out}")
        lines.append(f"verdicts and charts: rope-lab report {out}")
    return "\n".join(lines)
