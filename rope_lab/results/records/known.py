"""Every run that is known here, as far as a comparison asks."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rope_lab.results.records.kept import KEPT
from rope_lab.results.records.run import DAMAGE


class Known(NamedTuple):
    """A run; plan: as in `Run`."""

    task: str
    scale: str
    seed: int
    plan: str


def known_runs(folder: Path) -> Iterator[Known]:
    """The kept runs and run folders below a folder; those that cannot be read are left out."""
    for path in sorted(folder.rglob(KEPT)):
        for line in path.read_bytes().splitlines():
            yield from _known(line)
    for path in sorted(folder.rglob("run.json")):
        yield from _known(path.read_bytes())


def _known(content: bytes) -> Iterator[Known]:
    try:
        record = json.loads(content)
        plan = record.get("plan") or record["provenance"].get("plan") or ""
        yield Known(record["task"], record["scale"], record["seed"], plan)
    except DAMAGE:
        return
