"""Processes that share a folder and nothing else: `flock` does nothing between them, as between some machines."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT

from rope_lab.train import lease
from rope_lab.train.lease import Held, Lease, Lost


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    """Seconds in place of minutes."""
    monkeypatch.setattr(lease, "BEAT", 0.1)
    monkeypatch.setattr(lease, "PATIENCE", 2.0)


@pytest.fixture
def apart(monkeypatch):
    """This process is on a machine of its own, whose locks others do not see."""
    monkeypatch.setattr(lease, "_machine", lambda: "ours")
    monkeypatch.setattr(fcntl, "flock", lambda descriptor, kind: None)


HOLDER = """
import fcntl, os, sys, time
from pathlib import Path
from rope_lab.train import lease
lease.BEAT, lease.PATIENCE = 0.1, 2.0
lease._machine = lambda: f"machine-{os.getpid()}"
fcntl.flock = lambda descriptor, kind: None
folder = Path(sys.argv[1])
held = lease.Lease(folder)
held.write(folder / "metrics.jsonl", b"")
print("held", flush=True)
for i in range(10**9):
    held.write(folder / "run.json", b"theirs %d" % i)
    held.append(folder / "metrics.jsonl", {"theirs": i})
    held.write(folder / f"checkpoint-{i}", b"theirs")
    held.remove(folder / f"checkpoint-{i - 1}")
    time.sleep(0.001)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lease of `tmp_path` and writes there all the time."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_live_holder_on_another_machine_is_seen(tmp_path, apart, holder):
    with pytest.raises(Held, match="on another machine"):
        Lease(tmp_path)
    before = contents(tmp_path)["run.json"]
    time.sleep(1)
    assert contents(tmp_path)["run.json"] != before  # and not disturbed


def test_a_holder_that_was_killed_is_followed_after_patience(tmp_path, apart, holder):
    holder.kill()
    holder.wait()
    began = time.monotonic()
    ours = Lease(tmp_path)
    assert time.monotonic() - began >= lease.PATIENCE
    assert [path.name for path in tmp_path.glob(lease.NAME)] == [".lease-00000002"]
    ours.write(tmp_path / "run.json", b"ours")
    assert contents(tmp_path)["run.json"] == b"ours"
    ours.release()


def test_a_holder_that_slept_writes_nothing_that_counts(tmp_path, apart, holder):
    """It is stopped wherever it is at the moment, and continues after another has taken over."""
    os.kill(holder.pid, signal.SIGSTOP)
    ours = Lease(tmp_path)
    ours.write(tmp_path / "metrics.jsonl", b"")
    ours.write(tmp_path / "run.json", b"ours")
    ours.append(tmp_path / "metrics.jsonl", {"ours": 0})
    ours.write(tmp_path / "checkpoint-5", b"ours")
    written = contents(tmp_path)
    os.kill(holder.pid, signal.SIGCONT)
    assert holder.wait(20) == 1
    assert "another process has taken it over" in holder.stderr.read()
    assert contents(tmp_path) == written
    ours.release()


@pytest.mark.parametrize("call", ["write", "append", "remove", "check"])
def test_whatever_is_done_with_a_lost_lease_says_so(tmp_path, apart, monkeypatch, call):
    """Also where the holder had begun it before, and slept in the middle of it."""
    (tmp_path / "metrics.jsonl").write_bytes(b"")
    (tmp_path / "checkpoint").write_bytes(b"")
    first, arguments = Lease(tmp_path), {"write": ("run.json", b"late"), "append": ("metrics.jsonl", {"late": 1})}
    take_over(first, monkeypatch)
    before = contents(tmp_path)
    name, *content = arguments.get(call, ("checkpoint",))
    with pytest.raises(Lost, match="another process has taken it over"):
        getattr(first, call)(*([] if call == "check" else [tmp_path / name, *content]))
    assert contents(tmp_path) == before


def test_a_write_is_fenced_between_its_last_check_and_its_rename(tmp_path, apart, monkeypatch):
    first, real = Lease(tmp_path), os.replace

    def asleep(old, new):
        if Path(new).name == "run.json" and (first.own / "alive").exists():
            take_over(first, monkeypatch).write(tmp_path / "run.json", b"ours")
        real(old, new)

    monkeypatch.setattr(os, "replace", asleep)
    with pytest.raises(Lost):
        first.write(tmp_path / "run.json", b"late")
    assert contents(tmp_path)["run.json"] == b"ours"


def test_a_line_appended_after_the_last_check_goes_to_the_file_that_was(tmp_path, apart, monkeypatch):
    first, real = Lease(tmp_path), os.write
    first.write(tmp_path / "metrics.jsonl", b"")

    def asleep(descriptor, content):
        if b"late" in content:
            take_over(first, monkeypatch).write(tmp_path / "metrics.jsonl", b"ours")
        return real(descriptor, content)

    monkeypatch.setattr(os, "write", asleep)
    first.append(tmp_path / "metrics.jsonl", {"late": 1})
    assert contents(tmp_path)["metrics.jsonl"] == b"ours"


def take_over(former: Lease, monkeypatch) -> Lease:
    """A lease of the same folder, after `former` has gone silent."""
    former._ended.set()
    former._beating.join()
    with monkeypatch.context() as patch:
        patch.setattr(lease, "PATIENCE", 0.0)
        patch.setattr(lease, "_machine", lambda: "a third")
        return Lease(former.folder)


def pausing(monkeypatch, meanwhile) -> None:
    """Has whoever next looks for holders pause once it has seen them, while `meanwhile` happens."""
    real, paused = Lease._holders, []

    def asleep(self):
        found = real(self)
        if not paused:
            paused.append(True)
            meanwhile()
        return found

    monkeypatch.setattr(Lease, "_holders", asleep)


def test_a_contender_that_pauses_does_not_revive_a_lease_that_was_taken_over(tmp_path, apart, monkeypatch):
    first, real = Lease(tmp_path), Lease._await_end
    monkeypatch.setattr(lease, "PATIENCE", 0.1)

    def waiting(self, holder):
        with pytest.raises(Lost):
            first.write(tmp_path / "run.json", b"late")
        real(self, holder)

    def meanwhile():
        take_over(first, monkeypatch).release()
        monkeypatch.setattr(Lease, "_await_end", waiting)

    pausing(monkeypatch, meanwhile)
    Lease(tmp_path).release()
    assert not (tmp_path / "run.json").exists()


def test_a_folder_of_the_same_name_revives_no_lease(tmp_path, apart, monkeypatch):
    """As a contender makes for a moment that has seen an older state."""
    first = Lease(tmp_path)
    take_over(first, monkeypatch).release()
    first.own.mkdir()
    for call in (lambda: first.write(tmp_path / "run.json", b"late"), first.check):
        with pytest.raises(Lost):
            call()
    assert not (tmp_path / "run.json").exists()


def test_a_contender_that_pauses_never_gets_a_token_below_anothers(tmp_path, apart, monkeypatch):
    """Tokens 2 and 3 come and go meanwhile, so that nothing else stands in the way of a 2."""
    Lease(tmp_path).release()

    def twice():
        Lease(tmp_path).release()
        Lease(tmp_path).release()

    pausing(monkeypatch, twice)
    late = Lease(tmp_path)
    assert [path.name for path in tmp_path.glob(lease.NAME)] == [late.own.name] == [".lease-00000004"]
    late.release()


TAKER = HOLDER.partition("held.write")[0] + "print('held', flush=True)\ntime.sleep(20)\n"


def test_of_two_who_race_for_an_expired_lease_one_wins(tmp_path, apart, holder):
    holder.kill()
    holder.wait()
    command = [sys.executable, "-c", TAKER, str(tmp_path)]
    racers = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for _ in range(3)
    ]
    try:
        deadline = time.monotonic() + 60
        while sum(each.poll() is None for each in racers) > 1 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert sorted(each.poll() is None for each in racers) == [False, False, True]
        (winner,) = [each for each in racers if each.poll() is None]
        assert winner.stdout.readline() == "held\n"
        assert not any(each.stdout.read() for each in racers if each is not winner)
    finally:
        for each in racers:
            each.kill()
            each.wait()
            each.stdout.close()


@pytest.mark.parametrize("offset", [-1e6, 1e6])
def test_clocks_are_never_compared(tmp_path, apart, monkeypatch, offset):
    """A holder whose clocks are days off, and whose files are dated so, is as alive and as dead as any other."""
    theirs = Lease(tmp_path)
    now, today = time.monotonic, time.time
    monkeypatch.setattr(lease, "_machine", lambda: "a third")
    monkeypatch.setattr(time, "monotonic", lambda: now() + offset)
    monkeypatch.setattr(time, "time", lambda: today() + offset)
    dated = time.time()
    os.utime(theirs.own / "alive", (dated, dated))
    with pytest.raises(Held):
        Lease(tmp_path)
    take_over(theirs, monkeypatch).release()


def test_patience_is_counted_by_ones_own_clock(tmp_path, apart, monkeypatch):
    theirs = Lease(tmp_path)
    theirs._ended.set()
    theirs._beating.join()
    clock = iter(range(1000))
    slept = []
    monkeypatch.setattr(lease, "PATIENCE", 60)
    monkeypatch.setattr(lease, "_machine", lambda: "a third")
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(time, "sleep", slept.append)
    Lease(tmp_path).release()
    assert len(slept) == 59


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP])
def test_without_flock_the_lease_alone_holds(tmp_path, monkeypatch, code):
    def none(descriptor, kind):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", none)
    first = Lease(tmp_path)
    with pytest.raises(Held):  # of the same machine too
        Lease(tmp_path)
    first.release()
    second = Lease(tmp_path)  # at once
    second._ended.set()
    second._beating.join()
    began = time.monotonic()
    Lease(tmp_path).release()
    assert time.monotonic() - began >= lease.PATIENCE  # it may have been alive


def test_on_one_machine_flock_answers_without_waiting(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "sleep", None)  # whoever waits fails
    first = Lease(tmp_path)
    with pytest.raises(Held, match="another process is training this run"):
        Lease(tmp_path)
    first._ended.set()
    first._beating.join()
    first._unlock()  # it died
    second = Lease(tmp_path)
    assert second.own.name == ".lease-00000002"
    second.release()
    third = Lease(tmp_path)
    assert third.own.name == ".lease-00000003"
    third.release()


def test_what_is_not_ours_is_neither_followed_nor_removed(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "alive").write_text("precious")
    (tmp_path / ".lease-00000001").symlink_to("mine")
    with pytest.raises(OSError, match="symbolic link"):
        Lease(tmp_path)
    assert (tmp_path / "mine" / "alive").read_text() == "precious"


def test_what_others_have_put_into_a_holders_folder_stays(tmp_path):
    Lease(tmp_path).release()
    (tmp_path / ".lease-00000001" / "notes").write_text("precious")
    with pytest.raises(OSError, match="not empty"):
        Lease(tmp_path)
    assert (tmp_path / ".lease-00000001" / "notes").read_text() == "precious"


def test_a_run_that_is_taken_over_ends_with_one_sentence(tmp_path, tiny, monkeypatch, apart):
    """Its folder is then as the other process has written it."""
    from trained import run as train

    from rope_lab.train import run
    from rope_lab.train.loop import Unusable

    real, written = run.Run.log, {}

    def asleep(self, record):
        if record["step"] == 4:
            other = take_over(self.lease, monkeypatch)
            other.write(self.folder / "run.json", b"ours")
            other.write(self.folder / "metrics.jsonl", json.dumps({"ours": 1}).encode())
            written.update(contents(self.folder))
        real(self, record)

    monkeypatch.setattr(run.Run, "log", asleep)
    with pytest.raises(Unusable, match="another process has taken it over, after no sign of life"):
        train(tiny)
    (folder,) = (tmp_path / "runs").iterdir()
    assert contents(folder) == written
    assert written["run.json"] == b"ours"
