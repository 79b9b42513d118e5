"""The search for learning rates, without training: gains are a function of the rate."""

import math

from rope_lab.results.plans.rates import Cell, Search, SearchState

SEARCH = Search(("mine", "rope"), usual=0.002, rates=3, seeds=range(100, 103))


def searched(
    optima: dict[str, float], diverged: tuple[Cell, ...] = ()
) -> tuple[SearchState, dict[Cell, float]]:
    """The end of a search whose gain falls with the distance from an optimum in octaves."""
    gains: dict[Cell, float] = {}
    while True:
        state = SEARCH.progress(gains)
        if not state.missing:
            return state, gains
        gains |= dict.fromkeys(diverged, -math.inf)
        for cell in {*state.missing} - {*diverged}:
            gains[cell] = -abs(math.log2(cell.rate / optima[cell.scheme]))


def test_both_schemes_get_the_rates_that_one_needs():
    state, gains = searched({"mine": 0.008, "rope": 0.002})
    assert state.rates == [0.001, 0.002, 0.004, 0.008, 0.016]
    assert state.best == {"mine": 0.008, "rope": 0.002}
    for rate in state.rates:
        assert {cell.scheme for cell in gains if cell.rate == rate} == {"mine", "rope"}


def test_a_search_without_an_end_is_named():
    state, _ = searched({"mine": 1.0, "rope": 0.002})
    assert state.at_end == ["mine"]
    assert state.best["mine"] == max(state.rates)


def test_the_best_two_rates_get_all_seeds():
    _, gains = searched({"mine": 0.002, "rope": 0.002})
    runs = [cell for cell in gains if cell.scheme == "mine" and cell.seed != 100]
    assert len(runs) == 2 * 2
    assert {cell.rate for cell in runs} == {0.001, 0.002}
    assert len(gains) == SEARCH.progress({}).left


def test_a_rate_with_a_diverged_run_is_not_best():
    state, _ = searched({"mine": 0.002, "rope": 0.002}, diverged=(Cell("mine", 0.002, 101),))
    assert state.best["mine"] != 0.002
    assert state.best["rope"] == 0.002


def test_what_a_widened_search_still_takes_is_what_it_lacks():
    """A rate is added after the first three, so that six more runs were not foreseen."""
    _, gains = searched({"mine": 0.008, "rope": 0.002})
    so_far = {cell: gain for cell, gain in gains.items() if cell.rate < 0.008 and cell.seed == 100}
    state = SEARCH.progress(so_far)
    assert {cell.rate for cell in state.missing} == {0.008}
    assert state.left == 2 + 2 * 2 * 2
    last = dict(list(gains.items())[:-1])
    assert SEARCH.progress(last).left == 1
