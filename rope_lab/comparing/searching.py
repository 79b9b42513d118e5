"""The first stage of a comparison: the learning rates of both schemes are searched alike."""

from dataclasses import dataclass
from functools import partial

from rope_lab.check import check
from rope_lab.comparing.launching import (
    NO_ROOM,
    Asks,
    Progress,
    Stopped,
    launch,
    path_of,
    searched,
)
from rope_lab.comparing.order import Order
from rope_lab.comparing.timing import run_seconds
from rope_lab.launch.jobs import Job
from rope_lab.results.comparisons.answers import Comparison, Result, answered
from rope_lab.results.plans import freeze
from rope_lab.results.plans.bill import Bill, mean_seconds
from rope_lab.results.plans.rates import Cell, Search
from rope_lab.results.plans.study import run_name
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import Arm
from rope_lab.results.records.setups import seeds as seeds_text
from rope_lab.text import ConfigError, filled, say
from rope_lab.train import config, trainer

FIRST_SEED = 100
SOLVED = 0.995  # a share from which a task counts as solved


@dataclass(frozen=True)
class Found:
    """The outcome of a search.

    best:   the learning rate of each scheme; rates: all that were tried
    result: the comparison of both schemes at their best rates; runs: all of the search
    """

    best: dict[str, float]
    rates: list[float]
    result: Result
    runs: list[Run]


def search(order: Order, asks: Asks) -> Found:
    """Search, or resume a search that was interrupted; asks: raises Stopped at a no.

    Raises Stopped, also if a comparison of these schemes can show no difference.
    """
    common = [f"task={path_of(order.copied(order.task), order.folder)}", f"scale={order.scale}"]
    common += order.overrides
    schemes = order.copied(order.ours), order.copied(order.theirs)
    _check_measure(order)
    order.copy_code()
    usual = config.load(*common, f"position={path_of(schemes[0], order.folder)}")
    rates, seeds = order.search
    plan = Search(schemes, usual.train.lr, rates, range(FIRST_SEED, FIRST_SEED + seeds))
    runs, progress = _made(order, plan, common, asks)
    result = _at_best_rates(order, progress.best, runs)
    _check_room(order, result)
    return Found(progress.best, progress.rates, result, list(runs.values()))


def _made(order: Order, plan: Search, common: list[str], asks: Asks) -> Progress:
    """The runs of the search, made if they are missing, and what it found. Raises Stopped."""
    jobs: dict[Cell, Job] = {}
    words, gain = partial(_words, order, common), partial(_gain, order)
    look = partial(searched, plan, jobs, words, gain, order.folder)
    runs, progress = look()
    if progress.missing:
        if not runs:
            for scheme in plan.schemes:
                _check_scheme(order, scheme, common)
        missing = [jobs[cell] for cell in progress.missing]
        asks(_bill(order, plan, missing, list(runs.values())))
    while progress.missing:
        waiting = [jobs[cell] for cell in progress.missing]
        launch(order.launcher, waiting, "search", shows_scores=True)
        runs, progress = look()
    return runs, progress


def _check_measure(order: Order) -> None:
    """Raises ConfigError if a task of ours has no such measure."""
    report = Published().report(run_name(order.task), {"eval/accuracy", "eval/loss"}, {})
    freeze.measure_of(report, order.measure)


def _check_scheme(order: Order, scheme: str, common: list[str]) -> None:
    """Raises ConfigError if a scheme of the user's own fails a check: one that sees later tokens
    would be ahead of any other.
    """
    if scheme in (order.ours, order.theirs):  # one of ours, not a copy
        return
    check_own(run_name(scheme), [*common, f"position={path_of(scheme, order.folder)}"])


def check_own(name: str, words: list[str]) -> None:
    """Raises ConfigError if the scheme of a run, given as overrides, fails one of our checks."""
    for kind, failed, message in check(trainer.resolve(config.load(*words)), "position"):
        if kind == "WRONG":
            remedy = "rope-lab check says more"
            raise ConfigError(f"{name} fails the check {failed}: {message}; {remedy}")


def _words(order: Order, common: list[str], cell: Cell) -> list[str]:
    position = path_of(cell.scheme, order.folder)
    return [*common, f"position={position}", f"train.lr={cell.rate:g}", f"seed={cell.seed}"]


def _gain(order: Order, run: Run) -> float:
    """The value of a run, higher is better; the worst of one that diverged."""
    return freeze.measure_of(Published().report_of(run), order.measure).gain(run)


def _bill(order: Order, plan: Search, missing: list[Job], before: list[Run]) -> Bill:
    """Of the search: from its runs so far, or from a few steps of those that are missing."""
    grid, seeds = plan.grid, plan.seeds
    text = (
        f"search   {len(grid)} rates, {grid[0]:g} to {grid[-1]:g}, on seed {seeds[0]}; "
        f"then the best 2 of each scheme on {seeds_text(seeds[1:])}\n"
        "         if a best rate is lowest or highest, both schemes get one more, at most twice;\n"
        f"         then at least {2 * freeze.FEWEST_PAIRS} runs for the verdict, billed separately"
    )
    say(filled(text, indent=" " * 9))
    if before:
        seconds, source = mean_seconds(before)
    else:
        seconds, source = run_seconds(missing, order.launcher), "from a few steps of two"
    return Bill("search", plan.runs - len(before), seconds, source, order.at_once)


def _at_best_rates(order: Order, best: dict[str, float], runs: dict[Cell, Run]) -> Result:
    """Both schemes at their best rates, compared over the seeds of the search."""
    arms = []
    for scheme, rate in best.items():
        own = [run for cell, run in runs.items() if (cell.scheme, cell.rate) == (scheme, rate)]
        arms.append(Arm(run_name(scheme), tuple(own)))
    report = Published().report_of(arms[0].runs[0])
    return answered(Comparison(report, freeze.measure_of(report, order.measure), *arms))


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
    if result.at_chance or none_correct:
        longer = "train longer (train.steps=…), or ask for an easier scale"
        raise Stopped(f"neither scheme learned the task in the search: {longer}", NO_ROOM)
    if not result.differences.any():
        raise Stopped(f"both schemes have equal values on every seed: ask for {harder}", NO_ROOM)
