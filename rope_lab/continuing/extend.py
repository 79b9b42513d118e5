"""Read longer texts with trained runs: `rope-lab extend RUN… --lengths 2x,4x,8x --budget 5%`.

RUN is the folder of a finished run; several runs may differ only in their seed, and are paired by
it. Methods: the scheme unchanged, position interpolation, NTK-aware scaling, NTK by parts, YaRN,
ReRoPE, SelfExtend, dual chunks, windows and DroPE: without further training, then each with the
same further steps, beside the scheme unchanged with these steps at the old and at the new length.
The page goes to results/extend/, extend.md. The same command resumes.

Exit status: 0 done, 12 runs are still missing, 1 one failed, 2 refused, 128 + its number after a
signal.
"""

from collections.abc import Sequence
from pathlib import Path

from rope_lab.continuing import options, parents, ways
from rope_lab.continuing.children import all_made, steps_of
from rope_lab.experiments.asking import asks, hours
from rope_lab.experiments.launching import folder_of
from rope_lab.launch import sweep
from rope_lab.results.comparisons.continued import check_alike
from rope_lab.text import Words


def extend(
    runs: Sequence[str],
    hydra: Sequence[str] = (),
    lengths: str = "2x,4x,8x",
    budget: str = "5%",
    lr: float | None = None,
    out: str | None = None,
    jobs: int | None = None,
    yes: bool = False,
    at_most: str = "",
    allow: Sequence[str] = (),
    device: str = "",
) -> Path:
    """Try every way to read longer texts, or resume; returns the page.

    runs:    folders of finished runs that differ in their seed
    hydra:   settings of the launcher
    lengths: multiples of the longest length of training
    budget:  of further training, as a share of the runs' steps
    lr:      the highest learning rate of further training; None: that of the runs
    jobs:    parallel runs; None: one per core
    at_most: the time of all runs, `2h`; a larger bill is refused
    device:  of all runs; empty: that of the given ones

    Raises ConfigError, and Stopped if runs are to come.
    """
    every = parents.parents(runs, list(allow), device)
    trained, targets = parents.targets(every[0], lengths)
    steps = steps_of(budget, every[0])
    names = ("task", "scale", "position", "recipe_id", "scheme_id")
    folder = folder_of(out, "extend", *[every[0].content[name] for name in names])
    launcher = sweep.side_by_side(hydra, jobs)
    of_ways = ways.jobs(every, trained, targets, steps, folder, lr)
    found = all_made(of_ways, folder, launcher, asks(yes, hours("--at-most", at_most)), "extend")
    check_alike(found)
    from rope_lab.results.views import longer_page  # here: slow to import

    page = folder / longer_page.PAGE
    longer_page.write(page, found, trained, every[0].content["position"])
    return page


def main(arguments: Words = None) -> None:
    parser = options.parser("extend", __doc__)
    add = parser.add_argument
    multiples = "multiples of the longest in training (default: 2x,4x,8x)"
    add("--lengths", default="2x,4x,8x", help=multiples)
    add("--budget", default="5%", help="further steps, a share of the runs' own (default: 5%%)")
    options.exit_after_page(parser, arguments, extend)
