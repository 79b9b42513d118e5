"""Runs on Ray and on Slurm. A signal to the command is passed on to them; they save themselves."""

import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rope_lab.launch.job import Job, run_elsewhere
from rope_lab.launch.pool import LOOK
from rope_lab.text import ConfigError, first_line
from rope_lab.train import provenance
from rope_lab.train.signals import Stop

Contents = dict[int, dict[str, Any]]  # of run.json, by the number of the job, of jobs that have returned it
QUEUE = 10.0  # seconds between two looks at Slurm's queue
OWN = ("_target_", "submitit_folder", "max_num_timeout")
SHARED = ("timeout_min", "cpus_per_task", "gpus_per_node", "tasks_per_node", "mem_gb", "nodes", "name")
SHARED += ("stderr_to_stdout",)  # settings of all of submitit's executors; those of Slurm begin with slurm_


def on_ray(jobs: Sequence[Job], stopping: Stop, settings: dict[str, Any], logs: None) -> Contents:
    """Runs jobs on a Ray. Raises ConfigError if it cannot be reached, or has no machine for a run."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "RAY_COLOR_PREFIX": "0"}
    remote, init = settings["ray"]["remote"], settings["ray"]["init"]
    if not init["address"] and "RAY_AUTH_MODE" not in os.environ:  # Ray would write a token into the home folder
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    import ray  # which reads them now

    try:
        ray.init(**{key: value for key, value in init.items() if value is not None})
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"hydra.launcher.ray.init: {first_line(error)}") from None
    most = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for key, name in (("num_cpus", "CPU"), ("num_gpus", "GPU")):
        if remote[key] > max(node.get(name, 0) for node in most):
            raise ConfigError(f"hydra.launcher.ray.remote.{key}={remote[key]}: no machine of this Ray has so many")
    task, since = ray.remote(**remote)(run_elsewhere), provenance.now()
    contents, passed_on = {}, False
    with stopping:  # once more: Ray has set handlers of its own
        waiting = {task.remote(job, job.place(i, len(jobs)), since): i for i, job in enumerate(jobs)}
        while waiting:
            for ref in ray.wait(list(waiting), timeout=LOOK)[0]:
                with suppress(ray.exceptions.RayError):
                    contents[waiting[ref]] = ray.get(ref)
                del waiting[ref]
            if stopping.caught and not passed_on:
                passed_on = True
                for ref in waiting:
                    ray.cancel(ref)  # a SIGINT to those that run
        time.sleep(1.0)  # for the last lines of the runs
        ray.shutdown()
    return contents


def on_slurm(jobs: Sequence[Job], stopping: Stop, settings: dict[str, Any], logs: Path) -> Contents:
    """Runs jobs as one array of Slurm's. Raises ConfigError if there is no Slurm here."""
    import submitit

    if shutil.which("sbatch") is None:
        raise ConfigError("hydra/launcher=submitit_slurm: this machine has no sbatch; run it where Slurm takes jobs")

    class Run(submitit.helpers.Checkpointable):  # which may be queued again
        def __call__(self, *arguments: Any) -> dict[str, Any]:
            return run_elsewhere(*arguments)

    executor = submitit.AutoExecutor(logs, "slurm", slurm_max_num_timeout=settings["max_num_timeout"])
    rest = {key: value for key, value in settings.items() if key not in OWN}
    executor.update_parameters(**{key if key in SHARED else f"slurm_{key}": value for key, value in rest.items()})
    since, contents, passed_on = provenance.now(), {}, False
    with executor.batch():
        queued = [executor.submit(Run(), job, job.place(i, len(jobs)), since) for i, job in enumerate(jobs)]
    array = queued[0].job_id.partition("_")[0]
    while _is_queued(array):
        looked = time.monotonic()
        while time.monotonic() < looked + QUEUE and (passed_on or not stopping.caught):
            time.sleep(LOOK)
        if stopping.caught and not passed_on:
            passed_on = True
            subprocess.run(["scancel", array])  # a SIGTERM to those that run
    for i, each in enumerate(queued):
        with suppress(OSError):  # killed
            kind, returned = submitit.core.utils.pickle_load(each.paths.result_pickle)
            contents[i] = returned if kind == "success" else {}
    return contents


def _is_queued(array: str) -> bool:
    done = subprocess.run(["squeue", "--noheader", f"--jobs={array}"], capture_output=True, text=True)
    return bool(done.stdout.strip()) if done.returncode == 0 else "Invalid job id" not in done.stderr
