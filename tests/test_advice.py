"""The box "Should I use it?": what it says is what the kept records say, on the page of results too."""

import re

import pytest
from conftest import ROOT

from rope_lab.results import advice, load, outcomes
from rope_lab.results.folders import read
from rope_lab.results.groups import group
from rope_lab.results.published import Published
from rope_lab.results.verdicts import verdicts

KEPT, PUBLISHED = ROOT / "results", Published()


@pytest.fixture(scope="module")
def planned():
    return outcomes.of_folder(KEPT)[0]


@pytest.fixture(scope="module")
def box(planned):
    groups = group(read(KEPT)[0], PUBLISHED)
    return advice.section(groups, verdicts(groups, planned, PUBLISHED), planned, PUBLISHED)


def test_every_use_has_an_answer_of_planned_tests(box):
    answers = {row["for"]: row["answer"] for row in box.shown[0].rows}
    assert answers == {"a language model": "yes, on some", "copying": "yes", "looking up and adding": "not shown"}
    assert "try RoPER for copying. Elsewhere" in box.sentences[0]


def test_the_best_scheme_of_shakespeare_is_named_with_its_number(box):
    runs = load(KEPT / "text")
    means = runs[(runs.metric == "eval/loss") & (runs.scale == "quick")].groupby("scheme").value.mean()
    (said,) = (line for line in box.sentences if "Shakespeare" in line)
    assert means.idxmin() == "pope"
    assert f"Best of {len(means)} schemes" in said
    assert f"PoPE, {means.min():.4f} nats" in said


def test_the_gains_of_the_box_on_the_page_are_those_of_the_planned_tests(planned):
    page = (KEPT / "README.md").read_text().partition("## Should I use")[2].partition("\n## ")[0]
    said = set(re.findall(r"([\d.]+)[^(;|]*\(([−\d.]+) to ([\d.]+)\)", page.partition("- **Cost**")[0]))
    gains = set()
    for v in verdicts([], planned, PUBLISHED):
        for digits in (0, 3):
            ends = (f"{end:.{digits}f}".replace("-", "−") for end in (v.gain.mean, v.gain.low, v.gain.high))
            gains.add(tuple(ends))
    assert len(said) >= 4
    assert said <= gains
