"""How the lead of a scheme changes with size: `rope-lab ladder position=rope,./mine.py task=TASK`.

The first scheme is the baseline. Models of four sizes are trained on tokens in proportion to their
parameters. Learning rates are searched at the two smallest sizes, alike for all schemes, and
carried to the larger ones. The page has the lead at each size, its slope, the effective speedup,
and whether the lead may change its sign. It goes to results/ladder/, ladder.md. The same command
resumes.

Exit status: 0 done, 12 runs are still missing, 1 one failed, 2 refused, 128 + its number after a
signal.
"""

from argparse import ArgumentParser
from pathlib import Path

from rope_lab.experiments import asking
from rope_lab.experiments.asked import check_overrides, check_own
from rope_lab.experiments.asking import asks, exit_after, hours, rates_and_seeds
from rope_lab.experiments.launching import folder_of
from rope_lab.laddering import sizes, stages
from rope_lab.laddering.stages import Ladder
from rope_lab.launch import sweep
from rope_lab.results.comparisons.ladder import check_projection
from rope_lab.results.plans.names import recorded_name
from rope_lab.text import ConfigError, Words, say, short_path
from rope_lab.train import config, plugin
from rope_lab.train.overrides import key_of, split_hydra

# Settings that the sizes decide.
OF_SIZES = ("model.d_model", "model.n_layers", "model.n_heads", "train.steps", "train.warmup")
OF_SIZES += ("eval.every",)
ASKED = ("task", "scale", "corpus")  # files of conf/ that may be chosen


def ladder(
    *words: str,
    of_sizes: str = "",
    pairs: int = 5,
    search: str = "5x2",
    tokens_per_parameter: float | None = None,
    projected: float | None = None,
    out: str | None = None,
    jobs: int | None = None,
    yes: bool = False,
    budget: str = "",
) -> Path:
    """Climb a ladder of sizes, or resume; returns the page.

    words:     position=BASELINE,OTHER, task=TASK, other settings of all runs, and hydra/launcher=…
    of_sizes:  `64x4,96x5`; empty: the default of sizes.py
    pairs:     seeds at each size
    search:    learning rates times seeds, at the two smallest sizes
    tokens_per_parameter: None: as many as in the recipe
    projected: parameters at which the lead is projected, at most four times the largest size
    jobs:      parallel runs; None: one per core
    budget:    the time of all runs, `2h`; a larger bill is refused

    Raises ConfigError, and Stopped if runs are to come.
    """
    plugin.forget_files()
    hydra, settings = split_hydra(words)
    schemes, common = _asked(settings)
    if pairs < 2:
        raise ConfigError(f"--pairs {pairs}: must be 2 or more")
    usual = config.load(*common, f"position={schemes[0]}")
    every = sizes.sizes(of_sizes, usual, tokens_per_parameter)
    if projected is not None:
        check_projection(projected, every[-1].parameters)
    check_own(schemes, common)
    asked = Ladder(
        schemes=schemes,
        common=tuple(common),
        sizes=tuple(every),
        usual=usual.train.lr,
        tried=rates_and_seeds(search, "5x2; 3 rates", least_seeds=1),
        pairs=pairs,
        folder=folder_of(
            out, "ladder", usual.names.task, usual.names.scale, *map(recorded_name, schemes)
        ),
        launcher=sweep.side_by_side(hydra, jobs),
    )
    rungs, at_end = stages.climb(asked, asks(yes, hours("--budget", budget)))
    from rope_lab.results.views import ladder_page  # here: slow to import

    page = asked.folder / ladder_page.PAGE
    ladder_page.write(page, rungs, at_end, projected)
    return page


def _asked(words: list[str]) -> tuple[tuple[str, ...], list[str]]:
    """The schemes and the other overrides. Raises ConfigError."""
    common, schemes = [], ""
    for word in words:
        key, _, value = word.partition("=")
        if key == "position" and schemes:
            raise ConfigError("position is given twice: position=A,B names all schemes")
        if key == "position":
            schemes = value
        else:
            common.append(word)
    settings = [word for word in common if key_of(word) not in ASKED]
    check_overrides("ladder", settings, OF_SIZES)
    names = tuple(dict.fromkeys(filter(None, schemes.split(","))))
    if len(names) < 2:
        raise ConfigError(f"position={schemes}: must be two schemes or more, the baseline first")
    if len({recorded_name(name) for name in names}) < len(names):
        raise ConfigError(f"position={schemes}: two have the same name; rename a file")
    return names, common


def _parser() -> ArgumentParser:
    parser = asking.parser("ladder", __doc__)
    add = parser.add_argument
    add("words", nargs="+", metavar="NAME=VALUE", help="position=A,B task=TASK and other settings")
    add(
        "--sizes",
        dest="of_sizes",
        default="",
        help=f"d_model x n_layers (default: {sizes.SIZES}, rounded up to whole heads)",
    )
    add("--pairs", type=int, default=5, help="seeds at each size (default: 5)")
    add("--search", default="5x2", metavar="RATESxSEEDS", help="default: 5x2")
    add("--tokens-per-parameter", type=float, help="default: as in the recipe")
    to = "project the lead to a size, 2e7"
    add("--to", dest="projected", type=float, metavar="PARAMETERS", help=to)
    return parser


def main(arguments: Words = None) -> None:
    options = vars(_parser().parse_intermixed_args(arguments))
    words = options.pop("words")
    exit_after(lambda: say(short_path(ladder(*words, **options))))
