"""Sentences on the runs of setups: warnings, and where they come from."""

from collections.abc import Iterator

import pandas as pd

from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import Setup, numbers
from rope_lab.text import LEAKS


def warnings(setups: list[Setup]) -> Iterator[str]:
    """Runs that do not count, or not everywhere, and why: a line each."""
    for setup in setups:
        for run in setup.outdated:
            yield f"{run} is by other code than the newest runs of its scheme, and not counted"
        finished = set(setup.finished.run_id)
        for run in setup.runs.run:
            if run.run_id not in finished:
                yield f"{run} is {run.status} at step {run.steps:,}: it has no final value"
            if run.mixed:
                how = "; ".join(run.mixed)
                yield f"{run} is of mixed origin ({how}): counted in means, and not paired"
        below = setup.finished.scheme[setup.finished.value < LEAKS * setup.optimum]
        for scheme in below.unique():
            hint = "so it must see later tokens: rope-lab check says whether it sees them"
            yield f"{setup.catalogue.title(scheme)} is below the Bayes-optimal loss, {hint}"


def models(setup: Setup) -> str:
    """How large the models are, and for how long they were trained."""
    parameters = [run.parameters for run in setup.runs.run]
    ends = min(parameters), max(parameters)
    size = " to ".join(dict.fromkeys(f"{each / 1e6:.2g}M" for each in ends))
    steps = setup.settings["train.steps"]
    further = " further" if "parent.recipe_id" in setup.settings else ""
    return f"models of {size} parameters, {steps:,}{further} steps"


def details(setups: list[Setup]) -> Iterator[str]:
    """Recipes, seeds, deviations from the write-up, and where the runs come from: a line each."""
    first = setups[0]
    runs = pd.concat([setup.runs for setup in setups])
    yield f"recipes: {', '.join(runs.recipe_id.unique())}"
    yield "trained for " + ", or ".join(runs.run.map(_size).unique())
    title = first.catalogue.title
    seeds = runs.groupby("scheme", sort=False).seed
    yield "seeds: " + "; ".join(f"{title(name)} {numbers(each)}" for name, each in seeds)
    if first.is_published and first.report.setup:
        unlike = "; ".join(dict.fromkeys(line for setup in setups for line in setup.deviations()))
        yield f"differs from the write-up in {unlike or 'no setting that it names'}"
    if first.report.elsewhere:
        yield f"in another set-up: {first.report.elsewhere}"
    if first.floor:
        yield f"Bayes-optimal loss on the held-out text: {first.floor:.4f} nats per counted letter"
    for name in ("numerics", "commit", "torch", "hardware", "threads"):
        counts = runs[name].astype(str).value_counts().sort_index()
        yield f"{name}: " + ", ".join(f"{value} (n={n})" for value, n in counts.items())


def _size(run: Run) -> str:
    """What a run was trained on, and what it was graded on."""
    trained = f"{run.steps:,} optimizer steps = {run.sequences:,} sequences = {run.tokens:,} tokens"
    planned = run.settings["train.steps"]
    if run.steps < planned:
        trained += f" (of {planned:,} steps)"
    held_out = "the held-out text"
    if "eval/accuracy" in run.metrics:
        held_out = f"{run.problems:,} held-out problems"
    return f"{trained}; graded on {held_out}"
