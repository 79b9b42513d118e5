"""The same table of runs by each of Hydra's launchers, for scripts/benchmark.py."""

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from timing import Watch, table
from tqdm import tqdm

from rope_lab.train import config

QUICK = "train.steps=150 eval.every=75 eval.problems=64"
START = "train.steps=1 eval.every=1 eval.problems=64"
TINY = (
    "model.d_model=16 model.n_layers=1 model.n_heads=2 train.batch_size=4 train.seq_len=64 train.steps=1 eval.every=1 "
    "eval.problems=8 eval.sequences=2"
)


def launchers(watch: Watch, given: argparse.Namespace) -> str:
    """24 quick runs of Index by each launcher: RoPE and RoPER, twelve seeds, 150 steps on one thread each.

    "Start-up" is the same table with one step a run. "Numbers" are all metrics of all runs, beside those of `basic`.
    Then 500 tiny runs of one step.
    """
    watch.busy = None  # who else works here works for us
    shown = tqdm(leave=False, bar_format="{desc} {elapsed}")
    found, rows, numbers = available(given.ray), [], {}
    for name, words in found.items():
        seconds, numbers[name] = timed(shown, name, words, 24, QUICK)
        start, _ = timed(shown, name, words, 24, START)
        same = "the same" if numbers[name] == numbers["basic"] else "others"
        rows.append([name, f"{seconds:.0f}", f"{start:.0f}", same])
    tiny = []
    for name in ("basic", *(name for name in found if name.startswith("ray"))):
        seconds, _ = timed(shown, name, found[name], 500, TINY)
        tiny.append([name, f"{seconds:.0f}", f"{seconds / 500:.2f}"])
    shown.close()
    many = table(["launcher", "500 tiny runs, s", "s a run"], tiny)
    return f"{table(['launcher', '24 runs, s', 'start-up, s', 'numbers'], rows)}\n\n{many}"


def available(ray: str | None) -> dict[str, list[str]]:
    """The settings for each launcher that is installed here; `ray` is the address of a cluster."""
    found = {name: [f"hydra/launcher={name}"] for name in ("basic", "joblib")}
    if importlib.util.find_spec("ray"):
        found["ray"] = ["hydra/launcher=ray"]
        if ray:
            found["ray, by address"] = ["hydra/launcher=ray", f"hydra.launcher.ray.init.address={ray}"]
    if importlib.util.find_spec("submitit"):
        found["submitit_local"] = ["hydra/launcher=submitit_local"]
        if shutil.which("sbatch"):
            found["submitit_slurm"] = ["hydra/launcher=submitit_slurm"]
    return found


def timed(shown: tqdm, name: str, words: list[str], runs: int, settings: str) -> tuple[float, dict[str, list[dict]]]:
    """Seconds that a table of so many runs takes, and the metrics of each."""
    shown.set_description(f"{name}, {runs} runs, {settings.partition(' ')[0]}")
    with tempfile.TemporaryDirectory() as place:
        seeds = f"0-{runs // 2 - 1}"
        block = {"task": "substring_by_index", "scale": "quick", "seeds": {"rope": seeds, "roper": seeds}}
        (Path(place) / "runs.yaml").write_text(json.dumps({"about": "launchers", "blocks": [block]}))
        common = ["threads=1", "device=cpu", "wandb.mode=disabled", "train.log_every=25", f"out={place}/runs"]
        command = [sys.executable, str(config.ROOT / "scripts" / "table.py"), f"{place}/runs.yaml"]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        begun = time.perf_counter()
        done = subprocess.run(
            [*command, *words, *common, *settings.split()], cwd=place, env=environment, capture_output=True, text=True
        )
        seconds = time.perf_counter() - begun
        metrics = {path.parent.name: without_clock(path) for path in Path(place).glob("runs/*/metrics.jsonl")}
    if done.returncode or len(metrics) != runs:
        sys.exit(f"{name}: {len(metrics)} of {runs} runs, status {done.returncode}: {done.stderr[-2000:]}")
    return seconds, metrics


def without_clock(path: Path) -> list[dict]:
    records = map(json.loads, path.read_text().splitlines())
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]
