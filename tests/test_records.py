"""Records and folders that were harmed, crafted or are the user's own: noticed, never written through or removed."""

import json
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
import safetensors.torch
import torch
from conftest import TINY, only_folder
from test_config import run_command

from rope_lab import checkpoint, config, files, lab, record, train
from rope_lab.config import ConfigError
from rope_lab.results import __main__ as results


def run(overrides: list[str]) -> dict:
    return train.train(config.load(*overrides))


def tree(folder: Path) -> dict[str, str]:
    """Every path below a folder, with the content of files and the targets of links."""
    return {
        str(p.relative_to(folder)): os.readlink(p) if p.is_symlink() else p.read_text() if p.is_file() else ""
        for p in sorted(folder.rglob("*"))
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """The folder of a finished run; not to be changed."""
    out = tmp_path_factory.mktemp("finished")
    run([*TINY, f"out={out}"])
    return only_folder(out)


@pytest.fixture
def folder(finished, tmp_path) -> Path:
    """A copy of it under the same name."""
    return shutil.copytree(finished, tmp_path / "runs" / finished.name)


def again(folder: Path, *overrides: str) -> dict:
    return run([*TINY, f"out={folder.parent}", *overrides])


@pytest.fixture
def home(tmp_path) -> Path:
    """A folder of the user with a file in it that nobody may touch."""
    home = tmp_path / "home"
    (home / "deep").mkdir(parents=True)
    for path in (home / "precious", home / "deep" / "outcomes.jsonl", home / "multirun.yaml"):
        path.write_text("mine")
    return home


@pytest.mark.parametrize("launcher", ["basic", "joblib"])
@pytest.mark.parametrize("named", ["absolute", "."])
def test_a_sweep_leaves_the_users_own_folder_alone(home, tmp_path, launcher, named):
    before = tree(home)
    sweep = f"hydra.sweep.dir={home if named == 'absolute' else '.'}"
    done = run_command(["-m", sweep, f"hydra/launcher={launcher}", *TINY, f"out={tmp_path / 'runs'}", "seed=0,1"], home)
    assert "2 of 2 runs finished" in done.stdout
    after = tree(home)
    assert after.pop("multirun.yaml") != before.pop("multirun.yaml")  # that is Hydra's own doing
    assert after == before


def test_a_sweep_leaves_nothing_behind_where_it_chose_the_folder(tmp_path):
    (tmp_path / "scratch").mkdir()
    overrides = ["-m", *TINY, f"out={tmp_path / 'runs'}", "seed=0,1"]
    done = run_command(overrides, tmp_path, TMPDIR=str(tmp_path / "scratch"))
    assert "2 of 2 runs finished" in done.stdout
    assert list((tmp_path / "scratch").iterdir()) == []


NAMES = ("run.json", "metrics.jsonl", "weights.safetensors")


@pytest.mark.parametrize("name", [f"{name}{end}" for name in NAMES for end in ("", ".tmp")])
def test_no_link_in_a_runs_folder_is_written_through(folder, home, name):
    """A link under a name that is written, or that was once written on the way to it."""
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(home / "precious")
    if name == "run.json":
        (folder / "metrics.jsonl").unlink()
    with suppress(train.Unusable):
        again(folder, "fresh=true")
    assert tree(home)["precious"] == "mine"


def test_a_folder_that_is_a_link_is_not_written_into(folder, home):
    shutil.rmtree(folder)
    folder.symlink_to(home)
    before = tree(home)
    with pytest.raises(ConfigError, match="symbolic link"):
        again(folder)
    assert tree(home) == before


def test_out_itself_may_be_a_link_to_scratch_space(tmp_path):
    (tmp_path / "scratch").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "scratch")
    assert run([*TINY, f"out={tmp_path / 'runs'}"])["status"] == "finished"
    assert only_folder(tmp_path / "scratch")


def test_starting_over_keeps_what_others_put_into_the_folder(folder):
    for name in ("notes.md", "checkpoint-best.pt", "mine.tmp"):
        (folder / name).write_text("mine")
    (folder / "plots").mkdir()
    (folder / "plots" / "mine.png").write_text("mine")
    again(folder, "fresh=true")
    assert {name: text for name, text in tree_of_texts(folder).items() if text == "mine"}.keys() == {
        *("notes.md", "checkpoint-best.pt", "mine.tmp", "plots/mine.png")
    }


def tree_of_texts(folder: Path) -> dict[str, str]:
    paths = [p for p in folder.rglob("*") if p.is_file()]
    return {str(p.relative_to(folder)): p.read_bytes().decode(errors="replace") for p in paths}


def test_what_a_killed_write_left_is_removed_and_nothing_else(folder):
    stray, other = folder / ".run.json.0123456789abcdef.tmp", folder / ".run.json.mine.tmp"
    for path in (stray, other):
        path.write_text("half")
    again(folder, "fresh=true")
    assert (stray.exists(), other.exists()) == (False, True)


def flips(path: Path, count: int, seed: int = 0):
    """The content of a file with one random bit changed, again and again."""
    whole, random = path.read_bytes(), Random(seed)
    for bit in random.sample(range(8 * len(whole)), count):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        yield bytes(flipped)


def notices(folder: Path) -> bool:
    """Whether the record of a finished run is seen to be harmed."""
    content = record.read(folder)
    return content is None or not record.is_whole(folder, content)


@pytest.mark.parametrize("name", NAMES)
def test_every_flipped_bit_in_a_finished_run_is_noticed(folder, name):
    path = folder / name
    assert not notices(folder)
    for content in flips(path, 100):
        path.write_bytes(content)
        assert notices(folder)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_harmed_or_lost_is_made_again(folder, finished, name):
    for content in (next(flips(folder / name, 1)), None):
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content)
        assert again(folder)["status"] == "finished"
        assert not notices(folder)
    ours, theirs = (safetensors.torch.load_file(path / "weights.safetensors") for path in (folder, finished))
    assert all(torch.equal(weight, theirs[key]) for key, weight in ours.items())


def test_an_edited_number_is_noticed(folder):
    text = (folder / "run.json").read_text()
    content = json.loads(text)
    content["metrics"]["eval/accuracy"] = 0.99
    (folder / "run.json").write_text(json.dumps(content, indent=2) + "\n")
    assert record.read(folder) is None
    (folder / "run.json").write_text(text)
    assert record.read(folder)["metrics"]["eval/accuracy"] != 0.99


def test_a_folder_with_the_name_of_another_run_does_not_answer_for_it(folder):
    other = config.load(*TINY, "position=rope", f"out={folder.parent}")
    folder.rename(folder.parent / config.run_name(config.identity(lab.resolve(other))))
    with pytest.raises(ConfigError, match="is of another run"):
        again(folder, "position=rope")
    assert again(folder, "position=rope", "fresh=true")["position"] == "rope"


def without_digests(folder: Path) -> None:
    """Rewrites run.json as it was before it carried digests."""
    content = json.loads((folder / "run.json").read_text())
    for key in ("digest", "digests", "format"):
        del content[key]
    (folder / "run.json").write_text(json.dumps(content, indent=2) + "\n")


def test_a_record_made_before_there_were_digests_is_accepted_and_said_to_be_unchecked(folder, capsys):
    without_digests(folder)
    before = (folder / "run.json").read_bytes()
    assert again(folder)["status"] == "finished"
    assert "cannot be checked" in capsys.readouterr().out
    assert (folder / "run.json").read_bytes() == before
    (folder / "metrics.jsonl").write_text("")
    again(folder)
    assert "cannot be checked" not in capsys.readouterr().out  # made again, with digests now
    assert not notices(folder)


@pytest.mark.parametrize("part", ["model", "optimizer", "state", "origin", "provenance"])
@pytest.mark.parametrize("wrong", [None, {}, {"a": 1}, [1, 2], "text"])
def test_a_checkpoint_with_a_right_digest_and_wrong_content_is_refused_in_a_line(folder, part, wrong):
    (folder / "run.json").unlink()
    saved = checkpoint.load(folder)
    for path in checkpoint.checkpoints(folder):
        path.unlink()
    checkpoint.save(folder, 6, saved | {part: wrong})
    with pytest.raises(ConfigError, match=r"checkpoint .*fresh=true") as refused:
        again(folder)
    assert "\n" not in str(refused.value)
    assert again(folder, "fresh=true")["status"] == "finished"


@pytest.mark.parametrize("content", [b"", b"text", {"a": 1}, [torch.zeros(2)], 7])
def test_a_checkpoint_that_is_none_is_refused_in_a_line(folder, content):
    (folder / "run.json").unlink()
    for path in checkpoint.checkpoints(folder):
        path.unlink()
    if isinstance(content, bytes):
        (folder / f"checkpoint-00000006-{files.digest(content)}.pt").write_bytes(content)
    else:
        checkpoint.save(folder, 6, content)
    with pytest.raises(ConfigError, match="checkpoint") as refused:
        again(folder)
    assert "\n" not in str(refused.value)


def test_a_checkpoint_that_may_not_be_read_is_not_called_damaged(folder, monkeypatch):
    real = Path.read_bytes

    def deny(path):
        if path.suffix == ".pt":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    (folder / "run.json").unlink()
    monkeypatch.setattr(Path, "read_bytes", deny)
    with pytest.raises(ConfigError, match="cannot be read"):
        again(folder)


@pytest.mark.parametrize("name", [*NAMES, "checkpoint"])
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_a_pipe_or_a_folder_in_the_place_of_a_file_is_a_line_and_does_not_hang(folder, name, kind):
    path = checkpoint.checkpoints(folder)[0] if name == "checkpoint" else folder / name
    path.unlink()
    os.mkfifo(path) if kind == "pipe" else path.mkdir()
    if name == "checkpoint":
        (folder / "run.json").unlink()
        assert again(folder)["status"] == "finished"  # from the one before
        return
    with pytest.raises(train.Unusable) as refused:
        again(folder)
    assert "\n" not in str(refused.value)
    assert stat.S_ISFIFO(path.stat().st_mode) if kind == "pipe" else path.is_dir()


def test_a_link_loop_in_out_is_a_line(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    for out in (tmp_path / "a", tmp_path / "a" / "runs"):
        with pytest.raises(ConfigError, match="out=") as refused:
            run([*TINY, f"out={out}"])
        assert "\n" not in str(refused.value)


def test_a_file_in_the_place_of_out_or_of_a_runs_folder_is_a_line(folder, tmp_path):
    (tmp_path / "file").write_text("mine")
    shutil.rmtree(folder)
    folder.write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "runs", folder.parent):
        with pytest.raises(ConfigError, match="out="):
            run([*TINY, f"out={out}"])
    assert folder.read_text() == (tmp_path / "file").read_text() == "mine"


def test_a_file_system_that_syncs_no_folders_is_a_warning_once(tiny, monkeypatch, caplog):
    real = os.fsync

    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(22, "Invalid argument")
        real(descriptor)

    files._warn_unsynced.cache_clear()
    monkeypatch.setattr(os, "fsync", fsync)
    assert run(tiny)["status"] == "finished"
    assert caplog.text.count("cannot sync a folder") == 1


def test_what_git_does_not_tell_is_not_called_clean(monkeypatch):
    monkeypatch.setattr(record, "_git", lambda *arguments: None)
    assert record.provenance({}, None)["git"] == {"commit": None, "dirty": None}


def test_tables_say_which_records_carry_no_digests(folder, capsys, caplog):
    results.main([str(folder.parent), "--print"])
    assert "unchecked" not in caplog.text
    without_digests(folder)
    results.main([str(folder.parent), "--print"])
    assert f"{folder.name}: recorded before records carried digests" in caplog.text


def test_tables_leave_out_a_folder_with_the_name_of_another_run(folder, capsys):
    moved = folder.rename(folder.parent / f"{folder.name[:-12]}{'0' * 12}")
    results.main([str(folder.parent), "--print"])
    assert f"{moved.name}: has the name of another run" in capsys.readouterr().out
    moved.rename(folder.parent / "my favourite")
    results.main([str(folder.parent), "--print"])
    assert "another run" not in capsys.readouterr().out
