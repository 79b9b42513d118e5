"""The plans that were frozen in a folder of comparisons, append-only: ten tries look like ten."""

import json
from contextlib import suppress
from pathlib import Path

from rope_lab.results.plans.names import recorded_name
from rope_lab.results.plans.study import Study
from rope_lab.text import Record

TRIES = "tries.jsonl"
Tries = list[Record]  # as `add` writes them


def add(folder: Path, study: Study) -> None:
    """Note that a plan is frozen in `folder`; once, although the program may be killed before the
    plan's file is written.
    """
    (seeds, *_) = study.seeds.values()
    line = {
        "folder": folder.name,
        "schemes": [*study.pair],
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


def read(parent: Path) -> Tries:
    """Every try in a folder of comparisons, in the order of their plans; a torn line is none."""
    path = parent / TRIES
    tries = []
    for line in path.read_text("utf-8").splitlines() if path.is_file() else []:
        with suppress(ValueError):
            tries.append(json.loads(line))
    return tries


def of_folder(folder: Path) -> Tries:
    """The tries of one comparison's folder."""
    return [line for line in read(folder.parent) if line["folder"] == folder.name]


def of_question(tries: Tries, schemes: set[str], task: str) -> Tries:
    """Those of these two schemes on a task, by their recorded names. A task of the user's own may
    have been another file of that name.
    """
    found = []
    for line in tries:
        if ({*line["schemes"]}, recorded_name(line["task"])) == (schemes, task):
            found.append(line)
    return found


def digests(tries: Tries) -> set[str]:
    """Those of their plans."""
    return {line["digest"] for line in tries}


def seeds(tries: Tries) -> set[int]:
    """All seeds of their plans."""
    return {seed for line in tries for seed in line["seeds"]}
