"""`fresh=true`: the earlier run's records go once the new run has a checkpoint, and not before."""

import os

import pytest
from conftest import only_folder, tree
from killed import killed_after
from trained import assert_same_end, load, metrics_of, raising_signal_at, run

from rope_lab.train import loop, provenance, run_folder


def fails(trainer, step):
    raise NameError("typing error in a hook")


def test_a_new_run_that_fails_leaves_the_earlier_one(tiny, folder, monkeypatch, caplog):
    before = tree(folder)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "update", fails)
        with pytest.raises(NameError):
            run([*tiny, "fresh=true"])
    assert tree(folder) == before
    assert "the earlier one is back" in caplog.text


def test_a_new_run_with_a_checkpoint_replaces_the_earlier_one(tiny, folder, monkeypatch):
    (folder / "notes.txt").write_text("mine")
    (folder / "probes.md").write_text("of the earlier run")
    monkeypatch.setattr(loop, "update", raising_signal_at(4, loop.update))
    assert run([*tiny, "fresh=true"])["status"] == "interrupted"
    assert {path.name[:19] for path in folder.glob("*.pt")} == {
        "checkpoint-00000003",
        "checkpoint-00000004",
    }
    assert (folder / "notes.txt").exists()
    assert not (folder / "probes.md").exists()
    assert not (folder / run_folder.ASIDE).exists()


def test_a_new_run_that_diverges_replaces_the_earlier_one(tiny, folder, monkeypatch):
    def diverges(trainer, step):
        raise loop.Diverged("the loss is nan")

    monkeypatch.setattr(loop, "update", diverges)
    assert run([*tiny, "fresh=true"])["status"] == "diverged"
    assert run(tiny)["status"] == "diverged"
    assert not (folder / run_folder.ASIDE).exists()


@pytest.mark.slow
@pytest.mark.parametrize("first", range(4))
def test_a_new_run_killed_between_any_two_writes_loses_nothing(tiny, finished, folder, first):
    """Before each rename and unlink in turn, until a run completes."""
    writes = [(os, "replace"), (run_folder.Path, "unlink"), (run_folder.Path, "rmdir")]
    for survived in range(first, 200, 4):
        with killed_after(survived, *writes) as process:
            run([*tiny, "fresh=true"])
        content = run(tiny)
        assert content["metrics"] == run_folder.read(finished)["metrics"], survived
        assert_same_end(finished, folder)
        assert not (folder / run_folder.ASIDE).exists()
        assert not (folder / run_folder.MOVING).exists()
        if not process.dead:
            break
    assert 20 < survived < 199


def test_a_job_started_again_resumes_whatever_the_clocks_say(tiny, folder, tmp_path, monkeypatch):
    cfg = load(*tiny, "fresh=true")
    made = []

    def counted(trainer, step, update=loop.update):
        made.append(step)
        return update(trainer, step)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "update", raising_signal_at(4, counted))
        loop.train(cfg, launch="first")
    monkeypatch.setattr(loop, "update", counted)
    monkeypatch.setattr(provenance, "now", lambda: "1999-01-01T00:00:00+00:00")
    loop.train(cfg, launch="first")
    assert made == [0, 1, 2, 3, 4, 5]
    loop.train(cfg, launch="first")
    assert len(made) == 6
    monkeypatch.setattr(provenance, "now", lambda: "2999-01-01T00:00:00+00:00")
    loop.train(cfg, launch="second")
    assert made == [0, 1, 2, 3, 4, 5] * 2
    assert metrics_of(folder)[-1]["step"] == 6
    assert only_folder(tmp_path / "runs") == folder
