"""The plans that were frozen in a folder of comparisons, append-only: ten tries look like ten."""

import json
from pathlib import Path
from typing import Any

from rope_lab.results.plans.study import Study, run_name

TRIES = "tries.jsonl"


def add(folder: Path, study: Study) -> None:
    """Note that a plan is frozen in `folder`; once, although the program may be killed before the
    plan's file is written.
    """
    (seeds, *_) = study.seeds.values()
    schemes = [run_name(scheme.split()[0]) for scheme in study.seeds]
    line = {
        "folder": folder.name,
        "schemes": schemes,
        "task": study.task,
        "scale": study.scale,
        "seeds": seeds,
        "code": study.code,
        "digest": study.digest,
    }
    if line in read(folder.parent):
        return
    with open(folder.parent / TRIES, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def read(parent: Path) -> list[dict[str, Any]]:
    """Every try in a folder of comparisons, in the order of their plans."""
    path = parent / TRIES
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    return [json.loads(line) for line in lines if line.startswith("{")]


def seeds(folder: Path, code: dict[str, str]) -> set[int]:
    """All seeds that were given to another plan than one of this folder and this code."""
    spent = set()
    for line in read(folder.parent):
        if (line["folder"], line["code"]) != (folder.name, code):
            spent |= {*line["seeds"]}
    return spent
