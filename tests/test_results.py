"""Results of synthetic run folders and kept records: grouping, pairing, tables and messages."""

import json
import re

import pandas as pd
import pytest
from builders import CATALOGUE, ROPE, ROPER, STEPS, make_run, row, shipped, shown
from conftest import tree

from rope_lab.results import __main__ as results
from rope_lab.results import load
from rope_lab.results.comparisons.answers import samples
from rope_lab.results.comparisons.unplanned import difference_since
from rope_lab.results.records.folders import read
from rope_lab.results.records.kept import keep
from rope_lab.results.records.setups import setups_of
from rope_lab.text import ConfigError

pytestmark = pytest.mark.usefixtures("undrawn")

INDEX = "Substring by Index"
DIFFERENCE = "difference from RoPE, higher is better"


def test_from_folders_and_from_kept_rows_come_the_same_bytes(out, tmp_path_factory):
    kept = tmp_path_factory.mktemp("kept")
    results.main([str(out), "--keep", "--into", str(kept)])
    first = tree(kept)
    assert first.keys() >= {
        "runs.jsonl",
        "README.md",
        "figures/quick-substring_by_index-curves.svg",
    }
    results.main([str(kept)])
    assert tree(kept) == first
    keep(read(kept)[0], kept)  # integers survive too
    assert tree(kept) == first
    # Keeping the same runs again changes nothing.
    results.main([str(out), "--keep", "--into", str(kept)])
    assert tree(kept) == first
    lines = [json.loads(line) for line in first["runs.jsonl"].splitlines()]
    named = "task scale recipe_id position seed run_id status config metrics curve"  # public fields
    assert all(line.keys() >= set(named.split()) for line in lines)
    assert len(lines) == 8


def test_folders_and_kept_records_load_as_a_tidy_frame(out, tmp_path_factory):
    kept = tmp_path_factory.mktemp("kept")
    results.main([str(out), "--keep", "--into", str(kept)])
    frames = [load(folder, settings=["train.steps", "train.lr"]) for folder in (out, str(kept))]
    by = ["position", "seed", "metric"]
    first, second = (frame.sort_values(by).reset_index(drop=True) for frame in frames)
    pd.testing.assert_frame_equal(first, second)
    assert list(first)[:6] == ["task", "scale", "recipe_id", "position", "seed", "run_id"]
    assert len(first) == len(first.drop_duplicates(by)) == 8 * 3
    accuracies = first[first.metric == "eval/accuracy"].pivot(
        index="seed", columns="scheme", values="value"
    )
    assert accuracies.to_dict("list") == {"rope": ROPE, "roper": ROPER}
    assert set(first["train.steps"]) == {100}
    assert first["train.lr"].isna().all()  # not in these records
    with pytest.raises(ConfigError, match="there are no runs"):
        load(tmp_path_factory.mktemp("empty"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"status": "diverged"}, "rope seed 9 is diverged at step 100: it has no final value"),
        ({"status": "interrupted", "progress__steps": 40}, "rope seed 9 is interrupted at step 40"),
        ({"provenance__numerics": 2}, "numerics: 2 (n=1), 3 (n=8)"),
        ({}, "] n=4 "),
        ({"recipe": "other"}, "task.letters=other"),
        ({"config__position": shipped("rope") | {"q": 2}}, "| RoPE (q=2) |"),
    ],
)
def test_a_run_unlike_the_others_is_shown_with_its_settings(out, capsys, changes, said):
    make_run(out, "rope", 9, 0.1, **changes)
    text = shown(capsys, out)
    assert said in text
    assert row(text, INDEX)["seeds"] == "4"


def test_two_versions_of_a_users_scheme_are_two_schemes(tmp_path, capsys):
    for seed in range(4):
        make_run(tmp_path, "rope", seed, 0.5)
        make_run(
            tmp_path, "mine", seed, 0.6, provenance__plugin={"position": "a1" if seed < 3 else "b2"}
        )
        make_run(tmp_path, "other", seed, 0.6, provenance__plugin={"position": "d4"})
        own = {"_target_": "named.Named", "code": seed // 2}
        make_run(
            tmp_path,
            "named",
            seed,
            0.6,
            config__position=own,
            provenance__plugin={"position": "e5"},
        )
    text = shown(capsys, tmp_path)
    cells = [row(text, name)["mean, correct out of 128"] for name in ("named", "named (code=1)")]
    assert all(cell.endswith("n=2") for cell in cells)
    names = ("mine", "mine (code of its file=b2)", "other")
    ends = {name: row(text, name)["mean, correct out of 128"] for name in names}
    assert [end.partition(" ")[0] for end in ends.values()] == ["76.8"] * 3
    assert [end.endswith(f"n={n}") for end, n in zip(ends.values(), (3, 1, 4), strict=True)] == [
        True,
        False,
        True,
    ]


def test_pairs_of_different_code_are_not_compared(out, capsys):
    make_run(out, "rope", 9, 0.1)
    make_run(out, "roper", 9, 0.1, provenance__numerics=2)
    make_run(out, "none", 9, 0.1, provenance__numerics=2)
    text = shown(capsys, out)
    assert row(text, INDEX)["seeds"] == "4"
    roper, none = (row(text, scheme) for scheme in ("RoPER", "none"))
    assert roper["mean, correct out of 128"].endswith("n=5")
    assert roper[DIFFERENCE].endswith("n=4")
    assert none[DIFFERENCE] == "–"


def test_two_recipes_never_meet(out):
    for seed in range(3):
        make_run(out, "roper", seed, 0.1, name=f"o{seed}", config__model={"init": "xavier"})
    results.main([str(out)])
    text = (out / "README.md").read_text()
    headings = re.findall("^## (.*)", text, re.M)
    assert headings == [
        "Substring by Index, scale quick",
        "Substring by Index, model.init=xavier, scale quick",
    ]
    assert row(text, INDEX)["measured gain [95% interval]"].startswith("+39.0 ")
    assert [path.name for path in (out / "figures").glob("*")] == [
        "quick-substring_by_index-curves.svg"
    ]


def test_a_folder_without_runs_is_one_line_with_a_remedy(tmp_path):
    (tmp_path / "file").touch()
    for name in ("", "file", "mistyped"):
        words = f"{tmp_path / name}: there are no runs; `rope-lab list` names your runs"
        with pytest.raises(SystemExit, match=words):
            results.main([str(tmp_path / name)])


def test_a_task_that_was_not_published(tmp_path, capsys):
    # No attributes.
    slices = {
        "answer_position": {"1": [9, 0.5]},
        "length": {"4": [100, 0.5], "8": [100, 0.25]},
    }
    for seed in range(2):
        make_run(tmp_path, "rope", seed, 0.5, task="mine")
        make_run(tmp_path, "none", seed, 0.5 + seed / 10, task="mine", slices=slices)
    text = shown(capsys, tmp_path)
    assert "## mine, scale quick" in text
    mean = row(text, "none")["mean, share of problems correct"]
    assert mean.startswith("0.550 (0.500–0.600) n=2")
    assert "| length | 4 | 8 |" in text  # training lengths are unknown
    assert "not in training" not in text


def test_accuracy_by_length(tmp_path, capsys):
    for seed, share in enumerate((0.5, 0.75)):
        slices = {"index": {"0": [9, 0.5]}, "length": {"13": [100, share], "26": [100, share / 4]}}
        make_run(tmp_path, "rope", seed, 0.5, slices=slices)
        make_run(tmp_path, "roper", seed, 0.5)
    text = shown(capsys, tmp_path)
    assert re.search(r"letters in the string\s*\| 13\s*\| 26 \(not in training\)\s*\|", text)
    assert re.search(r"\| RoPE\s*\| 62.5% \(50%–75%\)\s*\| 15.6% \(12%–19%\)\s*\|", text)
    assert re.search(r"\| RoPER\s*\| –\s*\| –\s*\|", text)


def test_differences_are_measured_equally_long_after_a_threshold(tmp_path, capsys):
    """Two identical schemes, one delayed by 20 steps: the difference since the threshold is 0."""
    for seed in range(3):
        for scheme, late in (("rope", 20), ("roper", 0)):
            ends = {"eval/loss": 2 - seed - (100 - late) / 40}
            folder = make_run(tmp_path, scheme, seed, 0.5, task="substring_by_prefix", metrics=ends)
            lines = [{"step": s, "train/loss": 2 - (s - late) / 40} for s in range(0, 100, 10)]
            lines += [{"step": s, "eval/loss": 2 - seed - (s - late) / 40} for s in STEPS]
            (folder / "metrics.jsonl").write_text(
                "".join(json.dumps(line) + "\n" for line in lines)
            )
    (prefix,) = setups_of(read(tmp_path)[0], CATALOGUE)
    (threshold,) = prefix.report.thresholds.values()
    assert samples(prefix.arm("rope"), threshold).value.to_dict() == dict.fromkeys(range(3), 60)
    assert samples(prefix.arm("roper"), threshold).value.to_dict() == dict.fromkeys(range(3), 40)
    difference = difference_since(prefix, threshold)
    assert (difference.mean, difference.n) == (pytest.approx(0), 3)
    # Paired by seed, despite offsets.
    assert (difference.low, difference.high) == pytest.approx((0, 0), abs=1e-9)
    words = r"after each run reaches training loss 1\.0: .* is [+-]0\.0000 "
    assert re.search(words, shown(capsys, tmp_path))


@pytest.mark.parametrize(
    ("task", "above"), [("substring_by_prefix", "0.2000"), ("substring_by_index", None)]
)
def test_the_loss_above_the_floor_and_one_below_it(tmp_path, capsys, task, above):
    """RoPE: (0.5 + 0.4) / 2 − 0.25. Loss 0.1 is reported as below the floor. Accuracy is not
    compared with it.
    """
    for seed, (scheme, accuracy) in enumerate((("rope", 0.5), ("rope", 0.6), ("mine", 0.9))):
        floor = {"loss": 0.25, "place": {"1": [10, 0.25]}}
        make_run(tmp_path, scheme, seed, accuracy, task=task, floor=floor)
    text = shown(capsys, tmp_path)
    assert row(text, "RoPE").get("above the Bayes-optimal loss") == above
    assert "Bayes-optimal loss on the held-out text: 0.2500" in text
    named = "mine is below the Bayes-optimal loss, so it must see later tokens" in text
    assert named == (above is not None)
    assert "RoPE is below" not in text
