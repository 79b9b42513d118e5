"""Runs a whole comparison, in slices if need be: `python scripts/table.py TABLE [--jobs N] [--minutes M]`.

TABLE is one of
  quick      the write-up's schemes on its three tasks; minutes per run
  paper      the same at the write-up's own scale, for a GPU
  reduced    Index and Addition as near to that scale as two cores come; a quarter of an hour per run
  prefix     Prefix at the write-up's own scale, for two cores; also two other learning rates, and Xavier's init
  literal    Prefix with the write-up's literal 65,000 optimizer steps, for a GPU
  schemes    every scheme on quick Index and quick Prefix
  rotations  which of q, k, v and the output are rotated, nine combinations on quick Index
  linear     linear attention with none, RoPE and RoPER on quick Index and quick Prefix
  lengths    eight schemes trained on a range of lengths of Index and Addition, then evaluated on longer problems
  fast_pairs RoPER with values rotated in the highest frequencies alone: which share, which base; quick Index and Prefix
  pope       PoPE, alone and with RoPER's values, beside RoPE and RoPER on quick Index and quick Prefix
  indirect   every scheme on quick indirect indexing
  or the name of a study in results/plan.yaml, confirm_index for example: its planned runs

Run it again and it resumes: finished runs are skipped, interrupted ones resumed. It can be stopped at any time: the
most informative runs come first, seed by seed. At the end it lists what is missing; `python -m rope_lab.results` shows
the results.

--unkept skips runs that results/, or a folder there, keeps as finished, whatever code made them. It serves on another
machine, or where run folders are gone. --kept FOLDER looks in that folder instead, another checkout's results/ say.
"""

import argparse
import functools
import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where rope_lab is not installed
import rope_lab  # noqa: F401 - first, since it sees to the screen and to Ctrl-C

# isort: split
from hydra.errors import HydraException

from rope_lab import config
from rope_lab.instantiate import ConfigError
from rope_lab.results import studies
from rope_lab.results.kept import read_kept
from rope_lab.run import read
from rope_lab.signals import LAUNCHER, Stop
from rope_lab.trainer import resolve

TASKS = ("substring_by_index", "substring_by_prefix", "arithmetic_addition")
PAIR, REST = ("rope", "roper"), ("roper_double_rotation", "none", "sinusoidal", "learned")


@dataclass(frozen=True)
class Cell:
    """One run of a comparison, as overrides of the training command."""

    task: str
    position: str
    seed: int
    scale: str
    settings: tuple[str, ...] = ()

    def overrides(self) -> list[str]:
        named = {key: value for key, value in vars(self).items() if key != "settings"}
        return [*(f"{key}={value}" for key, value in named.items()), *self.settings]


def quick() -> list[Cell]:
    """8 seeds of RoPE and RoPER and 5 of the rest, seed by seed."""
    return [
        Cell(task, position, seed, "quick")
        for seed in range(8)
        for task in TASKS
        for position in (*PAIR, *(REST if seed < 5 else ()))
    ]


def paper() -> list[Cell]:
    """10 seeds of RoPE and RoPER on each task, then 3 of the rest."""
    pair = [Cell(task, position, seed, "paper") for task in TASKS for seed in range(10) for position in PAIR]
    rest = [Cell(task, position, seed, "paper") for task in TASKS for seed in range(3) for position in REST]
    return pair + rest


def reduced() -> list[Cell]:
    """Index, then Addition: 8 seeds of RoPE and RoPER, 5 of the double rotation and 2 of the rest, seed by seed.

    Then a seed of RoPE and RoPER on Index at half and at double the rate.
    """
    counts = {"rope": 8, "roper": 8, "roper_double_rotation": 5, "none": 2, "sinusoidal": 2, "learned": 2}
    cells = [
        Cell(task, position, seed, "reduced")
        for task in ("substring_by_index", "arithmetic_addition")
        for seed in range(8)
        for position, count in counts.items()
        if seed < count
    ]
    rates = ("train.lr=5e-5", "train.lr=2e-4")
    return cells + [Cell(TASKS[0], position, 0, "reduced", (rate,)) for rate in rates for position in PAIR]


def prefix() -> list[Cell]:
    """5 seeds of RoPE and RoPER, 3 or 2 of the rest; then one of both at half and double the rate, and under Xavier."""
    task = "substring_by_prefix"
    pair = [Cell(task, position, seed, "paper") for seed in range(5) for position in PAIR]
    rest = [Cell(task, p, seed, "paper") for seed in range(3) for p in REST if seed < 2 or p == REST[0]]
    others = ("train.lr=1.25e-4", "train.lr=5e-4", "model.init=xavier")
    return pair + rest + [Cell(task, position, 0, "paper", (other,)) for other in others for position in PAIR]


def literal() -> list[Cell]:
    """One seed of RoPE and RoPER."""
    settings = ("train.steps=65000", "eval.every=1000")
    return [Cell("substring_by_prefix", position, 0, "paper", settings) for position in PAIR]


def schemes() -> list[Cell]:
    """Every scheme of conf/position/, 5 seeds."""
    return [Cell(task, p, seed, "quick") for seed in range(5) for task in TASKS[:2] for p in every_scheme()]


def every_scheme() -> list[str]:
    return sorted(path.stem for path in (config.CONF / "position").glob("*.yaml"))


def rotations() -> list[Cell]:
    """The nine rows of Su's comparison (blog no. 10862), 5 seeds: how many times q, k, v and the output are rotated."""
    named = [(scheme, ()) for scheme in (*PAIR, "value_rope", "none")]
    rotated = ("q=0", "k=0", "v=1", "q=0 k=0 v=1", "q=0 k=0 o=-1")  # unlike RoPE, which has q=1 k=1 v=0 o=0
    others = [("rope", tuple(f"position.{setting}" for setting in row.split())) for row in rotated]
    return [Cell(TASKS[0], scheme, seed, "quick", row) for seed in range(5) for scheme, row in named + others]


def linear() -> list[Cell]:
    """Linear attention, 5 seeds."""
    setting = ("model.attention=linear",)
    return [Cell(t, p, seed, "quick", setting) for seed in range(5) for t in TASKS[:2] for p in ("none", *PAIR)]


def lengths() -> list[Cell]:
    """Index and Addition, 3 seeds."""
    others = ("none", "sinusoidal", "alibi", "t5_bias", "rope_partial", "randomized_rope")
    tasks = ("substring_by_index", "arithmetic_addition")
    return [Cell(task, p, seed, "length") for seed in range(3) for task in tasks for p in (*PAIR, *others)]


def fast_pairs() -> list[Cell]:
    """Shares of the eight pairs in which values and output are rotated, and their base, 5 seeds.

    With base 100 eight pairs have the wavelengths, 2π · 1.78ⁱ positions, that the write-up's sixteen have with 10,000.
    The fastest pair alone, a share of 0.125, has the same wavelength whatever the base.
    """
    shares = [(f"position.value_fraction={share}",) for share in (0.125, 0.25, 0.5)]
    fast = [("roper_fast", row) for row in (*shares, *((*share, "position.value_base=100") for share in shares[1:]))]
    beside = [(scheme, ()) for scheme in (*PAIR, "value_rope")]
    return [Cell(t, p, seed, "quick", row) for seed in range(5) for t in TASKS[:2] for p, row in beside + fast]


def pope() -> list[Cell]:
    """5 seeds."""
    positions = (*PAIR, "pope", "pope_roper")
    return [Cell(task, p, seed, "quick") for seed in range(5) for task in TASKS[:2] for p in positions]


def indirect() -> list[Cell]:
    """8 seeds of RoPE, RoPER, PoPE, both of them and rotated values alone; then 3 of every other scheme."""
    first = (*PAIR, "pope", "value_rope", "pope_roper")
    rest = [p for p in every_scheme() if p not in first]
    task = "indirect_indexing"
    cells = [Cell(task, position, seed, "quick") for seed in range(8) for position in first]
    return cells + [Cell(task, position, seed, "quick") for seed in range(3) for position in rest]


def planned(study: studies.Study) -> list[Cell]:
    """The planned runs of a study of results/plan.yaml."""
    settings = tuple(f"{key}={value}" for key, value in study.settings.items())
    return [Cell(study.task, scheme, seed, study.scale, settings) for scheme, seed in study.cells]


TABLES = {f.__name__: f for f in (quick, paper, reduced, prefix, literal, schemes, rotations, linear, lengths)}
TABLES |= {f.__name__: f for f in (fast_pairs, pope, indirect)}
TABLES |= {study.name: partial(planned, study) for study in studies.load()}


def run_all(cells: list[Cell], extra: list[str], jobs: int, minutes: float) -> None:
    """Starts what has not finished, `jobs` at a time, for as long as there is time; a signal or its end stops them.

    So does the end of this process, however it comes.
    """
    threads = max(1, (os.cpu_count() or 1) // jobs)
    waiting = [cell for cell in cells if not is_finished(cell, extra)]
    end, running = time.monotonic() + 60 * minutes, []
    environment = os.environ | {LAUNCHER: str(os.getpid())}
    with Stop() as stopping:
        while running or waiting:
            running = [process for process in running if process.poll() is None]
            time_is_up = time.monotonic() > end
            if stopping.caught or time_is_up:
                if time_is_up:
                    print("the time is up: runs that are under way save themselves and stop", flush=True)
                for process in running:
                    process.terminate()
                for process in running:
                    process.wait()
                return
            while waiting and len(running) < jobs:
                settings = [f"threads={threads}", *waiting.pop(0).overrides(), *extra]
                command = [sys.executable, "-m", "rope_lab.train", *settings]
                # Ctrl-C reaches this process alone
                running.append(subprocess.Popen(command, env=environment, start_new_session=True))
            time.sleep(0.2)


def is_finished(cell: Cell, extra: list[str]) -> bool:
    """Whether the run has come to its end before; divergence is an end too."""
    content = content_of(cell, extra)
    return content is not None and content["status"] in ("finished", "diverged")


def settings_of(cell: Cell, extra: list[str]) -> config.Config:
    """The configuration of the cell's run. Raises ConfigError."""
    return replace(_composed(replace(cell, seed=0), *extra), seed=cell.seed)


@functools.cache  # a tenth of a second each
def _composed(cell: Cell, *extra: str) -> config.Config:
    return resolve(config.load(*cell.overrides(), *extra))


def content_of(cell: Cell, extra: list[str]) -> dict | None:
    """What the cell's run.json says, if there is one."""
    cfg = settings_of(cell, extra)
    return read(config.out_folder(cfg) / config.identity(cfg).run_name)


def unkept(cells: list[Cell], extra: list[str], folder: Path) -> list[Cell]:
    """The cells of which the kept rows in `folder`, and in the folders in it, hold no finished run."""
    kept = [run for path in (folder, *folder.glob("*/")) for run in read_kept(path)[0]]
    finished = {run.run_id for run in kept if run.status == "finished"}
    return [cell for cell in cells if config.identity(settings_of(cell, extra)).run_id not in finished]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="parallel runs (default: one per core)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so long, with checkpoints")
    parser.add_argument("--list", action="store_true", help="run nothing, only list what is missing")
    parser.add_argument("--unkept", action="store_true", help="skip runs that results/ keeps as finished")
    parser.add_argument(
        "--kept", type=Path, default=config.ROOT / "results", metavar="FOLDER", help="for --unkept, instead of results/"
    )
    parser.add_argument("overrides", nargs="*", help="settings for all runs, for example wandb.mode=disabled")
    given = parser.parse_intermixed_args()
    if given.jobs < 1:
        parser.error(f"--jobs {given.jobs}: must be at least 1")
    cells = TABLES[given.table]()
    chosen = {setting.partition("=")[0] for cell in cells for setting in cell.overrides()}
    for override in given.overrides:
        if override.lstrip("+~").partition("=")[0] in chosen:
            parser.error(f"{override}: the table says which runs there are")
    try:
        if given.unkept:
            whole, cells = cells, unkept(cells, given.overrides, given.kept)
            print(f"{len(whole) - len(cells)} of {len(whole)} runs are kept in {given.kept.name}/ and left out")
        if not given.list:
            run_all(cells, given.overrides, given.jobs, given.minutes)
        contents = {cell: content_of(cell, given.overrides) for cell in cells}
    except (ConfigError, HydraException) as error:
        sys.exit(str(error).splitlines()[0])
    missing = [cell for cell, content in contents.items() if not content or content["status"] != "finished"]
    for cell in missing:
        content = contents[cell]
        how = f"{content['status']} at step {content['progress']['steps']}" if content else "not begun"
        print(f"missing: {' '.join(cell.overrides())} ({how})")
    rest = "; the same command again runs the rest" if missing and not given.list else ""
    print(f"{len(cells) - len(missing)} of {len(cells)} runs have finished{rest}")
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
