"""Launch runs on Ray and on Slurm. A signal to the command is passed on to the runs, which save
themselves.
"""

import io
import os
import secrets
import subprocess
import time
from contextlib import redirect_stderr
from datetime import datetime
from pathlib import Path
from typing import Any

from rope_lab.launch.job import run_elsewhere
from rope_lab.launch.pool import LOOK, Runs
from rope_lab.text import ConfigError, Record, first_line, say, short_path
from rope_lab.train.stop import Stop

QUEUE = 5.0  # seconds between two looks at Slurm's queue
# Settings that are not submitit's.
OWN = ("_target_", "submitit_folder", "max_num_timeout", "at_once")
# Settings of all executors of submitit; those of Slurm alone begin with slurm_.
SHARED = (
    "timeout_min",
    "cpus_per_task",
    "gpus_per_node",
    "tasks_per_node",
    "mem_gb",
    "nodes",
    "name",
    "stderr_to_stdout",
)


def on_ray(runs: Runs, stopping: Stop, settings: Record) -> None:
    """Run on a Ray cluster. Raises ConfigError if it cannot be reached."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "RAY_COLOR_PREFIX": "0"}
    init = settings["ray"]["init"]
    if not init["address"] and "RAY_AUTH_MODE" not in os.environ:
        # Otherwise Ray would write a token into the home folder.
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    import ray  # reads the environment now

    try:
        ray.init(**{key: value for key, value in init.items() if value is not None})
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"hydra.launcher.ray.init: {first_line(error)}") from None
    task = ray.remote(**settings["ray"]["remote"])(run_elsewhere)
    launch, passed_on = secrets.token_hex(8), False
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


def on_slurm(runs: Runs, stopping: Stop, settings: Record) -> None:
    """Run as one job array of Slurm. Raises ConfigError if Slurm does not take it."""
    import submitit

    class QueuedRun(submitit.helpers.Checkpointable):  # may be queued again
        def __call__(self, *arguments: Any) -> None:
            run_elsewhere(*arguments)

    started = datetime.now().strftime("%Y%m%d-%H%M%S")
    logs = Path(settings["submitit_folder"] or Path(runs[0][0].out) / "sweeps" / started)
    parameters = {key: settings[key] for key in SHARED}
    parameters |= {f"slurm_{key}": settings[key] for key in settings.keys() - {*SHARED, *OWN}}
    launch, passed_on = secrets.token_hex(8), False
    times = settings["max_num_timeout"]
    try:
        executor = submitit.AutoExecutor(logs, "slurm", slurm_max_num_timeout=times)
        executor.update_parameters(**parameters)
        with redirect_stderr(io.StringIO()), executor.batch():  # the error has it too
            queued = [executor.submit(QueuedRun(), cfg, prefix, launch) for cfg, prefix in runs]
    except (AssertionError, NameError, RuntimeError, TypeError, ValueError) as error:
        problem = str(error).rpartition("\n")[2] or "Slurm has failed"
        remedy = "look at hydra.launcher.partition, gpus_per_node and the like, and at sinfo"
        raise ConfigError(f"hydra/launcher=submitit_slurm: {problem}; {remedy}") from None
    say(f"the output of the runs is in {short_path(logs)}")
    array = queued[0].job_id.partition("_")[0]
    while _is_queued(array):
        if stopping.caught and not passed_on:
            passed_on = True
            subprocess.run(["scancel", array])  # a SIGTERM to those that run
        time.sleep(QUEUE)


def _is_queued(array: str) -> bool:
    """Whether jobs of an array have not ended; also if Slurm does not answer for now."""
    query = ["squeue", "--noheader", f"--jobs={array}"]
    done = subprocess.run(query, capture_output=True, text=True)
    if done.returncode != 0:
        return "Invalid job id" not in done.stderr
    return bool(done.stdout.strip())
