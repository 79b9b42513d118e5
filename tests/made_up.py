"""Run folders by the thousand, made up in a moment each, to see what a folder of so many costs.

`PYTHONPATH=. python tests/made_up.py OUT`: five tasks × 10 recipes × 16 schemes × 25 seeds, which are 20,000.
"""

import argparse
import copy
import functools
import json
import math
import random
from itertools import product
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from rope_lab.files import as_json, digest, sealed
from rope_lab.identity import identify
from rope_lab.places import ROOT
from rope_lab.shipped import shipped
from rope_lab.text import nested

CONF = ROOT / "conf"
SCHEMES = sorted(
    (path.stem for path in (CONF / "position").glob("*.yaml")), key=lambda s: (not s.startswith("rope"), s)
)
TASKS = sorted(path.stem for path in (CONF / "task").glob("*.yaml"))


def make(out: Path, tasks: int = 1, recipes: int = 1, schemes: int = 2, seeds: int = 2, records: int = 100) -> int:
    """Writes a run folder into `out` for each of so many tasks, recipes, schemes and seeds; how many these are.

    records: lines of metrics.jsonl of each, of which every fifth is an evaluation too
    """
    out.mkdir(parents=True, exist_ok=True)
    cells = list(product(TASKS[:tasks], range(recipes), SCHEMES[:schemes], range(seeds)))
    for task, recipe, scheme, seed in cells:
        content, metrics = _run(task, 1e-4 * (1 + recipe), scheme, seed, records)
        folder = out / f"{task}-{scheme}-s{seed}-{content['run_id']}"
        folder.mkdir()
        (folder / "metrics.jsonl").write_bytes(metrics)
        (folder / "run.json").write_bytes(as_json(sealed(content | {"digests": {"metrics.jsonl": digest(metrics)}})))
    return len(cells)


def _run(task: str, lr: float, scheme: str, seed: int, records: int) -> tuple[dict[str, Any], bytes]:
    rng = random.Random(f"{task} {lr} {scheme} {seed}")
    lines = [_record(10 * i, rng.random(), 10 * records, i % 5 == 0 or i == records) for i in range(records + 1)]
    metrics = "".join(json.dumps(line) + "\n" for line in lines).encode()
    content = copy.deepcopy(BODY)
    config = content["config"]
    config["task"], config["position"] = _yaml("task", task), _yaml("position", scheme)
    config["train"] |= {"steps": 10 * records, "lr": lr}
    config["seed"], config["names"] = seed, {"task": task, "position": scheme, "scale": "reduced"}
    identity = identify(task, scheme, seed, config | {"device": "cpu"})
    ids = {"run_id": identity.run_id, "recipe_id": identity.recipe_id, "scheme_id": identity.scheme_id}
    last = {name: value for line in lines for name, value in line.items() if "/" in name}
    tokens = 40 * 64 * 10 * records
    progress = {"steps": 10 * records, "sequences": tokens // 64, "tokens": tokens, "seconds": 100 + rng.random()}
    told = {"status": "finished", **ids, "task": task, "position": scheme, "scale": "reduced", "seed": seed}
    return told | content | {"progress": progress, "checkpoint": progress["steps"], "metrics": last}, metrics


def _record(step: int, chance: float, steps: int, is_evaluated: bool) -> dict[str, float]:
    """A metric record: a loss that falls, an accuracy that rises."""
    done = step / steps
    loss = 3.3 * math.exp(-2 * done) + 0.1 * chance
    record = {"step": step, "sequences": 32 * step, "tokens": 4096 * step, "seconds": 200 * done}
    record |= {"train/loss": loss, "train/lr": 1e-3, "train/grad_norm": 1 + chance}
    right = {
        "eval/accuracy": done * chance,
        "eval/score": round(128 * done * chance),
        "eval/sum_accuracy": done * chance**0.5,
    }
    return record | ({"eval/loss": loss, **right} if is_evaluated else {})


@functools.cache
def _yaml(group: str, name: str) -> dict[str, Any]:
    return nested(shipped(f"{group}/{name}"))


_config = OmegaConf.to_container(OmegaConf.load(CONF / "config.yaml"))
_slice = {str(value): [30 + value, value / 20] for value in range(16)}
BODY: dict[str, Any] = {
    "config": {"device": "cpu", "threads": 1} | {part: _config[part] for part in ("model", "train", "eval", "wandb")},
    "floor": {"loss": 0.0, "answer_position": {value: [count, 0.0] for value, (count, _) in _slice.items()}},
    "parameters": 151_000,
    "provenance": {
        "code": "c0de",
        "git": {"commit": "0123456789abcdef", "dirty": False},
        "command": "python -m rope_lab.train",
        "versions": {"python": "3.13.1", "torch": "2.13.0"},
        "hardware": {"device": "cpu", "name": "CPU", "cores": 2, "threads": 1},
        "start": "2026-01-01T00:00:00+00:00",
        "end": "2026-01-01T00:03:20+00:00",
        "earlier": [],
    },
    "slices": {"answer_position": _slice, "index": _slice, "suffix_length": _slice},
    "samples": [{"prompt": "abc?", "answer": "d", "completion": "d", "right": True}] * 8,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    for name, value in {"tasks": 5, "recipes": 10, "schemes": 16, "seeds": 25, "records": 100}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    given = vars(parser.parse_args())
    print(make(given.pop("out"), **given), "run folders")


if __name__ == "__main__":
    main()
