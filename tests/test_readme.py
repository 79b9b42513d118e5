"""README and docs: links resolve, numbers match the records, tables and pins are complete."""

import math
import re
import runpy
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, SCHEMES, TASKS
from printed import is_rounded

from rope_lab.places import RESULTS
from rope_lab.results.comparisons.words import plan_word
from rope_lab.results.plans import evidence, outcomes
from rope_lab.results.plans.study import Plan, from_yaml
from rope_lab.results.records import folders
from rope_lab.results.records.catalogue import Catalogue

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("**/*.md")),
    *sorted((ROOT / "results").glob("**/*.md")),
]
LINK = re.compile(r"(?:\]\(|src=\"|srcset=\")([^)#\s\"]+)(?:#[\w-]+)?[)\"]")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    targets = [
        target
        for target in LINK.findall(page.read_text())
        if "://" not in target and "/actions/" not in target
    ]
    assert [target for target in targets if not (page.parent / target).exists()] == []


def planned_results(plans: Sequence[Path] = (RESULTS / "plan.yaml",)) -> list:
    """The result of every primary comparison of these plans whose runs have ended."""
    with pytest.MonkeyPatch.context() as patch:  # a clone without history shows no plan
        patch.setattr(evidence, "flaws", lambda *_: [])
        of_plans = [outcomes.read(plan, Catalogue())[0] for plan in plans]
    results = [result for studies in of_plans for of_study in studies for result in of_study]
    return [each for each in results if each.family.is_primary and not each.family.untested]


def is_printed(result, texts: tuple[str, ...], in_points: bool = False) -> bool:
    """Whether `texts` are a difference, without its sign, and its interval, rounded as printed;
    in_points: in percentage points.
    """
    d = result.difference
    exact = [d.mean, d.low, d.high] if d.mean > 0 else [-d.mean, -d.high, -d.low]
    if in_points and "%" not in result.measure.unit:
        exact = [100 * end for end in exact]
    if result.measure.at == "log steps":
        exact = [math.exp(end) for end in (d.mean, d.low, d.high)]
    return all(map(is_rounded, texts, exact))


@pytest.mark.claims
def test_each_row_of_the_readme_is_a_planned_result():
    row = r"^\|.*\| \**(\w+)\** \| ([\d.]+)([^|(]*)\(([−\d.]+) to ([\d.]+)\) \| (\d+) \|"
    rows = re.findall(row, (ROOT / "README.md").read_text(), re.M)
    results = planned_results([RESULTS / "plan.yaml", *RESULTS.glob("compare/*/plan.yaml")])
    assert len(rows) == 24
    for verdict, mean, words, low, high, seeds in rows:
        printed = mean, low, high
        same = [each for each in results if is_printed(each, printed, "points" in words)]
        (result,) = [result for result in same if result.difference.n == int(seeds)]
        assert plan_word(result) == verdict, printed
        says_below = "lower" in words or ("times" in words and float(mean) < 1)
        assert says_below == (result.difference.mean < 0) or not float(mean), printed


def at_its_own_scale(folder: str, task: str, metric: str, step: int) -> dict[str, list[float]]:
    """A metric at a step of each seed's longest run that is kept, for RoPE and RoPER."""
    longest = {}
    runs, _ = folders.read(RESULTS / folder)
    for run in sorted(runs, key=lambda run: run.steps):
        if (run.task, run.scale) == (task, "paper") and step in dict(run.points(metric)):
            longest[run.position, run.seed] = dict(run.points(metric))[step]
    shared = {seed for scheme, seed in longest if scheme == "rope"}
    return {scheme: [longest[scheme, seed] for seed in shared] for scheme in ("rope", "roper")}


@pytest.mark.claims
def test_the_write_ups_rows_are_published_and_of_kept_runs():
    pair = r"([\d.]+), ([\d.]+)"
    row = rf"^\| \[(Prefix|Index|Addition)\].*?\| {pair}[^|]*\| {pair}[^|]*\| (\d+) \|"
    rows = re.findall(row, (ROOT / "README.md").read_text(), re.M)
    sources = {
        "Prefix": ("confirm", "substring_by_prefix", "eval/loss", 4096, 1),
        "Index": ("own_scale", "substring_by_index", "eval/accuracy", 400, 128),
        "Addition": ("own_scale", "arithmetic_addition", "eval/accuracy", 700, 128),
    }
    published = yaml.safe_load((RESULTS / "published.yaml").read_text())["tasks"]
    assert [name for name, *_ in rows] == list(sources)
    for name, *printed, seeds in rows:
        folder, task, metric, step, times = sources[name]
        said = [published[task]["published"][scheme][0] for scheme in ("rope", "roper")]
        measured = at_its_own_scale(folder, task, metric, step)
        means = [times * sum(values) / len(values) for values in measured.values()]
        for text, number in zip(printed, [*map(float, said), *means], strict=True):
            assert is_rounded(text, number), name
        assert [len(values) for values in measured.values()] == [int(seeds)] * 2


@pytest.mark.claims
def test_separate_values_of_the_readme_are_planned():
    text = (ROOT / "README.md").read_text().partition("Separate values in a cache")[2]
    said = re.findall(r"(0\.\d{3}) \((0\.\d{3}) to (0\.\d{3})\)", text.partition("\n\n")[0])
    assert len(said) == 2
    for printed in said:
        assert any(is_printed(result, printed) for result in planned_results())


@pytest.mark.claims
def test_planned_outcomes_on_the_results_page_match_the_plan():
    page = (ROOT / "results" / "README.md").read_text().partition("## Planned\n")[2]
    row = r"\*\*(\w+)\*\*: ([\d.]+)[^(|]*\(([−\d.]+) to ([\d.]+), p = ([\d.]+)"
    rows = re.findall(row, page.partition("\n## ")[0])
    results = planned_results()
    assert len(rows) == len(results)
    for verdict, *printed, p in rows:
        digits = len(p.partition(".")[2])
        same = [
            plan_word(result)
            for result in results
            if is_printed(result, printed)
            and abs(float(p) - result.p_family) <= 0.5001 * 10**-digits
        ]
        assert same == [verdict], printed


@pytest.mark.claims
@pytest.mark.parametrize("page", ["README.md", "results/benchmark.md"])
def test_tables_of_schemes_are_those_of_the_code(page):
    """If not, run `python scripts/scheme_tables.py`."""
    made = runpy.run_path(str(ROOT / "scripts" / "scheme_tables.py"))
    assert (ROOT / page).read_text() == made["rewritten"](page)


@pytest.mark.claims
def test_the_readmes_tables_have_every_scheme_and_task():
    text = (ROOT / "README.md").read_text()
    assert sorted(re.findall(r"\(docs/schemes/(\w+)\.md\)", text)) == SCHEMES
    rows = re.findall(r"^\| \[(`.*?`)\]", text, re.M)
    assert sorted(name for row in rows for name in re.findall(r"\w+", row)) == TASKS


def test_every_dependency_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(d for extra in project["optional-dependencies"].values() for d in extra),
    ]
    names = {re.match(r"[\w-]+", requirement)[0].lower() for requirement in wanted} - {
        project["name"]
    }
    pinned = (ROOT / "constraints.txt").read_text().lower()
    assert [name for name in names if f"\n{name}==" not in pinned] == []


def test_the_plan_in_the_docs_is_a_plan():
    text = (ROOT / "docs" / "questions.md").read_text()
    text = re.search(r"```yaml\n(studies:.*?)```", text, re.DOTALL)[1]
    (study,) = from_yaml(Plan, text, "plan.yaml").studies.values()
    assert study.cells[:2] == [("./mine.py", 20), ("rope", 20)]
