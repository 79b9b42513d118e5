"""Adopt another scheme in trained runs: `rope-lab adopt RUN… --schemes roper,./mine.py`.

RUN is the folder of a finished run; several runs may differ only in their seed, and are paired by
it. Each scheme takes over their weights, and is trained for 1, 5 and 20% of their steps; beside it
their own scheme, with the same further steps: the control. A scheme without a value projection
takes over queries and keys alone; parameters that a scheme adds begin untrained. The page says how
many steps it takes until a scheme is as good as the runs were, and whether it gets better than the
control. It goes to results/adopt/, adopt.md. The same command resumes.

Exit status: 0 done, 12 runs are still missing, 1 one failed, 2 refused, 128 + its number after a
signal.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rope_lab.continuing import options, parents
from rope_lab.continuing.children import Jobs, all_made, child, further, steps_of
from rope_lab.continuing.parents import Parent
from rope_lab.experiments.asked import check_scheme
from rope_lab.experiments.asking import asks, hours
from rope_lab.experiments.launching import folder_of
from rope_lab.identity import general
from rope_lab.launch import sweep
from rope_lab.results.comparisons.continued import AS_IS, Continued, Key, check_alike
from rope_lab.results.plans.names import recorded_name
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.shipped import shipped
from rope_lab.text import ConfigError, Settings, Words, flat, nested
from rope_lab.train import config, plugin
from rope_lab.train.instantiate import check_arguments
from rope_lab.train.trainer import build, resolve

EVALUATIONS = 10  # of a child's training, at least


class Adopted(NamedTuple):
    """A scheme to adopt: the settings that it changes, and the user's own files that it needs."""

    changed: Settings
    files: Sequence[str]


def adopt(
    runs: Sequence[str],
    schemes: str,
    hydra: Sequence[str] = (),
    budget: str = "1%,5%,20%",
    lr: float | None = None,
    out: str | None = None,
    jobs: int | None = None,
    yes: bool = False,
    at_most: str = "",
    allow: Sequence[str] = (),
    device: str = "",
) -> Path:
    """Adopt schemes in trained runs, or resume; returns the page.

    runs:    folders of finished runs that differ in their seed
    schemes: names and files, `roper,./mine.py`
    hydra:   settings of the launcher
    budget:  of further training, shares of the runs' steps
    lr:      the highest learning rate of further training; None: that of the runs
    jobs:    parallel runs; None: one per core
    at_most: the time of all runs, `2h`; a larger bill is refused
    device:  of all runs; empty: that of the given ones

    Raises ConfigError, and Stopped if runs are to come.
    """
    plugin.forget_files()
    every = parents.parents(runs, list(allow), device)
    first = every[0]
    names = ("task", "scale", "position", "recipe_id", "scheme_id")
    folder = folder_of(out, "adopt", *[first.content[name] for name in names])
    steps = sorted({steps_of(share, first) for share in _words(budget)})
    if 0 in steps:
        raise ConfigError(f"--budget {budget}: the least of them is less than a step")
    names_of_schemes = _words(schemes)
    if not names_of_schemes:
        raise ConfigError(f"--schemes {schemes}: must name a scheme")
    of_ways = _jobs(every, _adopted(names_of_schemes, first), steps, lr, folder)
    _check(of_ways)
    launcher = sweep.side_by_side(hydra, jobs)
    found = all_made(of_ways, folder, launcher, asks(yes, hours("--at-most", at_most)), "adopt")
    report = Catalogue().report_of(next(iter(found.values()))[0])
    continued = Continued(found, report, report.measure)
    for same_steps in continued.by_steps():
        check_alike(same_steps.ways)
    from rope_lab.results.views import adoption_page  # here: slow to import

    page = folder / adoption_page.PAGE
    adoption_page.write(page, continued, first.content["position"])
    return page


def _words(listed: str) -> list[str]:
    """The words of a list with commas."""
    return list(filter(None, map(str.strip, listed.split(","))))


def _adopted(schemes: Sequence[str], parent: Parent) -> dict[str, Adopted]:
    """The schemes by their titles; the parents' own, which changes nothing, first.

    Settings that the parents changed in their own scheme, such as its base, hold for others that
    have them too. Raises ConfigError.
    """
    catalogue = Catalogue()
    kept = _changed(parent)
    found: dict[str, Adopted] = {AS_IS: Adopted({}, ())}
    for name in schemes:
        cfg = config.load(f"position={name}")
        settings = flat({"position": cfg.position})
        settings |= {key: kept[general(key)] for key in settings if general(key) in kept}
        title = catalogue.title(recorded_name(name))
        if title in found:
            raise ConfigError(f"--schemes: {title} is there twice; rename a file")
        changed = nested(settings) | {"names.position": cfg.names.position}
        found[title] = Adopted(changed, cfg.allowed_packages)
    return found


def _changed(parent: Parent) -> Settings:
    """The settings of its scheme that a run changed, by their names in any scheme: those of a
    scheme within another too.
    """
    own = flat({"position": parent.cfg.position})
    usual = flat({"position": shipped(f"position/{parent.content['position']}")})
    if not usual:  # a scheme of the user's own: the defaults of its class
        target = {"_target_": parent.cfg.position["_target_"]}
        usual = flat({"position": check_arguments("position", target, parent.cfg.allowed_packages)})
    changed = [key for key in usual if key in own and own[key] != usual[key]]
    return {general(key): own[key] for key in changed if not key.endswith("_target_")}


def _check(jobs: Jobs) -> None:
    """Raise ConfigError for a scheme that cannot take over its parent's weights, or that is the
    user's own and fails a check.
    """
    longest = max(key.steps for key in jobs)
    for key, (job, *_) in jobs.items():
        if key.steps != longest:
            continue
        # On the CPU and not compiled: the device of the runs may be elsewhere.
        train = replace(job.cfg.train, compile=False)
        try:
            build(resolve(replace(job.cfg, device="cpu", threads=None, train=train), here=False))
        except ConfigError as error:
            raise ConfigError(f"{key.way}: {error}") from None
        if key.way != AS_IS:
            check_scheme(job.cfg)


def _jobs(
    every: Sequence[Parent],
    adopted: dict[str, Adopted],
    budgets: Sequence[int],
    lr: float | None,
    folder: Path,
) -> Jobs:
    """The runs of each scheme, without and with further steps, a run for each parent."""
    found: Jobs = {}
    seq_len = every[0].cfg.train.seq_len
    for steps in [0, *budgets]:
        rate = lr if steps else None  # one run without training serves all rates
        trained = further(steps, rate) | {"eval.every": max(1, steps // EVALUATIONS)}
        for title, each in adopted.items():
            key = Key("", seq_len, title, steps, seq_len if steps else 0)
            changed = each.changed | trained
            found[key] = [child(parent, changed, key.label, folder, each.files) for parent in every]
    return found


def main(arguments: Words = None) -> None:
    parser = options.parser("adopt", __doc__)
    add = parser.add_argument
    add("--schemes", required=True, metavar="NAMES", help="roper,./mine.py")
    shares = "further steps, shares of the runs' own (default: 1%%,5%%,20%%)"
    add("--budget", default="1%,5%,20%", help=shares)
    options.exit_after_page(parser, arguments, adopt)
