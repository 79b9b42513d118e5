"""The box "Should I use it?" agrees with the kept records, also on the page of results."""

import math
import re

import pytest
from builders import CATALOGUE
from conftest import ROOT

from rope_lab.results.plans import evidence, outcomes
from rope_lab.results.records.folders import read
from rope_lab.results.records.setups import setups_of
from rope_lab.results.views import advice
from rope_lab.results.views.headlines import headlines

KEPT = ROOT / "results"


@pytest.fixture(scope="module")
def planned():
    return results_of(KEPT / "plan.yaml")


def results_of(plan):
    """The results of each study of a plan."""
    with pytest.MonkeyPatch.context() as patch:  # a clone without history shows no plan
        patch.setattr(evidence, "flaws", lambda *_: [])
        return outcomes.read(plan, CATALOGUE)[0]


@pytest.fixture(scope="module")
def box(planned):
    groups = setups_of(read(KEPT)[0], CATALOGUE)
    return advice.section(headlines(groups, planned, CATALOGUE), CATALOGUE)


@pytest.mark.slow
def test_every_use_has_an_answer_of_planned_tests(box):
    said = {row["for"]: row["answer"] for row in box.table.rows}
    answers = {"copying": "yes", "a language model": "shown in 4 of 6 tests"}
    answers |= {"looking up by index": "shown in 2 of 3 tests", "adding": "shown in 0 of 2 tests"}
    assert said == answers
    assert box.sentences == ["Our advice: try RoPER for copying."]
    gains = {row["for"]: row["gain [95% interval]"] for row in box.table.rows}
    copying = "0.6M parameters: +0.0427 [+0.0299, +0.0554] nats per copied letter, confirmed"
    assert copying in gains["copying"]
    assert "0.8M parameters, own learning rates: " in gains["a language model"]
    sooner = "1.2M parameters, steps to half right, train.lr=0.0002: 0.86 [0.79, 0.95] times"
    assert sooner in gains["looking up by index"]


@pytest.mark.claims
def test_the_gains_in_the_box_are_those_of_planned_tests(planned):
    page = (KEPT / "README.md").read_text().partition("## Should I use")[2].partition("\n## ")[0]
    said = set(
        re.findall(r"([\d.]+)[^(;|]*\(([−\d.]+) to ([\d.]+)\)", page.partition("- **Cost**")[0])
    )
    gains = set()
    compared = KEPT / "compare" / "roper-rope-substring_by_prefix-quick" / "plan.yaml"
    every = [*planned, *results_of(compared)]
    for result in (result for results in every for result in results):
        d = result.difference
        for ends in ((d.mean, d.low, d.high), (-d.mean, -d.high, -d.low)):
            gains |= {
                tuple(f"{end:.{digits}f}".replace("-", "−") for end in ends) for digits in (0, 3)
            }
        if result.measure.at == "log steps":
            gains.add(tuple(f"{math.exp(end):.2f}" for end in (d.mean, d.low, d.high)))
    assert len(said) >= 5
    assert said <= gains
