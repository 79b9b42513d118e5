"""rope-lab score: a scheme of one's own by the protocol of the scores page."""

from types import SimpleNamespace

import pytest
from builders import CATALOGUE, make_rows, table_rows
from conftest import TINY
from trained import command

from rope_lab.results.comparisons.score_columns import all_columns, mean_ranks
from rope_lab.results.comparisons.stats import t_interval
from rope_lab.results.records.folders import read
from rope_lab.results.records.kept import keep
from rope_lab.results.records.setups import setups_of
from rope_lab.scoring import score
from rope_lab.text import ConfigError, MissingText
from rope_lab.train import plugin
from rope_lab.train.instantiate import config_errors
from tasks import corpus

MINE = "from rope_lab.model.schemes.rotary import Rotary\n\n\nclass Mine(Rotary):\n    pass\n"
SHORT = ["train.steps=2", "train.warmup=1", "eval.problems=2", "eval.sequences=1"]
WORDS = ["--task", "substring_by_prefix", *TINY, *SHORT, "hydra/launcher=basic"]


@pytest.fixture
def beside_rope(tmp_path, monkeypatch):
    """A folder of kept runs of RoPE by the protocol, in the place of results/."""
    plugin.forget_files()
    monkeypatch.setattr(score, "RESULTS", tmp_path / "results")
    (tmp_path / "results").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(score, "_check_comparable", lambda settings: None)
        command(["rope", *WORDS, "train.precision=float32", "--out", "rope"], tmp_path, score.main)
    keep(read(tmp_path / "rope" / "runs")[0], tmp_path / "results")
    yield tmp_path
    plugin.forget_files()


@pytest.mark.slow
def test_a_scheme_of_ones_own_gets_its_row(beside_rope):
    (beside_rope / "mine.py").write_text(MINE)
    other = "train.precision=bfloat16"  # as on another machine
    said = command(["./mine.py", *WORDS, other], beside_rope, score.main)
    assert said.returncode == 0, said.stderr
    folder = beside_rope / "results" / "score" / "mine"
    runs, _ = read(folder / "runs")
    assert len({(run.settings["train.lr"], run.seed) for run in runs}) == len(runs) == 9
    rows = table_rows((folder / "score.md").read_text())
    assert {row["scheme"] for row in rows} == {"RoPE", "mine"}
    assert all(row["Substring by Prefix, quick"].endswith("†") for row in rows)
    assert {path.name for path in folder.iterdir()} >= {"score.tex", "score.csv", "figures"}


@pytest.mark.parametrize("word", ["train.lr=1", "seed=3", "scale=paper", "fresh=true"])
def test_what_the_protocol_sets_is_refused(tmp_path, word):
    said = command(["rope", word], tmp_path, score.main)
    assert said.returncode == 2
    assert said.stderr.startswith(word)


@pytest.mark.parametrize("name", ["score.csv", "score.tex", "figures/score.svg"])
def test_a_foreign_file_is_not_overwritten(tmp_path, monkeypatch, name):
    (tmp_path / "figures").mkdir()
    (tmp_path / name).write_text("not ours")
    monkeypatch.setattr(score, "jobs_of", lambda *_: 1 / 0)
    said = command(["rope", "--out", "."], tmp_path, score.main)
    assert said.returncode == 2
    assert f"{name}: was not written by this command" in said.stderr


@pytest.mark.parametrize(("error", "status"), [(MissingText, 1), (ConfigError, 2)])
def test_only_a_task_without_its_text_is_left_out(tmp_path, monkeypatch, error, status):
    def resolve(task):
        if task == "text":
            with config_errors("task."):
                raise error("no")

    monkeypatch.setattr(score, "jobs_of", lambda _, task, *more: [SimpleNamespace(cfg=task)])
    monkeypatch.setattr(score, "resolve", resolve)
    monkeypatch.setattr(score, "_train", lambda *_: 0)
    monkeypatch.setattr(score, "write", lambda *_: None)
    words = ["rope", "--task", "mqar", "--task", "text", "--out", "."]
    said = command(words, tmp_path, score.main)
    assert (said.returncode, "is left out" in said.stdout) == (status, error is MissingText)
    with pytest.raises(MissingText):
        corpus.locate("none.txt")


def test_without_kept_runs_nothing_is_trained(tmp_path, monkeypatch):
    monkeypatch.setattr(score, "RESULTS", tmp_path / "results")
    said = command(["rope", *WORDS], tmp_path, score.main)
    assert said.returncode == 2
    assert "there are no kept runs to stand beside" in said.stderr
    assert not list(tmp_path.iterdir())


def test_ranks_are_means_over_tasks_of_all_schemes():
    """Scores that are equal to two decimals share a rank."""
    scores = {
        "substring_by_index": {"rope": 0.9, "roper": 0.8, "none": 0.1},
        "needle": {"rope": 0.2, "roper": 0.6, "none": 0.1},
        "mqar": {"rope": 0.9, "roper": 0.8, "none": 0.1},
        "flip_flop": {"rope": 0.999, "roper": 1.0, "none": 0.5},
    }
    made = []
    for factor in (0.5, 1, 2):
        for task, of_task in scores.items():
            ends = {scheme: [each] * 3 for scheme, each in of_task.items()}
            made += make_rows(ends, task=task, settings={"train.lr": 1e-4 * factor})
    ranks = mean_ranks(all_columns(setups_of(made, CATALOGUE)))
    expected = {"rope": (1 + 2 + 1 + 1.5) / 4, "roper": (2 + 1 + 2 + 1.5) / 4, "none": 3}
    assert ranks["mean"].to_dict() == expected
    assert ranks["first"].to_dict() == {"rope": True, "roper": True, "none": False}
    found = t_interval([1, 2, 1, 1.5])
    assert ranks.loc["rope", ["low", "high"]].to_list() == [max(1, found.low), found.high]
