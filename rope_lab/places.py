"""Where the package finds what stands beside it, from its checkout or installed, and where results go."""

from pathlib import Path

HERE = Path(__file__).resolve().parent
BUNDLE = HERE / "bundle"  # in a wheel: conf/, tasks/ and what the program reads of results/
IN_CHECKOUT = not BUNDLE.is_dir()
ROOT = HERE.parent if IN_CHECKOUT else BUNDLE
RESULTS = (ROOT if IN_CHECKOUT else Path()) / "results"
