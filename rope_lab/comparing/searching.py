"""The first stage of a comparison: the learning rates of both schemes are searched alike."""

from dataclasses import dataclass, replace
from functools import partial

from rope_lab.comparing.order import STOPPED, Order
from rope_lab.experiments.asked import check_own
from rope_lab.experiments.launching import NO_ROOM, Asks, RateSearch, Stopped, path_of
from rope_lab.experiments.timing import run_seconds, seconds_of_ended
from rope_lab.results.comparisons.answers import Comparison, Result, answered
from rope_lab.results.plans.bill import Bill
from rope_lab.results.plans.named_measure import check_length, check_measure, gain_of, measure_of
from rope_lab.results.plans.names import recorded_name
from rope_lab.results.plans.number_of_pairs import FEWEST_PLANNED
from rope_lab.results.plans.rates import SEARCH_SEED, Cell, Search
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import Arm, seeds_text
from rope_lab.text import filled, say, short_path
from rope_lab.train import config

SOLVED = 0.995  # a share from which a task counts as solved


@dataclass(frozen=True)
class SearchOutcome:
    """The outcome of a search.

    best:   the learning rate of each scheme; rates: all that were tried
    result: the comparison of both schemes at their best rates; runs: all of the search
    """

    best: dict[str, float]
    rates: list[float]
    result: Result
    runs: list[Run]


def search(order: Order, asks: Asks) -> SearchOutcome:
    """Search, or resume a search that was interrupted; asks: raises Stopped at a no.

    Raises Stopped, also if a comparison of these schemes can show no difference.
    """
    check_measure(order.task, order.measure)
    with order.code_copied():
        rates = _rate_search(order)
        _ask(order, rates, asks)
    runs, state = rates.made(order.launcher, "search")
    result = _at_best_rates(order, state.best, runs)
    _check_room(order, result)
    best = dict(zip(order.schemes, state.best.values(), strict=True))
    return SearchOutcome(best, state.rates, result, list(runs.values()))


def _rate_search(order: Order) -> RateSearch:
    """The search of both schemes around the recipe's learning rate. Raises ConfigError."""
    task = path_of(order.copied(order.task), order.folder)
    common = [f"task={task}", f"scale={order.scale}", *order.overrides]
    schemes = tuple(path_of(scheme, order.folder) for scheme in order.schemes)
    cfg = config.load(*common, f"position={schemes[0]}")
    check_length(order.measure, cfg.eval.lengths)
    rates, seeds = order.search
    both = Search(schemes, cfg.train.lr, rates, range(SEARCH_SEED, SEARCH_SEED + seeds))
    gain = partial(gain_of, name=order.measure)
    return RateSearch(both, common, gain, order.folder, order.folder / STOPPED)


def _ask(order: Order, rates: RateSearch, asks: Asks) -> None:
    """Before the first run check the user's own schemes; show the bill of those that are missing,
    and ask. Raises Stopped and ConfigError.
    """
    runs, state = rates.progress()
    if not state.missing:
        return
    before = list(runs.values())
    checked = {cell.scheme for cell in runs}  # before the first of their runs
    check_own([each for each in rates.search.schemes if each not in checked], rates.common)
    grid, seeds = rates.search.grid, rates.search.seeds
    text = (
        f"search   {len(grid)} rates, {grid[0]:g} to {grid[-1]:g}, on seed {seeds[0]}; "
        f"then the best 2 of each scheme on {seeds_text(seeds[1:])}\n"
        "         if a best rate is lowest or highest, both schemes get one more, at most twice;\n"
        f"         then at least {2 * FEWEST_PLANNED} runs for the verdict, billed apart\n"
        f"results  {short_path(order.folder)}"
    )
    say(filled(text, indent=" " * 9))
    if before:
        seconds, source = seconds_of_ended(before, order.launcher)
    else:
        waiting = [rates.jobs[cell] for cell in state.missing]
        seconds = run_seconds(waiting, order.launcher)
        source = "from a few steps"
    asks(Bill("search", state.left, seconds, source, order.at_once))


def _at_best_rates(order: Order, best: dict[str, float], runs: dict[Cell, Run]) -> Result:
    """Both schemes at their best rates, compared over the seeds of the search."""
    arms = []
    for scheme, rate in best.items():
        own = [run for cell, run in runs.items() if (cell.scheme, cell.rate) == (scheme, rate)]
        arms.append(Arm(recorded_name(scheme), tuple(own)))
    report = Catalogue().report_of(arms[0].runs[0])
    return answered(Comparison(report, measure_of(report, order.measure), *arms))


def _reached(result: Result) -> bool:
    """Whether a run of either scheme reaches the threshold, if steps until there are compared."""
    if not result.measure.is_log:
        return True
    ever = replace(result.measure, at="ever reached")
    return any(ever.values(result.runs))


def _check_room(order: Order, result: Result) -> None:
    """Raise Stopped if no number of seeds can show a difference between these schemes."""
    pairs = result.pairs
    harder = "a harder scale, or settings of the task that make it harder"
    if len(pairs) < 2:
        raise Stopped(f"fewer than two pairs finished at the best rates; {order.folder}", NO_ROOM)
    if result.measure.share and pairs.min(axis=None) >= SOLVED * result.measure.times:
        solved = "both schemes solve the task on every seed of the search"
        raise Stopped(f"{solved}: ask for --measure steps, or {harder}", NO_ROOM)
    none_correct = result.measure.share and not pairs.to_numpy().any()
    if result.at_chance or none_correct or not _reached(result):
        longer = "train longer (train.steps=…), or ask for an easier scale"
        raise Stopped(f"neither scheme learned the task in the search: {longer}", NO_ROOM)
    if not result.differences.any():
        raise Stopped(f"both schemes have equal values on every seed: ask for {harder}", NO_ROOM)
