"""Draw the picture at the top of README.md from kept runs: `python scripts/make_pictures.py`."""

from dataclasses import replace
from pathlib import Path

from rope_lab.files import write_whole
from rope_lab.results.comparisons.families import between
from rope_lab.results.comparisons.results import answered
from rope_lab.results.plans import find
from rope_lab.results.plans import study as studies
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.folders import read
from rope_lab.results.views import pair, render, series
from rope_lab.results.views.panels import titled

ROOT = Path(__file__).resolve().parents[1]
FOLDER, STUDY = ROOT / "results" / "confirm", "prefix_values"
THEMES = {"light": render.CLEAR, "dark": render.DARK}


def picture() -> pair.alt.HConcatChart:
    """Loss of RoPE and RoPER on Prefix at paper scale: the planned comparison."""
    published = Published()
    runs, _ = read(FOLDER)
    planned, _ = find.with_runs(studies.of_rows(FOLDER), runs)
    setups = find.setups_with_studies(runs, published, planned)
    here = next(setup for setup in setups if setup.study == STUDY)
    schemes = list(published.pair)[::-1]
    panel = series.over_training(here, here.measure, schemes)
    result = answered(between(here, *published.pair))
    pairs = result.pairs
    points = panel.points[panel.points.seed.isin(pairs.index)]
    points = points.assign(y=points.y + here.optimum)
    panel = replace(panel, points=points, y="loss, nats per letter", log=False, untrained=False)
    gap = f"{-result.difference.mean:.3f} lower on average"
    return pair.pair(titled(panel, published), "Copying text: held-out loss", here.optimum, gap)


if __name__ == "__main__":
    for theme, settings in THEMES.items():
        write_whole(ROOT / "docs" / f"prefix-{theme}.svg", render.svg(picture(), settings))
