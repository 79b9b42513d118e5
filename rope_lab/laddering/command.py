"""How the lead of a scheme changes with size: `rope-lab ladder position=rope,./mine.py task=TASK`.

The first scheme is the baseline. Models of four sizes are trained on tokens in proportion to their
parameters. Learning rates are searched at the two smallest sizes, alike for all schemes, and
carried to the larger ones. The page has the lead at each size, its slope, the effective speedup,
and whether the lead may change its sign. It goes to results/ladder/, ladder.md. The same command
resumes.

Exit status: 0 done, 12 runs are still missing, 2 refused.
"""

import re
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from rope_lab import command
from rope_lab.comparing.asking import asks, exit_after, hours
from rope_lab.comparing.searching import check_own
from rope_lab.laddering import sizes, stages
from rope_lab.laddering.stages import Ladder
from rope_lab.launch import sweep
from rope_lab.places import RESULTS
from rope_lab.results.comparisons.ladder import check_projection
from rope_lab.results.plans.study import run_name
from rope_lab.results.views import ladder_page
from rope_lab.text import ConfigError, argument_parser, say, short_path
from rope_lab.train import config, plugin
from rope_lab.train.instantiate import FILE
from rope_lab.train.overrides import is_hydra, key_of

PAIR = re.compile(r"(\d{1,2})x(\d{1,2})")
# Settings that the sizes decide.
CHOSEN = ("model.d_model", "model.n_layers", "model.n_heads", "train.steps", "train.warmup")
CHOSEN += ("eval.every", "train.lr", "seed", "out", "fresh", "init_from")


def ladder(
    *words: str,
    of_sizes: str = sizes.SIZES,
    pairs: int = 5,
    search: str = "5x2",
    tokens_per_parameter: float | None = None,
    projected: float | None = None,
    out: str | None = None,
    yes: bool = False,
    at_most: str = "",
) -> Path:
    """Climb a ladder of sizes, or resume; returns the page.

    words:     position=BASELINE,OTHER, task=TASK, other settings of all runs, and hydra/launcher=…
    pairs:     seeds at each size
    search:    learning rates times seeds, at the two smallest sizes
    tokens_per_parameter: None: as many as in the recipe
    projected: parameters at which the lead is projected, at most four times the largest size
    at_most:   the time of all runs, `2h`; a larger bill is refused

    Raises ConfigError, and Stopped if runs are to come.
    """
    plugin.forget_files()
    schemes, common = _asked([word for word in words if not is_hydra(word)])
    if pairs < 2:
        raise ConfigError(f"--pairs {pairs}: must be 2 or more")
    usual = config.load(*common, f"position={schemes[0]}")
    every = sizes.sizes(of_sizes, usual, tokens_per_parameter)
    if projected is not None:
        check_projection(projected, every[-1].parameters)
    for scheme in filter(FILE.fullmatch, schemes):
        check_own(run_name(scheme), [*common, f"position={scheme}"])
    hydra = [word for word in words if is_hydra(word)]
    asked = Ladder(
        schemes=schemes,
        common=tuple(common),
        sizes=tuple(every),
        usual=usual.train.lr,
        tried=_tried(search),
        pairs=pairs,
        folder=_folder(schemes, usual, out),
        launcher=sweep.launcher_settings(sweep.side_by_side(hydra)),
    )
    climbed = stages.climb(asked, asks(yes, hours("--at-most", at_most)))
    page = asked.folder / ladder_page.PAGE
    named = {scheme: run_name(scheme) for scheme in schemes}
    ladder_page.write(page, climbed.rungs, climbed.rates, named, climbed.at_end, projected)
    return page


def _asked(words: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """The schemes and the other overrides. Raises ConfigError."""
    common, schemes = [], ""
    for word in words:
        key, _, value = word.partition("=")
        if key == "position":
            schemes = value
        elif key_of(word) in CHOSEN or key_of(word).startswith("position."):
            raise ConfigError(f"{word}: ladder decides it; leave it out, or write your own scheme")
        else:
            common.append(word)
    names = tuple(dict.fromkeys(filter(None, schemes.split(","))))
    if len(names) < 2:
        raise ConfigError(f"position={schemes}: must be two schemes or more, the baseline first")
    if len({run_name(name) for name in names}) < len(names):
        raise ConfigError(f"position={schemes}: two have the same name; rename a file")
    return names, common


def _tried(search: str) -> tuple[int, int]:
    """Rates and seeds of `5x2`. Raises ConfigError."""
    match = PAIR.fullmatch(search)
    if match is None or int(match[1]) < 3 or int(match[2]) < 1:
        raise ConfigError(f"--search {search}: must be rates x seeds, 5x2; 3 rates at least")
    return int(match[1]), int(match[2])


def _folder(schemes: Sequence[str], usual: config.Config, out: str | None) -> Path:
    if out:
        return Path(out).expanduser().absolute()
    parts = [usual.names.task, usual.names.scale, *map(run_name, schemes)]
    return (RESULTS / "ladder" / "-".join(parts)).absolute()


def _parser() -> ArgumentParser:
    parser = argument_parser("ladder", __doc__)
    add = parser.add_argument
    add("words", nargs="+", metavar="NAME=VALUE", help="position=A,B task=TASK and other settings")
    add("--sizes", default=sizes.SIZES, help=f"d_model x n_layers (default: {sizes.SIZES})")
    add("--pairs", type=int, default=5, help="seeds at each size (default: 5)")
    add("--search", default="5x2", metavar="RATESxSEEDS", help="default: 5x2")
    add("--tokens-per-parameter", type=float, help="default: as in the recipe")
    add("--to", type=float, metavar="PARAMETERS", help="project the lead to a size, 2e7")
    add("--out", metavar="FOLDER", help="default: below results/ladder")
    add("--jobs", type=int, help="parallel runs (default: one per core)")
    add("--yes", action="store_true", help="begin without a question")
    add("--at-most", default="", metavar="TIME", help="2h or 30min: refuse a larger bill")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    given = _parser().parse_intermixed_args(arguments)
    words = list(given.words)
    if given.jobs is not None:
        words.append(f"hydra.launcher.n_jobs={given.jobs}")

    def run() -> None:
        page = ladder(
            *words,
            of_sizes=given.sizes,
            pairs=given.pairs,
            search=given.search,
            tokens_per_parameter=given.tokens_per_parameter,
            projected=given.to,
            out=given.out,
            yes=given.yes,
            at_most=given.at_most,
        )
        say(short_path(page))

    exit_after(run)


if __name__ == "__main__":
    command.begin()
    main()
