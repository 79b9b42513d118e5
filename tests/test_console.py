"""The console output of a run: progress lines and the summary."""

import sys

import pytest
from trained import load, run

from rope_lab.train import console
from rope_lab.train import loop as train


@pytest.mark.parametrize("prefix", ["", "1/2 rope seed=1 · "])
def test_evaluation_lines_show_the_time_left_and_their_run(tiny, capsys, prefix):
    train.train(load(*tiny), prefix=prefix)
    lines = capsys.readouterr().out.splitlines()
    steps = [line for line in lines if line.startswith(f"{prefix}step ")]
    assert [line.removeprefix(prefix)[:7] for line in steps] == ["step 0 ", "step 3 ", "step 6 "]
    assert [line.endswith(" left") for line in steps] == [False, True, False]
    assert all(line.startswith(prefix) for line in lines[1:])


def test_between_evaluations_a_line_comes_after_a_while(tiny, capsys, monkeypatch):
    monkeypatch.setattr(console, "SILENCE", 0)
    run([*tiny, "eval.every=6"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("step")]
    assert [int(line.split()[1]) for line in lines] == [0, 1, 2, 3, 4, 5, 6]
    assert "step 4 · train loss " in lines[4]
    assert lines[4].endswith("0:00:00 left")


@pytest.mark.parametrize(("loss", "leaks"), [(0.89, True), (0.91, False)])
def test_a_loss_below_the_floor_is_called_a_leak(tiny, tmp_path, capsys, loss, leaks):
    content = run(tiny)
    content["metrics"]["eval/loss"], content["floor"]["loss"] = loss, 1.0
    shown = console.summary(load(*tiny), content, tmp_path)
    assert ("does the model see later tokens?" in shown) == leaks


@pytest.mark.parametrize(("steps", "said"), [(2, True), (3, False)])
def test_a_run_that_ends_within_its_warm_up_says_so(tiny, capsys, steps, said):
    run([*tiny, f"train.steps={steps}", "train.warmup=2"])
    assert ("all within the warm-up: train.warmup=2" in capsys.readouterr().out) == said


LABEL = "1/6 kerple_log train.lr=0.001 seed=100 · "
STEP = "step  100 · held-out loss 2.7737 · accuracy 0.0% · 0:01:56 left"
LENGTHS = "accuracy at 64: 99.5% · 128: 51.0% · 256: 0.0%"


def test_a_line_for_a_file_is_whole(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert console.fitted(LABEL, STEP) == LABEL + STEP


def test_in_a_terminal_a_prefix_loses_its_last_words(monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "90")
    assert console.fitted(LABEL, STEP) == f"1/6 kerple_log · {STEP}"
    monkeypatch.setenv("COLUMNS", "101")
    assert console.fitted(LABEL, STEP) == f"1/6 kerple_log train.lr=0.001 · {STEP}"
    monkeypatch.setenv("COLUMNS", "110")
    assert console.fitted(LABEL, STEP) == LABEL + STEP


def test_in_a_terminal_lines_break_between_their_parts(monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "35")
    assert console.fitted("", LENGTHS).splitlines() == [
        "accuracy at 64: 99.5% · 128: 51.0%",
        "    256: 0.0%",
    ]


def test_in_a_terminal_progress_is_one_line_per_step(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "75")
    progress = console.Progress(steps=1000, begun=0, prefix=LABEL)
    progress.show(100, {"eval/loss": 2.7737, "eval/accuracy": 0.0})
    shown = "1/6 kerple_log · step  100 · held-out loss 2.7737 · accuracy 0.0%\n"
    assert capsys.readouterr().out == shown


def test_in_a_terminal_the_command_stays_whole(tiny, tmp_path, monkeypatch):
    content = run(tiny)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    lines = console.summary(load(*tiny), content, tmp_path).splitlines()
    assert lines[-2] == "  try it:"
    assert lines[-1].startswith("  rope-lab sample ")


def test_a_share_below_one_is_not_called_all():
    shown = {share: console.percent(share) for share in (0.0, 0.995, 2047 / 2048, 1.0)}
    assert list(shown.values()) == ["0.0%", "99.5%", "99.9%", "100.0%"]
