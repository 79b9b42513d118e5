"""Kept rows and run folders beside each other: none hides, doubles or overwrites another."""

import shutil
import subprocess

import pytest
from builders import make_pairs, make_run, row
from conftest import ROOT
from judged import keep, main_of, results_in, said

from rope_lab.files import digest
from rope_lab.results import load

pytestmark = pytest.mark.usefixtures("undrawn")

MEAN = "mean, correct out of 128"


def accuracies(folder) -> dict[tuple[str, int], float]:
    """Scheme and seed → accuracy, as `load` has it. Fails if a run is there twice."""
    frame = load(folder)
    frame = frame[frame.metric == "eval/accuracy"]
    cells = [*zip(frame.scheme, frame.seed, strict=True)]
    assert len(cells) == len({*cells})
    return dict(zip(cells, frame.value, strict=True))


# 26


def test_a_copied_run_folder_counts_once(tmp_path):
    folder = make_run(tmp_path, "rope", 0, 0.5)
    shutil.copytree(folder, tmp_path / "a copy of it")
    assert accuracies(tmp_path) == {("rope", 0): 0.5}


def test_of_an_interrupted_copy_and_the_end_the_end_counts(tmp_path):
    make_run(tmp_path, "rope", 0, 0.1, name="z", status="interrupted", progress__steps=50)
    make_run(tmp_path, "rope", 0, 0.5, name="a")
    assert accuracies(tmp_path) == {("rope", 0): 0.5}


# 28


@pytest.fixture
def both(tmp_path):
    """A folder of run folders that were kept into it, and of two seeds that were run later."""
    mine = make_pairs(tmp_path / "mine", [0.3, 0.4, 0.35], [0.6, 0.7, 0.65])
    keep(mine, mine)
    for seed in (3, 4):
        make_run(mine, "rope", seed, 0.5)
        make_run(mine, "roper", seed, 0.8)
    return mine


def test_load_has_kept_runs_and_later_run_folders(both):
    assert len(accuracies(both)) == 10


def test_results_and_report_show_later_run_folders(both, capsys):
    assert row(said(capsys, "results", both, "--print"), "RoPE")[MEAN].endswith("n=5")
    main_of("report")([str(both)])
    assert "seeds 0–4" in (both / "report.html").read_text()


def test_keeping_again_adds_later_run_folders(both, capsys):
    keep(both, both)
    for folder in both.glob("*/run.json"):
        shutil.rmtree(folder.parent)
    assert len(accuracies(both)) == 10


def test_a_run_folder_counts_before_its_kept_row(both):
    """Trained again: the row is of former code."""
    (folder,) = both.glob("rope-s0-*")
    shutil.rmtree(folder)
    make_run(both, "rope", 0, 0.45)
    assert accuracies(both)["rope", 0] == 0.45


# 42


@pytest.mark.parametrize("name", ["metrics.jsonl", "weights.safetensors"])
def test_a_run_with_a_damaged_file_is_not_kept(tmp_path, name, capsys):
    digests = {name: digest(b"whole")}
    whole = make_run(tmp_path / "runs", "rope", 0, 0.5)
    damaged = make_run(tmp_path / "runs", "roper", 0, 0.5, digests=digests)
    (damaged / name).write_text("changed")
    keep(whole.parent, tmp_path / "kept")
    assert accuracies(tmp_path / "kept") == {("rope", 0): 0.5}
    assert f"{name} was changed or damaged" in capsys.readouterr().out


# 11


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """The project's kept rows of two runs, in place of results/."""
    results = results_in(tmp_path / "results", monkeypatch)
    keep(make_pairs(tmp_path / "theirs", [0.3], [0.6]), results)
    return results


def test_own_runs_are_kept_in_their_own_place(shipped, tmp_path, capsys):
    """The README's first commands, on a processor that gives other last digits."""
    before = (shipped / "runs.jsonl").read_bytes()
    text = said(capsys, "results", make_pairs(tmp_path / "runs", [0.31], [0.61]), "--keep")
    assert (shipped / "runs.jsonl").read_bytes() == before
    assert accuracies(shipped / "mine") == {("rope", 0): 0.31, ("roper", 0): 0.61}
    assert "mine" in text.splitlines()[-1]
    assert "--replace" not in text


def test_ones_own_runs_are_kept_elsewhere_only_if_asked(shipped, tmp_path):
    runs = make_run(tmp_path / "runs", "alibi", 5, 0.5).parent
    keep(runs, shipped)
    assert ("alibi", 5) in accuracies(shipped)
    assert not (shipped / "mine").exists()


def test_git_ignores_the_place_of_ones_own_runs():
    ignored = ["git", "check-ignore", "-q", "results/mine/runs.jsonl"]
    assert subprocess.run(ignored, cwd=ROOT).returncode == 0


# 30


@pytest.mark.parametrize("words", [[], ["--print"]])
def test_replace_without_keep_is_refused(tmp_path, capsys, words):
    make_run(tmp_path, "rope", 0, 0.5)
    with pytest.raises(SystemExit, match="2"):
        main_of("results")([str(tmp_path), "--replace", *words])
    message = capsys.readouterr().err.splitlines()[-1]
    assert "--replace" in message
    assert "--keep" in message
    assert not (tmp_path / "README.md").exists()
