"""The seeds of every run that is known here, as far as a comparison asks."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from rope_lab.results.records.kept import KEPT
from rope_lab.results.records.run import DAMAGE


def known_seeds(folders: Iterable[Path], task: str, scale: str, plan: str = "") -> set[int]:
    """The seeds of all runs of a task and scale below some folders; of those that cannot be read
    none.

    plan: the digest of one whose runs do not count
    """
    seeds = set()
    for folder in folders:
        for content in _contents(folder):
            try:
                record = json.loads(content)
                own = record.get("plan") or record["provenance"].get("plan")
                is_asked = (record["task"], record["scale"]) == (task, scale)
                if is_asked and not (plan and own == plan):
                    seeds.add(record["seed"])
            except DAMAGE:
                continue
    return seeds


def _contents(folder: Path) -> Iterator[bytes]:
    """Each kept line and each run.json below a folder."""
    for path in folder.rglob(KEPT):
        yield from path.read_bytes().splitlines()
    for path in folder.rglob("run.json"):
        yield path.read_bytes()
