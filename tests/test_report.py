"""The HTML report: page content, charts, and escaping of text from records."""

import base64
import functools
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
import yaml
from builders import make_pairs, make_probes, make_run, row

from rope_lab.places import ROOT
from rope_lab.report import __main__ as report
from rope_lab.report import figures as report_figures
from rope_lab.results import __main__ as results
from rope_lab.results.records import frame
from rope_lab.results.records.folders import read
from rope_lab.results.views import render

# Small folders, one of them planned: all would take half a minute.
PLANNED = ROOT / "results" / "content"
KEPT = [PLANNED, ROOT / "results" / "precision"]
EVIL = "</script><img src=x onerror=alert(1)>{{ 7 * 7 }}&amp;\u2028 **b** `c` \\| _d_"
UNDRAWN = pytest.mark.usefixtures("undrawn")
KEPT_PAGE = pytest.mark.xdist_group("kept page")  # one process builds it
DRAWN = pytest.mark.xdist_group("drawn page")


class Page(HTMLParser):
    """A parsed page: elements, texts, and the runs and charts in its data."""

    def __init__(self, path: Path):
        super().__init__()
        self.html = path.read_text("utf-8")
        self.elements: list[tuple[str, dict]] = []
        self.texts: list[str] = []
        self.feed(self.html)
        packed = re.search(r'id="data">(.*?)</script>', self.html)[1]
        data = json.loads(gzip.decompress(base64.b64decode(packed)))
        self.probed: list[list[dict]] = data["probed"]
        self.two_runs: dict[str, dict] = data["two_runs"]
        groups = [group for section in data["sections"] for group in section["groups"]]
        self.runs = [
            dict(zip(group["columns"], run, strict=True))
            for group in groups
            for run in group["runs"]
        ]
        self.settings: list[dict] = [group["settings"] for group in groups]
        self.titles: list[str] = [group["title"] for group in groups]
        self.charts: list[dict] = [chart for group in groups for chart in group["curves"]]

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.cdata_elem is None and data.strip():
            self.texts.append(data.strip())


def page_of(out: Path, *arguments: str | Path) -> Page:
    report.main([*map(str, arguments), "--out", str(out)])
    return Page(out)


def means(chart: dict) -> list[dict]:
    """The means of a chart of the page."""
    return [row for rows in chart["spec"]["datasets"].values() for row in rows if "low" in row]


@pytest.fixture(autouse=True, scope="module")
def bundled_once():
    """Cache the Vega bundle, which takes a second to build."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(render, "javascript", functools.cache(render.javascript))
        yield


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Page:
    """The page of KEPT, beside a plan of their own studies alone: the whole one reads all runs."""
    out = tmp_path_factory.mktemp("report")
    plan = yaml.safe_load((ROOT / "results" / "plan.yaml").read_text("utf-8"))["studies"]
    own = {name: study for name, study in plan.items() if study["rows"] == PLANNED.name}
    (out / "plan.yaml").write_text(yaml.safe_dump({"studies": own}))
    for folder in KEPT:
        shutil.copytree(folder, out / folder.name, ignore=shutil.ignore_patterns("figures"))
    return page_of(out / "kept.html", *(out / folder.name for folder in KEPT))


@pytest.fixture
def runs(tmp_path) -> Path:
    return make_pairs(tmp_path / "runs", [0.5, 0.6, 0.4], [0.8, 0.97, 0.75])


def missing(page: Page, folders: list[Path]) -> Counter:
    """Ids of the kept runs that are not on the page."""
    every = Counter(run.run_id for folder in folders for run in read(folder)[0])
    return every - Counter(run["run_id"] for run in page.runs)


@pytest.mark.slow
@KEPT_PAGE
def test_the_page_holds_every_kept_run(kept):
    assert not missing(kept, KEPT)


@pytest.mark.torture
def test_a_page_of_hundreds_of_runs_is_small(tmp_path):
    folders = [ROOT / "results" / "confirm", ROOT / "results" / "text"]
    page = page_of(tmp_path / "kept.html", *folders)
    assert not missing(page, folders)
    assert len(page.html) < 1_000_000


@pytest.mark.slow
@KEPT_PAGE
def test_a_page_asks_the_network_for_nothing(kept):
    policy = next(
        a["content"] for _, a in kept.elements if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith(
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
    )
    addresses = [
        v
        for _, a in kept.elements
        for key, v in a.items()
        if key in ("src", "href", "srcset", "action")
    ]
    assert addresses
    assert not [address for address in addresses if not address.startswith(("#", "data:"))]


@pytest.mark.slow
@KEPT_PAGE
def test_planned_comparisons_are_shown_without_differences(kept):
    (section,) = re.findall(
        rf'<h2>{PLANNED.name}</h2>.*?<details class="folder"', kept.html, re.DOTALL
    )
    assert "on the page of the plan only" in section
    heads = re.findall('<th scope="col">(.*?)</th>', section)
    assert "scheme" in heads
    assert not [
        name for name in heads if name == "p" or name.startswith(("−", "pairs", "sign-flip"))
    ]


@pytest.mark.slow
@KEPT_PAGE
def test_charts_hold_the_numbers_of_the_records(kept):
    """A learning curve above the Bayes-optimal loss, and the mean over seeds."""
    prefix = [run for run in read(KEPT[1])[0] if run.task == "substring_by_prefix"]
    run = next(run for run in prefix if run.position == "roper")
    found = [each for each in prefix if (each.recipe_id, each.position) == (run.recipe_id, "roper")]
    assert run.floor["loss"] > 0
    curve = frame.curve(run, "eval/loss") - run.floor["loss"]
    line = {
        "scheme": "RoPER",
        "seed": str(run.seed),
        "x": list(curve.index),
        "y": pytest.approx(list(curve), rel=1e-3),
    }
    chart = next(chart for chart in kept.charts if line in chart["runs"])
    mean = next(mean for mean in means(chart) if mean["scheme"] == "RoPER")
    last = pd.Series([each["y"][-1] for each in chart["runs"] if each["scheme"] == "RoPER"])
    assert mean["n"][-1] == len(last) == len(found)
    assert mean["y"][-1] == pytest.approx(last.mean(), rel=1e-3)
    assert mean["low"][-1] < mean["y"][-1] < mean["high"][-1]


@pytest.mark.slow
def test_the_same_records_make_the_same_bytes_in_any_process(runs, tmp_path):
    here, there = page_of(tmp_path / "here.html", runs), tmp_path / "there.html"
    command = [sys.executable, "-m", "rope_lab.report", str(runs), "--out", str(there)]
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert there.read_text("utf-8") == here.html


@pytest.mark.slow
def test_no_text_of_a_record_becomes_more_than_text(tmp_path):
    def made(text: str) -> Page:
        folder = make_pairs(
            tmp_path / text[:4].strip("</"), [0.5] * 2, [0.6] * 2, provenance__hardware__name=text
        )
        make_run(
            folder,
            "mine",
            0,
            0.5,
            config__model={"init": text},
            config__position={"_target_": "Mine", "q": text},
        )
        for seed in (1, 2):
            make_run(folder, "mine", seed, 0.5, config__position={"_target_": "Mine", "q": 2})
        (folder / "README.md").write_text(f"# {text}\n")
        return page_of(folder / "page.html", folder)

    plain, evil = made("harmless"), made(EVIL)
    assert [tag for tag, _ in evil.elements] == [tag for tag, _ in plain.elements]
    assert not [key for _, a in evil.elements for key in a if key.startswith("on")]
    assert EVIL.replace("\u2028", "\\u2028") in "".join(evil.texts)
    assert [
        row for chart in evil.charts for row in chart["runs"] if "</script><img" in row["scheme"]
    ]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory) -> Page:
    """The page of three runs of RoPE, one of them probed, and three of RoPER."""
    folder = tmp_path_factory.mktemp("drawn")
    made = make_pairs(folder / "runs", [0.5, 0.6, 0.4], [0.8, 0.97, 0.75])
    make_probes(made / "rope-s0-rope-0", 2, 1)
    return page_of(folder / "page.html", made)


@DRAWN
def test_a_probed_run_shows_attention_and_settings(drawn):
    (charts,) = drawn.probed
    assert [chart["title"] for chart in charts] == [
        f"Attention {kind}, layer {layer}" for layer in (1, 2) for kind in ("by distance", "maps")
    ]
    (line,) = charts[0]["spec"]["datasets"].values()
    assert [row["share"] for row in line] == [0.75, 0.25]
    assert ("div", {"class": "attention"}) in drawn.elements
    (settings,) = drawn.settings
    unlike = {key for key, value in settings["RoPE"].items() if settings["RoPER"][key] != value}
    assert unlike == {"position.v", "position.o"}


@pytest.mark.slow
def test_unfinished_runs_have_a_curve_but_no_mean(runs, tmp_path):
    make_run(runs, "rope", 7, 0.9, status="running", metrics={})
    page = page_of(tmp_path / "page.html", runs)
    data = page.charts[0]
    assert [row["scheme"] for row in data["runs"] if row["seed"] == "7"] == ["RoPE"]
    assert {n for row in means(data) for n in row["n"]} == {3}
    assert [text for text in page.texts if "seed 7 is running" in text]


@UNDRAWN
def test_runs_of_other_settings_stand_under_other_titles(tmp_path):
    for number, rate in enumerate((1e-3, 2e-3, 4e-3)):
        train = {"steps": 100, "batch_size": 4, "seq_len": 64, "decay": "none", "lr": rate}
        make_run(tmp_path / "runs", "rope", 0, 0.5, config__train=train, name=str(number))
    page = page_of(tmp_path / "page.html", tmp_path / "runs")
    assert len(set(page.titles)) == 3


@DRAWN
def test_only_training_loss_is_smoothed(drawn):
    assert {chart["note"]: chart["smoothed"] for chart in drawn.charts} == {
        "eval/accuracy": False,
        "eval/loss": False,
    }
    assert "evaluations are never smoothed" in drawn.html
    assert report_figures.SMOOTHED == "train/loss"


@DRAWN
def test_verdicts_are_drawn_without_javascript(drawn):
    (drawing,) = re.findall(r'<div class="forest".*?</svg>', drawn.html, re.DOTALL)
    assert "quick, seeds 0–2" in drawing
    assert "95% intervals" in drawing


def test_the_script_of_the_page_builds_no_specification():
    script = (ROOT / "rope_lab" / "report" / "page.js").read_text()
    assert not re.findall(r"encoding|\bmark:|quantitative|nominal|\blayer:", script)


@UNDRAWN
def test_a_users_runs_are_paired_and_lead_the_page(runs, tmp_path, capsys):
    kept, own = tmp_path / "kept", tmp_path / "own"
    results.main([str(runs), "--keep", "--into", str(kept)])
    for seed in range(3):
        make_run(own, "mine", seed, 0.9 + 0.01 * seed)
    page = page_of(tmp_path / "page.html", kept, own)
    capsys.readouterr()
    results.main([str(own), str(kept), "--print"])
    gain = row(capsys.readouterr().out, "Substring by Index")["measured gain [95% interval]"].strip(
        "*"
    )
    assert "Does mine beat RoPE?" in page.texts
    assert gain in page.texts
    headings = [text for text in page.texts if text in ("own", "kept")]
    opened = ["open" in a for _, a in page.elements if a.get("class") == "folder" and "id" not in a]
    assert (headings[-2:], opened) == (["own", "kept"], [True, False])


@UNDRAWN
def test_its_question_can_be_about_any_two_schemes(tmp_path, capsys):
    for seed in range(3):
        for scheme, value in (("rope", 0.2), ("roper", 0.4), ("mine", 0.5 + 0.01 * seed)):
            make_run(tmp_path / "runs", scheme, seed, value)
    out = tmp_path / "page.html"
    assert "Does mine beat RoPE?" in page_of(out, tmp_path / "runs").texts
    assert "--contender" in capsys.readouterr().out
    page = page_of(out, tmp_path / "runs", "--contender", "mine", "--against", "roper")
    assert "Does mine beat RoPER?" in page.texts
    assert f"{128 * 0.11:+.1f}" in page.html


@UNDRAWN
def test_without_the_contender_the_page_says_how_to_ask(tmp_path, capsys):
    for scheme in ("rope", "alibi", "none"):
        make_run(tmp_path / "runs", scheme, 0, 0.5)
    (said,) = (
        text
        for text in page_of(tmp_path / "page.html", tmp_path / "runs").texts
        if "No verdict" in text
    )
    assert "RoPER and RoPE at one seed" in said
    assert "--contender" in said
    assert "--contender" in capsys.readouterr().out
    assert (
        "Does ALiBi beat RoPE?"
        in page_of(tmp_path / "page.html", tmp_path / "runs", "--contender", "alibi").texts
    )


@UNDRAWN
def test_unreadable_or_foreign_files_are_one_line(runs, tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    broken = tmp_path / "broken" / "a"
    broken.mkdir(parents=True)
    (broken / "run.json").write_text("{}")
    for said, *arguments in (
        (r"notes\.txt: there are no runs", file),
        (r"nowhere: there are no runs", tmp_path / "nowhere"),
        (r"nowhere.*No such file", runs, "--out", tmp_path / "nowhere" / "page.html"),
        (r"not a regular file", runs, "--out", tmp_path),
        (r"not written by this command", runs, "--out", file),
        (r"(?s)a: .*left out.*rope-lab train", broken.parent),
    ):
        with pytest.raises(SystemExit, match=said):
            report.main([*map(str, arguments)])
    assert file.read_text() == "mine"
    report.main([str(runs)])
    assert (runs / "report.html").read_bytes().startswith(report.MADE.encode())
