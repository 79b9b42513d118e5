"""Score a scheme on nine tasks, beside the schemes of the repository: `rope-lab score ./mine.py`.

SCHEME is a name or a file. On each task it is trained at half, once and twice the recipe's learning
rate, on three seeds: 81 runs, a task at a time. The same command resumes, and after each task
results/score/SCHEME/ has a page with its row beside the other schemes', a heat map, and the table
as LaTeX and CSV. It begins at once, and prints the time of each task first. Text is read from
corpora/tinyshakespeare.txt; without that file the task is left out, and the exit status is 1.
"""

from argparse import ArgumentParser
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from rope_lab.experiments import launching
from rope_lab.experiments.asked import check_overrides
from rope_lab.experiments.asking import exit_after
from rope_lab.experiments.timing import bill_of
from rope_lab.files import check_writable, write_whole
from rope_lab.launch import sweep
from rope_lab.launch.job import EXIT_FAILED
from rope_lab.launch.jobs import Job
from rope_lab.places import RESULTS, RUNS
from rope_lab.results.comparisons.score_columns import all_columns, as_if_kept
from rope_lab.results.plans.names import recorded_name
from rope_lab.results.plans.rates import Cell
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.folders import is_kept, read_or_warn, with_those_below
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import setups_of
from rope_lab.results.views import tables
from rope_lab.scoring import scores
from rope_lab.scoring.protocol import PROTOCOL
from rope_lab.shipped import recipe
from rope_lab.text import (
    ConfigError,
    MissingText,
    Settings,
    Words,
    argument_parser,
    filled,
    say,
    short_path,
)
from rope_lab.train.overrides import key_of, split_hydra
from rope_lab.train.run_folder import OUTCOMES
from rope_lab.train.trainer import resolve

OF_NO_RECIPE = ("device", "threads", "corpus", "task.path", "wandb.", "train.precision")
PAGE, MAP, TEX, CSV = "score.md", "score.svg", "score.tex", "score.csv"
HEAD = """# Scores of {title}

Three learning rates and three seeds per task ({rule}). For each seed we use the learning rate that
did best on the other seeds (†). Compare only cells with †: the others had one learning rate. No
significance tests here; `rope-lab compare` runs one. Precision and device are those of the machine;
the kept runs were made on CPUs in bfloat16.

![mean scores of schemes on tasks](figures/score.svg)"""


def score(
    scheme: str,
    tasks: Sequence[str],
    overrides: Sequence[str],
    out: Path,
    jobs: int | None = None,
) -> int:
    """Make the runs of a scheme on these tasks and write its page after each; the exit status.
    Raises ConfigError, and Stopped after a signal.

    overrides: settings of all runs, and hydra/launcher=…
    jobs:      parallel runs; None: one per core
    """
    hydra, settings = split_hydra(overrides)
    check_overrides("score", settings)
    check_writable(out)
    check_ours(scheme, out)
    launcher = sweep.side_by_side(hydra, jobs)
    _check_comparable(settings)
    left_out = []
    for task in tasks:
        of_task = jobs_of(scheme, task, settings, out)
        try:
            resolve(of_task[0].cfg)
        except MissingText as error:
            left_out.append(f"{task} is left out: {error}")
            continue
        status = _train(task, of_task, launcher)
        if status:
            return status
        write(scheme, out, settings)
    if len(left_out) == len(tasks):
        raise ConfigError(left_out[0])
    for line in left_out:
        say(filled(line))
    return EXIT_FAILED if left_out else 0


def _check_comparable(settings: Sequence[str]) -> None:
    """Name the settings that few kept runs have. Raises ConfigError if there are no kept runs."""
    if not any(map(is_kept, with_those_below(RESULTS))):
        where = "clone the repository, whose results/ has those of other schemes, and score there"
        raise ConfigError(f"{short_path(RESULTS)}: there are no kept runs to stand beside; {where}")
    own = [word for word in settings if not key_of(word).startswith(OF_NO_RECIPE)]
    if own:
        only = "its page has only schemes whose kept runs have the same settings"
        say(filled(f"{' '.join(own)}: {only}"))


def check_ours(scheme: str, out: Path) -> None:
    """Raise ConfigError if files of the names of a scheme's page, which would be overwritten, were
    not written by this command.
    """
    title = Catalogue().title(recorded_name(scheme))
    tables.check_ours(out / PAGE, HEAD.partition("\n")[0].format(title=title))
    for path in (out / TEX, out / CSV, out / "figures" / MAP):
        if path.exists() and not (out / PAGE).exists():
            stays = "was not written by this command, and stays"
            raise ConfigError(f"{short_path(path)}: {stays}; move it away, or set --out")


def _train(task: str, jobs: list[Job], launcher: Settings) -> int:
    """Make the runs of a task that have not ended; the exit status."""
    waiting = [job for job in jobs if job.record()["status"] not in OUTCOMES]
    if not waiting:
        return 0
    say(filled(str(bill_of(task, {waiting[0]: len(waiting)}, launcher))))
    return sweep.launch(jobs, launcher, task)


def jobs_of(scheme: str, task: str, settings: Sequence[str], folder: Path) -> list[Job]:
    """The runs of a scheme on a task, at each rate on each seed. Raises ConfigError."""
    scale = PROTOCOL["tasks"][task]
    usual = recipe(task, scale)["train.lr"]
    common = [f"task={task}", f"scale={scale}", *PROTOCOL["settings"].get(task, []), *settings]
    every = []
    for seed, factor in product(range(PROTOCOL["seeds"]), PROTOCOL["rates"]):
        every.append(launching.words_of(common, Cell(scheme, usual * factor, seed)))
    return launching.jobs_of(every, folder)


def of_protocol(scheme: str, folder: Path, settings: Sequence[str] = ()) -> list[Run]:
    """The runs of a folder that are the protocol's with today's code of a scheme."""
    ids = set()
    for task in PROTOCOL["tasks"]:
        ids |= {job.identity.run_id for job in jobs_of(scheme, task, settings, folder)}
    return [run for run in read_or_warn([folder / RUNS]) if run.run_id in ids]


def write(scheme: str, out: Path, settings: Sequence[str]) -> None:
    """Write the page of a scheme: its scores so far, beside those of the kept runs."""
    kept = read_or_warn(with_those_below(RESULTS))
    mine = as_if_kept(of_protocol(scheme, out, settings), kept)
    recipes = {run.recipe_id for run in mine}
    setups = setups_of([*kept, *mine], Catalogue())
    shown = [each for each in all_columns(setups) if each.setup.recipe_id in recipes]
    if not shown:
        say("no page: no other scheme has kept runs with these settings")
        return
    head = HEAD.format(title=Catalogue().title(recorded_name(scheme)), rule=PROTOCOL["rule"])
    table = scores.write(out / PAGE, shown, head)
    write_whole(out / TEX, tables.latex(table, f"Scores, {PROTOCOL['rule']}").encode())
    write_whole(out / CSV, tables.csv(table).encode())


def _parser() -> ArgumentParser:
    parser = argument_parser("score", __doc__)
    parser.add_argument("scheme", metavar="SCHEME")
    parser.add_argument(
        "overrides",
        nargs="*",
        default=[],
        metavar="NAME=VALUE",
        help="settings of all runs: device=cpu",
    )
    parser.add_argument(
        "--task", action="append", choices=PROTOCOL["tasks"], help="default: all nine"
    )
    parser.add_argument("--jobs", type=int, help="parallel runs (default: one per core)")
    parser.add_argument("--out", type=Path, help="default: results/score/SCHEME")
    return parser


def main(arguments: Words = None) -> None:
    given = _parser().parse_intermixed_args(arguments)
    tasks = given.task or list(PROTOCOL["tasks"])
    out = given.out or RESULTS / "score" / recorded_name(given.scheme)
    exit_after(lambda: score(given.scheme, tasks, given.overrides, out.absolute(), given.jobs))
