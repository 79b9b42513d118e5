"""Launch runs on Ray and on Slurm. A signal to the command is passed on to the runs, which save
themselves.
"""

import os
import secrets
import shutil
import subprocess
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from rope_lab.launch.job import run_elsewhere
from rope_lab.launch.pool import LOOK, Runs
from rope_lab.text import ConfigError, first_line, say, short_path
from rope_lab.train.stop import Stop

QUEUE = 5.0  # seconds between two looks at Slurm's queue
OWN = ("_target_", "submitit_folder", "max_num_timeout")
SHARED = (
    "timeout_min",
    "cpus_per_task",
    "gpus_per_node",
    "tasks_per_node",
    "mem_gb",
    "nodes",
    "name",
)
SHARED += (
    "stderr_to_stdout",
)  # settings of all of submitit's executors; those of Slurm begin with slurm_


def on_ray(runs: Runs, stopping: Stop, settings: dict[str, Any]) -> None:
    """Run on a Ray. Raises ConfigError if it cannot be reached."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "RAY_COLOR_PREFIX": "0"}
    init = settings["ray"]["init"]
    if (
        not init["address"] and "RAY_AUTH_MODE" not in os.environ
    ):  # Ray would write a token into the home folder
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    import ray  # which reads them now

    try:
        ray.init(**{key: value for key, value in init.items() if value is not None})
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"hydra.launcher.ray.init: {first_line(error)}") from None
    task, launch, passed_on = (
        ray.remote(**settings["ray"]["remote"])(run_elsewhere),
        secrets.token_hex(8),
        False,
    )
    with stopping:  # again: Ray has set handlers of its own
        waiting = [task.remote(cfg, prefix, launch) for cfg, prefix in runs]
        while waiting:
            _, waiting = ray.wait(waiting, timeout=LOOK)
            if stopping.caught and not passed_on:
                passed_on = True
                for ref in waiting:
                    ray.cancel(ref)  # a SIGINT to those that run
        time.sleep(1.0)  # for the last lines of the runs
        ray.shutdown()


def on_slurm(runs: Runs, stopping: Stop, settings: dict[str, Any]) -> None:
    """Run as one array of Slurm's. Raises ConfigError if there is no Slurm here."""
    import submitit

    if shutil.which("sbatch") is None:
        raise ConfigError(
            "hydra/launcher=submitit_slurm: this machine has no sbatch; run it where Slurm takes jobs"
        )

    class QueuedRun(submitit.helpers.Checkpointable):  # which may be queued again
        def __call__(self, *arguments: Any) -> None:
            run_elsewhere(*arguments)

    logs = Path(runs[0][0].out) / "sweeps" / datetime.now().strftime("%Y%m%d-%H%M%S")
    logs = Path(settings["submitit_folder"] or logs)
    say(f"the output of the runs is in {short_path(logs)}")
    executor = submitit.AutoExecutor(
        logs, "slurm", slurm_max_num_timeout=settings["max_num_timeout"]
    )
    rest = {key: value for key, value in settings.items() if key not in OWN}
    executor.update_parameters(
        **{key if key in SHARED else f"slurm_{key}": value for key, value in rest.items()}
    )
    launch, passed_on = secrets.token_hex(8), False
    with executor.batch():
        queued = [executor.submit(QueuedRun(), cfg, prefix, launch) for cfg, prefix in runs]
    array = queued[0].job_id.partition("_")[0]
    while _is_queued(array):
        if stopping.caught and not passed_on:
            passed_on = True
            subprocess.run(["scancel", array])  # a SIGTERM to those that run
        time.sleep(QUEUE)


def _is_queued(array: str) -> bool:
    done = subprocess.run(
        ["squeue", "--noheader", f"--jobs={array}"], capture_output=True, text=True
    )
    return (
        bool(done.stdout.strip()) if done.returncode == 0 else "Invalid job id" not in done.stderr
    )
