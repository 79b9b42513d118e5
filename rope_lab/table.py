"""Runs a whole comparison: `python -m rope_lab.table TABLE [--jobs N] [--minutes M]`.

The same command again resumes: finished runs are skipped, interrupted ones resumed. It can be stopped at any time: the
most informative runs come first. Runs go side by side on the cores of this machine; hydra/launcher=ray or
hydra/launcher=submitit_slurm sends them to a cluster, hydra/launcher=basic runs one after the other in this process.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rope_lab.launch import sweep
from rope_lab.launch.job import EXIT_BAD_CONFIG, Job
from rope_lab.launch.tables import Block, TableError, find, load, paths
from rope_lab.results import studies
from rope_lab.results.kept import read_kept
from rope_lab.results.studies import PlanError, Study
from rope_lab.text import ConfigError, argument_parser, say
from rope_lab.train import config


def planned(study: Study) -> list[list[str]]:
    """The planned runs of a study."""
    settings = [f"{key}={value}" for key, value in study.settings.items()]
    return Block([study.task], study.scale, study.seeds, settings).runs([])


def runs_of(name: str, folders: Sequence[Path]) -> list[list[str]]:
    """The runs of a table, of a study by its name, or of all studies of a plan. Raises TableError and PlanError."""
    ours = {study.name: study for study in studies.load()} if studies.PLAN.exists() else {}
    if name in ours and name not in paths(folders):
        return planned(ours[name])
    path = find(name, folders, ours)
    if studies.is_plan(path):
        return [run for study in studies.load(path) for run in planned(study)]
    return load(path).runs(sorted({path.stem for folder in folders for path in (folder / "position").glob("*.yaml")}))


def unkept(jobs: Sequence[Job], folder: Path) -> list[Job]:
    """The jobs of which the records kept in `folder`, and in the folders in it, hold no finished run."""
    kept = [run for path in (folder, *folder.glob("*/")) for run in read_kept(path)[0]]
    finished = {run.run_id for run in kept if run.status == "finished"}
    return [job for job in jobs if sweep.identity(job.cfg).run_id not in finished]


def arguments() -> argparse.Namespace:
    about = [__doc__ or "", "TABLE is a study of results/plan.yaml, the path of a table or plan of your own, or one of"]
    about += [f"  {name:<8} {load(path).about}" for name, path in paths([config.CONF]).items()]
    parser = argument_parser("table", "\n".join(about))
    parser.add_argument("table", metavar="TABLE")
    parser.add_argument("--jobs", type=int, help=f"parallel runs (default: one per core, {config.CORES})")
    parser.add_argument("--minutes", type=float, help="stop after so long, with checkpoints")
    parser.add_argument("--list", action="store_true", help="run nothing, only list what is missing")
    parser.add_argument("--unkept", action="store_true", help="skip runs that results/ keeps as finished")
    parser.add_argument("--kept", type=Path, default=config.ROOT / "results", metavar="FOLDER", help="in its place")
    parser.add_argument("--config-dir", type=Path, metavar="FOLDER", help="tables, tasks and schemes of your own")
    parser.add_argument(
        "overrides", nargs="*", default=[], help="settings of all runs, wandb.mode=disabled for example"
    )
    given = parser.parse_intermixed_args()
    if given.jobs is not None and given.jobs < 1:
        parser.error(f"--jobs {given.jobs}: must be at least 1")
    if given.config_dir and not given.config_dir.is_dir():
        parser.error(f"--config-dir {given.config_dir}: is not a directory")
    return given


def run(given: argparse.Namespace) -> int:
    """Runs what is missing of a table; returns an exit status. Raises ConfigError, TableError and PlanError."""
    table = runs_of(given.table, [*filter(None, [given.config_dir]), config.CONF])
    hydra = [word for word in given.overrides if sweep.is_hydra(word)]
    extra = [word for word in given.overrides if word not in hydra]
    chosen = {word.partition("=")[0] for words in table for word in words}
    for word in extra:
        if (key := word.lstrip("+~").partition("=")[0]) == "fresh":
            raise ConfigError("fresh: a table runs what is missing; out=FOLDER runs all of it again, elsewhere")
        if key in chosen:
            raise ConfigError(f"{word}: the table sets it")
    if not any(word.startswith("hydra/launcher=") for word in hydra):
        hydra = ["hydra/launcher=joblib", f"hydra.launcher.n_jobs={given.jobs or -1}", *hydra]
    elif given.jobs:
        raise ConfigError(f"--jobs {given.jobs}: a launcher has settings of its own, hydra.launcher.n_jobs of joblib")
    if given.minutes is not None:
        extra.append(f"stop_at={time.time() + 60 * given.minutes}")
    settings = sweep.launcher_settings(hydra)
    jobs = sweep.compose_jobs([[*words, *extra] for words in table], given.config_dir)
    if given.unkept:
        whole, jobs = jobs, unkept(jobs, given.kept)
        say(f"{len(whole) - len(jobs)} of {len(whole)} runs are kept in {given.kept.name}/ and left out")
    return sweep.launch(jobs, settings, Path(given.table).stem, begin=not given.list)


def main() -> None:
    given = arguments()
    try:
        status = run(given)
    except (ConfigError, TableError, PlanError) as error:
        print(error, file=sys.stderr)
        status = EXIT_BAD_CONFIG
    sys.exit(status)


if __name__ == "__main__":
    main()
