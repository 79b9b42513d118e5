"""Training from Python with `rope_lab.fit`, also inside another Hydra program."""

import importlib
import shlex
import sys

import pytest
from conftest import TINY
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from sources import EMBED, START, block
from trained import command, raising_signal_at

import rope_lab
from rope_lab.text import ConfigError
from rope_lab.train import config, loop, plugin


@pytest.fixture
def small(tmp_path, monkeypatch):
    """The working directory of a program; its runs are small."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["/home/alice/private.py", "position=hers"])
    load = config.load
    monkeypatch.setattr(
        config, "load", lambda *words, **more: load(*words, *TINY, "out=runs", **more)
    )
    return tmp_path


def run_example() -> dict:
    """Run the example of docs/extending.md; returns its variables."""
    found: dict = {}
    exec(block("From Python", "python"), found)
    return found


@pytest.mark.slow
def test_the_example_in_the_docs_runs(small, capsys):
    found = run_example()
    run = found["run"]
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"{run.accuracy:.0%} of held-out")
    assert found["loss"].index.tolist() == [0, 3, 6]
    assert run.curve.loc[6, "eval/loss"] == run.metrics["eval/loss"]
    assert not run.model.training
    typed = shlex.split(run.record["provenance"]["command"])
    assert typed[:6] == [
        "python",
        "-m",
        "rope_lab.train",
        "position=roper",
        "train.steps=300",
        "model.d_model=16",
    ]
    assert (
        "already finished" in command([*typed[3:], "wandb.mode=disabled", "out=runs"], small).stdout
    )


def test_it_runs_inside_another_program_of_hydras(small):
    (small / "theirs").mkdir()
    with initialize_config_dir(str(small / "theirs"), version_base="1.3"):
        before = GlobalHydra.instance().hydra
        assert run_example()["run"].record["status"] == "finished"
        assert GlobalHydra.instance().hydra is before


def test_a_run_that_is_stopped_raises(small, monkeypatch):
    monkeypatch.setattr(loop, "update", raising_signal_at(3, loop.update))
    with pytest.raises(KeyboardInterrupt):
        rope_lab.fit("position=rope")


def test_what_is_wrong_is_raised(small):
    with pytest.raises(ConfigError, match="did you mean rope"):
        rope_lab.fit("position=rop")
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        rope_lab.fitt  # noqa: B018


def test_a_file_that_was_edited_is_read_again(small, write):
    """A notebook is one process."""
    source = START + EMBED + "{} * x\n"
    write("edited.py", source.format(1))
    losses = [rope_lab.fit("position=./edited.py", "fresh=true").metrics["eval/loss"]]
    write("edited.py", source.format(30))
    losses.append(rope_lab.fit("position=./edited.py", "fresh=true").metrics["eval/loss"])
    assert losses[0] != losses[1]


@pytest.mark.slow
def test_a_helper_that_was_edited_is_read_again(small, write, monkeypatch, caplog):
    """Unless the program imported it itself: that module stays the one that it holds."""
    monkeypatch.syspath_prepend(small)
    mine = "from helper_fit import GAIN\n" + START + EMBED + "GAIN * x\n"
    write("mine_fit.py", mine), write("helper_fit.py", "GAIN = 1.0")
    first = rope_lab.fit("position=./mine_fit.py", "fresh=true")
    write("helper_fit.py", "GAIN = 30.0")
    second = rope_lab.fit("position=./mine_fit.py", "fresh=true")
    assert first.metrics["eval/loss"] != second.metrics["eval/loss"]
    assert first.record["provenance"]["plugin"] != second.record["provenance"]["plugin"]

    plugin.forget_files()
    theirs = importlib.import_module("helper_fit")
    assert not caplog.text
    write("helper_fit.py", "GAIN = 1.0")
    third = rope_lab.fit("position=./mine_fit.py", "fresh=true")
    assert sys.modules.pop("helper_fit") is theirs
    assert third.metrics["eval/loss"] == second.metrics["eval/loss"]
    assert f"{small / 'helper_fit.py'} was edited while this program runs" in caplog.text
