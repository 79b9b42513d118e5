"""Builders of synthetic run folders and runs for the tests of results, and readers of the printed
tables.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from rope_lab import shipped as settings
from rope_lab.files import as_json, sealed
from rope_lab.identity import NUMERICS, identify
from rope_lab.results import __main__ as results
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.run import Run
from rope_lab.text import flat, nested

CATALOGUE = Catalogue()
STEPS = [0, 50, 100]
ROPE, ROPER = [0.50, 0.60, 0.55, 0.40], [0.80, 0.97, 0.75, 0.75]


def shipped(scheme: str) -> dict[str, Any]:
    """The settings of a scheme in conf/position/, or made-up ones if it is not there."""
    return nested(settings.shipped(f"position/{scheme}")) or {"_target_": "Mine", "q": 1}


def make_run(out: Path, scheme: str, seed: int, last: float, **changes: Any) -> Path:
    """A run folder of substring_by_index that ends with accuracy `last`.

    `recipe` makes it a run of another recipe. Its ids follow from its settings; the folder's name
    has `name` instead.
    """
    recipe, name = changes.pop("recipe", None), changes.pop("name", f"{scheme}-{seed}")
    settings = {
        "train": {"steps": 100, "batch_size": 4, "seq_len": 64, "decay": "none"},
        "eval": {"problems": 512, "every": 50},
    }
    content = {
        "status": "finished",
        "task": "substring_by_index",
        "position": scheme,
        "scale": "quick",
        "seed": seed,
        "parameters": 1000,
        "config": settings
        | {"task": {"string_length": 13}, "model": {"d_model": 16}, "position": shipped(scheme)},
        "progress": {"steps": 100, "sequences": 400, "tokens": 25600, "seconds": 1.5},
        "metrics": {"eval/accuracy": last, "eval/score": round(128 * last), "eval/loss": 1 - last},
        "slices": {
            "index": {"0": [200, last], "1": [312, last]},
            "answer_position": {"1": [10, 0.5]},
        },
        "floor": {"loss": 0.0, "answer_position": {"1": [10, 0.0]}},
        "provenance": {
            "numerics": NUMERICS,
            "plugin": {},
            "git": {"commit": "0123456789abcdef", "dirty": False},
            "versions": {"torch": "2.13.0"},
            "hardware": {"device": "cpu", "name": "CPU", "threads": 1},
        },
    }
    for path, value in changes.items():
        node, keys = content, path.split("__")
        for key in keys[:-1]:
            node = node[key]
        node[keys[-1]] = value
    if recipe:
        content["config"]["task"] = content["config"]["task"] | {"letters": recipe}
    recorded = content["config"] | {"device": content["provenance"]["hardware"]["device"]}
    identity = identify(content["task"], content["position"], content["seed"], recorded)
    content |= {"run_id": identity.run_id, "recipe_id": identity.recipe_id}
    folder = out / f"{scheme}-s{seed}-{name}"
    folder.mkdir(parents=True)
    (folder / "run.json").write_bytes(as_json(sealed(content)))
    lines = [
        {"step": s, "eval/accuracy": last * s / 100, "eval/loss": 1 - last * s / 100} for s in STEPS
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def make_pairs(out: Path, rope: list[float], roper: list[float], **changes: Any) -> Path:
    """Fill `out` with a run of RoPE and one of RoPER for each seed; returns `out`."""
    for seed, pair in enumerate(zip(rope, roper, strict=True)):
        for scheme, last in zip(("rope", "roper"), pair, strict=True):
            make_run(out, scheme, seed, last, **changes)
    return out


def make_probes(folder: Path, layers: int, heads: int) -> dict[str, Any]:
    """Write probes into a run folder, as `rope-lab probe` does; returns their attention."""
    maps = [[[[1.0, 0.0], [0.5, 0.5]]] * heads] * layers
    attention = {"by_distance": [[[0.75, 0.25]] * heads] * layers, "maps": maps, "every": 1}
    about = {
        "task": "substring_by_index",
        "scale": "quick",
        "position": "rope",
        "seed": 0,
        "run": {},
        "probe": {},
        "attention": attention,
    }
    outcomes = [{"probe": "", "loss": 1.0, "accuracy": 0.5}]
    (folder / "probes.json").write_text(json.dumps(about | {"outcomes": outcomes}))
    return attention


def make_row(
    scheme: str, seed: int, curve: list[float], metric: str = "eval/accuracy", **changes: Any
) -> Run:
    """A run evaluated at steps 0, 100, 200, …; its ids follow from its task and the given
    settings.
    """
    given = changes.pop("settings", {})
    name = re.sub(r"\W", "_", "_".join(map(str, [changes.get("task", ""), *given.values()])))[:40]
    sizes = {"train.steps": 500, "train.batch_size": 1, "train.seq_len": 10, "eval.problems": 8}
    own = {
        f"position.{k}": v
        for k, v in changes.pop("position_settings", flat(shipped(scheme))).items()
    }
    run = Run(
        task="substring_by_index",
        scale="reduced",
        recipe_id=f"r{name}",
        position=scheme,
        seed=seed,
        run_id=f"{scheme}{seed}{name}",
        status="finished",
        steps=500,
        sequences=500,
        tokens=5000,
        seconds=1.0,
        parameters=10,
        numerics=NUMERICS,
        plugin={},
        commit="0123456789ab",
        torch="2.13",
        hardware="CPU",
        threads=1,
        metrics={metric: curve[-1]},
        settings=sizes | {"train.lr": 1e-4, "device": "cpu"} | given | own,
        curves={metric: [[100 * i for i in range(len(curve))], curve]},
        slices={},
        floor={},
    )
    return replace(run, **changes)


def make_rows(ends: dict[str, list[float]], **changes: Any) -> list[Run]:
    """A run for each scheme and seed; ends: the last value of each curve."""
    return [
        make_row(s, seed, [end] * 2, **changes)
        for s, each in ends.items()
        for seed, end in enumerate(each)
    ]


def shown(capsys, *folders: Path) -> str:
    """Output of `rope-lab results --print`, without bold type and the spaces that align tables."""
    results.main([*map(str, folders), "--print"])
    return re.sub(" +", " ", capsys.readouterr().out.replace("**", ""))


def table_rows(text: str) -> list[dict[str, str]]:
    """The rows of every table, keyed by column head."""
    rows, head = [], None
    for line in text.splitlines():
        cells = (
            [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if line.startswith("|")
            else None
        )
        if cells and head and not set(line) <= set("|- "):
            rows.append(dict(zip(head, cells, strict=True)))
        head = (head or cells) if cells else None
    return rows


def headings(text: str) -> list[str]:
    return re.findall("^## (.*)", text, re.M)


def row(text: str, first: str) -> dict[str, str]:
    """The first row with this first cell: the verdict of a task, or the means of a scheme."""
    return next(each for each in table_rows(text) if next(iter(each.values())) == first)
