"""Tables on real Ray and Slurm clusters of two nodes on this machine: `make cluster-test`."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm
from conftest import TINY
from slurm import until
from trained import metrics_of

from rope_lab.train import run_folder

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

BLOCK = "{task: substring_by_index, scale: quick, seeds: {rope: 0-1, roper: 0}}"
TABLE = f"{{about: three, blocks: [{BLOCK}]}}"
RUNS = [*TINY, "train.steps=1200", "eval.every=600", "out=runs"]
RUNS += ["device=cpu", "train.precision=float32"]  # a cluster must be told
LAUNCHERS = ["ray", "submitit_slurm"]


@pytest.fixture(scope="module")
def nodes() -> Iterator[dict[str, str]]:
    """The environment of a two-node Slurm cluster."""
    pytest.importorskip(
        "submitit", reason="not installed; pip install -c constraints.txt -e '.[slurm]'"
    )
    if lacking := slurm.lacking():
        pytest.skip(f"{', '.join(lacking)}: not installed; {slurm.HOW_TO}")
    with (
        tempfile.TemporaryDirectory(prefix="slurm-") as folder,
        slurm.running(Path(folder) / "slurm") as environment,
    ):
        yield environment


@pytest.fixture
def environment(request, launcher) -> dict[str, str]:
    if launcher == "submitit_slurm":
        return request.getfixturevalue("nodes")
    pytest.importorskip(launcher, reason="not installed; docs/clusters.md")
    return dict(os.environ)


def started(folder: Path, environment: dict[str, str], *words: str) -> subprocess.Popen:
    """Start the table of three runs in its own session."""
    (folder / "three.yaml").write_text(TABLE)
    command = [sys.executable, "-m", "rope_lab", "table", "three.yaml", *RUNS, *words]
    with open(folder / "out", "w") as out, open(folder / "err", "w") as err:
        return subprocess.Popen(
            command, cwd=folder, env=environment, stdout=out, stderr=err, start_new_session=True
        )


def finished(folder: Path, environment: dict[str, str], *words: str) -> dict[str, list[dict]]:
    """Run the table to its end; returns the metrics of each run."""
    status = started(folder, environment, *words).wait(300)
    assert (status, (folder / "err").read_text()) == (0, "")
    assert "three: 3 of 3 runs finished\n" in (folder / "out").read_text()
    return {path.name: metrics_of(path) for path in folder.glob("runs/substring*")}


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> dict[str, list[dict]]:
    return finished(tmp_path_factory.mktemp("reference"), dict(os.environ), "hydra/launcher=basic")


def wait_until_training(folder: Path, process: subprocess.Popen) -> None:
    """Wait until two runs are training."""

    def training() -> bool:
        assert process.poll() is None, (folder / "err").read_text()
        return (
            sum(
                path.read_text().count("train/loss") > 2
                for path in folder.glob("runs/*/metrics.jsonl")
            )
            >= 2
        )

    until(training, 200)


def contents(folder: Path) -> list[dict]:
    return [
        content
        for path in folder.glob("runs/*/run.json")
        if (content := run_folder.read(path.parent))
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_command_that_is_stopped_or_killed_loses_nothing(
    tmp_path, launcher, environment, reference, number
):
    """On a signal, its runs save themselves. After SIGKILL, only Slurm jobs go on; no other process
    is left.
    """
    process = started(tmp_path, environment, f"hydra/launcher={launcher}")
    wait_until_training(tmp_path, process)
    process.send_signal(number)
    assert process.wait(90) in (128 + number, -signal.SIGKILL)
    if number != signal.SIGKILL:
        assert (tmp_path / "err").read_text() == ""
        assert "  interrupted: " in (tmp_path / "out").read_text()
        assert {content["status"] for content in contents(tmp_path)} <= {"interrupted", "finished"}
        assert all(
            content["checkpoint"] == content["progress"]["steps"] for content in contents(tmp_path)
        )
    if launcher == "submitit_slurm":
        until(lambda: not slurm.queue(environment), 200)
    else:
        until(lambda: not alive(process.pid), 120)
    assert finished(tmp_path, environment, f"hydra/launcher={launcher}") == reference
    assert {content["provenance"]["hardware"]["threads"] for content in contents(tmp_path)} == {1}
    assert not (Path.home() / ".ray" / "auth_token").exists() or launcher != "ray"


def alive(session: int) -> list[str]:
    """The processes of a session, without zombies."""
    done = subprocess.run(
        ["ps", "-o", "stat=,args=", "-s", str(session)], capture_output=True, text=True
    )
    return [line for line in done.stdout.splitlines() if not line.startswith("Z")]


def begin_now(environment: dict[str, str]) -> None:
    """Start requeued jobs now; Slurm would wait for two minutes."""
    for job, state, *_ in slurm.queue(environment):
        if state == "PENDING":
            slurm.control(environment, "update", f"jobid={job}", "StartTime=now")


def logs(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.glob("runs/sweeps/*/*.out"))


@pytest.mark.parametrize("how", ["requeue", "node down"])
def test_what_slurm_queues_again_resumes(tmp_path, nodes, reference, how):
    """After scontrol requeue, and when its node goes down; the command waits for the run."""
    process = started(tmp_path, nodes, "hydra/launcher=submitit_slurm")
    wait_until_training(tmp_path, process)
    job, _, node = next(line for line in slurm.queue(nodes) if line[1] == "RUNNING")
    if how == "requeue":
        slurm.control(nodes, "requeue", job)
    else:
        slurm.control(nodes, "update", f"nodename={node}", "state=down", "reason=test")
    while process.poll() is None:
        begin_now(nodes)
        time.sleep(1)
    slurm.control(nodes, "update", f"nodename={node}", "state=resume")
    assert (process.returncode, (tmp_path / "err").read_text()) == (0, "")
    assert "resumes at step" in logs(tmp_path)
    assert {path.name: metrics_of(path) for path in tmp_path.glob("runs/substring*")} == reference


def test_a_run_resumes_after_slurms_time_limit(tmp_path, nodes):
    """Slurm may signal up to a minute earlier than requested; the run is too long to finish
    before.
    """
    words = [
        "hydra/launcher=submitit_slurm",
        "hydra.launcher.timeout_min=2",
        "hydra.launcher.signal_delay_s=30",
    ]
    process = started(tmp_path, nodes, *words, "train.steps=1000000", "eval.every=500000")
    wait_until_training(tmp_path, process)

    def has_resumed() -> bool:
        begin_now(nodes)
        return "resumes at step" in logs(tmp_path)

    until(has_resumed, 300)
    process.terminate()
    assert process.wait(90) == 128 + signal.SIGTERM
    assert (tmp_path / "err").read_text() == ""
    assert "Requeued job" in logs(tmp_path)
    assert {content["status"] for content in contents(tmp_path)} == {"interrupted"}


@contextlib.contextmanager
def ray_nodes() -> Iterator[tuple[str, list[subprocess.Popen]]]:
    """A Ray cluster of two nodes with one CPU each; yields its address and the nodes' processes."""
    port, begun = slurm.free_ports(1)[0], []
    common = ["--num-cpus=1", "--block", "--disable-usage-stats", "--object-store-memory=80000000"]
    address = f"{socket.gethostbyname(socket.gethostname())}:{port}"
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # a short path: it holds sockets
    head = ["--head", f"--port={port}", f"--temp-dir={folder}", "--include-dashboard=false"]
    try:
        for node in (head, [f"--address={address}"]):
            with open(folder / f"{len(begun)}.out", "w") as out:
                command = [sys.executable, "-m", "ray.scripts.scripts", "start", *node, *common]
                begun.append(
                    subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
                )
            until(lambda: "--block" in (folder / f"{len(begun) - 1}.out").read_text(), 120)
        yield address, begun
    finally:
        for process in begun:
            kill_session(process)
        shutil.rmtree(folder, ignore_errors=True)


def kill_session(process: subprocess.Popen) -> None:
    """Kill all processes of a session, as if its machine died."""
    found = subprocess.run(
        ["ps", "-o", "pid=", "-s", str(process.pid)], capture_output=True, text=True
    ).stdout.split()
    for each in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(each), signal.SIGKILL)
    process.wait()


def test_a_ray_of_two_machines_one_of_which_dies(tmp_path, reference):
    pytest.importorskip("ray", reason="not installed; make ray")
    with ray_nodes() as (address, machines):
        words = ["hydra/launcher=ray", f"hydra.launcher.ray.init.address={address}"]
        process = started(tmp_path, dict(os.environ), *words)
        wait_until_training(tmp_path, process)
        kill_session(machines[1])
        assert process.wait(300) == 0, (tmp_path / "err").read_text()
    assert {path.name: metrics_of(path) for path in tmp_path.glob("runs/substring*")} == reference
