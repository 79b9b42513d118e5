"""Codes that give the same numbers are found by repeating kept runs, and paired."""

import dataclasses

import pytest
import yaml
from conftest import TINY
from trained import load, run

from rope_lab import repeat
from rope_lab.results import codes, folders
from rope_lab.results.kept import keep, read_kept
from rope_lab.results.runs import Run
from rope_lab.train import provenance


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A folder with a kept run of a code of before, and no other record of codes."""
    monkeypatch.setattr(codes, "SAME", tmp_path / "same_code.yaml")
    monkeypatch.setattr(repeat, "SAME", tmp_path / "same_code.yaml")
    monkeypatch.setattr(repeat, "ROOT", tmp_path)
    codes.same_codes.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(provenance, "code_digest", lambda cfg: "before")
        run([*TINY, f"out={tmp_path / 'runs'}"])
    keep(folders.read(tmp_path / "runs")[0], tmp_path / "kept")
    yield tmp_path / "kept"
    codes.same_codes.cache_clear()


def read(folder) -> Run:
    (run,) = read_kept(folder)[0]
    return run


def test_a_run_that_repeats_makes_its_code_the_same_as_todays(kept):
    with pytest.raises(SystemExit) as ended:
        repeat.main([str(kept), "--record"])
    assert ended.value.code == 0
    (entry,) = yaml.safe_load((kept.parent / "same_code.yaml").read_text())
    today = provenance.code_digest(load(*TINY))
    precision = read(kept).precision
    recorded = entry["code"], entry["same_as"], entry["task"], entry["precision"]
    assert recorded == ("before", today, "substring_by_index", precision)
    codes.same_codes.cache_clear()
    assert codes.numbers_of("before", precision) == codes.numbers_of(today, precision)
    assert codes.numbers_of("before", "another") != codes.numbers_of(today, "another")


def test_a_run_that_does_not_repeat_is_named_and_nothing_is_recorded(kept, capsys):
    run = read(kept)
    steps, values = run.curves["eval/loss"]
    wrong = dataclasses.replace(run, curves=run.curves | {"eval/loss": (steps, [values[0] + 1e-4, *values[1:]])})
    keep([wrong], kept)
    with pytest.raises(SystemExit) as ended:
        repeat.main([str(kept), "--record"])
    assert ended.value.code == 1
    assert "eval/loss at step 0 was" in capsys.readouterr().out
    assert not (kept.parent / "same_code.yaml").exists()


def test_what_cannot_be_repeated_here_is_left_out(kept):
    keep([dataclasses.replace(read(kept), hardware="another processor")], kept)
    with pytest.raises(SystemExit, match="nothing can be repeated here"):
        repeat.main([str(kept)])


def test_runs_made_elsewhere_agree_within_a_share_of_their_losses(kept, capsys):
    run = read(kept)
    steps, values = run.curves["eval/loss"]
    for share, status in ((1e-4, 0), (1e-2, 1)):
        moved = run.curves | {"eval/loss": (steps, [value * (1 + share) for value in values])}
        ends = run.metrics | {"eval/loss": moved["eval/loss"][1][-1]}
        keep([dataclasses.replace(run, hardware="another processor", curves=moved, metrics=ends)], kept)
        with pytest.raises(SystemExit) as ended:
            repeat.main([str(kept), "--within", "1e-3", "--record"])
        assert ended.value.code == status
    (entry,) = yaml.safe_load((kept.parent / "same_code.yaml").read_text())
    assert entry["within"] == 1e-3


def test_only_runs_of_the_task_and_scale_that_are_asked_for_are_repeated(kept):
    with pytest.raises(SystemExit, match="no kept run is of this task and scale"):
        repeat.main([str(kept), "--scale", "paper"])
    with pytest.raises(SystemExit) as ended:
        repeat.main([str(kept), "--task", "substring_by_index", "--scale", "quick"])
    assert ended.value.code == 0


def test_codes_are_the_same_through_others_and_without_their_plug_in(tmp_path):
    path = tmp_path / "same.yaml"
    entries = [{"code": a, "same_as": b} for a, b in (("a", "b"), ("c", "d"), ("d", "a"), ("e", "f"))]
    entries.append({"code": "g", "same_as": "a", "precision": "bfloat16"})
    path.write_text(yaml.safe_dump(entries))
    found = codes.same_codes(path, "float32")
    assert len({found[code] for code in "abcd"}) == 1
    assert found["e"] == found["f"] != found["a"]
    assert "g" not in found
    of_bfloat16 = codes.same_codes(path, "bfloat16")
    assert of_bfloat16["g"] == of_bfloat16["a"]
    assert codes.numbers_of("0123+4567", "float32") == "0123"
