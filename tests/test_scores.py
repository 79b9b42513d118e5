"""The table of schemes and tasks: the definition of a score, and the choice of runs."""

import math

import pytest
from builders import PUBLISHED, make_row, table_rows

from rope_lab.results import scores
from rope_lab.results.groups import group
from rope_lab.results.kept import keep


def test_a_score_is_the_share_right_or_e_to_the_minus_loss_of_three_seeds(tmp_path, capsys):
    ends = {"rope": [0.5, 0.6, 0.7], "roper": [0.8, 0.9, 0.7], "none": [0.1, 0.2]}
    made = [make_row(s, seed, [end] * 2) for s, each in ends.items() for seed, end in enumerate(each)]
    prefix_runs = {"task": "substring_by_prefix", "metric": "eval/loss"}
    losses = {"rope": [1.0, 1.2, 1.1], "roper": [0.5, 0.4, 0.6]}
    made += [
        make_row(s, seed, [end] * 2, run_id=f"p{s}{seed}", **prefix_runs)
        for s, each in losses.items()
        for seed, end in enumerate(each)
    ]
    keep(made, tmp_path)
    scores.main([str(tmp_path)])
    rows = {row["scheme"]: list(row.values())[1:] for row in table_rows(capsys.readouterr().out)}
    assert list(rows) == ["RoPE", "RoPER"]
    index, prefix = rows["RoPER"]
    assert index.startswith("0.800 ± ")
    assert prefix.startswith(f"{sum(math.exp(-loss) for loss in losses['roper']) / 3:.3f} ± ")
    assert (tmp_path / "figures" / "scores.svg").read_bytes().rstrip().endswith(b"</svg>")


def test_of_two_recipes_the_one_of_most_schemes_is_shown():
    made = [make_row(s, seed, [0.5, 0.5]) for s in ("rope", "roper") for seed in range(3)]
    more = [make_row(s, seed, [0.7, 0.7], recipe_id="b") for s in ("rope", "roper", "none") for seed in range(3)]
    (shown,) = scores.columns(group([*made, *more], PUBLISHED))
    assert set(scores.scores(shown)) == {"rope", "roper", "none"}


def test_without_three_seeds_of_two_schemes_it_is_one_line(tmp_path):
    keep([make_row("rope", 0, [0.5, 0.5])], tmp_path)
    with pytest.raises(SystemExit, match="no task has two schemes of 3 kept runs each"):
        scores.main([str(tmp_path)])
