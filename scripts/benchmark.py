"""How long things take: `python scripts/benchmark.py`. Compares within one run; medians and ranges.

So far: the table of 1,000 runs, from run folders and from the rows that are kept of them.
"""

import contextlib
import io
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from rope_lab.results import __main__ as results
from rope_lab.results import rows

RUNS, REPETITIONS = 1000, 5


def make_runs(folder: Path) -> None:
    """1,000 run folders of the size that the quick recipes leave: 10 schemes, 10 recipes, 10 seeds, 85 rows each."""
    rng = np.random.default_rng(0)
    for number in range(RUNS):
        recipe, scheme, seed = number // 100, number // 10 % 10, number % 10
        accuracy = float(rng.uniform())
        losses = {"train/loss": 1.0, "train/lr": 1e-3, "train/grad_norm": 1.0}
        evaluation = {"eval/loss": 1.0, "eval/accuracy": accuracy, "eval/token_accuracy": 0.5}
        lines = [
            {"step": step, "sequences": step, "tokens": step, "seconds": step}
            | losses
            | (evaluation if step % 50 == 0 else {})
            for step in range(0, 850, 10)
        ]
        content = {
            "status": "finished",
            "task": f"task{recipe}",
            "position": f"scheme{scheme}",
            "scale": "quick",
            "seed": seed,
            "run_id": str(number),
            "recipe_id": str(recipe),
            "parameters": 1,
            "config": {
                "task": {},
                "model": {},
                "position": {"q": scheme},
                "train": {"steps": 850, "batch_size": 32, "seq_len": 128},
                "eval": {"problems": 512},
            },
            "progress": {"steps": 850, "sequences": 1, "tokens": 1, "seconds": 1.0},
            "metrics": evaluation,
            "slices": {name: {str(v): [40, 0.5] for v in range(13)} for name in ("index", "suffix_length", "place")},
            "provenance": {
                "code": "c0de",
                "git": {"commit": "0", "dirty": False},
                "versions": {"torch": "2.13.0"},
                "hardware": {"device": "cpu", "name": "CPU", "threads": 1},
            },
        }
        path = folder / str(number)
        path.mkdir(parents=True)
        (path / "run.json").write_text(json.dumps(content, indent=2))
        (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def table_of(folder: Path) -> None:
    """What `python -m rope_lab.results FOLDER --print` does, but for starting Python."""
    with contextlib.redirect_stdout(io.StringIO()):
        results.main([str(folder), "--print"])


def compare(name: str, subjects: dict[str, Callable[[], None]]) -> None:
    """Times the subjects in turn, several times over, and prints a row for each."""
    seconds = {subject: [] for subject in subjects}
    for _ in range(REPETITIONS):
        for subject, action in subjects.items():
            begun = time.perf_counter()
            action()
            seconds[subject].append(time.perf_counter() - begun)
    for subject, times in seconds.items():
        print(f"{name}, {subject}: {median(times):.2f} s ({min(times):.2f} to {max(times):.2f})")


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folders, kept = Path(place) / "runs", Path(place) / "kept"
        make_runs(folders)
        kept.mkdir()
        rows.keep(rows.read(folders)[0], kept)
        compare(
            f"table of {RUNS:,} runs",
            {"run folders": lambda: table_of(folders), "kept rows": lambda: table_of(kept)},
        )


if __name__ == "__main__":
    main()
