"""Warnings on the runs of a setup."""

from collections import Counter
from collections.abc import Iterator

from rope_lab.results.comparisons.families import between
from rope_lab.results.records.setups import Setup, seeds
from rope_lab.text import LEAKS


def warnings(setup: Setup) -> Iterator[str]:
    """Missing, uncounted and incomparable runs, and their effect on the result: a line each."""
    yield from _uncounted(setup)
    yield from _unpaired(setup)
    yield from _leaks(setup)
    yield from _origins(setup)


def _uncounted(setup: Setup) -> Iterator[str]:
    former: dict[str, list[int]] = {}
    for run in setup.outdated:
        former.setdefault(run.position, []).append(run.seed)
    for scheme, runs in former.items():
        yield f"{scheme}, {seeds(runs)}: by other code than its newest runs, and not counted"
    finished = set(setup.finished.run_id)
    for run in setup.runs.run:
        if run.run_id not in finished:
            yield f"{run} is {run.status} at step {run.steps:,}: it has no final value"
        if run.mixed:
            how = "; ".join(run.mixed)
            yield f"{run} is of mixed origin ({how}): counted in means, and not paired"


def _unpaired(setup: Setup) -> Iterator[str]:
    """Seeds that one of two compared schemes lacks, or has with other numerics."""
    lacks: dict[str, list[str]] = {}  # missing seeds → the schemes without them
    baseline, title = setup.published.baseline, setup.published.title
    theirs = setup.of(baseline)
    for scheme in setup.others:
        ours = setup.of(scheme)
        pairs = len(between(setup, scheme, baseline).pairs())
        over = (
            f"compared over the {pairs} that both have" if pairs else "there is no pair to compare"
        )
        for name, other in ((scheme, baseline), (baseline, scheme)):
            if missing := set(setup.of(other).index) - set(setup.of(name).index):
                lack = f"{seeds(missing)} that {title(other)} has: {over}"
                lacks.setdefault(lack, []).append(title(name))
        both = ours.index.intersection(theirs.index)
        unlike = [seed for seed in both if ours.run[seed].numbers != theirs.run[seed].numbers]
        if unlike:
            different = (
                f"were run by different numerics or task code at {seeds(unlike)}: not compared"
            )
            yield f"{title(scheme)} and {title(baseline)} {different}; run one of the two again"
    for missing, names in lacks.items():
        lack = "lacks" if len(names) == 1 else "lack"
        yield f"{'; '.join(names)} {lack} {missing}"


def _leaks(setup: Setup) -> Iterator[str]:
    below = setup.finished.scheme[setup.finished.value < LEAKS * setup.optimum]
    for scheme in below.unique():
        hint = "so it must see later tokens: rope-lab check says whether it sees them"
        yield f"{setup.published.title(scheme)} is below the Bayes-optimal loss, {hint}"


def _origins(setup: Setup) -> Iterator[str]:
    machines = [_machine(run.hardware, run.threads) for run in setup.runs.run]
    runs = setup.runs.assign(hardware=machines)
    for name in ("numerics", "hardware", "torch"):
        counts = Counter(runs[name]).most_common()
        if len(counts) > 1:
            each = "; ".join(f"{value} ({_runs(n)})" for value, n in counts)
            yield f"the runs differ in {name}: {each}"


def _machine(hardware: str, threads: int | str) -> str:
    return f"{hardware}, 1 thread" if threads == 1 else f"{hardware}, {threads} threads"


def _runs(n: int) -> str:
    return "1 run" if n == 1 else f"{n} runs"
