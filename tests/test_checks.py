"""Our results beside published ones: rank correlation of the orders, and errors by attribute."""

import re

import pytest
from builders import CATALOGUE, make_row
from conftest import script

from rope_lab.results.records.setups import setups_of
from rope_lab.shipped import shipped

checks = script("published_beside_ours")

LOSSES = {scheme: row["loss"] for scheme, row in CATALOGUE.rotations["loss"].items()}


def run_of(scheme: str, seed: int, end: float):
    """A run of a scheme by its name in tables, such as `rope (q=0, v=1)`."""
    position, _, given = scheme.rstrip(")").partition(" (")
    own = {
        key: int(value) for key, value in (each.split("=") for each in given.split(", ") if each)
    }
    settings, run_id = shipped(f"position/{position}") | own, re.sub(r"\W", "-", f"{scheme}{seed}")
    return make_row(position, seed, [end] * 2, position_settings=settings, run_id=run_id)


@pytest.mark.parametrize(
    ("gain", "rho"), [(lambda loss: 5 - loss, 1.0), (lambda loss: loss - 2, -1.0)]
)
def test_accuracies_are_ranked_against_published_losses(gain, rho):
    made = [run_of(s, seed, gain(loss) / 3) for s, loss in LOSSES.items() for seed in range(2)]
    found = checks.rotated(setups_of(made, CATALOGUE), CATALOGUE)
    (row,) = checks.orders(found, CATALOGUE)
    assert (row["rank correlation of the means"], row["rank correlation per seed, mean"][-3:]) == (
        f"{rho:.2f}",
        "n=2",
    )
    assert row["best to worst here"].split(", ")[0 if rho > 0 else -1] == "qk"
    assert b"vo" in checks.figure(found, CATALOGUE)
    assert checks.rotated(setups_of(made[2:], CATALOGUE), CATALOGUE) == {}  # RoPE is missing
    apart = [run for run in made if (run.position == "none") == (run.seed == 0)]
    assert checks.rotated(setups_of(apart, CATALOGUE), CATALOGUE) == {}  # no seed has all schemes
    assert "not run" in checks.ours([], ["rope"])


def test_errors_by_attribute_keep_the_order_asked_for():
    slices = [{"ignored": {"10": (4, right), "80": (4, 0.75)}} for right in (1.0, 0.5)]
    made = [
        make_row("rope", seed, [0.0, 0.8], task="flip_flop", slices=each)
        for seed, each in enumerate(slices)
    ]
    (found,) = setups_of(made, CATALOGUE)
    shown = checks.ours([found], ["rope"], wrong_by={"ignored": [80, 10]})
    assert shown == "RoPE 25.00, 25.00 (n=2) % wrong"


def test_longer_problems_are_shown_of_each_schemes_own_recipe():
    """Each scheme has the rate of most of its runs, and the seed of the search does not count."""
    made = []
    for scheme, own in (("rope", 1e-3), ("roper", 2e-3)):
        for seed, rate in ((0, own), (1, own), (100, own), (100, 3e-3 - own)):
            share = 0.2 + seed / 10 + (scheme == "roper") / 2
            about = {"task": "reverse_string", "slices": {"length": {"20": (4, share)}}}
            made.append(make_row(scheme, seed, [0, 1.0], settings={"train.lr": rate}, **about))
    shown = checks.ours(setups_of(made, CATALOGUE), ["rope", "roper"], length=20, search=100)
    assert shown == "RoPE 25.0 (20.0–30.0) n=2; RoPER 75.0 (70.0–80.0) n=2 % of problems correct"


NANOGPT = {
    "task.corpus": "86c4e6aa9db7c042",
    "task.tokens": "characters",
    "train.seq_len": 64,
    "train.batch_size": 12,
    "train.steps": 2000,
    "model.d_model": 128,
    "model.n_layers": 4,
    "model.n_heads": 4,
}


@pytest.mark.parametrize("other", [{}, {"task.corpus": "0"}, {"model.d_model": 64}])
def test_a_published_number_stands_beside_its_own_set_up(other):
    shown = CATALOGUE.report("text", {"eval/loss"}, NANOGPT | other).elsewhere
    assert ("nanoGPT" in shown) == (not other)
