"""Every page below results/ and the unrounded number behind every comparison, rebuilt from kept
runs.

After a change of kept runs, `python tests/test_kept_numbers.py` rewrites numbers.json.
"""

import functools
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, script, slow_except

from rope_lab import plan, power, probe
from rope_lab.results import __main__ as results
from rope_lab.results.comparisons import grids as sweeps
from rope_lab.results.comparisons import score_columns as columns
from rope_lab.results.comparisons.answers import answered, samples
from rope_lab.results.comparisons.unplanned import between
from rope_lab.results.comparisons.words import plan_word, word
from rope_lab.results.plans import evidence, outcomes
from rope_lab.results.plans import study as studies
from rope_lab.results.plans.setups import setups_of_folders
from rope_lab.results.records import kept
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.folders import read
from rope_lab.results.records.setups import setups_of
from rope_lab.results.views import advice
from rope_lab.results.views.headlines import headlines, kind, label, published_gains
from rope_lab.scoring import board, scores

checks = script("published_beside_ours")
comparisons = script("verdicts")

RESULTS = ROOT / "results"
NUMBERS = Path(__file__).with_name("numbers.json")
# The rows of a comparison's search have no page: its verdict is below.
SEARCHES = {*RESULTS.glob("compare/*/search/runs.jsonl")}
ROWS = {*RESULTS.glob("**/runs.jsonl")} - SEARCHES
FOLDERS = sorted(str(path.parent.relative_to(ROOT)) for path in ROWS)
# Planned runs, depths by length, text by length; make test-slow rebuilds all the others.
FAST = [f"results/{name}" for name in ("confirm", "needle", "text_lengths")]
REPORTS = sorted((RESULTS / "probes").glob("*.json"))
DIGITS = 13


@pytest.fixture(autouse=True)
def fast(undrawn, monkeypatch):
    """Draw no figure, and check each kept line once per process."""
    monkeypatch.setattr(checks, "figure", lambda *drawn: b"")
    monkeypatch.setattr(kept, "_from_line", checked_line)
    monkeypatch.setattr(evidence, "flaws", lambda *_: [])  # git does not know a copy


checked_line = functools.cache(kept._from_line)


@pytest.fixture(scope="module")
def whole_copy(tmp_path_factory) -> Path:
    """A copy of results/ without its figures and run folders."""
    leave = shutil.ignore_patterns("figures", "runs", "*.html")
    return shutil.copytree(RESULTS, tmp_path_factory.mktemp("copied") / "results", ignore=leave)


@pytest.fixture
def copied(whole_copy) -> Iterator[Path]:
    """The copy of results/, whose pages are put back afterwards."""
    yield whole_copy
    before = pages(RESULTS)
    for name in changed(whole_copy):
        (whole_copy / name).write_bytes(before[name])


def pages(folder: Path) -> dict[str, bytes]:
    """All pages below results/ or its copy, but for those of run folders."""
    found = {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.md")
    }
    return {name: page for name, page in found.items() if not name.startswith("runs/")}


def changed(copied: Path) -> list[str]:
    """The pages of the copy that differ from those of results/, or are missing."""
    now = pages(copied)
    return [name for name, page in pages(RESULTS).items() if now.get(name) != page]


def emptied(page: Path) -> None:
    """Remove what is generated from a page."""
    head, begin, rest = page.read_text("utf-8").partition("<!-- generated from here -->")
    _, end, tail = rest.partition("<!-- to here -->")
    page.write_text(head + begin + end + tail if begin else "", "utf-8")


@pytest.mark.parametrize("folder", slow_except(FAST, FOLDERS))
def test_pages_of_kept_runs_are_rebuilt_byte_for_byte(folder, copied):
    here = copied.parent / folder
    for page in here.glob("*.md"):
        if b"<!-- generated from here -->" in page.read_bytes():
            emptied(page)
    results.main([str(here)])
    assert changed(copied) == []


@pytest.mark.slow
def test_the_page_of_the_plan_is_rebuilt_byte_for_byte(copied):
    (copied / "plan.md").unlink()
    plan.main([str(copied / "plan.yaml")])
    assert changed(copied) == []


@pytest.mark.slow
def test_the_page_of_scores_is_rebuilt_byte_for_byte(copied):
    (copied / "scores.md").unlink()
    scores.main([str(copied)])
    assert changed(copied) == []


@pytest.mark.slow
def test_the_board_is_rebuilt_byte_for_byte(copied, monkeypatch):
    monkeypatch.setattr(board, "RESULTS", copied)
    monkeypatch.setattr(board, "BOARD", copied / "board")
    (copied / "board.md").unlink()
    board.write()
    assert changed(copied) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [each.parent.name for each in RESULTS.glob("compare/*/verdict.md")]
)
def test_verdicts_are_rebuilt_byte_for_byte(name, copied):
    """By the same command, from the rows that a clone has."""
    folder = copied / "compare" / name
    (folder / "verdict.md").unlink()
    comparisons.rebuild(folder)
    assert changed(copied) == []


@pytest.mark.slow
def test_the_page_of_published_checks_is_rebuilt_byte_for_byte(copied, monkeypatch):
    monkeypatch.setattr(checks, "RESULTS", copied)
    (copied / "checks.md").unlink()
    checks.main()
    assert changed(copied) == []


def test_pages_of_probes_are_rebuilt_byte_for_byte(copied):
    for path in REPORTS:
        (copied / "probes" / path.name).with_suffix(".md").unlink()
    probe.main([str(copied / "probes" / path.name) for path in REPORTS])
    assert changed(copied) == []


# The unrounded numbers


def rounded(value):
    """A number with DIGITS significant digits, as JSON; also of lists and dictionaries."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else str(float(value))


def interval(found) -> list[float]:
    return [found.mean, found.low, found.high, found.n]


def of_plan() -> dict:
    """Of each planned test: p, p corrected, difference, means, who is ahead and the word."""
    found = {}
    for of_study in outcomes.read(studies.PLAN, Catalogue())[0]:
        for result in of_study:
            if result.family.untested:
                continue
            primary, asked = result.family.is_primary, result.comparison
            name = f"{result.family.study.name}, {'primary' if primary else 'secondary'}"
            arms = f"{asked.ours.scheme} − {asked.theirs.scheme}"
            numbers = [result.p, result.p_family, *interval(result.difference), *result.means]
            numbers += [result.ahead, plan_word(result) if primary else ""]
            found[f"{name}: {asked.name}, {arms}"] = numbers
    return found


@functools.cache
def grouped(folder: str) -> list:
    catalogue = Catalogue(compares=not studies.of_rows(ROOT / folder))
    runs, _ = read(ROOT / folder)
    return setups_of_folders({ROOT / folder: runs}, catalogue)[0]


def of_folder(folder: str) -> dict:
    """Of each scheme of each recipe: difference from the baseline with p, and steps to thresholds;
    of each sweep, its cells and the difference of the best ones; of each verdict, all.
    """
    found, setups = {}, grouped(folder)
    for setup in setups:
        for scheme in setup.schemes:
            name = f"{setup.task} {setup.scale} {setup.recipe_id} {setup.study} {scheme}"
            found[f"{name}: values"] = list(setup.of(scheme).value)
            for threshold, measure in setup.report.thresholds.items():
                found[f"{name}: {threshold}"] = list(samples(setup.arm(scheme), measure).value)
            if scheme in setup.others:
                result = answered(between(setup, scheme, setup.catalogue.baseline))
                found[f"{name}: difference"] = [*interval(result.difference), result.p]
    for sweep in sweeps.find(setups):
        for scheme, table in sweep.scores.items():
            name = f"{sweep.title} {sweep.recipe_id}: {scheme}"
            found[name] = [table.mean().to_list(), sweep.best[scheme]]
    catalogue = setups[0].catalogue
    studied, _ = outcomes.read(ROOT / folder / studies.NAME, catalogue)
    for result in headlines(setups, studied, catalogue):
        name = f"{result.comparison.task}, {label(result)}, {kind(result)}, {result.measure.metric}"
        numbers = [*interval(result.gain), *result.means, result.p_family, word(result)]
        found[name] = [*numbers, published_gains(result, catalogue), result.seeds]
    return found


def of_scores() -> dict:
    """Of each cell of the page of scores: the score of each seed, and whether a rate was chosen."""
    runs = [run for folder in FOLDERS for run in read(ROOT / folder)[0]]
    setups = setups_of(runs, Catalogue())
    found = {}
    for column in (columns.column(setup, setups) for setup in columns.widest(setups)):
        for scheme, values in column.scores.items():
            found[f"{column.title}, {scheme}"] = [list(values), scheme in column.searched]
    return found


def of_questions() -> dict:
    """The box of advice, and the spreads of the power calculation."""
    setups, catalogue = grouped("results"), Catalogue()
    studied, _ = outcomes.read(studies.PLAN, catalogue)
    box = advice.section(headlines(setups, studied, catalogue), catalogue)
    found = {f"advice: {row['for']}": list(row.values()) for row in box.table.rows}
    found |= {"advice": box.sentences}
    for setup in setups:
        for scheme, differences in power.differences(setup).items():
            name = f"power: {setup.task} {setup.scale} {setup.recipe_id} {scheme}"
            found[name] = list(differences)
    return found


def numbers_of(part: str) -> dict:
    """The numbers of a folder, or of one of the other parts."""
    other = {"plan": of_plan, "scores": of_scores, "questions": of_questions}
    return rounded(other[part]() if part in other else of_folder(part))


PARTS = [*FOLDERS, "plan", "scores", "questions"]


@pytest.mark.slow  # the pages show these numbers, rounded
@pytest.mark.parametrize("part", PARTS)
def test_every_unrounded_number_is_unchanged(part):
    every = json.loads(NUMBERS.read_text("utf-8"))
    kept_numbers = {k: v for k, v in every.items() if k.startswith(f"{part}; ")}
    numbers = {f"{part}; {k}": json.loads(json.dumps(v)) for k, v in numbers_of(part).items()}
    assert {k: v for k, v in numbers.items() if v != kept_numbers.get(k)} == {}
    assert numbers.keys() == kept_numbers.keys()


if __name__ == "__main__":
    kept_numbers = {f"{part}; {k}": v for part in PARTS for k, v in numbers_of(part).items()}
    lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in kept_numbers.items()]
    NUMBERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
