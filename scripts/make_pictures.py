"""Draw the picture at the top of README.md from kept runs: `python scripts/make_pictures.py`."""

from dataclasses import replace
from pathlib import Path

from rope_lab.files import write_whole
from rope_lab.results import studies
from rope_lab.results.folders import read
from rope_lab.results.groups import group
from rope_lab.results.published import Published
from rope_lab.results.views import pair, render, series
from rope_lab.results.views.panels import titled

ROOT = Path(__file__).resolve().parents[1]
FOLDER, STUDY = ROOT / "results" / "confirm", "prefix_values"
THEMES = {"light": render.CLEAR, "dark": render.DARK}


def picture() -> pair.alt.HConcatChart:
    """Loss of RoPE and RoPER on Prefix at paper scale: the planned comparison."""
    published = Published()
    runs, _ = read(FOLDER)
    planned, _ = studies.with_runs(studies.of_rows(FOLDER), runs)
    here = next(g for g in group(runs, published, planned) if g.study == STUDY)
    schemes = list(published.pair)[::-1]
    panel = series.over_training(here, here.metric, schemes)
    pairs = here.pairs(*published.pair)
    points = panel.points[panel.points.seed.isin(pairs.index)]
    points = points.assign(y=points.y + here.optimum)
    panel = replace(panel, points=points, y="loss, nats per letter", log=False, untrained=False)
    gap = f"{-here.difference(pairs).mean:.3f} lower on average"
    return pair.pair(titled(panel, published), "Copying text: held-out loss", here.optimum, gap)


if __name__ == "__main__":
    for theme, settings in THEMES.items():
        write_whole(ROOT / "docs" / f"prefix-{theme}.svg", render.svg(picture(), settings))
