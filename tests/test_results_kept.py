"""Kept records: edits are reported, numbers are never silently replaced, concurrent writes are not
lost.
"""

import os
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from builders import ROPE, ROPER, make_pairs, make_run, row, shown
from conftest import ROOT, tree

from rope_lab import files, power
from rope_lab.report import __main__ as report
from rope_lab.results import __main__ as results
from rope_lab.results.records.folders import read, read_run
from rope_lab.results.records.kept import keep, read_kept, worth_keeping

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def kept(tmp_path) -> Path:
    """Eight kept runs."""
    place = tmp_path / "kept"
    place.mkdir()
    keep(read(make_pairs(tmp_path / "runs", ROPE, ROPER))[0], place)
    return place


EDITED = "line 1: does not match its digest, so it was edited"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda text: text + text.splitlines()[0] + "\n", "rope seed 0 is there twice"),
        (lambda text: text[:-100], "line 8: "),
        (lambda text: f"<<<<<<< HEAD\n{text}", "line 1: "),
        (
            lambda text: text.replace('{"format":1', '{"format":2', 1),
            "is of format 2, this program reads format 1",
        ),
        (lambda text: text.replace('"format":1,', "", 1), "line 1: KeyError"),
        (lambda text: text.replace('"seed":', '"seed":1', 1), EDITED),
        (lambda text: text.replace('"eval/accuracy":', '"eval/accuracy":1', 1), EDITED),
        (lambda text: text.replace('"batch_size":', '"batch_size":1', 1), EDITED),
    ],
)
def test_damaged_lines_are_named_and_stay(kept, change, named, capsys):
    damaged = change((kept / "runs.jsonl").read_text())
    (kept / "runs.jsonl").write_text(damaged, "utf-8")
    found, (problem,) = read_kept(kept)
    assert re.search(named, problem)
    assert len(found) >= 7
    assert problem in shown(capsys, kept)
    with pytest.raises(SystemExit, match=r"runs\.jsonl line .* restore the file first"):
        results.main([str(kept.parent / "runs"), "--keep", "--into", str(kept)])
    assert (kept / "runs.jsonl").read_text() == damaged


def test_printing_only_and_keeping_exclude_each_other(kept):
    with pytest.raises(SystemExit, match="2"):
        results.main([str(kept.parent / "runs"), "--keep", "--print", "--into", str(kept)])


@pytest.mark.slow
def test_what_the_repository_keeps_is_whole():
    for path in [
        ROOT / "results",
        *(kept.parent for kept in (ROOT / "results").glob("*/runs.jsonl")),
    ]:
        found, problems = read_kept(path)
        assert problems == []
        assert found


def test_kept_numbers_are_replaced_only_on_request(kept, tmp_path):
    before = (kept / "runs.jsonl").read_bytes()
    again = make_run(tmp_path / "again", "rope", 0, 0.25)
    words = r"kept with other numbers: eval/accuracy 0.5 and 0.25, .*; --replace keeps the second"
    with pytest.raises(SystemExit, match=words):
        results.main([str(again), "--keep", "--into", str(kept)])
    assert (kept / "runs.jsonl").read_bytes() == before
    results.main([str(again), "--keep", "--replace", "--into", str(kept)])
    assert (
        next(r for r in read_kept(kept)[0] if r.position == "rope" and r.seed == 0).metrics[
            "eval/accuracy"
        ]
        == 0.25
    )


@pytest.mark.parametrize("status", ["finished", "diverged"])
def test_an_unfinished_run_is_replaced_by_its_finished_one(tmp_path, status):
    place, ended = tmp_path / "kept", make_run(tmp_path / "ended", "rope", 0, 0.5, status=status)
    begun = make_run(tmp_path / "begun", "rope", 0, 0.1, status="interrupted", progress__steps=100)
    for folder in (begun, ended):
        results.main([str(folder), "--keep", "--into", str(place)])
    assert read_kept(place)[0][0].status == status
    results.main([str(begun), "--keep", "--into", str(place)])
    assert read_kept(place)[0][0].status == status
    again = make_run(tmp_path / "again", "rope", 0, 0.6)
    results.main([str(again), "--keep", "--replace", "--into", str(place)])
    assert read_kept(place)[0][0].status == "finished"


@pytest.mark.parametrize("command", [results, report])
def test_of_two_copies_the_finished_run_counts(kept, tmp_path, command, capsys):
    """Whichever folder is named last."""
    begun = tmp_path / "begun"
    make_run(begun, "rope", 0, 0.1, status="interrupted", progress__steps=50)
    words = ["--print"] if command is results else ["--out", str(tmp_path / "page.html")]
    command.main([str(kept), str(begun), *words])
    said = capsys.readouterr().out
    page = said if command is results else (tmp_path / "page.html").read_text()
    assert "is interrupted at step" not in page
    assert "found twice" not in page
    assert command is report or row(said, "RoPE")["mean, correct out of 128"].endswith("n=4")


def test_other_numbers_beside_kept_rows_are_named(tmp_path):
    place = tmp_path / "both"
    run = make_run(place, "rope", 0, 0.5)
    results.main([str(run), "--keep", "--into", str(place)])
    assert read(place)[1] == []
    shutil.rmtree(run)
    make_run(place, "rope", 0, 0.6)
    runs, (said,) = read(place)
    assert "found twice with other numbers" in said
    assert [run.metrics["eval/accuracy"] for run in runs] == [0.6]


def test_damage_is_also_named_by_the_power_analysis(kept, caplog, capsys):
    (kept / "runs.jsonl").write_text((kept / "runs.jsonl").read_text() + "{\n")
    power.main([str(kept)])
    assert "runs.jsonl line 9" in caplog.text


def test_what_several_threads_keep_at_once_is_all_there(tmp_path, monkeypatch):
    replace = os.replace
    monkeypatch.setattr(files.os, "replace", lambda *paths: (time.sleep(0.02), replace(*paths)))
    for scheme in "abcd":
        make_run(tmp_path / "runs", scheme, 0, 0.5)
    found, folder = read(tmp_path / "runs")[0], tmp_path / "kept"
    folder.mkdir()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda run: keep([run], folder), found))
    assert sorted(run.position for run in read_kept(folder)[0]) == list("abcd")
    assert [path.name for path in folder.iterdir()] == ["runs.jsonl"]


def test_a_full_disk_and_a_link_leave_kept_rows(kept, tmp_path, monkeypatch):
    before = (kept / "runs.jsonl").read_bytes()
    make_run(tmp_path / "more", "a", 0, 0.5)
    with monkeypatch.context() as patch:
        patch.setattr(
            files.os,
            "replace",
            lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")),
        )
        with pytest.raises(SystemExit, match=r"kept/runs\.jsonl: No space left on device"):
            results.main([str(tmp_path / "more"), "--keep", "--into", str(kept)])
    assert tree(kept) == {"runs.jsonl": before}
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "runs.jsonl").symlink_to(kept / "runs.jsonl")
    with pytest.raises(OSError, match="is a link"):
        keep(read(tmp_path / "more")[0], tmp_path / "linked")
    assert (kept / "runs.jsonl").read_bytes() == before


def test_bayes_optimal_losses_of_0_are_not_kept(tmp_path):
    """By an attribute; those above 0 are."""
    slices = {"below": {"1": [9, 0.0]}, "above": {"1": [9, 0.2], "2": [9, 0.0]}}
    run = read_run(make_run(tmp_path, "rope", 0, 0.5, floor={"loss": 0.0} | slices))
    assert worth_keeping(run).floor == {"loss": 0.0, "above": slices["above"]}
