"""Tables on Ray and Slurm, real ones of two nodes on this machine: `make cluster-test`."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import slurm
from conftest import ROOT, TINY
from slurm import until
from trained import metrics_of

from rope_lab.train import run as runs

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

TABLE = "{about: three, blocks: [{task: substring_by_index, scale: quick, seeds: {rope: 0-1, roper: 0}}]}"
TABLE_OF_THREE = [str(ROOT / "scripts" / "table.py"), "three.yaml"]
RUNS = [*TINY, "train.steps=1200", "eval.every=600", "out=runs"]  # longer than signals.TOLD, by far
LAUNCHERS = ["ray", "submitit_local", "submitit_slurm"]


@pytest.fixture(scope="module")
def nodes() -> Iterator[dict[str, str]]:
    """The environment of a Slurm of two nodes."""
    pytest.importorskip("submitit", reason="not installed; pip install -c constraints.txt -e '.[slurm]'")
    if lacking := slurm.lacking():
        pytest.skip(f"{', '.join(lacking)}: not installed; {slurm.HOW_TO}")
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, slurm.running(Path(folder) / "slurm") as environment:
        yield environment


@pytest.fixture
def environment(request, launcher) -> dict[str, str]:
    """What a launcher needs."""
    if launcher == "submitit_slurm":
        return request.getfixturevalue("nodes")
    pytest.importorskip(launcher.partition("_")[0], reason="not installed; docs/clusters.md")
    return dict(os.environ)


def started(
    folder: Path, words: list[str], environment: dict[str, str], program: Sequence[str] = TABLE_OF_THREE
) -> subprocess.Popen:
    """The table, or another program, in a session of its own."""
    (folder / "three.yaml").write_text(TABLE)
    command = [sys.executable, *program, *RUNS, *words]
    with open(folder / "out", "w") as out, open(folder / "err", "w") as err:
        return subprocess.Popen(
            command, cwd=folder, env=environment, stdout=out, stderr=err, start_new_session=True, text=True
        )


def table(folder: Path, words: list[str], environment: dict[str, str]) -> tuple[int, str, str]:
    status = started(folder, words, environment).wait(400)
    return status, (folder / "out").read_text(), (folder / "err").read_text()


def contents(folder: Path) -> dict[str, dict]:
    """What run.json says, of each run that has trained."""
    found = {path.parent.name: runs.read(path.parent) for path in folder.glob("runs/*/run.json")}
    return {name: content for name, content in found.items() if content and content["metrics"]}


def begun(folder: Path, process: subprocess.Popen, count: int = 2) -> dict[str, dict]:
    """The runs under way, once there are so many of which each has trained some steps."""

    def training() -> bool:
        assert process.poll() is None, (folder / "err").read_text()
        return sum(path.read_text().count("train/loss") > 2 for path in folder.glob("runs/*/metrics.jsonl")) >= count

    until(training, 200)
    return contents(folder)


def numbers(folder: Path) -> dict[str, list[dict]]:
    return {path.name: metrics_of(path) for path in folder.glob("runs/substring*")}


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> dict[str, list[dict]]:
    """The metrics of each run, one after the other in one process."""
    folder = tmp_path_factory.mktemp("reference")
    status, _, err = table(folder, ["hydra/launcher=basic"], dict(os.environ))
    assert (status, err) == (0, "")
    return numbers(folder)


def assert_said_again_is_whole(folder: Path, launcher: str, environment: dict[str, str], reference) -> None:
    """The same command again finishes all runs, with the numbers of runs that nothing has disturbed."""
    status, said, err = table(folder, [f"hydra/launcher={launcher}"], environment)
    assert (status, err) == (0, "")
    assert "\n3 of 3 runs have finished\n" in f"\n{said}"
    assert numbers(folder) == reference


def of_session(session: int) -> list[str]:
    """The processes of a session that are no zombies."""
    done = subprocess.run(["ps", "-o", "stat=,args=", "-s", str(session)], capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if not line.startswith("Z")]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_launcher_gives_the_same_numbers(tmp_path, launcher, environment, reference):
    assert_said_again_is_whole(tmp_path, launcher, environment, reference)
    assert {c["provenance"]["hardware"]["threads"] for c in contents(tmp_path).values()} == {1}
    assert not (Path.home() / ".ray" / "auth_token").exists() or launcher != "ray"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_launcher_that_is_stopped_or_killed_loses_nothing(tmp_path, launcher, environment, reference, number):
    """A signal has its runs save themselves. Killed, it leaves no process behind, but for jobs that are Slurm's."""
    process = started(tmp_path, [f"hydra/launcher={launcher}"], environment)
    begun(tmp_path, process)
    process.send_signal(number)
    status = process.wait(60)
    if number == signal.SIGKILL:
        if launcher != "submitit_slurm":
            until(lambda: not of_session(process.pid), 120)
    else:
        assert status == 128 + number
        assert (tmp_path / "err").read_text() == ""
        assert "interrupted at step" in (tmp_path / "out").read_text()
    stopped = contents(tmp_path)
    if number != signal.SIGKILL or launcher == "submitit_local":
        assert {c["status"] for c in stopped.values()} <= {"interrupted", "finished"}
        assert all(c["checkpoint"] == c["progress"]["steps"] for c in stopped.values())
    if launcher == "submitit_slurm":
        until(lambda: not slurm.queue(environment), 200)
    assert_said_again_is_whole(tmp_path, launcher, environment, reference)


def workers(out: Path) -> list[int]:
    """The processes that hold the lock of a run in `out`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            files = [os.readlink(file) for file in (folder / "fd").iterdir()]
            found += [int(folder.name)] if any(f.startswith(str(out)) and f.endswith("/.lock") for f in files) else []
    return found


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_worker_that_is_killed_loses_nothing(tmp_path, launcher, environment, reference):
    """Ray has another one resume its run; elsewhere the same command does."""
    process = started(tmp_path, [f"hydra/launcher={launcher}"], environment)
    begun(tmp_path, process)
    os.kill(workers(tmp_path / "runs")[0], signal.SIGKILL)
    assert process.wait(300) == (0 if launcher == "ray" else 1)
    if launcher != "ray":
        assert (tmp_path / "err").read_text().count("\n") == 1
    assert_said_again_is_whole(tmp_path, launcher, environment, reference)


def at_once(environment: dict[str, str]) -> None:
    """Has jobs that were queued again begin now; Slurm would wait for two minutes."""
    for job, state, *_ in slurm.queue(environment):
        if state == "PENDING":
            command = ["scontrol", "update", f"jobid={job}", "StartTime=now"]
            subprocess.run(command, env=environment, capture_output=True)


def resumed(folder: Path) -> int:
    """How often runs have resumed, as their logs say."""
    return sum(path.read_text().count("resumes at step") for path in folder.glob("runs/sweeps/*/*/*.out"))


@pytest.mark.parametrize("how", ["requeue", "node down"])
def test_what_slurm_queues_again_resumes(tmp_path, nodes, reference, how):
    """By scontrol, and when its node goes down; the launcher waits for it."""
    process = started(tmp_path, ["hydra/launcher=submitit_slurm"], nodes)
    begun(tmp_path, process)
    job, _, node = next(line for line in slurm.queue(nodes) if line[1] == "RUNNING")
    if how == "requeue":
        subprocess.run(["scontrol", "requeue", job], env=nodes, check=True)
    else:
        subprocess.run(["scontrol", "update", f"nodename={node}", "state=down", "reason=test"], env=nodes, check=True)
    while process.poll() is None:
        at_once(nodes)
        time.sleep(1)
    subprocess.run(["scontrol", "update", f"nodename={node}", "state=resume"], env=nodes, capture_output=True)
    assert (process.returncode, (tmp_path / "err").read_text()) == (0, "")
    assert resumed(tmp_path) >= 1
    assert numbers(tmp_path) == reference


def test_what_slurm_queues_again_does_not_start_over_once_more(tmp_path, nodes, reference):
    """A sweep with `fresh=true` whose job is queued again: that resumes, though it has the same overrides."""
    sweep = ["-m", "rope_lab.train", "-m", "task=substring_by_index", "position=rope", "seed=0,1", "fresh=true"]
    process = started(tmp_path, ["hydra/launcher=submitit_slurm"], nodes, sweep)
    begun(tmp_path, process)
    job = next(job for job, state, *_ in slurm.queue(nodes) if state == "RUNNING")
    subprocess.run(["scontrol", "requeue", job], env=nodes, check=True)
    while process.poll() is None:
        at_once(nodes)
        time.sleep(1)
    assert (process.returncode, (tmp_path / "err").read_text()) == (0, "")
    assert resumed(tmp_path) >= 1
    assert numbers(tmp_path) == {name: found for name, found in reference.items() if "-rope-" in name}


def test_a_run_resumes_that_slurm_has_told_of_its_time_limit(tmp_path, nodes):
    """The signal comes up to a minute before the moment that it is asked for; the run has no other end here."""
    words = ["hydra/launcher=submitit_slurm", "hydra.launcher.timeout_min=2", "hydra.launcher.signal_delay_s=30"]
    process = started(tmp_path, [*words, "train.steps=1000000", "eval.every=500000"], nodes)
    begun(tmp_path, process)

    def has_resumed() -> bool:
        at_once(nodes)
        return resumed(tmp_path) > 0

    until(has_resumed, 300)
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    assert (tmp_path / "err").read_text() == ""
    logs = "".join(path.read_text() for path in tmp_path.glob("runs/sweeps/*/*/*.out"))
    assert "Requeued job" in logs
    assert {content["status"] for content in contents(tmp_path).values()} == {"interrupted"}


@contextlib.contextmanager
def ray_nodes() -> Iterator[tuple[str, list[subprocess.Popen]]]:
    """The address of a Ray of two nodes with a CPU each, and their processes."""
    port, begun = slurm.free_ports(1)[0], []
    common = ["--num-cpus=1", "--block", "--disable-usage-stats", "--object-store-memory=80000000"]
    address = f"{socket.gethostbyname(socket.gethostname())}:{port}"
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # a short one: it holds sockets
    script = str(Path(sys.executable).parent / "ray")
    head = ["--head", f"--port={port}", f"--temp-dir={folder}", "--include-dashboard=false"]
    try:
        for node in (head, [f"--address={address}"]):
            with open(folder / f"{len(begun)}.out", "w") as out:
                command = [script, "start", *node, *common]
                begun.append(subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True))
            until(lambda: "--block" in (folder / f"{len(begun) - 1}.out").read_text(), 120)
        yield address, begun
    finally:
        for process in begun:
            kill_session(process)
        shutil.rmtree(folder, ignore_errors=True)


def kill_session(process: subprocess.Popen) -> None:
    """The death of a machine."""
    found = subprocess.run(["ps", "-o", "pid=", "-s", str(process.pid)], capture_output=True, text=True).stdout.split()
    for each in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(each), signal.SIGKILL)
    process.wait()


def test_a_ray_of_two_machines_one_of_which_dies(tmp_path, reference):
    pytest.importorskip("ray", reason="not installed; make ray")
    with ray_nodes() as (address, machines):
        words = ["hydra/launcher=ray", f"hydra.launcher.ray.init.address={address}"]
        process = started(tmp_path, words, dict(os.environ))
        begun(tmp_path, process)
        kill_session(machines[1])
        assert process.wait(300) == 0, (tmp_path / "err").read_text()
    assert numbers(tmp_path) == reference


@pytest.mark.parametrize(
    ("setting", "remedy"),
    [
        ("init.address=127.0.0.1:1", "no Ray answers there"),
        ("remote.num_gpus=64", "no machine of this Ray has so many"),
        ("remote.num_cpus=4096", "no machine of this Ray has so many"),
    ],
)
def test_what_ray_cannot_do_is_one_line_and_nothing_begins(tmp_path, setting, remedy):
    pytest.importorskip("ray", reason="not installed; make ray")
    status, said, err = table(tmp_path, ["hydra/launcher=ray", f"hydra.launcher.ray.{setting}"], dict(os.environ))
    assert (status, said) == (2, "")
    assert err.count("\n") == 1
    assert remedy in err
    assert not (tmp_path / "runs").exists()
