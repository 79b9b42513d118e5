"""README and docs: links resolve, numbers match the records, tables and pins are complete."""

import math
import re
import runpy
import tomllib

import pytest
from conftest import ROOT, SCHEMES, TASKS

from rope_lab.results.comparisons.words import plan_word, word
from rope_lab.results.plans import families
from rope_lab.results.plans.study import Plan, from_yaml
from rope_lab.results.records.catalogue import Published
from rope_lab.results.views.verdicts import verdicts

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
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


@pytest.mark.claims
def test_the_readmes_answers_are_those_of_planned_tests():
    """Each gain in the table, with its interval and seeds, matches a verdict with the expected
    word.
    """
    rows = [
        line
        for line in (ROOT / "README.md").read_text().splitlines()
        if re.match(r"\| (Does|Is) its? ", line)
    ]
    said = re.findall(
        r"([\d.]+)[^(;|]*\(([−\d.]+) to ([\d.]+)\)[^;|]*[;,] (\d+) seeds", " ".join(rows)
    )
    found = verdicts([], families.read(ROOT / "results" / "plan.yaml", Published())[0], Published())
    gains = {}
    for v in found:
        if word(v) in ("yes", "no", "unsure"):
            digits = 0 if v.measure.share else 3
            ends = [
                f"{end:.{digits}f}".replace("-", "−")
                for end in (v.gain.mean, v.gain.low, v.gain.high)
            ]
            if v.measure.at == "log steps":  # of steps: their ratio
                ends = [f"{math.exp(-end):.2f}" for end in (v.gain.mean, v.gain.high, v.gain.low)]
            gains[(*ends, str(v.gain.n))] = word(v)
    assert len(rows) == 5
    assert len(said) == 8
    assert [gains[each] for each in said] == [
        "yes",
        "yes",
        "yes",
        "unsure",
        "yes",
        "unsure",
        "unsure",
        "yes",
    ]


@pytest.mark.claims
def test_what_the_readme_says_of_keys_as_values_is_planned():
    (row,) = (
        line
        for line in (ROOT / "README.md").read_text().splitlines()
        if line.startswith("| If values are")
    )
    said = re.findall(r"(0\.\d{3})\D+?\((0\.\d{3}) to (0\.\d{3})\)", row)
    studies = {
        results[0].family.study.name: results
        for results in families.read(ROOT / "results" / "plan.yaml", Published())[0]
    }
    on_text, with_muon, on_python = (
        [r.difference for r in studies[f"kv_{name}"] if r.family.corrected]
        for name in ("searched", "muon", "python")
    )
    shown = (on_text[0], with_muon[0], on_python[0], on_text[2], with_muon[2])
    assert said == [tuple(f"{-end:.3f}" for end in (d.mean, d.high, d.low)) for d in shown]


@pytest.mark.claims
def test_planned_outcomes_on_the_results_page_match_the_plan():
    """Each row matches exactly one planned result with its verdict, difference, interval and p,
    rounded as printed.
    """
    page = (
        (ROOT / "results" / "README.md")
        .read_text()
        .partition("## Planned\n")[2]
        .partition("\n## ")[0]
    )
    rows = re.findall(r"\*\*(\w+)\*\*: ([\d.]+)[^(|]*\(([−\d.]+) to ([\d.]+), p = ([\d.]+)", page)
    results = [
        result
        for of_study in families.read(ROOT / "results" / "plan.yaml", Published())[0]
        for result in of_study
        if result.family.corrected and not result.family.untested
    ]
    assert len(rows) == len(results)
    for verdict, *printed in rows:
        digits = [len(text.partition(".")[2]) for text in printed]
        numbers = [float(text.replace("−", "-")) for text in printed]

        def same(result, numbers=numbers, digits=digits) -> bool:
            d = result.difference
            exact = (d.mean, d.low, d.high) if d.mean > 0 else (-d.mean, -d.high, -d.low)
            if result.measure.at == "log steps":
                exact = [math.exp(end) for end in (d.mean, d.low, d.high)]
            pairs = zip(numbers, (*exact, result.p_family), digits, strict=True)
            return all(abs(a - b) <= 0.5001 * 10**-n for a, b, n in pairs)

        assert [plan_word(result) for result in results if same(result)] == [verdict], printed


@pytest.mark.claims
@pytest.mark.parametrize("page", ["README.md", "results/benchmark.md"])
def test_tables_of_schemes_are_those_of_the_code(page):
    """If not, run `python scripts/scheme_tables.py`."""
    made = runpy.run_path(str(ROOT / "scripts" / "scheme_tables.py"))
    assert (ROOT / page).read_text() == made["rewritten"](page)


@pytest.mark.claims
def test_the_readmes_tables_have_every_scheme_and_task():
    text = (ROOT / "README.md").read_text()
    assert sorted(re.findall(r"^\| `(\w+)` \|", text, re.M)) == SCHEMES
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
