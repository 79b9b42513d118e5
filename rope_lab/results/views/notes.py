"""Sentences on the runs of a setup: warnings, and where they come from."""

from collections import Counter
from collections.abc import Iterator

from rope_lab.results.comparisons.families import between
from rope_lab.results.comparisons.stats import wilson
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import Setup, numbers, seeds
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


def _steps(run: Run) -> str:
    steps = run.settings["train.steps"]
    sequences = steps * run.settings["train.batch_size"]
    tokens = sequences * run.settings["train.seq_len"]
    return f"{steps:,} optimizer steps = {sequences:,} sequences = {tokens:,} tokens"


def details(setup: Setup) -> Iterator[str]:
    """Recipe, seeds, deviations from the write-up, and where the runs come from: a line each."""
    yield from _recipes(setup)
    by_scheme = setup.runs.groupby("scheme", sort=False).seed
    title = setup.published.title
    yield "seeds: " + "; ".join(f"{title(name)} {numbers(each)}" for name, each in by_scheme)
    if setup.is_published:
        yield from _beside_the_write_up(setup)
    if setup.report.elsewhere:
        yield f"in another set-up: {setup.report.elsewhere}"
    if setup.floor:
        yield f"Bayes-optimal loss on the held-out text: {setup.floor:.4f} nats per counted letter"
    # only a share of independent problems has this interval
    if setup.measure.metric == "eval/accuracy" and len(setup.finished):
        yield _of_problems(setup)
    for name in ("numerics", "commit", "torch", "hardware", "threads"):
        yield f"{name}: {', '.join(sorted(setup.runs[name].astype(str).unique()))}"


def _problems(setup: Setup) -> int:
    """How many held-out problems are graded at the end."""
    return setup.settings.get("eval.problems_at_end") or setup.settings["eval.problems"]


def _recipes(setup: Setup) -> Iterator[str]:
    graded = any("eval/accuracy" in run.metrics for run in setup.runs.run)
    held_out = f"{_problems(setup):,} held-out problems" if graded else "the held-out text"
    steps = setup.runs.run.map(_steps)
    by_steps = setup.runs.groupby(steps, sort=False).recipe_id.unique()
    for text, recipes in by_steps.items():
        yield f"recipe {', '.join(recipes)}: {text}; {held_out}"


def _beside_the_write_up(setup: Setup) -> Iterator[str]:
    deviations = setup.deviations()
    if deviations:
        yield "differs from the write-up in " + "; ".join(deviations)
    elif setup.report.setup and setup.variant:
        yield f"the write-up's own set-up, but for {setup.variant}"
    elif setup.report.setup:
        yield "the write-up's own set-up"


def _of_problems(setup: Setup) -> str:
    """How well one model's accuracy is known: half of the widest interval, in points."""
    n, widths = _problems(setup), []
    for run in setup.finished.run:
        low, high = wilson(round(run.metrics["eval/accuracy"] * n), n)
        widths.append(high - low)
    half = 100 * max(widths) / 2
    known = f"is known to ±{half:.1f} points at most (Wilson, 95%)"
    return f"one model's accuracy on {n} problems {known}"
