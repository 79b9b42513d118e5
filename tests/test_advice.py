"""The box "Should I use it?" agrees with the kept records, also on the page of results."""

import math
import re
from dataclasses import replace

import pytest
from builders import PUBLISHED, make_rows
from conftest import ROOT

from rope_lab.results.plans import evidence, families
from rope_lab.results.records.folders import read
from rope_lab.results.records.setups import setups_of
from rope_lab.results.views import advice
from rope_lab.results.views.verdicts import verdicts

KEPT = ROOT / "results"


@pytest.fixture(scope="module")
def planned():
    with pytest.MonkeyPatch.context() as patch:  # a clone without history shows no plan
        patch.setattr(evidence, "problems", lambda *_: [])
        return families.read(KEPT / "plan.yaml", PUBLISHED)[0]


@pytest.fixture(scope="module")
def box(planned):
    groups = setups_of(read(KEPT)[0], PUBLISHED)
    return advice.section(groups, verdicts(groups, planned, PUBLISHED), planned, PUBLISHED)


def test_every_use_has_an_answer_of_planned_tests(box):
    said = {row["for"]: row["answer"] for row in box.table.rows}
    answers = {"copying": "yes", "a language model": "shown in 4 of 6 tests"}
    assert said == answers | {"looking up by index": "shown in 2 of 3 tests", "adding": "not shown"}
    assert "try RoPER for copying." in box.sentences[0]
    assert (
        "For copying: yes, +0.0427 nats per copied letter (13%) at 0.6M parameters." in box.details
    )
    (text,) = (line for line in box.details if "language" in line)
    # Other studies of this text have smaller models.
    assert "(0.51%) at 0.8M parameters, own learning rates" in text
    (sooner,) = (line for line in box.details if "looking up" in line)
    assert (
        ", 0.86 times the steps at 1.2M parameters, steps to half right, train.lr=0.0002" in sooner
    )


@pytest.mark.parametrize(("shift", "alike"), [(0.0, True), (0.1, False)])
def test_schemes_not_told_from_the_best_are_named_beside_it(shift, alike):
    # Differences near 0 with a standard deviation of 0.03.
    best, other = (
        [0.60, 0.62, 0.61],
        [0.62, 0.58, 0.6],
    )
    runs = make_rows({"rope": [value - shift for value in other], "roper": best})
    (said,) = advice.best(setups_of(runs, PUBLISHED), PUBLISHED)
    assert "Best mean of 2 schemes on Substring by Index, reduced: RoPER, 78.1 correct" in said
    assert ("not distinguishable from it: RoPE" in said) == alike


def test_schemes_without_common_seeds_are_not_compared():
    other = [replace(run, seed=run.seed + 3) for run in make_rows({"rope": [0.6, 0.6, 0.6]})]
    (said,) = advice.best(
        setups_of(make_rows({"roper": [0.60, 0.62, 0.61]}) + other, PUBLISHED), PUBLISHED
    )
    assert "Best mean of 2 schemes" in said
    assert "not distinguishable" not in said


def test_the_best_scheme_is_of_the_runs_of_all_folders():
    runs = read(KEPT)[0] + read(KEPT / "fast_pairs")[0]
    (said,) = (
        line
        for line in advice.best(setups_of(runs, PUBLISHED), PUBLISHED)
        if "Substring by Prefix" in line
    )
    assert "quick: RoPER in the fast pairs, " in said
    assert "not distinguishable from it: RoPER" in said


@pytest.mark.claims
def test_the_gains_in_the_box_are_those_of_planned_tests(planned):
    page = (KEPT / "README.md").read_text().partition("## Should I use")[2].partition("\n## ")[0]
    said = set(
        re.findall(r"([\d.]+)[^(;|]*\(([−\d.]+) to ([\d.]+)\)", page.partition("- **Cost**")[0])
    )
    gains = set()
    for result in (result for results in planned for result in results):
        d = result.difference
        for ends in ((d.mean, d.low, d.high), (-d.mean, -d.high, -d.low)):
            gains |= {
                tuple(f"{end:.{digits}f}".replace("-", "−") for end in ends) for digits in (0, 3)
            }
        if result.measure.at == "log steps":
            gains.add(tuple(f"{math.exp(end):.2f}" for end in (d.mean, d.low, d.high)))
    assert len(said) >= 5
    assert said <= gains
