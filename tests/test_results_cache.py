"""A folder of many runs is read once: what is cached is what would be read, whatever happens to runs or cache."""

import json
import os
import shutil
from concurrent.futures.process import BrokenProcessPool

import joblib
import pytest
from made_up import make

from rope_lab.results import cache, folders
from rope_lab.results.folders import read


@pytest.fixture
def many(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "FEWEST", 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert make(tmp_path / "runs", tasks=2, schemes=2, seeds=2, records=10) == 8
    return tmp_path / "runs"


@pytest.fixture
def reads(monkeypatch):
    """The names of the run folders that are read."""
    names, real = [], folders.read_run
    monkeypatch.setattr(folders, "read_run", lambda path, curves: names.append(path.name) or real(path, curves))
    return names


def test_what_is_cached_is_what_was_read(many, reads):
    first = read(many, cached=True)
    assert len(reads) == 8
    assert read(many, cached=True) == first == read(many)
    assert len(reads) == 16  # the last of them did not ask for it


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl"])
def test_a_run_that_has_changed_is_read_again(many, reads, name):
    """Also to the same size at the same time of modification."""
    read(many, cached=True)
    path = sorted(many.iterdir())[3] / name
    times, content = path.stat(), path.read_bytes()
    path.write_bytes(content.replace(b"1", b"2"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    reads.clear()
    runs, problems = read(many, cached=True)
    assert reads == [path.parent.name]
    assert (len(runs), len(problems)) == (7, 1)
    assert read(many, cached=True) == (runs, problems)


def test_runs_that_have_gone_are_gone(many, reads):
    read(many, cached=True)
    shutil.rmtree(sorted(many.iterdir())[0])
    assert len(read(many, cached=True)[0]) == 7
    assert len(reads) == 8


def damaged(content: bytes) -> bytes:
    return content.replace(b"finished", b"diverged", 1)


@pytest.mark.parametrize("change", [damaged, lambda c: c[:-9], lambda c: b"", lambda c: c[::-1], lambda c: b"[]\n[1]"])
def test_a_damaged_cache_is_none(many, reads, tmp_path, change):
    first = read(many, cached=True)
    (place,) = (tmp_path / "cache" / "rope_lab" / "results").iterdir()
    place.write_bytes(change(place.read_bytes()))
    assert read(many, cached=True) == first
    assert len(reads) == 16


def test_a_cache_that_cannot_be_written_is_done_without(many, tmp_path):
    (tmp_path / "cache").write_text(json.dumps("in its place"))
    assert len(read(many, cached=True)[0]) == 8


def test_a_folder_whose_name_is_no_text_keeps_no_other_from_being_cached(many, reads):
    run = next(many.iterdir())
    shutil.copytree(run, os.fsdecode(os.fsencode(many) + b"/\xff"))
    first = read(many, cached=True)
    reads.clear()
    assert read(many, cached=True) == first
    assert len(reads) == 1


@pytest.mark.parametrize("killed", [False, True])
def test_several_processes_read_what_one_does(many, monkeypatch, killed):
    """Also of what is damaged, and also when one of them is killed."""
    first, second, third, *_ = sorted(many.iterdir())
    (first / "run.json").write_text("{}")
    (second / "metrics.jsonl").write_text("{}\n")
    (third / "run.json").unlink()
    one = read(many)
    assert (len(one[0]), len(one[1])) == (5, 3)

    def parallel(processes):
        several.append(processes)
        return Killed() if killed else real(2)

    class Killed:
        def __call__(self, parts):
            raise BrokenProcessPool

    real, several = joblib.Parallel, []
    monkeypatch.setattr(joblib, "Parallel", parallel)
    monkeypatch.setattr(folders, "MANY", 8)
    assert read(many) == one
    assert several
