"""What a launcher of Hydra needs before its first run: packages, a cluster that answers, room for a run."""

import importlib.util
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
from getpass import getuser
from typing import Any

from omegaconf import DictConfig, OmegaConf

from rope_lab.launch import signals
from rope_lab.text import ConfigError, first_line

ANSWER = 5.0  # seconds in which a cluster has to answer
LAST_WORDS = 1.0  # seconds that Ray may take to show what a run has said
QUEUE = 30.0  # seconds between two looks at Slurm's queue
INSTALL = {
    "hydra_ray_launcher": "make ray",
    "hydra_submitit_launcher": "pip install -c constraints.txt -e '.[slurm]'",
    "hydra_joblib_launcher": "make setup",
}

# Presets of conf/hydra/launcher/ have the names that the plug-ins use, and are checked against those.
warnings.filterwarnings("ignore", message=r"(?s).*is validated against ConfigStore schema with the same name")


def begin(launcher: DictConfig) -> None:
    """Makes ready what a launcher needs; the words of its plug-in are heeded. Raises ConfigError."""
    plugin = launcher._target_.split(".")[1]
    if plugin in INSTALL and importlib.util.find_spec(f"hydra_plugins.{plugin}") is None:
        raise ConfigError(f"{plugin}: is not installed for this Python; {INSTALL[plugin]}")
    if plugin == "hydra_joblib_launcher":
        signals.lead()
    elif plugin == "hydra_ray_launcher":
        _begin_ray(OmegaConf.to_container(launcher.ray, resolve=True))
    elif has_queue(launcher):
        _begin_slurm()
    elif is_local(launcher):
        signals.hold_back()  # a Ctrl-C would have submitit kill the runs a second later


def end(launcher: DictConfig) -> None:
    """Ends what `begin` has begun, once the last words of the runs have been shown."""
    if "ray" in sys.modules and launcher._target_.endswith(".RayLauncher"):
        import ray

        time.sleep(LAST_WORDS)
        ray.shutdown()


def is_elsewhere(launcher: DictConfig) -> bool:
    """Whether runs are in processes that are no children of the launcher's, on other machines maybe."""
    return launcher._target_.rpartition(".")[2] not in ("BasicLauncher", "JoblibLauncher")


def is_local(launcher: DictConfig) -> bool:
    """Whether all runs are on the machine of the launcher, with nobody else to look after them."""
    return launcher._target_.endswith(".LocalLauncher")


def has_queue(launcher: DictConfig) -> bool:
    """Whether runs wait in Slurm's queue, and stay there when the launcher ends."""
    return launcher._target_.endswith(".SlurmLauncher")


def threads(launcher: DictConfig) -> int | None:
    """CPU threads for a run, where the launcher gives each run CPUs of its own."""
    cpus = launcher.get("cpus_per_task") or OmegaConf.select(launcher, "ray.remote.num_cpus")
    return max(1, int(cpus)) if cpus else None


def _begin_ray(settings: dict[str, Any]) -> None:
    """Starts Ray, or connects to one. Raises ConfigError where it does not answer, or has no room for a run."""
    init = {key: value for key, value in settings["init"].items() if value is not None}
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "RAY_COLOR_PREFIX": "0"}
    if address := init.get("address"):
        init = {key: value for key, value in init.items() if not key.startswith("num_")}
        _check_answers(address)
    elif "RAY_AUTH_MODE" not in os.environ:  # by a token that no file holds; Ray would write one into the home folder
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    handlers = {number: signal.getsignal(number) for number in signals.SIGNALS}
    import ray

    try:
        if not ray.is_initialized():
            ray.init(**init)
        for number, handler in handlers.items():  # Ray puts its own in their place
            signal.signal(number, handler)
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"hydra.launcher.ray.init: {first_line(error)}") from None
    machines = [machine["Resources"] for machine in ray.nodes() if machine["Alive"]]
    for key, name in (("num_cpus", "CPU"), ("num_gpus", "GPU")):
        wanted, most = settings["remote"].get(key) or 0, max(machine.get(name, 0) for machine in machines)
        if wanted > most:
            raise ConfigError(
                f"hydra.launcher.ray.remote.{key}={wanted:g}: no machine of this Ray has so many, the most is {most:g}"
            )


def _check_answers(address: str) -> None:
    """Raises ConfigError where nothing answers at HOST:PORT; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        return
    try:
        socket.create_connection((host, int(port)), ANSWER).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or "no answer"
        raise ConfigError(
            f"hydra.launcher.ray.init.address={address}: no Ray answers there ({reason}); on its first machine: "
            "ray start --head"
        ) from None


def _begin_slurm() -> None:
    """Raises ConfigError where there is no Slurm here. Where it has no accounting, its queue says how jobs stand."""
    if shutil.which("sbatch") is None:
        raise ConfigError("hydra/launcher=submitit_slurm: this machine has no sbatch; run it where Slurm takes jobs")
    from submitit.slurm.slurm import SlurmInfoWatcher, SlurmJob

    logging.getLogger("submitit").setLevel(logging.ERROR)
    accounting = subprocess.run(["sacct", "--noheader", "--jobs=1"], capture_output=True)
    if accounting.returncode == 0:
        return

    class Queue(SlurmInfoWatcher):
        """Whether jobs wait or run, from squeue, which knows no others."""

        def _make_command(self) -> list[str] | None:
            command = ["squeue", "--noheader", "--array", "--format=%i", f"--user={getuser()}"]
            return command if super()._make_command() else None

        def read_info(self, string: bytes | str) -> dict[str, dict[str, str]]:
            listed = (string if isinstance(string, str) else string.decode()).split()
            return {job: {"State": "RUNNING" if job in listed else "ENDED"} for job in self._registered}

    SlurmJob.watcher = Queue(delay_s=QUEUE)
