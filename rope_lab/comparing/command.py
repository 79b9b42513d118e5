"""Compare two schemes, from a question to a verdict: `rope-lab compare MINE OTHER --task TASK`.

The learning rates of both are searched alike; then rates, fresh seeds, the number of pairs and the
test are frozen in a plan.yaml; then its runs are made, and their scores shown when the last one has
ended. The same command resumes each stage. MINE, OTHER and TASK are names or files, ./mine.py; a
file is copied, and the copy is trained. Results go to results/compare/, verdict.md first.

A pilot, to see all stages within minutes: --search 3x2 --pairs-at-most 8 train.steps=200
train.warmup=20.

Exit status: 0 confirmed, 10 reversed, 11 undecided, 12 open (runs are to come), 13 nothing can be
tested (both solve the task, neither learns it, or all seeds are equal), 14 not as planned, 1 a run
failed, 2 refused, 128 + its number after a signal.
"""

import json
import os
import sys
from argparse import ArgumentParser
from pathlib import Path

from rope_lab.comparing import stages
from rope_lab.comparing.order import MOST_PAIRS, Order
from rope_lab.experiments import asking
from rope_lab.experiments.asking import asks, hours, rates_and_seeds
from rope_lab.experiments.launching import NOT_PLANNED, folder_of
from rope_lab.launch import sweep
from rope_lab.launch.job import EXIT_BAD_CONFIG
from rope_lab.results.comparisons.words import CONFIRMED, NOT_TESTED, REVERSED, UNDECIDED
from rope_lab.results.plans.names import recorded_name
from rope_lab.results.views.verdict import Verdict
from rope_lab.results.views.verdict_page import EDITED, PAGE, as_json
from rope_lab.text import (
    Record,
    Words,
    filled,
    say,
    short_path,
)
from rope_lab.train import plugin
from rope_lab.train.overrides import split_hydra
from rope_lab.train.stop import ignore

STATUS = {CONFIRMED: 0, REVERSED: 10, UNDECIDED: 11}
WITHOUT_VERDICT = {EXIT_BAD_CONFIG: "refused", NOT_PLANNED: NOT_TESTED}  # else: open


def compare(
    ours: str,
    theirs: str,
    task: str,
    *overrides: str,
    scale: str = "quick",
    measure: str = "score",
    difference: float | None = None,
    search: str = "5x5",
    pairs_at_most: int = MOST_PAIRS,
    name: str = "",
    out: str | Path | None = None,
    jobs: int | None = None,
    yes: bool = False,
    budget: str = "",
) -> Verdict:
    """Compare two schemes, or resume a comparison.

    ours, theirs, task: names, or files: `./mine.py`
    overrides:  settings of all runs, and hydra/launcher=…
    measure:    `score`, the task's own; `steps` to its first threshold; or a metric
    difference: the smallest one of interest, in the unit of tables; of steps, that of their
                logarithm (default: 5 points of a share, 2% of the baseline's loss, 10% of the
                steps)
    search:     learning rates times seeds
    pairs_at_most: of the verdict
    name:       of our scheme on the page
    out:        the folder of the comparison (default: below results/compare)
    jobs:       parallel runs; None: one per core
    yes:        begin without a question
    budget:     of both stages, `2h` or `30min`: a larger bill is refused

    Raises ConfigError, and Stopped if there is no verdict yet: the same call then resumes. Messages
    name the options of the command line.
    """
    plugin.forget_files()
    hydra, settings = split_hydra(overrides)
    ours, theirs, task = map(os.fspath, (ours, theirs, task))
    names = [*map(recorded_name, (ours, theirs, task)), scale]
    if measure != "score":
        names.append(measure.replace("/", "_"))
    order = Order(
        ours=ours,
        theirs=theirs,
        task=task,
        scale=scale,
        measure=measure,
        search=rates_and_seeds(search, "5x5; 3 rates and 2 seeds", least_seeds=2),
        difference=difference,
        most_pairs=pairs_at_most,
        label=name,
        overrides=tuple(settings),
        launcher=sweep.side_by_side(hydra, jobs),
        folder=folder_of(out, "compare", *names),
    )
    ask = asks(yes, hours("--budget", budget))
    study = stages.plan(order, ask)
    runs = stages.run(order, study, ask)
    return stages.verdict(order, study, runs)


def _parser() -> ArgumentParser:
    parser = asking.parser("compare", __doc__)
    add = parser.add_argument
    add("ours", metavar="MINE")
    add("theirs", metavar="OTHER")
    add("overrides", nargs="*", default=[], metavar="NAME=VALUE", help="settings of all runs")
    add("--task", required=True)
    add("--scale", default="quick", help="default: quick")
    add("--measure", default="score", help="score, steps, or a metric (default: score)")
    add(
        "--difference",
        type=float,
        help="the smallest one of interest, in the unit of tables; of steps, of their logarithm",
    )
    add("--search", default="5x5", metavar="RATESxSEEDS", help="default: 5x5, at least 3x2")
    add(
        "--pairs-at-most",
        type=int,
        default=MOST_PAIRS,
        metavar="N",
        help=f"default: {MOST_PAIRS}, at least 8",
    )
    add("--name", default="", help="of MINE on the page")
    add("--json", action="store_true", help="print the verdict as JSON, all else to stderr")
    return parser


def main(arguments: Words = None) -> None:
    options = vars(_parser().parse_intermixed_args(arguments))
    as_object, words = options.pop("json"), options.pop("overrides")
    asked = [options.pop(name) for name in ("ours", "theirs", "task")]
    stdout = os.dup(1)
    if as_object:  # also of child processes
        os.dup2(2, 1)
    found: Record = {}

    def run() -> int:
        verdict = compare(*asked, *words, **options)
        found.update(as_json(verdict))
        paragraph = filled(verdict.paragraph, indent="")
        for name in verdict.edited:
            say(filled(f"{name} {EDITED}; --out FOLDER begins one of the new file", indent=""))
        say(f"\n{verdict.word}\n\n{paragraph}\n\n{short_path(verdict.folder / PAGE)}")
        return STATUS.get(verdict.word, NOT_PLANNED)

    status, reason = asking.status_of(run)
    if reason:
        found = {"word": WITHOUT_VERDICT.get(status, "open"), "reason": reason}
    ignore()
    if as_object:
        os.write(stdout, (json.dumps(found) + "\n").encode())
    sys.exit(status)
