"""Runs a whole comparison, in slices if need be: `python scripts/table.py TABLE [--jobs N] [--minutes M]`.

Run it again and it resumes: finished runs are skipped, interrupted ones resumed. It can be stopped at any time: the
most informative runs come first. At the end it lists what is missing; `python -m rope_lab.results` shows the results.

Runs go side by side on the cores of this machine. `hydra/launcher=ray` or `hydra/launcher=submitit_slurm` sends them
to a cluster instead (docs/clusters.md), `hydra/launcher=basic` runs one after the other in this process.

--unkept skips runs that results/, or a folder there, keeps as finished, whatever code made them. It serves on another
machine, or where run folders are gone. --kept FOLDER looks in that folder instead, another checkout's results/ say.
"""

import argparse
import functools
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where rope_lab is not installed
import rope_lab  # noqa: F401 - first, since it sees to the screen and to Ctrl-C

# isort: split
from hydra.errors import HydraException

from rope_lab.launch import cells, sweep
from rope_lab.launch import main as main_module
from rope_lab.launch.cells import Block, Cell, TableError
from rope_lab.launch.guard import EXIT_FAILED, guarded, launch
from rope_lab.results import studies
from rope_lab.results.kept import read_kept
from rope_lab.results.runs import one_line
from rope_lab.results.studies import PlanError, Study
from rope_lab.text import ConfigError, first_line, say
from rope_lab.train import config
from rope_lab.train.run import is_whole, out_folder, read
from rope_lab.train.trainer import resolve

JOBS = "", "joblib", "submitit_local"  # launchers to which --jobs says how many runs go side by side
ENDS = "finished", "diverged"
OWN: list[Path] = []  # the folder of --config-dir
TIME_IS_UP = 128 + signal.SIGALRM  # the exit status of a run, and of a sweep in this process


def planned(study: Study) -> list[Cell]:
    """The planned runs of a study."""
    shared = [f"{key}={value}" for key, value in study.settings.items()]
    return Block([study.task], study.scale, study.seeds, shared).cells([])


def cells_of(name: str, folders: Sequence[Path]) -> list[Cell]:
    """The runs of a table, of the study of that name, or of all studies of a plan. Raises TableError and PlanError."""
    path = cells.paths(folders).get(name)
    if not path:
        ours = {study.name: study for study in studies.load()} if studies.PLAN.exists() else {}
        if name in ours:
            return planned(ours[name])
        path = cells.find(name, folders, list(ours))
    if studies.is_plan(path):
        return list(dict.fromkeys(cell for study in studies.load(path) for cell in planned(study)))
    return cells.load(path).cells(cells.schemes(folders))


def settings_of(cell: Cell, extra: Sequence[str]) -> config.Config:
    """The configuration of the cell's run. Raises ConfigError."""
    return replace(_composed(replace(cell, seed=0), *extra), seed=cell.seed)


@functools.cache  # a tenth of a second each
def _composed(cell: Cell, *extra: str) -> config.Config:
    return resolve(config.load(*cell.overrides(), *extra, config_dir=OWN[0] if OWN else None))


def content_of(cell: Cell, extra: Sequence[str]) -> dict | None:
    """What the cell's run.json says, if there is one; its status is `damaged` where it has ended and is not whole."""
    cfg = settings_of(cell, extra)
    folder = out_folder(cfg) / config.identity(cfg).run_name
    content = read(folder)
    damaged = content and content["status"] in ENDS and not intact(folder, content.get("digest"))
    return content | {"status": "damaged"} if damaged else content


@functools.cache  # within a call: it reads all of the run's weights
def intact(folder: Path, digest: str | None) -> bool:
    """Whether the files of the run in `folder`, whose run.json has this digest, are what it says of them."""
    return is_whole(folder, read(folder) or {})


def is_finished(cell: Cell, extra: Sequence[str]) -> bool:
    """Whether the run has come to its end before; divergence is an end too."""
    content = content_of(cell, extra)
    return content is not None and content["status"] in ENDS


def unkept(table: Sequence[Cell], extra: Sequence[str], folder: Path) -> list[Cell]:
    """The cells of which the kept rows in `folder`, and in the folders in it, hold no finished run."""
    kept = [run for path in (folder, *folder.glob("*/")) for run in read_kept(path)[0]]
    finished = {run.run_id for run in kept if run.status == "finished"}
    return [cell for cell in table if config.identity(settings_of(cell, extra)).run_id not in finished]


def key_of(word: str) -> str:
    """The setting that an override is of."""
    return word.lstrip("+~").partition("=")[0]


def launcher_words(given: Sequence[str], jobs: int) -> list[str]:
    """Hydra's own overrides among those `given`; without a launcher among them, so many runs go side by side."""
    hydra = [word for word in given if is_hydra(word)]
    if not launcher_of(hydra) and jobs > 1:
        hydra.insert(0, "hydra/launcher=joblib")
    if launcher_of(hydra) == "joblib":  # one run at a time to a worker, however short runs are
        return [f"hydra.launcher.n_jobs={jobs}", "hydra.launcher.batch_size=1", *hydra]
    return hydra


def launcher_of(words: Sequence[str]) -> str:
    """The launcher that is named last among overrides, empty where none is."""
    return next((word.partition("=")[2] for word in reversed(words) if word.startswith("hydra/launcher=")), "")


def is_hydra(word: str) -> bool:
    return word.lstrip("+~").startswith(("hydra.", "hydra/"))


def run_all(
    table: Sequence[Cell],
    extra: Sequence[str],
    hydra: Sequence[str],
    jobs: int,
    minutes: float,
    own: Path | None = None,
) -> None:
    """Has what has not finished run by the launcher, until the time is up: then running runs save themselves."""
    at_once = jobs if launcher_of(hydra) == "submitit_local" else None  # it begins all that it is given
    waiting = [cell for cell in table if not is_finished(cell, extra)]
    until = [] if minutes == float("inf") else [f"stop_at={time.time() + 60 * minutes}"]
    if not waiting:
        return
    try:
        launch([[*cell.overrides(), *extra, *until] for cell in waiting], hydra, main_module.work, at_once, own)
    except SystemExit as end:
        if end.code != TIME_IS_UP:
            raise
    except Exception as error:
        sweep.end_workers(signal.SIGTERM)
        print(f"{one_line(first_line(error))}; look at {' '.join(hydra)}", file=sys.stderr)
        sys.exit(sweep.EXIT_BAD_CONFIG if isinstance(error, HydraException) else EXIT_FAILED)


def missing(table: Sequence[Cell], extra: Sequence[str]) -> Iterator[str]:
    """Of each cell that has not finished, what it is and how it stands."""
    for cell in table:
        content = content_of(cell, extra)
        if not content or content["status"] != "finished":
            how = f"{content['status']} at step {content['progress']['steps']}" if content else "not begun"
            yield f"{' '.join(cell.overrides())} ({how})"


def arguments() -> argparse.Namespace:
    there = [f"  {name:<16} {cells.load(path).about}" for name, path in cells.paths([config.CONF]).items()]
    about = "\n".join([__doc__, "TABLE is a file of conf/table/,", *there])
    about += "\na file like those, in the folder table/ of --config-dir or by its path; or the name of a study in"
    about += "\nresults/plan.yaml, confirm_index for example; or a plan of your own, by its path."
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", metavar="TABLE")
    parser.add_argument("--jobs", type=int, help=f"parallel runs (default: one per core, {config.CORES})")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so long, with checkpoints")
    parser.add_argument("--list", action="store_true", help="run nothing, only list what is missing")
    parser.add_argument("--unkept", action="store_true", help="skip runs that results/ keeps as finished")
    parser.add_argument(
        "--kept", type=Path, default=config.ROOT / "results", metavar="FOLDER", help="for --unkept, instead of results/"
    )
    parser.add_argument("--config-dir", type=Path, metavar="FOLDER", help="tables, tasks and schemes of your own")
    parser.add_argument(
        "overrides", nargs="*", default=[], help="settings for all runs, for example wandb.mode=disabled"
    )
    given = parser.parse_intermixed_args()
    if given.jobs is not None and given.jobs < 1:
        parser.error(f"--jobs {given.jobs}: must be at least 1")
    if given.jobs and launcher_of(given.overrides) not in JOBS:
        parser.error(f"--jobs {given.jobs}: hydra/launcher={launcher_of(given.overrides)} has settings of its own")
    if given.config_dir and not given.config_dir.is_dir():
        parser.error(f"--config-dir {given.config_dir}: is no folder")
    return given


def main() -> None:
    given = arguments()
    intact.cache_clear()
    own = OWN[:] = [given.config_dir.resolve()] if given.config_dir else []
    extra = [word for word in given.overrides if not is_hydra(word)]
    hydra = launcher_words(given.overrides, given.jobs or config.CORES)
    try:
        table = cells_of(given.table, [*own, config.CONF])
        chosen = {setting.partition("=")[0] for cell in table for setting in cell.overrides()}
        if "fresh" in chosen | {key_of(word) for word in extra}:
            raise ConfigError(
                "fresh: a table runs what is missing; out=FOLDER runs all of it anew, elsewhere, and "
                "`python -m rope_lab.train … fresh=true` one run"
            )
        for word in extra:
            if key_of(word) in chosen:
                raise ConfigError(f"{word}: the table says which runs there are")
        if given.unkept:
            whole, table = table, unkept(table, extra, given.kept)
            print(f"{len(whole) - len(table)} of {len(whole)} runs are kept in {given.kept.name}/ and left out")
        lines = list(missing(table, extra))  # all of them are composed before the first one begins
    except (ConfigError, HydraException, TableError, PlanError) as error:
        print(str(error).splitlines()[0], file=sys.stderr)
        sys.exit(sweep.EXIT_BAD_CONFIG)

    def conclude(status: int = 0) -> None:
        if status == sweep.EXIT_BAD_CONFIG:
            return
        if not given.list:
            lines[:] = missing(table, extra)
        for line in lines:
            say(f"missing: {line}")
        rest = "; the same command again runs the rest" if lines and not given.list else ""
        say(f"{len(table) - len(lines)} of {len(table)} runs have finished{rest}")

    def act() -> None:
        run_all(table, extra, hydra, given.jobs or config.CORES, given.minutes, *own)

    if given.list:
        conclude()
    else:
        guarded(act, conclude)
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
