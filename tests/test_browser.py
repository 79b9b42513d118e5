"""The report in a real browser, opened from disk: `make browser-test`. Run as a program it says what that lacks."""

import importlib.util
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser
NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDTHS, SCHEMES = (320, 720, 1360), ("light", "dark")
EVIL = "</script><img src=x onerror=alert(1)>"


def browser() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


def lacking() -> str | None:
    """What there has to be for these tests, and how to get it; None where all of it is there."""
    if importlib.util.find_spec("playwright") is None:
        return "no Playwright: pip install -c constraints.txt -e '.[browser]'"
    return None if browser() else f"no browser ({', '.join(NAMES)}): on Debian apt-get install chromium"


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


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    from rope_lab.report.__main__ import RESULTS, main

    out = tmp_path_factory.mktemp("report") / "report.html"
    main([str(RESULTS), "--out", str(out)])
    return out


def opened(chromium, path: Path, width: int = 1360, scheme: str = "light"):
    """The page, and what it asks for and complains of."""
    page = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    heard: Counter[str] = Counter()
    page.on("request", lambda request: heard.update([f"request {request.url}"]))
    page.on("console", lambda message: heard.update([f"{message.type} {message.text}"]))
    page.on("pageerror", lambda error: heard.update([f"error {error}"]))
    page.on("dialog", lambda dialog: (heard.update([f"dialog {dialog.message}"]), dialog.dismiss()))
    page.goto(path.as_uri())
    return page, heard


def lines(page, group: str, number: str) -> int:
    """How many lines, dots and bars of a scheme there are in the charts of a group."""
    return page.locator(
        f"{group} .plot svg path[stroke='var(--c{number})'], {group} .plot svg path[fill='var(--c{number})']"
    ).count()


def becomes(page, check, seconds: float = 10) -> bool:
    """Whether something is so before long: charts are redrawn a moment after a click."""
    end = time.monotonic() + seconds
    while not check() and time.monotonic() < end:
        page.wait_for_timeout(50)
    return check()


def first_group(page) -> str:
    """The first group, once all its charts are there."""
    group = f"[id='{page.locator('.group').first.get_attribute('id')}']"
    for figure in page.locator(f"{group} figure.chart").all():
        figure.scroll_into_view_if_needed()
        figure.locator("svg").wait_for()
    return group


def test_the_page_opens_from_disk_and_asks_for_nothing(chromium, kept):
    page, heard = opened(chromium, kept)
    charts = page.locator("figure.chart:visible")
    for figure in charts.all():
        figure.scroll_into_view_if_needed()
        figure.locator("svg").wait_for()
    assert charts.count() > 50
    assert heard == {f"request {kept.as_uri()}": 1}


def test_a_scheme_that_is_clicked_away_goes_from_every_chart(chromium, kept):
    page, heard = opened(chromium, kept)
    group = first_group(page)
    chip = page.locator(f"{group} input[data-scheme]").first
    number = chip.get_attribute("data-scheme")
    other = page.locator(f"{group} input[data-scheme]").nth(1).get_attribute("data-scheme")
    before, beside = lines(page, group, number), lines(page, group, other)
    assert before > 10
    chip.focus()
    page.keyboard.press("Space")
    assert becomes(page, lambda: lines(page, group, number) == 0)
    assert lines(page, group, other) == beside
    page.keyboard.press("Space")
    assert becomes(page, lambda: lines(page, group, number) == before)
    page.locator(f"{group} button", has_text="none, means alone").click()
    assert becomes(page, lambda: 0 < lines(page, group, number) < before)
    page.locator(f"{group} button", has_text="only RoPE and RoPER").click()
    shown = page.locator(f"{group} input[data-scheme]:checked")
    assert shown.count() == 2
    assert len(heard) == 1, heard


def test_a_chart_is_zoomed_by_button_key_and_wheel(chromium, kept):
    page, heard = opened(chromium, kept)
    figure = page.locator(f"{first_group(page)} figure.chart").first
    plot = figure.locator(".plot")

    def labels() -> list[str]:
        return sorted(figure.locator(".role-axis-label text").all_text_contents())

    whole = labels()
    plot.focus()
    for key in ("+", "ArrowRight", "ArrowUp"):
        before = labels()
        page.keyboard.press(key)
        assert becomes(page, lambda before=before: labels() != before), key
    page.keyboard.press("0")
    assert becomes(page, lambda: labels() == whole)
    figure.locator("button", has_text="+").click()
    assert becomes(page, lambda: labels() != whole)
    figure.locator("button", has_text="all").click()
    assert becomes(page, lambda: labels() == whole)
    plot.hover()
    at = page.evaluate("scrollY")
    page.keyboard.down("Alt")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Alt")
    assert becomes(page, lambda: labels() != whole)
    assert page.evaluate("scrollY") == at
    page.mouse.wheel(0, 100)
    assert becomes(page, lambda: page.evaluate("scrollY") > at)
    assert len(heard) == 1, heard


def test_what_is_under_the_pointer_is_told(chromium, kept):
    page, _ = opened(chromium, kept)
    plot = page.locator(f"{first_group(page)} .plot").first
    tip = page.locator("#tip")
    assert tip.is_hidden()
    plot.hover()
    tip.wait_for()
    told = dict(zip(*(tip.locator(tag).all_text_contents() for tag in ("dt", "dd")), strict=True))
    chips = page.locator(".filters").first.locator(".chip").all_text_contents()
    assert told["scheme"] in chips
    assert told["seed"] in chips or told["seed"].startswith("mean of ")
    assert 0 <= int(told["optimizer steps"].replace(",", "")) <= 4096
    assert page.locator("figure.chart path[opacity='0.06']").count() > 0  # the others step back


def test_a_link_to_what_is_folded_away_unfolds_it(chromium, kept):
    page, _ = opened(chromium, kept)
    folded = page.locator("details.group:has(a)").first.or_(page.locator("details.group").first).first
    name = folded.get_attribute("id")
    assert not folded.get_attribute("open")
    page.evaluate(f"location.hash = '{name}'")
    page.locator(f"[id='{name}'] svg").first.wait_for()


def test_no_text_of_a_record_runs(chromium, tmp_path):
    from builders import make_run, shipped
    from crafted import edited

    from rope_lab.report.__main__ import main

    for seed in range(2):
        make_run(tmp_path / "runs", "rope", seed, 0.5, name="a")
        run = make_run(tmp_path / "runs", "roper", seed, 0.5, name="b")
        edited(config__position=shipped("roper") | {"q": EVIL}, provenance__hardware__name=EVIL)(run)
    main([str(tmp_path / "runs"), "--out", str(tmp_path / "page.html")])
    page, heard = opened(chromium, tmp_path / "page.html")
    group = first_group(page)
    page.locator(f"{group} .chip", has_text="RoPE").first.click()  # and the other scheme is left to point at
    page.locator(f"{group} .plot").first.hover()
    page.locator("#tip", has_text=EVIL).wait_for()
    assert page.locator("img").count() == 0
    assert heard == {f"request {(tmp_path / 'page.html').as_uri()}": 1}
    assert EVIL in page.locator("body").inner_text()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_is_legible_at_every_width(chromium, kept, scheme, capsys):
    """Nothing is wider than the screen; screenshots to look at are where the test says."""
    folder = Path(tempfile.mkdtemp(prefix=f"rope_lab-report-{scheme}-"))
    for width in WIDTHS:
        page, heard = opened(chromium, kept, width, scheme)
        group = first_group(page)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        wide = page.locator(f"{group} .plot").evaluate_all("all => all.map((e) => e.getBoundingClientRect().right)")
        assert max(wide) <= width
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)"
        assert dark == (scheme == "dark")
        for name, place in (("top", "main"), ("charts", group), ("table", f"{group} .scroll"), ("probes", "#probes")):
            page.locator(place).first.evaluate("(element) => element.scrollIntoView()")
            page.wait_for_timeout(500)
            page.screenshot(path=folder / f"{width}-{name}.png")
        assert len(heard) == 1, heard
    with capsys.disabled():
        print(f"\nscreenshots to look at: {folder}")


if __name__ == "__main__":
    sys.exit(lacking())
