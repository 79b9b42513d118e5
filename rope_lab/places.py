"""Paths of files beside the package, in a checkout or installed, and of results."""

from pathlib import Path

HERE = Path(__file__).resolve().parent
BUNDLE = HERE / "bundle"  # in a wheel: conf/, tasks/ and the files of results/ that the program reads
IN_CHECKOUT = not BUNDLE.is_dir()
ROOT = HERE.parent if IN_CHECKOUT else BUNDLE
RESULTS = (ROOT if IN_CHECKOUT else Path()) / "results"


def newest_run(folder: Path) -> Path | None:
    """A run folder near `folder`, which is not one: the one around it, else the newest; None if there is none."""
    if (folder.parent / "run.json").is_file():
        return folder.parent
    places = [folder, folder / "runs", folder / "results" / "runs"] if folder.is_dir() else [folder.parent]
    records = [path for place in places for path in place.glob("*/run.json") if path.is_file()]
    return max(records, key=lambda path: path.stat().st_mtime).parent if records else None
