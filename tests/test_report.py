"""The report: what is on the page, what is in its charts, and that no record can put anything else there."""

import base64
import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from builders import make_run, shipped
from crafted import FOLDERS, edited, make_folders

from rope_lab.places import ROOT
from rope_lab.report import __main__ as report
from rope_lab.report import colors, frames
from rope_lab.results import frame, stats
from rope_lab.results.folders import read
from rope_lab.results.published import Published

KEPT = ROOT / "results"
EVIL = "</script><img src=x onerror=alert(1)>{{ 7 * 7 }}&amp;\u2028 **b** `c` \\| _d_"


class Page(HTMLParser):
    """A page taken apart as a browser does: its elements, its texts, its scripts, and what its charts show."""

    def __init__(self, path: Path):
        super().__init__()
        self.html = path.read_text("utf-8")
        self.elements: list[tuple[str, dict]] = []
        self.texts: list[str] = []
        self.scripts: list[tuple[dict, str]] = []
        self.feed(self.html)
        self.data = json.loads(next(text for a, text in self.scripts if a.get("id") == "data"))

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag == "script":
            self.scripts.append((dict(attributes), ""))

    def handle_data(self, data):
        if self.elements and self.elements[-1][0] == "script" and self.cdata_elem == "script":
            self.scripts[-1] = self.scripts[-1][0], self.scripts[-1][1] + data
        elif data.strip():
            self.texts.append(data)

    def frames(self, note: str) -> list[dict]:
        """The rows of the charts of which this is said."""
        found = re.findall(r'data-frame="(\d+)"[^>]*>\s*<figcaption><b>[^<]*</b><span>([^<]*)', self.html)
        return [self.data["frames"][int(number)] for number, said in found if note in said]


def page_of(out: Path, *folders: Path) -> Page:
    report.main([*map(str, folders), "--out", str(out)])
    return Page(out)


KEPT_PAGE = pytest.mark.xdist_group("kept page")  # so that one process makes it


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Page:
    return page_of(tmp_path_factory.mktemp("report") / "kept.html", KEPT)


@pytest.fixture
def runs(tmp_path) -> Path:
    for scheme, lasts in (("rope", (0.5, 0.6, 0.4)), ("roper", (0.8, 0.97, 0.75))):
        for seed, last in enumerate(lasts):
            make_run(tmp_path / "runs", scheme, seed, last)
    return tmp_path / "runs"


@KEPT_PAGE
def test_the_page_of_the_kept_rows_holds_every_run_and_is_small(kept):
    folders = [KEPT, *sorted(path.parent for path in KEPT.glob("*/runs.jsonl"))]
    every = [run.run_id for folder in folders for run in read(folder)[0]]
    cells = pd.Series(kept.texts)
    shown = cells[cells.str.fullmatch("[0-9a-f]{12}")].value_counts()
    assert not {run_id: n for run_id, n in pd.Series(every).value_counts().items() if shown.get(run_id, 0) < n}
    assert len(kept.html.encode()) < 2_000 * len(every)


def test_the_same_rows_make_the_same_bytes_in_any_process(runs, tmp_path):
    here, there = page_of(tmp_path / "here.html", runs), tmp_path / "there.html"
    assert page_of(tmp_path / "again.html", runs).html == here.html
    command = [sys.executable, "-m", "rope_lab.report", str(runs), "--out", str(there)]
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert there.read_text("utf-8") == here.html


@KEPT_PAGE
def test_a_page_fetches_nothing_and_runs_only_its_own_scripts(kept):
    policy = next(a["content"] for tag, a in kept.elements if a.get("http-equiv") == "Content-Security-Policy")
    rules = {name: set(values) for name, *values in (rule.split() for rule in policy.split(";"))}
    assert rules["default-src"] == {"'none'"}
    assert "connect-src" not in rules
    code = [text for a, text in kept.scripts if not a]
    assert len(code) == 1
    assert f"'sha256-{base64.b64encode(hashlib.sha256(code[0].encode()).digest()).decode()}'" in rules["script-src"]
    assert all(rule.startswith("'sha256-") for rule in rules["script-src"])
    addresses = [v for _, a in kept.elements for key, v in a.items() if key in ("src", "href", "srcset", "action")]
    assert {address[0] for address in addresses} == {"#", "d"}
    assert [address for address in addresses if address[0] == "d"] == ["data:,"]
    assert "@import" not in kept.html.partition("<script")[0]
    assert "url(" not in kept.html.partition("<script")[0]


def test_no_text_of_a_record_becomes_more_than_text(tmp_path):
    plain = page_of(tmp_path / "plain.html", _evil(tmp_path / "plain", "harmless"))
    evil = page_of(tmp_path / "evil.html", _evil(tmp_path / "evil", EVIL))
    assert [tag for tag, _ in evil.elements] == [tag for tag, _ in plain.elements]
    assert not [key for _, a in evil.elements for key in a if key.startswith("on")]
    shown = EVIL.replace("\u2028", "\\u2028")
    assert shown in "".join(evil.texts)
    assert [title for title in evil.data["titles"] if "</script><img" in title]
    assert "\u2028" not in evil.html
    assert "javascript:" not in str(evil.elements)
    assert not [a for tag, a in evil.elements if tag == "a" and not a["href"].startswith("#")]


def _evil(folder: Path, text: str) -> Path:
    for seed in range(2):
        run = make_run(folder, "rope", seed, 0.5, name="a")
        edited(config__model={"init": text}, provenance__hardware__name=text, wandb=f"javascript:{text}")(run)
        run = make_run(folder, "roper", seed, 0.5, name="b")
        edited(config__position=shipped("roper") | {"q": text}, config__model={"init": text})(run)
    (folder / "README.md").write_text(f"# {text}\n")
    return folder


def test_whatever_was_crafted_is_reported_or_named(tmp_path):
    """All at once: the page is whole, and what was refused is on it."""
    for what in FOLDERS:
        make_folders(make_run, tmp_path / "runs", what)
    page = page_of(tmp_path / "page.html", tmp_path / "runs")
    _, problems = read(tmp_path / "runs")
    assert len(problems) > 50
    shown = set(page.texts)
    assert not [problem for problem in problems if problem not in shown]
    assert page.html.rstrip().endswith("</html>")
    assert all(math.isfinite(y) for f in page.data["frames"] for *_, ys, _ in f["runs"] for y in ys if y is not None)


@KEPT_PAGE
def test_charts_hold_the_numbers_of_the_records(kept):
    """A learning curve, above its floor, and dots and means that are those of the group."""
    published = Published()
    runs, _ = read(KEPT)
    run = next(r for r in runs if (r.scale, r.position, r.seed) == ("paper", published.contender, 2))
    curve = frame.curve(run, "eval/loss") - run.floor["loss"]
    number = kept.data["titles"].index(published.title(published.contender))
    first = kept.frames("by optimizer step")[0]
    shown = {(s, seed): ys for s, seed, ys, _ in first["runs"]}
    assert first["x"] == list(curve.index)
    assert shown[number, "2"] == pytest.approx(list(curve), rel=1e-4)
    ends = kept.frames("every seed after the last step")[0]
    mean = next(m for s, n, (m,), *_ in ends["means"] if s == number)
    low, high = next((low, high) for s, n, _, (low,), (high,) in ends["means"] if s == number)
    values = [ys[0] for s, _, ys, _ in ends["runs"] if s == number]
    interval = stats.t_interval(values)
    assert (mean, low, high) == pytest.approx((interval.mean, interval.low, interval.high), rel=1e-3)
    assert len(values) == interval.n == 5


@KEPT_PAGE
def test_verdicts_are_those_of_the_table(kept):
    from rope_lab.results.groups import group
    from rope_lab.results.verdicts import read_outcomes, verdicts

    published = Published()
    found = verdicts(group(read(KEPT)[0], published), read_outcomes(KEPT)[0], published)
    items = re.findall(r'<li>\s*<b class="word (\w+)">(\w+)</b>.*?</li>', kept.html, re.DOTALL)
    assert [word for word, _ in items] == [v.word for v in found]
    for v in found:
        if math.isfinite(v.gain.mean):
            assert f"<b>{v.gain.mean:+.{v.report.metric.digits}f} [" in kept.html
    assert kept.html.count('class="mean') == sum(math.isfinite(v.gain.mean) for v in found)


@KEPT_PAGE
def test_planned_comparisons_are_shown_without_differences(kept):
    sections = re.split(r'<section class="folder"', kept.html)[1:]
    heads = {
        re.search("<code>(.*?)</code>", s)[1]: re.findall('<th scope="col"><span>(.*?)</span>', s)
        for s in sections[:-2]
    }
    assert [name for name in heads["results"] if name == "p"]
    assert (planned := heads["results/confirm"])
    assert not [name for name in planned if name == "p" or name.startswith(("−", "pairs", "sign-flip"))]


@KEPT_PAGE
def test_probes_are_shown_as_what_they_cost(kept):
    path = sorted((KEPT / "probes").glob("*-roper-s2-*.json"))[0]
    whole, *others = json.loads(path.read_text())["outcomes"]
    shown = kept.frames("paper scale")[0]
    number = kept.data["titles"].index("RoPER")
    costs = next(ys for s, seed, ys, _ in shown["runs"] if (s, seed) == (number, "2"))
    expected = [o["loss"] - whole["loss"] for o in others]
    assert costs == pytest.approx(expected, rel=1e-3, abs=1e-6)
    assert shown["x"][:2] == ["shift=1", "shift=10"]
    assert not [label for label in shown["x"] if label.startswith("still")]


def test_runs_that_have_not_ended_have_a_curve_and_count_in_no_mean(runs, tmp_path):
    make_run(runs, "rope", 7, 0.9, status="running", metrics={})
    page = page_of(tmp_path / "page.html", runs)
    curves = page.frames("by optimizer step")[0]
    assert [(seed, still) for s, seed, _, still in curves["runs"] if still] == [("7", 1)]
    assert {n for _, n, *_ in curves["means"]} == {3}
    assert "7" not in {seed for _, seed, *_ in page.frames("every seed after")[0]["runs"]}
    assert [text for text in page.texts if "seed 7 is running" in text]


def test_a_run_that_was_logged_online_is_linked(runs, tmp_path):
    address = "https://wandb.ai/someone/rope_lab/runs/rope-s0-abc"
    for folder, wandb in zip(sorted(runs.iterdir()), (address, "javascript:alert(1)", [address], 3), strict=False):
        edited(wandb=wandb)(folder)
    page = page_of(tmp_path / "page.html", runs)
    assert [a["href"] for tag, a in page.elements if tag == "a" and not a["href"].startswith("#")] == [address]


def test_without_the_two_schemes_the_page_says_so(tmp_path):
    make_run(tmp_path / "runs", "rope", 0, 0.5)
    page = page_of(tmp_path / "page.html", tmp_path / "runs")
    assert not [a for _, a in page.elements if "word" in a.get("class", "")]
    assert [text for text in page.texts if "are not compared" in text]


def test_a_file_of_others_stays(runs, tmp_path):
    notes = tmp_path / "notes.html"
    notes.write_text("mine")
    with pytest.raises(SystemExit, match="not made by this command"):
        report.main([str(runs), "--out", str(notes)])
    assert notes.read_text() == "mine"
    report.main([str(runs)])
    report.main([str(runs)])
    assert (runs / "report.html").read_bytes().startswith(report.MADE)
    shutil.move(runs / "report.html", tmp_path / "elsewhere.html")
    (runs / "report.html").symlink_to(tmp_path / "elsewhere.html")
    with pytest.raises(SystemExit, match="symbolic link"):
        report.main([str(runs)])


def test_what_cannot_be_read_or_written_is_said_before_anything_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "read", lambda folder: pytest.fail("read"))
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    for said, *arguments in (
        (r"notes\.txt: is a file, where a folder of runs is asked for", file),
        (r"nowhere: no such folder", tmp_path / "nowhere"),
        (r"there is no folder .*nowhere", tmp_path, "--out", tmp_path / "nowhere" / "page.html"),
        (r"cannot be written", tmp_path, "--out", tmp_path),
        (r"not made by this command", tmp_path, "--out", file),
    ):
        with pytest.raises(SystemExit, match=said):
            report.main([*map(str, arguments)])


def test_the_page_is_named_by_its_shorter_path(tmp_path, monkeypatch, capsys):
    make_run(tmp_path / "runs", "rope", 0, 0.5)
    for there, shown in ((tmp_path, "runs/report.html"), (Path("/usr/share"), str(tmp_path / "runs" / "report.html"))):
        monkeypatch.chdir(there)
        report.main([str(tmp_path / "runs")])
        assert re.fullmatch(rf"written: {re.escape(shown)} \(\d\.\d MB, 1 run\); .*\n", capsys.readouterr().out)


@pytest.mark.parametrize("content", [None, "{}"])
def test_a_folder_without_runs_says_what_to_do(tmp_path, content):
    folder = tmp_path / "runs" / "a"
    folder.mkdir(parents=True)
    if content:
        (folder / "run.json").write_text(content)
    with pytest.raises(SystemExit, match=r"(?s)a: .*left out.*python -m rope_lab\.train"):
        report.main([str(tmp_path / "runs")])
    assert not list(tmp_path.rglob("*.html"))


def test_without_altair_one_line_says_how_to_get_it(runs):
    code = "import sys; sys.modules['altair'] = None; from rope_lab.report.__main__ import main; main(sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", code, str(runs)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install -c constraints.txt -e '.[report]'" in done.stderr


def test_colours_can_be_told_from_what_is_behind_them():
    published = Published()
    for behind, least in colors.CONTRAST.items():
        for scheme in published.schemes:
            color = colors.readable(published.color(scheme), behind)
            assert colors._contrast(colors._rgb(color), colors._rgb(behind)) >= 0.98 * least
    assert colors.readable("#0072B2", colors.PAPER) == "#0072b2"  # stands out as it is


def test_intervals_of_a_table_are_those_of_its_rows():
    table = pd.DataFrame([[0.1, 0.4, 0.2], [0.3, np.nan, 0.5], [np.nan, 0.2, np.nan], [0.5, 0.5, 0.5]])
    for (_, row), (_, found) in zip(table.iterrows(), stats.t_intervals(table).iterrows(), strict=True):
        expected = stats.t_interval(row.dropna())
        assert tuple(found) == pytest.approx((expected.mean, expected.low, expected.high), nan_ok=True)


def test_long_curves_are_thinned_and_keep_their_ends():
    page = frames.Charts(Published())
    line = pd.Series(np.arange(5000.0), index=range(5000))
    shown = page.frame([("rope", 0, line, False)], {"rope": line.to_frame(0)}, "linear")
    assert len(shown["x"]) == frames.POINTS
    assert (shown["x"][0], shown["x"][-1]) == (0, 4999)
    assert shown["runs"][0][2] == shown["x"]


def test_its_question_can_be_about_any_two_schemes(tmp_path, capsys):
    for seed in range(3):
        for scheme, value in (("rope", 0.2), ("roper", 0.4), ("mine", 0.5 + 0.01 * seed)):
            make_run(tmp_path / "runs", scheme, seed, value)
    out = tmp_path / "page.html"
    report.main([str(tmp_path / "runs"), "--out", str(out)])
    assert "--contender 'mine'" in capsys.readouterr().out
    report.main([str(tmp_path / "runs"), "--out", str(out), "--contender", "mine", "--against", "roper"])
    page = Page(out)
    assert "Does mine beat RoPER?" in page.texts
    assert f"{128 * 0.11:+.1f}" in page.html
    with pytest.raises(SystemExit, match="is no scheme"):
        report.main([str(tmp_path / "runs"), "--out", str(out), "--against", "train.lr=1e-3"])
