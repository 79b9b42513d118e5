"""The runs that the map of results/scores.md lacks, and their time: `rope-lab scores --bill`."""

import statistics

from rope_lab.cores import CORES
from rope_lab.results.comparisons.score_columns import widest
from rope_lab.results.plans.bill import Bill, summed
from rope_lab.results.records.setups import Setup
from rope_lab.scoring.protocol import PROTOCOL


def bill(setups: list[Setup]) -> str:
    """A line for each task of the protocol that lacks runs of the map's schemes, and their sum.

    setups: of all kept runs; times are the means of theirs
    """
    scored = {(each.task, each.scale): each for each in widest(setups)}
    every = len(PROTOCOL["map"]) * len(PROTOCOL["rates"]) * PROTOCOL["seeds"]
    bills = []
    for task, scale in PROTOCOL["tasks"].items():
        usual = scored.get((task, scale))
        lacking = every - (_kept(usual, setups) if usual else 0)
        if lacking:
            seconds = statistics.mean(run.seconds for run in usual.finished.run) if usual else None
            source = "mean of kept runs"
            bills.append(Bill(f"{task}, {scale}", lacking, seconds, source, CORES))
    if not bills:
        return "the map is complete"
    return f"{summed(bills)}\nrope-lab table map makes these runs"


def _kept(usual: Setup, setups: list[Setup]) -> int:
    """How many of the map's runs of a task are kept."""
    found = 0
    for each in setups:
        rate = each.settings["train.lr"] / usual.settings["train.lr"]
        if usual.is_alike(each) and rate in PROTOCOL["rates"]:
            has_ended = [run.ended for run in each.runs.run]
            ended = each.runs[has_ended].scheme.value_counts()
            found += sum(min(ended.get(name, 0), PROTOCOL["seeds"]) for name in PROTOCOL["map"])
    return found
