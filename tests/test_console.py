"""What a run shows: bars and lines on a terminal, and its end."""

import io
import logging
import math
import os
from contextlib import redirect_stderr, redirect_stdout

import pytest
from tqdm import tqdm
from trained import load, run, stopped_run

from rope_lab.train import console
from rope_lab.train import loop as train
from rope_lab.train.console import ALONE, Place


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2

    def lines(self) -> list[str]:
        """The lines that stay: of what was written over one another the last, unless that is blank."""
        return [line.rpartition("\r")[2] for line in self.getvalue().split("\n") if line.rpartition("\r")[2].strip()]


class AtEachStep(tqdm):
    """A bar that is drawn at each step, however soon it comes."""

    def __init__(self, **settings):
        super().__init__(**settings, mininterval=0)


def shown_on(terminal: Terminal, overrides: list[str], place: Place = ALONE, errors: io.StringIO | None = None) -> None:
    with redirect_stdout(terminal), redirect_stderr(errors or terminal):
        train.train(load(*overrides), place=place)


@pytest.mark.parametrize("width", [40, 80, 100])
def test_on_a_terminal_a_bar_moves_below_evaluations_that_stay(tiny, monkeypatch, width):
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((width, 24)))
    monkeypatch.setattr(console, "tqdm", AtEachStep)

    def warn(trainer, step, update=train.update):
        if step == 4:
            logging.warning("beware")
        return update(trainer, step)

    monkeypatch.setattr(train, "update", warn)
    shown_on(terminal, tiny)
    drawn = [part for part in terminal.getvalue().replace("\n", "\r").split("\r") if "|" in part]
    assert len(drawn) >= 6
    assert max(map(len, drawn)) < width
    assert "step 0/6" in drawn[0]
    assert "nan" not in terminal.getvalue()
    assert all("train loss" in part for part in drawn if width >= 80 and "step 4/6" in part)
    lines = terminal.lines()
    assert [line[:7] for line in lines if line.startswith("step ")] == ["step 0 ", "step 3 ", "step 6 "]
    assert "beware" in lines
    assert not [line for line in lines if "|" in line]


@pytest.mark.parametrize("how", ["dumb", "piped", "parallel"])
def test_there_is_no_bar_where_it_would_not_move_or_others_would_write_over_it(tiny, monkeypatch, how):
    terminal = Terminal()
    monkeypatch.setenv("TERM", "dumb" if how == "dumb" else "xterm")
    place = Place("rope seed=1", "run 1 of 2", parallel=True) if how == "parallel" else ALONE
    shown_on(terminal, tiny, place, io.StringIO() if how == "piped" else None)
    prefix = place.prefix
    assert "\r" not in terminal.getvalue()
    lines = terminal.lines()
    assert len([line for line in lines if line.startswith(f"{prefix}step ")]) == 3
    assert len([line for line in lines if line.endswith(" left")]) == 1
    if prefix:
        assert all(line.startswith(prefix) for line in lines[1:])


def test_an_interrupted_run_says_of_which_step_its_numbers_are_and_how_it_resumes(tiny, tmp_path, monkeypatch, capsys):
    stopped_run(tiny, tmp_path / "runs", monkeypatch, 5)
    shown = capsys.readouterr().out
    assert "interrupted after 5 steps" in shown
    assert "the same command resumes it" in shown
    assert shown.count(", at its last evaluation") == 2
    run(tiny)
    resumed = capsys.readouterr().out
    assert "resumes at step 5 of 6" in resumed
    assert "evaluation" not in resumed


def test_a_finished_run_that_is_returned_shows_what_it_did_at_its_end(tiny, capsys):
    run(tiny)
    first = capsys.readouterr().out.partition("finished after")[2].splitlines()
    run(tiny)
    again = capsys.readouterr().out.partition("finished after")[2].splitlines()
    assert again == [line for line in first if "guessing" not in line]


def test_a_run_that_ends_no_better_than_guessing_says_so(tiny, capsys):
    content = run([*tiny, "train.lr=1e-9"])
    assert "no better than guessing" in capsys.readouterr().out
    guess = math.log(2)  # of two tokens that are as frequent
    for loss, optimal, said in (
        (guess, 0, f"no better than guessing: token frequencies alone give a loss of {guess:.4f}"),
        (guess - 1e-3, 0, ""),
        (0.1, 0.1 / 0.89, "below the Bayes-optimal loss of 0.1124: does the model see later tokens? Try"),
        (0.1, 0.1 / 0.91, ""),
    ):
        found = content | {"metrics": {"eval/loss": loss}, "floor": {"loss": optimal}}
        assert console.learned(found, [3, 3, 5, 5]).startswith(said)
        assert bool(console.learned(found, [3, 3, 5, 5])) == bool(said)
        assert console.learned(found | {"status": "interrupted"}, [3, 3, 5, 5]) == ""
