"""scripts/make_site.py: every link resolves to an existing file and heading."""

import json
import re
import subprocess
import sys

import pytest
from conftest import ROOT

pytest.importorskip("markdown_it")


@pytest.mark.slow
def test_links_of_the_site_lead_somewhere(tmp_path):
    site = tmp_path / "site"
    subprocess.run([sys.executable, ROOT / "scripts" / "make_site.py", site], check=True)
    pages = {path: path.read_text("utf-8") for path in site.glob("**/*.html")}
    made = {path.relative_to(site).as_posix() for path in pages}
    assert made >= {"index.html", "docs/text.html", "results/index.html", "results/README.html"}
    lost = []
    for page, text in pages.items():
        for link, anchor in re.findall(r' (?:href|src|srcset)="([^"#]*)#?([^"]*)"', text):
            target = (page.parent / link).resolve() if link else page
            whole = (
                "://" in link or target == site / "report.html" or (target.is_file() and not anchor)
            )
            if not whole and f'id="{anchor}"' not in pages.get(target, ""):
                lost.append(f"{page.relative_to(site)}: {link}#{anchor}")
    assert lost == []
    search = pages[site / "search.html"]
    sections = json.loads(re.search(r'id="sections">(.*?)</script>', search, re.DOTALL)[1])
    titles = {section["title"] for section in sections}
    assert {"RoPER: Formula", "Board of position encodings"} <= titles


@pytest.mark.slow
def test_a_folder_of_others_stays_as_it_is(tmp_path):
    (tmp_path / "index.html").write_text("mine")
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "make_site.py", tmp_path],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "was not made by this command" in done.stderr
    assert (tmp_path / "index.html").read_text() == "mine"
