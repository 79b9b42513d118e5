"""The report in a real browser, opened from disk: `make browser-test`. Run as a script, it names a
missing package.
"""

import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from conftest import ROOT

pytestmark = pytest.mark.browser
NAMES = ("chromium", "chromium-browser", "google-chrome")
MEAN = ".role-mark path[stroke-width='2.2']"
EVIL = "</script><img src=x onerror=alert(1)>"


def browser() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


def lacking() -> str | None:
    """A missing package and how to install it, or None."""
    if importlib.util.find_spec("playwright") is None:
        return "no Playwright: pip install -c constraints.txt -e '.[browser]'"
    return (
        None
        if browser()
        else f"no browser ({', '.join(NAMES)}): on Debian apt-get install chromium"
    )


@pytest.fixture(scope="module")
def chromium():
    if why := lacking():
        pytest.skip(why)
    from playwright.sync_api import sync_playwright

    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=browser(), args=root)
        yield started
        started.close()


def page_of(folder: Path, out: Path) -> Path:
    from rope_lab.report.__main__ import main

    main([str(folder), "--out", str(out)])
    return out


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    return page_of(ROOT / "results", tmp_path_factory.mktemp("report") / "report.html")


def opened(chromium, path: Path, width: int = 1280, scheme: str = "light"):
    """The page, and counts of its requests, console messages, errors and dialogs."""
    page = chromium.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme
    ).new_page()
    heard: Counter[str] = Counter()
    page.on("request", lambda request: heard.update([f"request {request.url}"]))
    page.on("console", lambda message: heard.update([f"{message.type} {message.text}"]))
    page.on("pageerror", lambda error: heard.update([f"error {error}"]))
    page.on("dialog", lambda dialog: (heard.update([f"dialog {dialog.message}"]), dialog.dismiss()))
    page.goto(path.as_uri())
    page.locator("figure").first.wait_for(state="attached")
    return page, heard


def first_chart(page):
    figure = page.locator("figure").first
    figure.scroll_into_view_if_needed()
    figure.locator("svg.marks").wait_for()
    return figure


def test_every_chart_is_drawn_and_nothing_is_fetched(chromium, kept):
    page, heard = opened(chromium, kept)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    figures = page.locator("figure").all()
    assert len(figures) > 50
    for figure in figures:
        figure.scroll_into_view_if_needed()
        figure.locator("svg.marks").wait_for()
    assert page.locator(".every table").count() > len(page.locator(".every").all())
    is_cut = "(each) => each.scrollWidth > each.clientWidth + 1"
    cut = f"(tables) => tables.filter({is_cut}).map((each) => each.innerText)"
    assert page.locator(".scroll").evaluate_all(cut) == []
    assert heard == {f"request {kept.as_uri()}": 1}


def test_a_chart_filters_and_explains(chromium, kept):
    page, heard = opened(chromium, kept)
    figure = first_chart(page)
    page.evaluate("scrollBy(0, -100)")
    figure.locator(".role-mark path[fill-opacity='0']").nth(8).hover(force=True)
    page.locator("#vg-tooltip-element.visible").wait_for()
    assert "seeds" in page.locator("#vg-tooltip-element").inner_text()
    assert figure.locator("path[opacity='0.08']").count() == 0
    figure.locator(".role-legend-symbol path").first.click(force=True)
    figure.locator("path[opacity='0.08']").first.wait_for(state="attached")
    assert len(heard) == 1, heard


def test_a_chart_is_saved_as_csv_and_png(chromium, kept):
    page, heard = opened(chromium, kept)
    figure = first_chart(page)
    for kind, begin in (("CSV", b"scheme,seed,x,y,low,high\n"), ("PNG", b"\x89PNG")):
        with page.expect_download() as saved:
            figure.get_by_role("button", name=kind).click()
        assert saved.value.path().read_bytes().startswith(begin)
    local = ("request file:", "request blob:", "request data:")
    assert [line for line in heard if not line.startswith(local)] == []


def test_smoothing_changes_training_loss_and_no_evaluation(chromium, tmp_path):
    from builders import make_pairs

    runs = make_pairs(tmp_path / "runs", [0.5] * 3, [0.6] * 3)
    for path in runs.glob("*/metrics.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for step, line in enumerate(lines):
            line["train/loss"] = 1 / (1 + step)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    page, heard = opened(chromium, page_of(runs, tmp_path / "page.html"))

    def drawn(note: str) -> str:
        figure = page.locator("figure").filter(has_text=note).first
        figure.scroll_into_view_if_needed()
        page.wait_for_timeout(1000)
        return figure.locator(MEAN).first.get_attribute("d")

    notes = ("eval/accuracy", "train/loss")
    before = [drawn(note) for note in notes]
    page.locator("#smooth").evaluate(
        "(input) => { input.value = 0.9; input.dispatchEvent(new Event('change')); }"
    )
    after = [drawn(note) for note in notes]
    assert after[0] == before[0]
    assert after[1] != before[1]
    assert len(heard) == 1, heard


def test_printing_draws_all_charts_of_open_sections(chromium, kept, tmp_path):
    page, heard = opened(chromium, kept)
    page.pdf(path=tmp_path / "page.pdf")
    charts = page.evaluate(
        "[...document.querySelectorAll('figure')].filter((f) => !f.closest('details:not([open])'))"
        ".map((f) => f.querySelectorAll('.plot svg').length)"
    )
    assert len(charts) > 1
    assert set(charts) == {1}
    assert len(heard) == 1, heard


def test_two_runs_are_shown_side_by_side(chromium, kept):
    """The table lists only settings that differ; curves are drawn."""
    page, heard = opened(chromium, kept)
    two = page.locator("#two")
    two.locator("summary").click()
    two.locator("svg.marks").first.wait_for()
    table = two.locator("table").inner_text()
    assert "position.v" in table
    assert "\ntrain.lr" not in table
    second = two.locator("select").nth(1)
    second.select_option(index=second.locator("option").count() - 1)
    page.wait_for_function(
        "(before) => document.querySelector('#two table').innerText !== before", arg=table
    )
    assert "recipe" in two.locator("table").inner_text()
    assert len(heard) == 1, heard


def test_attention_of_a_probed_run_is_drawn(chromium, tmp_path):
    from builders import make_pairs, make_probes

    runs = make_pairs(tmp_path / "runs", [0.5], [0.6])
    make_probes(runs / "rope-s0-rope-0", 3, 2)
    page, heard = opened(chromium, page_of(runs, tmp_path / "page.html"), 390)
    page.locator("details:has(.attention) > summary").click()
    figures = page.locator(".attention figure").all()
    assert len(figures) == 6  # two for each layer
    for figure in figures:
        figure.scroll_into_view_if_needed()
        figure.locator("svg.marks").wait_for()
        assert figure.locator(".plot").get_by_text("head 2").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert len(heard) == 1, heard


def test_no_text_of_a_record_runs(chromium, tmp_path):
    from builders import make_pairs, make_run

    runs = make_pairs(tmp_path / "runs", [0.5] * 2, [0.6] * 2, provenance__hardware__name=EVIL)
    for seed, q in enumerate((EVIL, "b", "b")):
        make_run(runs, "mine", seed, 0.5, config__position={"_target_": "Mine", "q": q})
    page, heard = opened(chromium, page_of(runs, tmp_path / "page.html"))
    first_chart(page)
    assert EVIL in page.locator("body").inner_text()
    assert page.locator("img:not([src^='data:'])").count() == 0
    assert heard == {f"request {(tmp_path / 'page.html').as_uri()}": 1}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_legible_at_every_width(chromium, kept, scheme, capsys):
    """Nothing is wider than the screen; the test prints the folder of its screenshots."""
    folder = Path(tempfile.mkdtemp(prefix=f"rope_lab-report-{scheme}-"))
    cut = "(each) => each.filter((one) => one.scrollWidth > one.clientWidth + 1).length"
    for width in (320, 400, 1280):
        page, _ = opened(chromium, kept, width, scheme)
        figure = first_chart(page)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        for part in (figure, page.locator(".forest svg")):
            assert part.evaluate("(element) => element.getBoundingClientRect().right") <= width
        assert page.locator(".scroll").evaluate_all(cut) == 0
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)"
        assert dark == (scheme == "dark")
        page.screenshot(path=folder / f"{width}.png", full_page=True)
    with capsys.disabled():
        print(f"\nscreenshots to look at: {folder}")


if __name__ == "__main__":
    sys.exit(lacking())
