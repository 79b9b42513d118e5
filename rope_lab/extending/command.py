"""Read longer texts with trained runs: `rope-lab extend RUN… --lengths 2x,4x,8x --budget 5%`.

RUN is the folder of a finished run; several runs may differ only in their seed, and are paired by
it. Methods: the scheme unchanged, position interpolation, NTK-aware scaling, NTK by parts, YaRN,
ReRoPE, SelfExtend, dual chunks, windows and DroPE: without training, then each with the same
further steps, beside the scheme unchanged with these steps at the old and at the new length. The
page goes to results/extend/, extend.md. The same command resumes.

Exit status: 0 done, 12 runs are still missing, 2 refused.
"""

import itertools
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rope_lab.comparing.asking import asks, exit_after, hours
from rope_lab.comparing.launching import Asks, folder_of, made, missing
from rope_lab.comparing.timing import mean_seconds
from rope_lab.extending import parents, ways
from rope_lab.launch import sweep
from rope_lab.launch.jobs import Job
from rope_lab.results.comparisons.longer import Key, check_alike
from rope_lab.results.plans.bill import Bill
from rope_lab.results.records.run import Run
from rope_lab.results.views import longer_page
from rope_lab.text import ConfigError, Record, Words, argument_parser, say, short_path, show
from rope_lab.train.load import add_allow
from rope_lab.train.overrides import split_hydra

MOST_BUDGET = 1000  # percent
Jobs = dict[Key, list[Job]]


def extend(
    runs: Sequence[str],
    hydra: Sequence[str] = (),
    lengths: str = "2x,4x,8x",
    budget: str = "5%",
    out: str | None = None,
    yes: bool = False,
    at_most: str = "",
    allow: Sequence[str] = (),
) -> Path:
    """Try every way to read longer texts, or resume; returns the page.

    runs:    folders of finished runs that differ in their seed
    hydra:   settings of the launcher
    lengths: multiples of the longest length of training
    budget:  of further training, as a share of the runs' steps
    at_most: the time of all runs, `2h`; a larger bill is refused

    Raises ConfigError, and Stopped if runs are to come.
    """
    every = parents.parents(runs, list(allow))
    trained, targets = parents.targets(every[0], lengths)
    further = round(_share(budget) * every[0].cfg.train.steps)
    names = [every[0].content[key] for key in ("task", "scale", "position", "scheme_id")]
    folder = folder_of(out, "extend", *names)
    launcher = sweep.launcher_settings(sweep.side_by_side(hydra))
    jobs = ways.jobs(every, trained, targets, further, folder)
    found = _made(jobs, launcher, folder, asks(yes, hours("--at-most", at_most)))
    check_alike(found)
    page = folder / longer_page.PAGE
    longer_page.write(page, found, trained, every[0].content["position"])
    return page


def _made(jobs: Jobs, launcher: Record, folder: Path, ask: Asks) -> dict[Key, list[Run]]:
    """The runs of all jobs; those that are missing are made. Raises Stopped."""
    every = list(dict.fromkeys(itertools.chain(*jobs.values())))
    waiting = missing(every, folder)
    if waiting:
        ask(_bill(waiting, launcher))
    runs = made(every, folder, launcher, "extend", shows_scores=True)
    found = {}
    for key, those in jobs.items():
        found[key] = [runs[job] for job in those]
    return found


def _bill(jobs: Sequence[Job], launcher: Record) -> Bill:
    """Of these runs, from a few steps of one for each length of training."""
    first: dict[tuple[int, int], Job] = {}
    counts: Counter[Job] = Counter()
    for job in jobs:
        train = job.cfg.train
        counts[first.setdefault((train.steps, train.seq_len), job)] += 1
    seconds, source = mean_seconds(counts, launcher), f"from a few steps of {len(counts)}"
    return Bill("extend", len(jobs), seconds, source, sweep.shares(launcher)[0])


def _share(budget: str) -> float:
    """The share of `5%`. Raises ConfigError."""
    number = budget.removesuffix("%")
    is_number = number != budget and number.replace(".", "", 1).isdecimal()
    if not is_number or float(number) > MOST_BUDGET:
        most = f"must be a share of the steps, 5%, and at most {MOST_BUDGET}%"
        raise ConfigError(f"--budget {show(budget)}: {most}; --at-most 2h limits the time")
    return float(number) / 100


def _parser() -> ArgumentParser:
    parser = argument_parser("extend", __doc__)
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="folders of runs; also hydra/launcher=…")
    add("--lengths", default="2x,4x,8x", help="multiples of the longest in training")
    add("--budget", default="5%", help="further steps, a share of the runs' own (default: 5%%)")
    add("--out", metavar="FOLDER", help="default: below results/extend")
    add("--jobs", type=int, help="parallel runs (default: one per core)")
    add("--yes", action="store_true", help="begin without a question")
    add("--at-most", default="", metavar="TIME", help="2h or 30min: refuse a larger bill")
    add_allow(parser)
    return parser


def main(arguments: Words = None) -> None:
    options = vars(_parser().parse_intermixed_args(arguments))
    jobs, (hydra, folders) = options.pop("jobs"), split_hydra(options.pop("runs"))
    if jobs is not None:
        hydra.append(f"{sweep.JOBS}={jobs}")

    def run() -> None:
        if not folders:
            raise ConfigError(
                "rope-lab extend: give at least one run folder; `rope-lab list` shows them"
            )
        say(short_path(extend(folders, hydra, **options)))

    exit_after(run)
