"""Kept rows: two writers, readers beside them, and processes killed between any two of their calls."""

import csv
import io
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from builders import make_run
from conftest import ROOT, random_examples
from hypothesis import given
from hypothesis import strategies as st

from rope_lab import files
from rope_lab.results import __main__ as results
from rope_lab.results import kept, store
from rope_lab.results.folders import read
from rope_lab.results.kept import keep, read_kept
from rope_lab.results.runs import Run

FORKS = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # the children only write files


def some_runs(place: Path, schemes: str) -> list[Run]:
    for scheme in schemes:
        make_run(place, scheme, 0, 0.5)
    return read(place)[0]


def in_child(work: Callable[[], object]) -> int:
    """Starts `work` in a process of its own: its id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    finally:
        os._exit(status)


def status_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def names(folder: Path) -> list[str]:
    """The schemes that are kept, once it is sure that nothing is wrong."""
    found, problems = read_kept(folder)
    assert problems == []
    return sorted(run.position for run in found)


def at_once(trials: int, writers: int, place: Path) -> list[int]:
    """Keeps so many runs from as many processes at once, over and over; how many were kept each time."""
    schemes = "abcdefgh"[:writers]
    found = some_runs(place / "runs", schemes)
    counts = []
    for trial in range(trials):
        folder = place / f"kept{trial}"
        folder.mkdir()
        start = time.monotonic() + 0.05

        def work(run: Run, folder: Path = folder, start: float = start) -> None:
            time.sleep(max(0, start - time.monotonic()))
            keep([run], folder)

        children = [in_child(lambda run=run: work(run)) for run in found]
        assert [status_of(child) for child in children] == [0] * writers
        assert sorted(path.name for path in folder.iterdir()) == ["curves.jsonl", "rows.csv"]
        counts.append(len(names(folder)))
    return counts


@FORKS
def test_what_several_processes_keep_at_once_is_all_there(tmp_path):
    assert at_once(4, 4, tmp_path) == [4] * 4


@pytest.mark.torture
@FORKS
def test_forty_times_eight_processes_keep_at_once(tmp_path):
    counts = at_once(40, 8, tmp_path)
    print(f"{counts.count(8)} of 40 whole")
    assert counts == [8] * 40


@FORKS
def test_a_reader_beside_a_writer_sees_files_that_belong_together(tmp_path):
    found = some_runs(tmp_path / "runs", "ab")
    folder = tmp_path / "kept"
    folder.mkdir()
    keep(found[:1], folder)
    other = [replace(run, metrics=run.metrics | {"more": 0.5}) for run in found]

    def work() -> None:
        for turn in range(40):
            keep(other if turn % 2 else found, folder)

    child, seen = in_child(work), set()
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        seen.add(tuple(names(folder)))
    assert seen <= {("a",), ("a", "b")}


def test_who_waits_too_long_is_told_so(tmp_path, monkeypatch):
    found = some_runs(tmp_path / "runs", "a")
    monkeypatch.setattr(store, "PATIENCE", 0.1)
    with store.writing(tmp_path), pytest.raises(SystemExit, match=r"another process has been writing it for 0\.1 s"):
        results.main([str(tmp_path / "runs"), "--keep", "--into", str(tmp_path)])
    keep(found, tmp_path)
    assert names(tmp_path) == ["a"]


# Killed


def killed_at(event: int, work: Callable[[], object]) -> bool:
    """Does `work` in a process that is killed when it comes to the `event`-th line of files.py or store.py; whether."""
    left = event

    def trace(frame, kind, argument):
        nonlocal left
        if frame.f_code.co_filename not in (files.__file__, store.__file__):
            return None
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    def traced() -> None:
        sys.settrace(trace)
        work()

    code = status_of(in_child(traced))
    assert code in (0, -signal.SIGKILL)
    return code != 0


def kills(place: Path, every: int) -> int:
    """Kills `--keep` at every so manyth moment, with and without rows before; how often. Nothing is ever torn."""
    a, b = some_runs(place / "runs", "ab")
    again = replace(a, metrics=a.metrics | {"more": 0.5})
    count = 0
    for before, given_, either in (([], [a], ([], ["a"])), ([a], [again, b], (["a"], ["a", "b"]))):
        event = 0
        while True:
            folder = place / f"kept{len(before)}-{event}"
            folder.mkdir()
            if before:
                keep(before, folder)
            if not killed_at(event, lambda given_=given_, folder=folder: keep(given_, folder)):
                break
            count += 1
            if store.exists(folder):
                assert names(folder) in either  # it reads at once, and writes nothing
                metrics = {run.position: run.metrics for run in read_kept(folder)[0]}
                assert ("more" in metrics["a"]) == (names(folder) == ["a", "b"])
            keep([b], folder)  # and the next one has it all and leaves nothing lying about
            assert names(folder) in (sorted({*either[0], "b"}), sorted({*either[1], "b"}))
            assert sorted(path.name for path in folder.iterdir()) == ["curves.jsonl", "rows.csv"]
            event += every
    return count


@FORKS
def test_what_a_kill_leaves_is_whole_and_heals(tmp_path):
    assert kills(tmp_path, every=11) > 15


@pytest.mark.torture
@FORKS
def test_kept_rows_killed_at_every_line_that_writes(tmp_path):
    count = kills(tmp_path, every=1)
    print(f"{count} of {count} healed")
    assert count >= 100


BEGIN = "/the/calls/begin/here"
CODE = f"""
import os, pathlib, pickle, sys
from rope_lab.results.kept import keep
folder, runs = sys.argv[1:]
runs = pickle.loads(pathlib.Path(runs).read_bytes())
os.path.exists({BEGIN!r})
keep(runs, pathlib.Path(folder))
os._exit(0)
"""


@pytest.mark.torture
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace, which kills before a system call")
def test_kept_rows_killed_before_every_system_call(tmp_path):
    a, b, c = some_runs(tmp_path / "runs", "abc")
    (tmp_path / "given").write_bytes(pickle.dumps([b]))
    folder, log = tmp_path / "kept", tmp_path / "calls"
    command = [sys.executable, "-c", CODE, str(folder), str(tmp_path / "given")]
    fixed = os.environ | {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(ROOT)}
    kills = missed = 0
    for before in ([], [a]):

        def begin(before: list[Run] = before) -> None:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            if before:
                keep(before, folder)

        begin()
        subprocess.run(["strace", "-o", str(log), *command], env=fixed, check=True)
        calls = re.findall(r"^(\w+)\((.*)", log.read_text(), re.M)
        first = next(i for i, (_, arguments) in enumerate(calls) if BEGIN in arguments)
        seen = Counter()
        for i, (call, _) in enumerate(calls):
            seen[call] += 1
            if i <= first or call in ("getpid", "exit_group"):
                continue
            begin()
            kill = ["-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={seen[call]}"]
            done = subprocess.run(["strace", "-o", os.devnull, *kill, *command], env=fixed, capture_output=True)
            if done.returncode == 0:  # imports made fewer such calls than the time before
                missed += 1
                continue
            kills += 1
            there = names(folder) if store.exists(folder) else []
            assert there in ([run.position for run in before], [run.position for run in [*before, b]])
            keep([c], folder)
            assert names(folder) == [*there, "c"]
            assert sorted(path.name for path in folder.iterdir()) == ["curves.jsonl", "rows.csv"]
    print(f"{kills} of {kills} healed; {missed} more ended before the call that was to kill them")
    assert kills >= 100
    assert missed < kills / 10


def committed_and_killed(folder: Path, monkeypatch) -> None:
    """Leaves `folder` as a process does that is killed between its two files."""
    monkeypatch.setattr(store, "_finish", lambda *_: None)
    keep(some_runs(folder.parent / "more", "b"), folder)
    monkeypatch.undo()


@pytest.fixture
def torn(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "kept"
    folder.mkdir()
    keep(some_runs(tmp_path / "runs", "a"), folder)
    committed_and_killed(folder, monkeypatch)
    assert '"b-0"' not in (folder / "curves.jsonl").read_text()
    return folder


def test_a_torn_state_is_read_whole_without_writing(torn, monkeypatch, capsys):
    before = {path.name: path.read_bytes() for path in torn.iterdir()}
    monkeypatch.setattr(files, "write_whole", lambda *_: pytest.fail("reading writes"))
    monkeypatch.setattr(os, "replace", lambda *_: pytest.fail("reading writes"))
    results.main([str(torn), "--print"])
    assert "left out" not in capsys.readouterr().out
    assert names(torn) == ["a", "b"]
    assert {path.name: path.read_bytes() for path in torn.iterdir()} == before


def test_a_torn_state_is_mended_by_the_next_keep(torn):
    keep([], torn)
    assert sorted(path.name for path in torn.iterdir()) == ["curves.jsonl", "rows.csv"]
    assert names(torn) == ["a", "b"]


def test_rows_that_others_put_in_place_win_over_what_was_staged(torn):
    """`git checkout` of the rows of before: what was staged belongs to other rows."""
    table = (torn / "rows.csv").read_text().splitlines(keepends=True)
    (torn / "rows.csv").write_text("".join(row for row in table if ",b," not in row))
    assert names(torn) == ["a"]
    keep([], torn)
    assert names(torn) == ["a"]


def test_only_what_a_writer_left_is_cleaned_up(torn):
    mine = [".curves-mine.jsonl", ".curves-0123456789abcdef.jsonl.bak", "notes.txt", ".rows.csv.tmp"]
    mine += [".README.md.0123456789abcdef.tmp"]  # of a process that is writing it at this moment
    for name in mine:
        (torn / name).write_text("mine")
    (torn / ".curves-0123456789abcdef.jsonl").symlink_to("notes.txt")
    keep([], torn)
    assert all((torn / name).read_text() == "mine" for name in mine)
    assert (torn / ".curves-0123456789abcdef.jsonl").is_symlink()


def test_a_disk_that_gives_out_at_any_write_leaves_all_as_it_was(tmp_path, monkeypatch):
    """Or, once it is committed, as it is to be."""
    a, b = some_runs(tmp_path / "runs", "ab")
    replace_, outcomes = os.replace, []
    for number in range(4):
        folder = tmp_path / f"kept{number}"
        folder.mkdir()
        keep([a], folder)
        left = number

        def give_out(*paths):
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(28, "No space left on device")
            replace_(*paths)

        monkeypatch.setattr(os, "replace", give_out)
        try:
            keep([b], folder)
            outcomes.append(True)
        except OSError:
            outcomes.append(False)
        monkeypatch.undo()
        assert names(folder) == (["a", "b"] if outcomes[-1] else ["a"])
        keep([], folder)
        assert sorted(path.name for path in folder.iterdir()) == ["curves.jsonl", "rows.csv"]
    assert outcomes == [False, False, True, True]


@pytest.mark.parametrize("name", ["rows.csv", "curves.jsonl", ".lock"])
def test_no_link_is_followed_out_of_the_folder(tmp_path, name):
    found = some_runs(tmp_path / "runs", "a")
    folder, elsewhere = tmp_path / "kept", tmp_path / "mine.txt"
    folder.mkdir()
    elsewhere.write_text("mine")
    (folder / name).symlink_to(elsewhere)
    with pytest.raises((OSError, ValueError)):
        keep(found, folder)
    assert elsewhere.read_text() == "mine"
    assert (folder / name).is_symlink()


# What is in them


@random_examples(1000)
@given(st.text(st.sampled_from("'=+-@\t\r\n,a1\""), max_size=6) | st.text(st.characters(exclude_categories=["Cs"])))
def test_whatever_text_a_cell_holds_comes_back_and_is_no_formula(text):
    line = f"{kept._cell(text)},{kept._cell(-1.5)}\n"
    ((cell, number),) = csv.reader(io.StringIO(line, newline=""), strict=True)
    assert (kept._uncell(cell), kept._uncell(number)) == (text, "-1.5")
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))


def test_text_is_quoted_in_a_table_and_numbers_are_not(tmp_path):
    texts = {"hardware": "=cmd|' /C calc'!A0", "torch": '\'-2,"3"\n\x1b[2J', "code": "@x"}
    make_run(tmp_path, "rope", 0, 0.5, metrics={"eval/accuracy": 0.5, "eval/loss": 0.5, "-a/b": -1.5})
    (run,) = read(tmp_path)[0]
    run = replace(run, **texts, curves={})
    keep([run], tmp_path)
    (back,), problems = read_kept(tmp_path)
    assert (back, problems) == (run, [])
    text = (tmp_path / "rows.csv").read_text()
    assert ",'=cmd|" in text
    assert ",'-a/b,-1.5\n" in text
    keep([back], tmp_path)
    assert (tmp_path / "rows.csv").read_text() == text


def test_a_lock_file_of_the_users_own_stays(tmp_path):
    (tmp_path / ".lock").write_text("mine")
    keep([], tmp_path)
    assert (tmp_path / ".lock").read_text() == "mine"
