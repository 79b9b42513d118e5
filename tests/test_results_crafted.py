"""Records that were crafted or damaged: named in a line or shown as they are, and nothing of before is lost."""

import csv
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import PUBLISHED, make_pairs, make_run, row, shown
from conftest import ROOT
from crafted import (
    DAMAGED,
    ESCAPES,
    FOLDERS,
    HARMLESS,
    KEPT,
    MARKDOWN,
    MARKS,
    REFUSED,
    SHOWN,
    edited,
    make_folders,
    make_kept,
)

from rope_lab import sample
from rope_lab.files import as_json, digest, sealed
from rope_lab.results import __main__ as results
from rope_lab.results import figures, pages, tables
from rope_lab.results.folders import read
from rope_lab.results.groups import group
from rope_lab.results.kept import keep, read_kept
from rope_lab.results.runs import one_line
from rope_lab.text import plain
from rope_lab.train import data

DRAWN = [what for what in SHOWN if not what.startswith("formula") and "metrics" not in what]
ACTIVE = re.compile(r"[^\S\n ]|[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")


def good(place: Path) -> Path:
    """Two runs that nothing is wrong with."""
    slices = {"index": {"0": [9, 0.5]}, "length": {"3": [9, 0.5], "9": [9, 0.5]}}
    return make_pairs(place, [0.5], [0.5], slices=slices)


@pytest.fixture(scope="module")
def kept_text(tmp_path_factory) -> tuple[str, str]:
    """What is kept of two runs."""
    place = tmp_path_factory.mktemp("whole")
    keep(read(make_pairs(place / "runs", [0.5], [0.5]))[0], place)
    return (place / "rows.csv").read_text(), (place / "curves.jsonl").read_text()


def test_there_are_enough_of_them():
    assert len(FOLDERS) > 100
    assert len(DAMAGED) > 60


def test_crafted_folders_are_shown_or_named_in_a_line(tmp_path, capsys):
    """All at once, each among good runs and as a recipe of its own."""
    good(tmp_path)
    places = {what: make_folders(make_run, tmp_path, what) for what in FOLDERS}
    runs, problems = read(tmp_path)
    left_out = {problem.partition(":")[0] for problem in problems if problem.endswith("left out")}
    left_out -= {
        problem.partition(":")[0] for problem in problems if problem.endswith("cannot be read and are left out")
    }
    for what, folders in places.items():
        assert {folder.name in left_out for folder in folders} == {what in REFUSED}, what
    assert len(runs) == 2 + 2 * len(SHOWN)
    text = shown(capsys, tmp_path)
    assert not ACTIVE.search(text)
    assert "left out" in text.partition("## Not counted")[2]
    assert not re.search(r"<(?!/?details>|/?summary>)[a-z!/]", text)
    assert text.count("<details>") == text.count("</details>") == text.count("<summary>")
    before = None
    for line in text.splitlines():  # tables have as many cells in every line
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else None
        assert cells is None or before in (None, cells)
        before = cells
    for line in problems:
        assert len(line) <= 400
        assert "\n" not in line


def test_what_is_shown_of_them_can_be_kept_and_is_then_the_same(tmp_path):
    for what in SHOWN:
        make_folders(make_run, tmp_path / "runs", what)
    runs, _ = read(tmp_path / "runs")
    runs = [results.worth_keeping(run, PUBLISHED) for run in runs]
    keep(runs, tmp_path)
    back, problems = read_kept(tmp_path)
    assert problems == []
    order = {run.run_id: run for run in runs}
    assert len(back) == len(order) > 80
    assert all(run == order[run.run_id] for run in back)


def test_figures_are_drawn_of_whatever_is_shown(tmp_path, capsys):
    """As many as there are, in one recipe; and of some each at a scale of its own."""
    good(tmp_path)
    alone = ["markdown in a scheme", "mathtext as an attribute", "end marks in a setting", "5,000 lengths"]
    for what in DRAWN:
        _, second = make_folders(make_run, tmp_path, what)
        if what in alone:
            edited(scale=f"alone{alone.index(what)}")(second)
        else:
            (second / "run.json").unlink()
    results.main([str(tmp_path)])
    pictures = [path.read_text() for path in (tmp_path / "figures").iterdir()]
    assert len(pictures) > 16
    assert all(picture.rstrip().endswith("</svg>") for picture in pictures)


@pytest.mark.torture
@pytest.mark.parametrize("what", FOLDERS)
def test_each_crafted_folder_through_the_command_line(what, tmp_path):
    good(tmp_path)
    names = [folder.name for folder in make_folders(make_run, tmp_path, what)]
    began = os.times()
    command = [sys.executable, "-W", "error", "-m", "rope_lab.results", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    took = [end - begin for begin, end in zip(began, os.times(), strict=True)]
    print(f"{took[2] + took[3]:.1f} s of a processor, {took[4]:.1f} s in all: {what}")
    assert done.returncode == 0
    assert [line for line in done.stderr.splitlines() if not line.endswith("shown unchecked")] == []
    said = [line for line in done.stdout.splitlines() if line.startswith("- **") and line.endswith("; left out**")]
    assert len(said) == (2 if what in REFUSED else 0)
    assert all(any(name in line for line in said) for name in (names if what in REFUSED else []))
    assert not ACTIVE.search(done.stdout)


@pytest.mark.parametrize("what", KEPT)
def test_damaged_kept_files_are_named_and_not_overwritten(what, tmp_path, kept_text, capsys):
    make_kept(tmp_path / "kept", what, *kept_text)
    before = {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()}
    found, problems = read_kept(tmp_path / "kept")
    assert bool(problems) == (what in DAMAGED)
    assert len(found) == 2 or what in DAMAGED
    assert all(len(line) <= 400 and not ACTIVE.search(line) and "\n" not in line for line in problems)
    make_run(tmp_path / "more", "none", 0, 0.5)
    if what in HARMLESS:
        keep(read(tmp_path / "more")[0], tmp_path / "kept")
        assert len(read_kept(tmp_path / "kept")[0]) == 3
        return
    with pytest.raises(SystemExit) as refused:
        results.main([str(tmp_path / "more"), "--keep", "--into", str(tmp_path / "kept")])
    assert re.search(r"(rows\.csv|curves\.jsonl).*; mend that first$", str(refused.value))
    assert "\n" not in str(refused.value)
    assert {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()} == before


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (
            "another accuracy",
            "eval/accuracy of substring_by_index quick rope seed 0 (run rope-0) is 0.123456 in rows.csv",
        ),
        ("another last value", "eval/accuracy of substring_by_index quick rope seed 0 (run rope-0) is 0.5 in rows.csv"),
        ("a row that is missing", "eval/loss of substring_by_index quick rope seed 0 (run rope-0) is None in rows.csv"),
        ("a byte order mark in rows", "rows.csv: begins with a byte order mark"),
        ("a byte order mark in curves", "curves.jsonl: begins with a byte order mark"),
        ("a byte of Latin-1 in rows", "rows.csv line 2: holds a byte that is not UTF-8"),
        ("semicolons", "rows.csv: must begin with the line task,scale,"),
        ("a stray quote before a cell", "rows.csv line 7: is no CSV"),
        ("half of the last row", "rows.csv line 7: has 14 cells, must have 19"),
        ("other hardware in one row", "rows.csv line 4: is at odds with another line of run rope-0"),
    ],
)
def test_what_is_wrong_with_a_kept_file_is_named(what, words, tmp_path, kept_text):
    make_kept(tmp_path, what, *kept_text)
    run_id = kept_text[0].splitlines()[1].split(",")[5]
    found, problems = read_kept(tmp_path)
    assert len(problems) == 1
    assert words.replace("rope-0", run_id) in problems[0]
    assert run_id not in [run.run_id for run in found]


def test_what_is_kept_in_the_repository_agrees_with_its_curves():
    for path in [ROOT / "results", *(kept.parent for kept in (ROOT / "results").glob("*/rows.csv"))]:
        found, problems = read_kept(path)
        assert problems == []
        assert found


@pytest.mark.parametrize(
    ("name", "most"),
    [("metrics", 200), ("curves", 200), ("settings", 400), ("position_settings", 400), ("slices", 32)],
)
def test_there_are_bounds_on_what_one_run_brings(name, most, tmp_path):
    """Plotting takes a panel for each attribute, tables a column for each length."""
    make_run(tmp_path, "rope", 0, 0.5)
    (run,), _ = read(tmp_path)
    table = getattr(run, name)
    value = next(iter(table.values()))
    as_many = table | {f"x{i}": value for i in range(most - len(table))}
    replace(run, **{name: as_many})
    with pytest.raises(ValueError, match=f"(?s){name}.*at most {most} items"):
        replace(run, **{name: as_many | {"one more": value}})


def test_a_folder_that_cannot_be_looked_into_is_named(tmp_path, monkeypatch):
    def denied(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", denied)
    assert read(tmp_path) == ([], [f"{tmp_path}: cannot be read (Permission denied)"])


# Escaped once, for each medium


def test_nothing_that_a_terminal_acts_upon_is_shown():
    assert plain("x\x1b[2J\r\n\u202e\u2066\ud800\x9b") == r"x\x1b[2J\r\n\u202e\u2066\ud800\x9b"
    assert plain("Größe → 3 µm") == "Größe → 3 µm"
    assert one_line("x" * 500, 10) == "x" * 9 + "…"
    assert not ACTIVE.search(plain(ESCAPES))


def test_what_a_model_completes_is_shown_in_one_line(monkeypatch):
    """Its alphabet, too, is what a record says."""
    row = {"prompt": "a\n", "written": "\x1b[2J", "completion": "b\r", "accuracy": False}
    monkeypatch.setattr(sample, "samples", lambda *_: [row])
    monkeypatch.setattr(data, "evaluation_problems", lambda *_: [])
    cfg, task = SimpleNamespace(train=SimpleNamespace(seq_len=8)), SimpleNamespace(grades=["accuracy"])
    lines = sample.show_problems(cfg, task, None, 1).split("\n")
    assert [line.split() for line in lines[:2]] == [
        ["WRONG", r"a\n", "→", r"\x1b[2J"],
        ["it", "should", "be", "→", r"b\r"],
    ]


def test_markdown_shows_what_is_said_and_does_nothing_else():
    text = tables.escaped(MARKDOWN)
    assert text.startswith(r"a \| b\\n\\n# c")
    assert r"\[d\](http://e)" in text
    assert "&lt;b&gt;j&lt;/b&gt; &amp;amp;" in text
    assert "\n" not in text
    for mark in (pages.BEGIN, pages.END):
        assert mark not in tables.escaped(mark)
    assert tables.escaped("model.n_heads=4 (x_y)") == "model.n_heads=4 (x_y)"


def test_end_marks_in_a_record_do_not_end_what_is_generated(tmp_path, capsys):
    changes = {"config__position": {"_target_": MARKS}, "provenance__hardware__name": MARKS}
    make_run(tmp_path, "rope", 0, 0.5, **changes)
    results.main([str(tmp_path)])
    readme = tmp_path / "README.md"
    assert readme.read_text().count(pages.BEGIN) == readme.read_text().count(pages.END) == 1
    before = readme.read_text()
    results.main([str(tmp_path)])
    assert readme.read_text() == before


def test_dollars_are_letters_in_a_figure(tmp_path):
    make_run(tmp_path, "rope", 0, 0.5, config__position={"_target_": "Mine", "q": r"$\frac{1}{$"}, floor={})
    drawn = figures.plot_all(group(read(tmp_path)[0], PUBLISHED))
    assert set(next(iter(drawn.values()))) == {
        f"quick-substring_by_index-{kind}.svg" for kind in ("curves", "scores", "slices")
    }


# Runs of mixed origin


def part(**changes) -> dict:
    """An earlier part of what `make_run` makes."""
    git, hardware = {"commit": "0123456789abcdef", "dirty": False}, {"device": "cpu", "name": "CPU", "threads": 1}
    return {"code": "c0de", "git": git, "versions": {"torch": "2.13.0"}, "hardware": hardware} | changes


@pytest.mark.parametrize(
    ("earlier", "column", "value"),
    [
        ([part(code="other")], "code", "other → c0de"),
        ([part(code="other"), part(), part(code="other")], "code", "other → c0de"),
        ([part(versions={"torch": "2.1"})], "torch", "2.1 → 2.13.0"),
        ([part(hardware={"name": "CPU", "threads": 4})], "threads", "4 → 1"),
        ([part(hardware={"name": "GPU", "threads": 1})], "hardware", "GPU → CPU"),
    ],
)
def test_a_run_of_mixed_origin_is_named_kept_as_such_and_not_paired(tmp_path, capsys, earlier, column, value):
    runs = tmp_path / "runs"
    for seed in range(4):
        make_run(runs, "rope", seed, 0.5)
        make_run(runs, "roper", seed, 0.75, **({"provenance__earlier": earlier} if seed == 3 else {}))
    keep(read(runs)[0], tmp_path)
    for folder in (runs, tmp_path):
        text = shown(capsys, folder)
        assert re.search(rf"roper seed 3 is of mixed origin \(.*{value}.*\): shown here, .* not paired", text)
        assert row(text, "Substring by Index")["seeds"] == "3"
    with open(tmp_path / "rows.csv", newline="") as file:
        cells = {(row["position"], row["seed"]): row[column] for row in csv.DictReader(file)}
    assert cells["roper", "3"] == value
    assert " → " not in cells["roper", "2"]


def test_neither_run_of_a_pair_may_be_of_mixed_origin(tmp_path):
    for seed, mixed in enumerate(("", "rope", "roper")):
        for scheme in ("rope", "roper"):
            changes = {"provenance__earlier": [part(versions={"torch": "2.1"})]} if scheme == mixed else {}
            make_run(tmp_path, scheme, seed, 0.5, **changes)
    (index,) = group(read(tmp_path)[0], PUBLISHED)
    assert index.pairs("roper", "rope").index.tolist() == index.pairs("rope", "roper").index.tolist() == [0]


def test_a_run_that_was_resumed_where_it_began_is_of_one_origin(tmp_path, capsys):
    """And a commit that changed nothing of the code makes no other."""
    make_run(tmp_path, "rope", 0, 0.5)
    git = {"commit": "f" * 16, "dirty": True}
    make_run(tmp_path, "roper", 0, 0.75, provenance__earlier=[part(), part(git=git)])
    text = shown(capsys, tmp_path)
    assert "mixed" not in text
    assert row(text, "Substring by Index")["measured gain [95% interval]"] == "+32.0 (one seed)"
    assert "- commit: 0123456789ab, 0123456789ab → ffffffffffff+" in text


@pytest.mark.parametrize(
    ("git", "commit"),
    [
        ({"commit": None, "dirty": None}, "unknown"),
        ({"commit": None, "dirty": False}, "unknown"),
        ({"commit": "0123456789abcdef", "dirty": None}, "0123456789ab?"),
        ({"commit": "0123456789abcdef", "dirty": True}, "0123456789ab+"),
    ],
)
def test_what_git_did_not_tell_is_unknown_and_not_clean(tmp_path, git, commit):
    make_run(tmp_path, "rope", 0, 0.5, provenance__git=git)
    (run,), _ = read(tmp_path)
    assert run.commit == commit
    keep([run], tmp_path)
    assert read_kept(tmp_path)[0] == [run]
    table = (tmp_path / "rows.csv").read_text()
    (tmp_path / "rows.csv").write_text(table.replace(f",{commit},", ",,"))  # as it was written before
    assert read_kept(tmp_path)[0][0].commit == "unknown"


def test_a_record_that_carries_digests_is_held_to_them(tmp_path):
    folder = make_run(tmp_path, "rope", 0, 0.5)
    content, metrics = json.loads((folder / "run.json").read_text()), (folder / "metrics.jsonl").read_bytes()
    whole = as_json(sealed(content | {"digests": {"metrics.jsonl": digest(metrics)}}))
    (folder / "run.json").write_bytes(whole)
    (run,), problems = read(tmp_path)
    assert (run.metrics["eval/accuracy"], problems) == (0.5, [])
    (folder / "run.json").write_bytes(whole.replace(b'"seconds": 1.5', b'"seconds": 2.5'))
    assert "run.json: is not what its digest says" in read(tmp_path)[1][0]
    (folder / "run.json").write_bytes(whole)
    (folder / "metrics.jsonl").write_bytes(metrics.replace(b"0.25", b"0.35"))
    assert "metrics.jsonl is not what run.json says of it" in read(tmp_path)[1][0]


def test_lines_that_are_lost_are_named_and_their_curve_is_not_kept(tmp_path, capsys):
    folder = make_run(tmp_path / "runs", "rope", 0, 0.5)
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[:2]))
    text = shown(capsys, tmp_path / "runs")
    assert "lost: eval/accuracy is 0.5 in run.json, and 0.25 at step 50 in metrics.jsonl, and so on for 2" in text
    results.main([str(tmp_path / "runs"), "--keep", "--into", str(tmp_path)])
    (run,), problems = read_kept(tmp_path)
    assert (run.curves, problems) == ({}, [])
    assert run.metrics["eval/accuracy"] == 0.5
    (folder / "metrics.jsonl").write_text("".join([*lines[:2], lines[2].replace("0.5", "0.75", 1)]))
    runs, problems = read(tmp_path / "runs")
    assert runs == []
    assert "eval/accuracy is 0.5 in run.json, and 0.75 at step 100 in metrics.jsonl; left out" in problems[0]


def test_a_link_or_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "rows.csv")
    (tmp_path / "curves.jsonl").write_text("")
    assert read_kept(tmp_path) == ([], ["the kept records cannot be read (is not a regular file)"])
