"""Records and folders that were harmed, crafted or are the user's own: noticed, never written through or removed."""

import json
import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
import safetensors.torch
import torch
from conftest import TINY, only_folder
from trained import command, load, run

from rope_lab import files
from rope_lab.results import __main__ as results
from rope_lab.text import ConfigError
from rope_lab.train import checkpoint, config, provenance, trainer
from rope_lab.train import loop as train
from rope_lab.train import run as runs


def tree(folder: Path) -> dict[str, str]:
    """Every path below a folder, with the content of files and the targets of links."""
    return {
        str(p.relative_to(folder)): os.readlink(p) if p.is_symlink() else p.read_text() if p.is_file() else ""
        for p in sorted(folder.rglob("*"))
    }


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


@pytest.mark.parametrize("named", ["absolute", "."])
def test_a_sweep_leaves_the_users_own_folder_alone(home, tmp_path, named):
    before = tree(home)
    sweep = f"hydra.sweep.dir={home if named == 'absolute' else '.'}"
    done = command(["-m", sweep, *TINY, f"out={tmp_path / 'runs'}", "seed=0,1"], home)
    assert "2 of 2 runs finished" in done.stdout
    after = tree(home)
    assert after.pop("multirun.yaml") != before.pop("multirun.yaml")  # that is Hydra's own doing
    assert after == before


def test_a_sweep_leaves_nothing_behind_where_it_chose_the_folder(tmp_path, monkeypatch):
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    done = command(["-m", *TINY, f"out={tmp_path / 'runs'}", "seed=0,1"], tmp_path)
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
    content = runs.read(folder)
    return content is None or not runs.is_whole(folder, content)


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
    assert runs.read(folder) is None
    (folder / "run.json").write_text(text)
    assert runs.read(folder)["metrics"]["eval/accuracy"] != 0.99


def test_a_folder_with_the_name_of_another_run_does_not_answer_for_it(folder):
    other = load(*TINY, "position=rope", f"out={folder.parent}")
    folder.rename(folder.parent / config.identity(trainer.resolve(other)).run_name)
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


@pytest.mark.parametrize("part", ["model", "optimizer", "step", "identity", "provenance"])
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
    if not wrong:
        assert again(folder, "fresh=true")["status"] == "finished"


WRONG_STATES = [
    *({"step": step} for step in (-3, 2.5, "7", None, float("nan"), True, 10**9)),
    *({"seconds": seconds} for seconds in ("x", None, -5.0, float("nan"), float("inf"))),
    *({"losses": losses} for losses in ("x", [None], ["a"], 5, [float("nan")], [10**400])),
    *({"metrics": found} for found in ([1], "abc", {"a": 1}, [{}], [{"step": "x"}], [{"step": 2}, {"step": 1}])),
    *({"metrics": [{"step": 1, "eval/loss": value}]} for value in ("x", None, float("nan"))),
]


@pytest.mark.parametrize("wrong", WRONG_STATES, ids=str)
def test_a_checkpoint_of_progress_that_cannot_be_is_refused_in_a_line(folder, wrong):
    with_checkpoint(folder, lambda saved: saved.update(wrong))
    for read in (again, lambda folder: runs.load_run(folder, [])):
        with pytest.raises(ConfigError, match=r"checkpoint .*fresh=true") as refused:
            read(folder)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("wrong", [{"earlier": 5}, {"git": torch.zeros(2)}, {"code": float("nan")}], ids=str)
def test_a_checkpoint_whose_origin_no_record_can_hold_is_refused_in_a_line(folder, wrong):
    with_checkpoint(folder, lambda saved: saved["provenance"].update(wrong))
    (folder / "run.json").unlink()
    with pytest.raises(ConfigError, match=r"checkpoint .*fresh=true"):
        again(folder)


@pytest.mark.parametrize("name", ["exp_avg", "exp_avg_sq", "step"])
@pytest.mark.parametrize("harm", ["shape", "stride", "missing", "text"])
def test_optimizer_state_that_does_not_fit_its_parameters_is_refused(folder, name, harm):
    def edit(saved):
        assert saved["optimizer"]["state"]
        for state in saved["optimizer"]["state"].values():
            whole = state.pop(name)
            wrong = {"shape": torch.zeros(1), "stride": torch.zeros(1).expand(2, *whole.shape), "text": "x"}
            state |= {name: wrong[harm]} if harm in wrong else {}

    with_checkpoint(folder, edit)
    with pytest.raises(ConfigError, match=r"checkpoint .*fresh=true"):
        again(folder)


def test_the_settings_of_the_optimizer_are_those_of_the_run_whatever_a_checkpoint_says(folder):
    before = safetensors.torch.load_file(folder / "weights.safetensors")

    def edit(saved):
        saved["optimizer"]["param_groups"][0] |= {"betas": (0.5, 0.5), "eps": 1.0, "weight_decay": 0.5}

    with_checkpoint(folder, edit, step=3)
    assert again(folder)["status"] == "finished"
    after = safetensors.torch.load_file(folder / "weights.safetensors")
    assert all(torch.equal(after[name], weight) for name, weight in before.items())


def with_checkpoint(folder: Path, edit, step: int = 6) -> None:
    """Makes an edited checkpoint of `step` the only one of a run that was interrupted there."""
    (path,) = folder.glob(f"checkpoint-{step:08d}-*.pt")
    saved = torch.load(path, weights_only=True)
    edit(saved)
    for path in checkpoint.checkpoints(folder):
        path.unlink()
    checkpoint.save(folder, step, saved)
    without_digests(folder)
    content = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(content | {"status": "interrupted"}))


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
    monkeypatch.setattr(provenance, "_git", lambda *arguments: None)
    assert provenance.git_state() == {"commit": None, "dirty": None}


def test_tables_say_which_records_carry_no_digests(folder, capsys, caplog):
    results.main([str(folder.parent), "--print"])
    assert "unchecked" not in caplog.text
    without_digests(folder)
    results.main([str(folder.parent), "--print"])
    assert f"{folder.name}: recorded before records carried digests" in caplog.text


def test_tables_leave_out_a_folder_with_the_name_of_another_run(folder, capsys):
    moved = folder.rename(folder.parent / f"{folder.name[:-12]}{'0' * 12}")
    results.main([str(folder.parent), "--print"])
    assert f"{moved.name}: run.json: is of run" in capsys.readouterr().out
    moved.rename(folder.parent / "my favourite")
    results.main([str(folder.parent), "--print"])
    assert "another run" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["weights.safetensors", "probes.md", "run.json"])
def test_starting_over_forgets_nothing_where_a_folder_stands_in_the_place_of_a_file(folder, name):
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()
    written = lambda: {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "alive"}  # noqa: E731
    before = written()
    with pytest.raises(train.Unusable):
        again(folder, "fresh=true")
    assert written() == before


@pytest.mark.parametrize("number", ["NaN", "1e999", "-Infinity"])
def test_a_record_with_a_number_that_is_none_is_made_again_from_the_checkpoint(folder, number):
    without_digests(folder)
    content = json.loads((folder / "run.json").read_text()) | {"status": "interrupted"}
    content["provenance"]["earlier"] = [{"code": "NUMBER"}]
    (folder / "run.json").write_text(json.dumps(content).replace('"NUMBER"', number))
    assert runs.read(folder) is None
    assert again(folder)["status"] == "finished"


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_no_memory_holds_is_made_again_from_the_checkpoint(folder, name, monkeypatch):
    real = files.read_file

    def read_file(path):
        if path.name == name and path.stat().st_size == 2**40:
            raise MemoryError
        return real(path)

    monkeypatch.setattr(files, "read_file", read_file)
    monkeypatch.setattr(runs, "read_file", read_file)
    os.truncate(folder / name, 2**40)  # sparse
    assert again(folder)["status"] == "finished"
    assert (folder / name).stat().st_size < 2**20


def test_a_checkpoint_that_no_memory_holds_is_passed_over(folder, monkeypatch):
    newest = checkpoint.checkpoints(folder)[0]
    real = Path.read_bytes

    def read_bytes(path):
        if path == newest:
            raise MemoryError
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    assert checkpoint.load(folder)["step"] == 3


def test_a_file_that_keeps_its_reader_waiting_is_not_waited_for(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")  # stands for a file of /proc, which says that it is regular
    monkeypatch.setattr(stat, "S_ISREG", lambda mode: True)
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    try:
        with ThreadPoolExecutor(1) as reader:
            found = reader.submit(files.read_file, tmp_path / "pipe")
            waited = not wait([found], 5).done
            os.write(writer, b"late") if waited else None
            os.close(writer)
            assert not waited
            assert isinstance(found.exception(), OSError)
    finally:
        with suppress(OSError):
            os.close(writer)


def test_a_present_folder_that_is_removed_meanwhile_does_not_make_a_finished_run_fail(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    cfg = load(*TINY, f"out={tmp_path / 'runs'}")
    real = train.Run.export

    def export(*arguments):
        (tmp_path / "gone").rmdir()
        return real(*arguments)

    monkeypatch.setattr(train.Run, "export", export)
    assert train.train(cfg)["status"] == "finished"


@pytest.mark.parametrize("sweep", [False, True])
def test_a_folder_of_hydras_that_cannot_be_written_is_one_line(tmp_path, sweep):
    (tmp_path / "file").write_text("mine")
    key = "hydra.sweep.dir" if sweep else "hydra.run.dir"
    overrides = [*(["-m"] if sweep else []), f"{key}={tmp_path / 'file' / 'x'}", *TINY, f"out={tmp_path / 'runs'}"]
    done = command(overrides, tmp_path)
    assert done.returncode == train.EXIT_BAD_CONFIG
    assert done.stderr.count("\n") == 1
    assert key in done.stderr
    assert (tmp_path / "file").read_text() == "mine"
