"""Runs killed with SIGKILL at random moments (`make torture`) must end like uninterrupted runs."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from conftest import TINY, only_folder
from trained import assert_same_end

from rope_lab.train import checkpoint, run_folder

pytestmark = pytest.mark.torture

KILLS = 50
STEPS = ["train.steps=2500", "train.warmup=1500", "eval.every=100", "wandb.mode=disabled"]
CELLS = [
    ["task=substring_by_index", "position=roper"],
    ["task=substring_by_prefix", "position=learned", "model.dropout=0.1"],
    ["task=arithmetic_addition", "task.digits=1", "position=rope", "train.decay=cosine"],
]


def command(cell: list[str], out: Path) -> list[str]:
    return [sys.executable, "-m", "rope_lab.train", *TINY, *STEPS, *cell, f"out={out}"]


def test_runs_killed_at_random_end_with_the_same_numbers(tmp_path):
    """SIGKILL at a random time between process start and its usual end, repeatedly."""
    random, kills, lost = Random(0), 0, []
    for number, cell in enumerate(CELLS):
        began = time.monotonic()
        subprocess.run(
            command(cell, tmp_path / "whole" / str(number)), check=True, capture_output=True
        )
        lasts = time.monotonic() - began
        while kills < KILLS * (number + 1) // len(CELLS):
            out = tmp_path / "killed" / str(kills)
            while kills < KILLS * (number + 1) // len(CELLS):
                process = subprocess.Popen(
                    command(cell, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                try:
                    process.wait(random.uniform(0, lasts))
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                    kills += 1
                    process.wait()
                    saved = [
                        path for folder in out.glob("*") for path in checkpoint.checkpoints(folder)
                    ]
                    lost.append(max((int(path.name.split("-")[1]) for path in saved), default=0))
                else:
                    break
            done = subprocess.run(command(cell, out), capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            assert done.stderr == ""
            folder = only_folder(out)
            assert_same_end(only_folder(tmp_path / "whole" / str(number)), folder)
            assert not list(folder.glob("*.tmp"))
            assert run_folder.read(folder)["status"] == "finished"
    print(f"{kills} kills, the steps that stood in the last checkpoint after each: {lost}")
    assert len({step for step in lost if step}) > 5  # the kills were spread over the runs
