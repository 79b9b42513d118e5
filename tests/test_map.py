"""The page of twenty schemes on nine tasks, against the runs beside it."""

import pytest
from conftest import ROOT

from rope_lab.results.comparisons.stats import t_interval
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.kept import read_kept

FOLDER = ROOT / "results" / "map"
RATES = (1e-3, 2e-3, 4e-3)


@pytest.mark.claims
def test_the_table_of_recall_has_the_means_of_its_rows():
    catalogue, scores = Catalogue(), {}
    for run in read_kept(FOLDER)[0]:
        if run.task == "mqar":
            name = run.position, run.settings["train.lr"]
            scores.setdefault(name, []).append(100 * run.metrics["eval/accuracy"])
    text = (FOLDER / "README.md").read_text("utf-8")
    for scheme in {scheme for scheme, _ in scores}:
        cells = []
        for rate in RATES:
            assert len(scores[scheme, rate]) == 3
            cells.append(f"{t_interval(scores[scheme, rate]).mean:.1f}")
        assert f"| {catalogue.title(scheme)} | {' | '.join(cells)} |\n" in text
