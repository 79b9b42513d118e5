"""Paths of files beside the package, in a checkout or installed, and of results."""

from pathlib import Path

HERE = Path(__file__).resolve().parent
BUNDLE = (
    HERE / "bundle"
)  # in a wheel: conf/, tasks/ and the files of results/ that the program reads
IN_CHECKOUT = not BUNDLE.is_dir()
ROOT = HERE.parent if IN_CHECKOUT else BUNDLE
RESULTS = (ROOT if IN_CHECKOUT else Path()) / "results"
OWN = "mine"  # within RESULTS: the user's own kept runs, not in git
