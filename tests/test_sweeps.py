"""Sweeps of settings: detection, table, best value, gain from tuning, and figure."""

import re
from itertools import product

import numpy as np
import pytest
from builders import CATALOGUE, make_row, make_run, table_rows

from rope_lab.results import __main__ as results
from rope_lab.results.comparisons import grids as sweeps
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import setups_of
from rope_lab.results.views import sweeps as views
from rope_lab.results.views.tables import Strong

RATES = (0.001, 0.002, 0.004)


def cell(scheme: str, seed: int, value: float, settings: dict, **changes) -> Run:
    return make_row(scheme, seed, [0.0, value], settings=settings, **changes)


def rates(ends: dict[str, list[list[float]]]) -> list[Run]:
    """One run per scheme, rate and seed; `ends` has the final values by scheme, rate and seed."""
    return [
        cell(scheme, seed, value, {"train.lr": rate})
        for scheme, each in ends.items()
        for rate, values in zip(RATES, each, strict=True)
        for seed, value in enumerate(values)
    ]


ENDS = {
    "rope": [[0.1, 0.2, 0.15], [0.3, 0.4, 0.5], [0.5, 0.8, 0.7]],
    "roper": [[0.2, 0.3, 0.2], [0.9, 0.8, 0.7], [0.6, 0.4, 0.7]],
}


def only(runs: list[Run]) -> sweeps.Sweep:
    (found,) = sweeps.find(setups_of(runs, CATALOGUE))
    return found


def held(runs: list[Run]) -> list[tuple]:
    """Setting and number of recipes of each sweep."""
    return [(sweep.setting, len(sweep.values)) for sweep in sweeps.find(setups_of(runs, CATALOGUE))]


def of(*settings: dict) -> list[Run]:
    return [cell("rope", 0, 0.5, each) for each in settings]


def test_recipes_that_differ_in_a_number_are_a_sweep():
    assert held(of(*({"train.lr": rate} for rate in RATES))) == [("train.lr", 3)]
    assert held(of({"train.lr": 0.001}, {"train.lr": 0.002})) == [("train.lr", 2)]
    assert held(of({"model.init": "pytorch"}, {"model.init": "xavier"})) == []
    assert held(of(*({"model.init": word} for word in ("pytorch", "xavier", "mine")))) == [
        ("model.init", 3)
    ]
    assert (
        held(of({"train.lr": 0.001, "train.warmup": 1}, {"train.lr": 0.002, "train.warmup": 2}))
        == []
    )
    assert held(of({"eval.every": 100}, {"eval.every": 250})) == []
    assert held(of({"train.lr": 0.001})) == []


def test_a_grid_is_a_sweep_per_shorter_settings_value():
    grid = [
        {"train.lr": rate, "model.norm": norm} for rate, norm in product(RATES, ("pre", "post"))
    ]
    assert held(of(*grid)) == [("train.lr", 3), ("train.lr", 3)]
    star = [{"train.lr": 0.001, "train.batch_size": 4}, {"train.lr": 0.002, "train.batch_size": 4}]
    star += [{"train.lr": 0.001, "train.batch_size": 8}, {"train.lr": 0.004, "train.batch_size": 4}]
    assert sorted(held([*of(*star), cell("roper", 0, 0.5, star[0])])) == [
        ("train.batch_size", 2),
        ("train.lr", 3),
    ]


def test_tasks_that_no_report_knows_keep_their_sweeps_apart():
    made = [
        cell("rope", 0, 0.5, {"train.lr": rate}, task=task)
        for task, rate in product(("mine", "other"), RATES)
    ]
    assert held(made) == [("train.lr", 3), ("train.lr", 3)]


def test_the_gain_of_the_best_value_is_paired_by_seed():
    found = only(rates(ENDS))
    assert found.schemes == ["rope", "roper"]
    assert [found.values[found.best[scheme]] for scheme in found.schemes] == [0.004, 0.002]
    versus = views.scores(found).rows[-1]
    assert versus[views.BEST].startswith(f"{128 * np.mean([0.4, 0.0, 0.0]):+.1f} [")


def test_where_all_values_are_alike_none_is_best():
    found = only(rates({"rope": [[0.5], [0.5], [0.5]], "roper": [[0.5], [0.6], [0.5]]}))
    assert [found.best[scheme] for scheme in found.schemes] == [None, 1]
    assert not [cell for cell in views.scores(found).rows[0].values() if isinstance(cell, Strong)]


def test_of_a_loss_the_best_is_the_least():
    losses = dict(zip(RATES, (0.5, 0.3, 0.9), strict=True))
    told = {"task": "substring_by_prefix", "metric": "eval/loss"}
    found = only(
        [cell("rope", 0, loss, {"train.lr": rate}, **told) for rate, loss in losses.items()]
    )
    assert found.values[found.best["rope"]] == 0.002


def test_a_diverged_run_counts_with_the_worst_value():
    runs = [*rates(ENDS), cell("rope", 3, 0.9, {"train.lr": 0.004}, status="diverged")]
    found = only(runs)
    assert found.scores["rope"].loc[3].iloc[0, 2] == pytest.approx(12.8)
    assert list(views.scores(found).rows[0].values())[3].endswith(", 1 diverged")


def test_runs_of_different_code_are_not_paired():
    runs = rates({"rope": [[0.1], [0.2], [0.3]]})
    runs += [cell("roper", 0, 0.5, {"train.lr": 0.001}, numerics=2)]
    runs += [cell("roper", 0, 0.5, {"train.lr": 0.002}, torch="1 → 2")]
    runs += [cell("roper", 0, 0.5, {"train.lr": 0.004})]
    found = only(runs)
    assert list(views.scores(found).rows[-1].values())[1:4] == ["–", "–", "+25.6 (one seed)"]


@pytest.mark.parametrize(
    ("task", "rates", "recipe"),
    [
        ("state_tracking", (0.001, 0.002), 0),
        ("state_tracking", (0.002, 0.004), None),
        ("substring_by_index", (0.002, 0.004), 0),
        ("substring_by_index", (0.001, 0.004), None),
        ("mine", (0.004, 0.008), 1),
    ],
)
def test_a_value_is_the_recipes_unless_conf_has_another(task, rates, recipe):
    """State tracking's quick recipe has 0.001, Index's the default 0.002; of a task outside conf/
    most runs count.
    """
    seeds = [(rates[0], 0), (rates[1], 0), (rates[1], 1)]
    made = [
        cell("rope", seed, 0.5, {"train.lr": rate}, task=task, scale="quick")
        for rate, seed in seeds
    ]
    assert only(made).recipe == recipe


def test_a_sweep_is_one_section_one_table_and_one_figure(tmp_path):
    """The recipe closest to conf/ keeps its own section; only that one shows published values."""
    for rate, scheme, seed in product(RATES, ("rope", "roper"), range(3)):
        train = {"steps": 100, "batch_size": 4, "seq_len": 64, "decay": "none", "lr": rate}
        make_run(
            tmp_path,
            scheme,
            seed,
            ENDS[scheme][RATES.index(rate)][seed],
            config__train=train,
            name=f"l{rate}",
        )
    results.main([str(tmp_path)])
    page = (tmp_path / "README.md").read_text()
    headings = ["Substring by Index, scale quick", "Substring by Index, by train.lr, scale quick"]
    assert re.findall("^## (.*)", page, re.M) == headings
    assert "quick-substring_by_index-train_lr-sweep.svg" in re.findall(r"\(figures/(.*?)\)", page)
    section = page.partition(headings[1])[2]
    assert "published" not in section
    scores = {row["train.lr ="]: row for row in table_rows(section) if "train.lr =" in row}
    assert list(scores) == ["RoPE", "RoPER", "RoPER − RoPE"]
    assert scores["RoPE"]["0.004"].startswith("**85.3 (64.0–102.4) n=3")
    assert "0.002 (recipe)" in scores["RoPE"]
    assert scores["RoPER − RoPE"][views.BEST].startswith("+")


def test_codes_of_a_task_are_not_mixed():
    made = []
    for code, rates_of_code in (("a1", (0.001, 0.002)), ("b2", RATES)):
        for seed, rate in product(range(3), rates_of_code):
            value = 0.9 if code == "a1" else 0.5
            plugin = {"task": code}
            made.append(cell("rope", seed, value, {"train.lr": rate}, task="own", plugin=plugin))
    found = []
    for sweep in sweeps.find(setups_of(made, CATALOGUE)):
        values = {value for setup in sweep.others for value in setup.of("rope").value}
        found.append((len(sweep.others), values))
    assert found == [(3, {0.5}), (2, {0.9})]
