"""A program that imports rope_lab and has a package `tasks` of its own."""

import os
import subprocess
import sys
from pathlib import Path

from conftest import ROOT

PROGRAM = {
    "tasks/__init__.py": "WHOSE = 'theirs'",
    "theirs/__init__.py": """
import os, signal, sys
def state():
    streams = sys.stdout, sys.stderr, sys.excepthook
    return *streams, signal.getsignal(signal.SIGINT), dict(os.environ), list(sys.path)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell ignores it
before = state()
import rope_lab
assert state() == before
""",
    "theirs/train.py": """
import os, signal, tasks, time
from rope_lab.tasks.substring_by_index import SubstringByIndex
from theirs import before, state
assert tasks.WHOSE == "theirs"
assert state() == before
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(9)
except KeyboardInterrupt:
    print("stopped")
finally:
    print("saved")
import theirs.missing
""",
}
FITTING = """
import multiprocessing, os, sys, rope_lab, tasks, wandb
assert tasks.WHOSE == "theirs"
settings = sys.argv[1:]
def fit(seed):
    return rope_lab.fit(*settings, seed=seed, out="runs").record["status"]
run = wandb.init(mode="offline", settings=wandb.Settings(silent=True))
hooks, environment = (sys.exit, sys.excepthook), dict(os.environ)
print(fit(0))
assert (sys.exit, sys.excepthook) == hooks
assert dict(os.environ) == environment
assert wandb.run is run
wandb.log({"loss": 1})
run.finish()
with multiprocessing.get_context("fork").Pool(1) as pool:
    try:
        pool.apply_async(fit, [1]).get(60)
    except RuntimeError as error:
        print(error)
"""


def write_program(folder: Path) -> None:
    for name, source in {**PROGRAM, "fitting.py": FITTING}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(source)


def call(folder: Path, *words: str, python: str | Path = sys.executable, path: str = str(ROOT)):
    environment = os.environ | {"PYTHONPATH": path, "MPLBACKEND": "agg"}
    return subprocess.run(
        [python, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


def check_program(done: subprocess.CompletedProcess) -> None:
    assert done.stdout.split() == ["stopped", "saved"], done.stderr
    assert "Traceback" in done.stderr
    assert "No module named 'theirs.missing'" in done.stderr
