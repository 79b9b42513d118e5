"""Paths of files beside the package, in a checkout or installed, and of results."""

from pathlib import Path

HERE = Path(__file__).resolve().parent
BUNDLE = HERE / "bundle"  # in a wheel: conf/ and the files of results/ that the program reads
IN_CHECKOUT = not BUNDLE.is_dir()
ROOT = HERE.parent if IN_CHECKOUT else BUNDLE
CONF = ROOT / "conf"
TASKS = (ROOT if IN_CHECKOUT else HERE) / "tasks"
RESULTS = (ROOT if IN_CHECKOUT else Path()) / "results"
SETUP = (
    f"in {ROOT}: `make setup` once, then `source .venv/bin/activate`"
    if IN_CHECKOUT
    else "install it with pip"
)
RUNS = "runs"  # within RESULTS, and within the folder of a comparison: run folders
OWN = "mine"  # within RESULTS: the user's own kept runs, not in git
