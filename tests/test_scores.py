"""The table of schemes and tasks: definition of a score, and selection of runs."""

import math
from dataclasses import replace

import pytest
from builders import CATALOGUE, make_row, make_rows, table_rows

from rope_lab import run_tables
from rope_lab.results.comparisons import score_columns as columns
from rope_lab.results.records.kept import keep
from rope_lab.results.records.setups import setups_of
from rope_lab.scoring import missing, scores
from rope_lab.scoring.protocol import PROTOCOL


def test_a_score_is_accuracy_or_e_to_minus_loss(tmp_path, capsys):
    ends = {"rope": [0.5, 0.6, 0.7], "roper": [0.8, 0.9, 0.7], "none": [0.1, 0.2]}
    losses = {"rope": [1.0, 1.2, 1.1], "roper": [0.5, 0.4, 0.6]}
    keep(
        make_rows(ends) + make_rows(losses, task="substring_by_prefix", metric="eval/loss"),
        tmp_path,
    )
    scores.main([str(tmp_path)])
    rows = {row["scheme"]: list(row.values())[1:] for row in table_rows(capsys.readouterr().out)}
    assert list(rows) == ["RoPE", "RoPER"]
    index, prefix = rows["RoPER"]
    assert index.startswith("0.800 ± ")
    assert prefix.startswith(f"{sum(math.exp(-loss) for loss in losses['roper']) / 3:.3f} ± ")
    assert (tmp_path / "figures" / "scores.svg").read_bytes().rstrip().endswith(b"</svg>")


def test_of_two_recipes_the_one_of_most_schemes_is_shown():
    made = make_rows(dict.fromkeys(("rope", "roper"), [0.5] * 3))
    more = make_rows(
        dict.fromkeys(("rope", "roper", "none"), [0.7] * 3), settings={"train.lr": 2e-4}
    )
    (shown,) = columns.widest(setups_of([*made, *more], CATALOGUE))
    assert columns.scores(shown).keys() == {"rope", "roper", "none"}


def test_of_two_recipes_the_usual_rate_is_shown():
    """1e-4 is the rate of conf/recipe/substring_by_index/reduced.yaml."""
    ends = dict.fromkeys(("rope", "roper"), [0.5] * 3)
    usual = make_rows({"none": [0.5] * 3}, settings={"train.lr": 1e-4})
    unusual = ({"train.lr": 2e-4}, {"train.lr": 1e-4, "train.warmup": 7})
    made = [run for settings in unusual for run in make_rows(ends, settings=settings)]
    (shown,) = columns.widest(setups_of([*usual, *made], CATALOGUE))
    assert shown.settings["train.lr"] == 1e-4


def test_each_seed_counts_at_the_others_best_rate():
    at = {1e-4: [0.1, 0.1, 0.9], 2e-4: [0.5, 0.6, 0.2], 4e-4: [0.3, 0.3, 0.3]}
    made = [
        run
        for lr, ends in at.items()
        for run in make_rows({"rope": ends}, settings={"train.lr": lr})
    ]
    usual = make_rows({"none": [0.2] * 3}, settings={"train.lr": 2e-4})
    elsewhere = [
        replace(run, recipe_id="other", settings=run.settings | {"train.steps": 9}) for run in made
    ]
    groups = setups_of([*made, *usual, *elsewhere], CATALOGUE)
    shown = columns.column(*columns.widest(groups), groups)
    assert shown.searched == {"rope"}
    # best rate: the first without seed 0 or without seed 1, the second without seed 2
    assert list(shown.scores["rope"]) == [0.1, 0.1, 0.2]
    assert list(shown.scores["none"]) == [0.2] * 3
    groups = setups_of([*made[:6], *usual], CATALOGUE)
    assert columns.column(*columns.widest(groups), groups).searched == set()


def test_runs_that_began_from_trained_ones_are_no_column():
    """Though more schemes have them, as after rope-lab extend."""
    usual = make_rows({"rope": [0.5] * 3, "none": [0.2] * 3}, settings={"train.lr": 2e-4})
    children = make_rows(
        {name: [0.1] * 3 for name in ("rope", "none", "alibi")},
        settings={"train.lr": 1e-4, "parent.recipe_id": "a"},
    )
    (shown,) = columns.widest(setups_of([*usual, *children], CATALOGUE))
    assert shown.settings["train.lr"] == 2e-4


def test_a_diverged_run_scores_nothing():
    """It is neither left out of the mean nor of the search."""
    made = []
    for lr in (1e-4, 2e-4, 4e-4):
        made += make_rows({"rope": [0.5] * 3}, settings={"train.lr": lr})
    made[3] = replace(made[3], status="diverged")
    made += make_rows({"none": [0.2] * 3}, settings={"train.lr": 2e-4})
    groups = setups_of(made, CATALOGUE)
    shown = columns.column(*columns.widest(groups), groups)
    assert shown.searched == {"rope"}
    assert sorted(shown.usual["rope"]) == [0.0, 0.5, 0.5]


def test_of_rates_that_are_best_alike_the_lowest_counts():
    at = {5e-5: [0.9, 1.0, 1.0], 1e-4: [1.0] * 3, 2e-4: [0.5] * 3}
    made = [
        run
        for lr, ends in at.items()
        for run in make_rows({"rope": ends}, settings={"train.lr": lr})
    ]
    groups = setups_of(
        [*made, *make_rows({"none": [0.2] * 3}, settings={"train.lr": 1e-4})], CATALOGUE
    )
    assert list(columns.column(*columns.widest(groups), groups).scores["rope"]) == [0.9, 1.0, 1.0]


def test_without_three_seeds_of_two_schemes_it_is_one_line(tmp_path):
    keep([make_row("rope", 0, [0.5, 0.5])], tmp_path)
    with pytest.raises(SystemExit, match="no task has two schemes of 3 kept runs each"):
        scores.main([str(tmp_path)])


def test_the_bill_counts_the_runs_that_the_map_lacks():
    ends = {"rope": [0.9, 0.8, 0.9], "roper": [0.9, 0.8, 0.9, 0.8], "rope_head_bases": [1, 1, 1]}
    rows = make_rows(ends, task="mqar", scale="quick")
    lines = missing.bill(setups_of(rows, CATALOGUE)).splitlines()
    every = 3 * 3 * len(PROTOCOL["map"])
    assert [line.partition(" runs")[0] for line in lines[:3]] == [
        f"substring_by_prefix, quick: {every}",
        f"substring_by_index, quick: {every}",
        f"mqar, quick: {every - 6}",
    ]


def test_the_table_of_the_map_has_its_schemes_and_tasks():
    (made,) = run_tables.find("map")
    named = {scheme for block in made.blocks for scheme in block.seeds}
    assert named == {*PROTOCOL["map"]}
    of_blocks = {(task, block.scale) for block in made.blocks for task in block.tasks}
    assert of_blocks == {*PROTOCOL["tasks"].items()}


def test_a_rate_of_a_tie_is_not_at_the_edge():
    rates = (5e-5, 1e-4, 2e-4)
    edges = []
    for ends in ([0.9, 0.5, 0.5], [0.9, 0.9, 0.5], [0.5, 0.5, 0.9], [0.5, 0.9, 0.5]):
        made = make_rows({"none": [0.2] * 3}, settings={"train.lr": 1e-4})
        for lr, end in zip(rates, ends, strict=True):
            made += make_rows({"rope": [end] * 3}, settings={"train.lr": lr})
        groups = setups_of(made, CATALOGUE)
        edges.append(columns.column(*columns.widest(groups), groups).at_edge.get("rope"))
    assert edges == ["lowest", None, "highest", None]
