"""Result pages: placement of sections, preservation of user text, and safe writes."""

import re
from pathlib import Path

import pytest
from builders import headings, make_pairs
from conftest import tree

from rope_lab.results import __main__ as results
from rope_lab.results.views import pages, render

MARKS = f"{pages.BEGIN}\nof before\n{pages.END}"
CURVES = "quick-substring_by_index-curves.svg"


@pytest.fixture(autouse=True)
def drawn_in_no_time(monkeypatch):
    """Skip rendering; test_charts covers the figures."""
    monkeypatch.setattr(render, "svg", lambda chart, settings=None: b"a figure")


@pytest.fixture
def out(out) -> Path:
    """Runs of Index, which can have its own page, and of a task that cannot."""
    return make_pairs(out, [0.5], [0.6], task="mine", name="mine")


def figures_of(text: str) -> list[str]:
    return re.findall(r"\(figures/(.*?)\)", text)


def test_a_task_without_a_page_is_in_the_readme(out):
    results.main([str(out)])
    alone = (out / "README.md").read_text()
    assert headings(alone) == ["Substring by Index, scale quick", "mine, scale quick"]
    assert not (out / "index.md").exists()
    (out / "index.md").write_text(f"# Index\n\n{MARKS}\n")
    results.main([str(out)])
    readme, page = (out / "README.md").read_text(), (out / "index.md").read_text()
    assert headings(readme) == ["mine, scale quick"]
    assert "[Substring by Index](index.md)" in readme
    assert headings(page) == ["Substring by Index, scale quick"]
    assert "of before" not in page
    assert figures_of(page) == [CURVES]
    assert figures_of(alone) == [CURVES, "quick-mine-curves.svg"]
    assert figures_of(readme) == figures_of(alone)[1:]
    assert all((out / "figures" / name).exists() for name in figures_of(alone))
    assert "| Substring by Index" in readme.partition("## ")[0]  # the verdicts


def test_marks_in_the_users_own_text_are_text(out):
    """Text around the marks is preserved on every page, with its line endings and bytes that are
    not UTF-8; a second run changes nothing.
    """
    around = f"# Mine, after {pages.END}\r\n\nbefore\n".encode(), b"\nafter \xff\n"
    for name in ("README.md", "index.md"):
        (out / name).write_bytes(MARKS.encode().join(around))
    results.main([str(out)])
    for name in ("README.md", "index.md"):
        text = (out / name).read_bytes()
        assert text.startswith(around[0] + pages.BEGIN.encode())
        assert text.endswith(pages.END.encode() + around[1])
    once = tree(out)
    results.main([str(out)])
    assert tree(out) == once


# Failed writes


@pytest.mark.parametrize("name", ["README.md", "index.md"])
def test_a_page_without_marks_costs_no_figure(out, name):
    (out / "index.md").write_text(MARKS)
    (out / name).write_text("# Mine\n")
    before = tree(out)
    with pytest.raises(SystemExit, match=f"{out / name} has no marks"):
        results.main([str(out)])
    assert tree(out) == before


@pytest.mark.parametrize("name", ["README.md", "figures"])
def test_no_link_is_followed_out_of_a_folder_from_elsewhere(out, tmp_path_factory, name):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "mine").write_text(MARKS)
    if name != "figures":
        (out / "figures").mkdir()
    (out / name).symlink_to(elsewhere if name == "figures" else elsewhere / "mine")
    with pytest.raises(SystemExit, match=r"a symbolic link|is a link"):
        results.main([str(out)])
    assert tree(elsewhere) == {"mine": MARKS.encode()}
    assert not name.endswith(".md") or not list((out / "figures").iterdir())
