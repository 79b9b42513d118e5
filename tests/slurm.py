"""A two-node Slurm cluster on this machine, from Debian's slurm-wlm and munge; it writes to one
folder.
"""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NODES = ("n1", "n2")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
HOW_TO = "apt-get install --no-install-recommends slurm-wlm munge"
CONF = """\
ClusterName=rope_lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
AuthType=auth/munge
AuthInfo=socket={folder}/socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MailProg=/bin/true
KillWait=20
ReturnToService=2
SchedulerParameters=batch_sched_delay=1,sched_interval=2
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={n1} CPUs=1 RealMemory=1000 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={n2} CPUs=1 RealMemory=1000 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE OverTimeLimit=0 State=UP
"""


def lacking() -> list[str]:
    """The programs that are not installed."""
    return [
        name
        for name in PROGRAMS
        if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    ]


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@contextmanager
def running(folder: Path) -> Iterator[dict[str, str]]:
    """A context with a running cluster, its files in the new folder `folder`; yields the
    environment to use it.
    """
    (folder / "state").mkdir(parents=True)
    folder.chmod(0o755)  # munge rejects a socket in a folder that others can write to
    names = dict(zip(("controller", *NODES), free_ports(3), strict=True))
    names |= {
        "folder": folder,
        "host": socket.gethostname().partition(".")[0],
        "user": getpass.getuser(),
    }
    (folder / "slurm.conf").write_text(CONF.format(**names))
    (folder / "key-file").write_bytes(os.urandom(128))
    (folder / "key-file").chmod(0o400)
    environment = os.environ | {
        "SLURM_CONF": str(folder / "slurm.conf"),
        "PATH": f"{os.environ['PATH']}:/usr/sbin",
    }
    munge = [
        f"--{name}={folder}/{name}"
        for name in ("key-file", "socket", "pid-file", "log-file", "seed-file")
    ]
    commands = [["munged", "--foreground", "--force", *munge], ["slurmctld", "-D"]]
    commands += [["slurmd", "-D", "-N", node] for node in NODES]
    begun = []
    try:
        for command in commands:
            with open(folder / f"{command[0]}-{len(begun)}.out", "w") as out:
                begun.append(
                    subprocess.Popen(
                        command, env=environment, stdout=out, stderr=out, start_new_session=True
                    )
                )
            if command[0] == "munged":
                until((folder / "socket").exists)
        until(lambda: states(environment) == dict.fromkeys(NODES, "idle"))
        yield environment
    finally:
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(["scancel", "--user", getpass.getuser()], env=environment, timeout=20)
            until(lambda: not queue(environment), 40)
        for process in reversed(begun):
            process.terminate()
        for process in begun:
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def until(is_so, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError("waited in vain")
        time.sleep(0.2)


def _lines(command: list[str], environment: dict[str, str]) -> list[list[str]]:
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return [line.split() for line in done.stdout.splitlines()]


def states(environment: dict[str, str]) -> dict[str, str]:
    """The state of each node, such as `idle`."""
    return dict(_lines(["sinfo", "--noheader", "--Node", "--format=%N %T"], environment))


def control(environment: dict[str, str], *arguments: str) -> None:
    subprocess.run(["scontrol", *arguments], env=environment, capture_output=True)


def queue(environment: dict[str, str]) -> list[list[str]]:
    """Id, state and node of each job that has not ended."""
    return _lines(["squeue", "--noheader", "--array", "--format=%i %T %N"], environment)
