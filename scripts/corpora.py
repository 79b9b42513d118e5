"""Large corpora for scripts/benchmark.py: how long until the first batch, for the first time and again; and memory."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from timing import Watch, most_memory, table
from tqdm import tqdm

from rope_lab.train import config, data
from tasks.corpus import locate

SIZE = 10**9  # bytes
KINDS = ("bytes", "characters", "bpe")
AGAIN = 5


def corpus(watch: Watch, _: argparse.Namespace) -> str:
    """1 GB of text (the sources of Python's standard library, repeated) until its first batch, imports not counted.

    First without a cache, then again, five times, each time in a process of its own; with the memory that it took, and
    the rate at which batches of 8 × 256 tokens follow.
    """
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "corpus.txt"
        write(path)
        shown = tqdm(total=len(KINDS) * (1 + AGAIN), desc="corpus", leave=False, dynamic_ncols=True)
        for kind in KINDS:
            found = []
            for _ in range(1 + AGAIN):
                found.append(in_its_own_process(path, kind, Path(folder) / "cache"))
                shown.update()
            first, again = found[0], [each["seconds"] for each in found[1:]]
            lines.append(
                [
                    kind,
                    f"{first['seconds']:.3g}",
                    f"{median(again):.3g} ({min(again):.3g} to {max(again):.3g})",
                    str(first["MiB"]),
                    str(max(each["MiB"] for each in found[1:])),
                    f"{first['tokens'] / 1e6:,.0f}",
                    f"{median(each['rate'] for each in found) / 1e6:.2g}",
                ]
            )
    head = ["tokens", "first time, s", "again, s", "memory, MiB", "again, MiB", "million tokens", "million tokens/s"]
    return table(head, lines)


def write(path: Path) -> None:
    """Writes SIZE bytes of UTF-8 text."""
    text = b"".join(file.read_bytes() for file in locate(None)).decode(errors="ignore").encode()
    with path.open("wb") as out:
        for at in range(0, SIZE, len(text)):
            out.write(text[: SIZE - at].decode(errors="ignore").encode())


def in_its_own_process(path: Path, kind: str, cache: Path) -> dict:
    """What `read` finds. Raises CalledProcessError."""
    command = [sys.executable, __file__, str(path), kind]
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    return json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)


def read(path: str, kind: str) -> dict:
    """Seconds until a corpus' first batch, and MiB of peak memory; tokens of its training part; tokens/s after that."""
    before, began = most_memory(), time.perf_counter()
    cfg = config.load("task=text", f"task.path={path}", f"task.tokens={kind}", "scale=reduced")
    made, t = config.build_task(cfg), cfg.train
    data.training_batch(made, 0, 0, t.batch_size, t.seq_len)
    found = {"seconds": time.perf_counter() - began, "MiB": (most_memory() - before) // 1024}
    seconds = []
    for k in range(1, 201):
        began = time.perf_counter()
        data.training_batch(made, 0, k, t.batch_size, t.seq_len)
        seconds.append(time.perf_counter() - began)
    return found | {"tokens": len(made.tokens.training), "rate": t.batch_size * t.seq_len / median(seconds)}


if __name__ == "__main__":
    print(json.dumps(read(*sys.argv[1:])))
