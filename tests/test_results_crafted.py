"""Records that were crafted or damaged: named in a line or shown as they are; and runs of mixed origin."""

import re

import pytest
from builders import make_pairs, make_run, row, shown
from crafted import ESCAPES, FOLDERS, MARKDOWN, MARKS, REFUSED, SHOWN, make_folders

from rope_lab.results import __main__ as results
from rope_lab.results import pages, tables
from rope_lab.results.folders import origin, read
from rope_lab.results.kept import keep, read_kept
from rope_lab.results.runs import one_line
from rope_lab.text import plain

ACTIVE = re.compile(r"[^\S\n ]|[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")


def test_crafted_folders_are_shown_or_named_in_a_line(tmp_path, capsys):
    """All at once, each among good runs and as a recipe of its own; what is shown of them can be kept."""
    runs = tmp_path / "runs"
    make_pairs(runs, [0.5], [0.5])
    places = {what: make_folders(make_run, runs, what) for what in FOLDERS}
    found, problems = read(runs)
    left_out = {line.partition(":")[0] for line in problems if "are left out" not in line and "left out" in line}
    for what, folders in places.items():
        assert {folder.name in left_out for folder in folders} == {what in REFUSED}, what
    assert len(found) == 2 + 2 * len(SHOWN)
    assert all(len(line) <= 400 and not ACTIVE.search(line) and "\n" not in line for line in problems)
    results.main([str(runs)])
    text = (runs / "README.md").read_text()
    assert not ACTIVE.search(capsys.readouterr().out)
    assert not re.search(r"<(?!/?details>|/?summary>|!--)[a-z!/]", text)
    assert text.count(pages.BEGIN) == text.count(pages.END) == 1
    assert all(picture.read_text().rstrip().endswith("</svg>") for picture in (runs / "figures").iterdir())
    keep(found, tmp_path)
    back, wrong = read_kept(tmp_path)
    assert ({run.run_id: run for run in back}, wrong) == ({run.run_id: run for run in found}, [])


def test_nothing_that_acts_is_shown():
    assert plain("x\x1b[2J\r\n\u202e\u2066\ud800\x9b") == r"x\x1b[2J\r\n\u202e\u2066\ud800\x9b"
    assert plain("Größe → 3 µm") == "Größe → 3 µm"
    assert one_line("x" * 500, 10) == "x" * 9 + "…"
    assert not ACTIVE.search(plain(ESCAPES))
    text = tables.escaped(MARKDOWN)
    assert text.startswith(r"a \| b\\n\\n# c")
    assert "&lt;b&gt;j&lt;/b&gt; &amp;amp;" in text
    assert not {pages.BEGIN, pages.END} & set(tables.escaped(MARKS).split())
    assert tables.escaped("model.n_heads=4 (x_y)") == "model.n_heads=4 (x_y)"


def part(**changes) -> dict:
    """An earlier part of what `make_run` makes."""
    git, hardware = {"commit": "0123456789abcdef", "dirty": False}, {"device": "cpu", "name": "CPU", "threads": 1}
    own = {"numerics": 3, "plugin": {}}
    return own | {"git": git, "versions": {"torch": "2.13.0"}, "hardware": hardware} | changes


def test_records_without_numerics_are_those_of_the_planned_runs_of_one_commit():
    old = part(git={"commit": "f581087d169d", "dirty": False})
    del old["numerics"]
    assert origin(old)["numerics"] == 3
    with pytest.raises(ValueError, match="before records had numerics"):
        origin(old | {"git": part()["git"]})


@pytest.mark.parametrize(
    ("earlier", "value"),
    [
        ([part(numerics=2)], "numerics 2 → 3"),
        ([part(numerics=2), part(), part(numerics=2)], "numerics 2 → 3"),
        ([part(versions={"torch": "2.1"})], "torch 2.1 → 2.13.0"),
        ([part(hardware={"name": "CPU", "threads": 4})], "threads 4 → 1"),
        ([part(hardware={"name": "GPU", "threads": 1})], "hardware GPU → CPU"),
        ([part(plugin={"position": "a1"})], "code of the position a1 → None"),
    ],
)
def test_a_run_of_mixed_origin_is_named_kept_as_such_and_not_paired(tmp_path, capsys, earlier, value):
    runs = tmp_path / "runs"
    for seed in range(4):
        make_run(runs, "rope", seed, 0.5)
        changes = {"provenance__earlier": earlier} if seed == 3 and "position" not in value else {}
        make_run(runs, "roper", seed, 0.75, **changes)
    if "position" in value:
        make_run(runs, "mine", 3, 0.75, provenance__earlier=earlier)
    keep(read(runs)[0], tmp_path)
    for folder in (runs, tmp_path):
        text = shown(capsys, folder)
        assert re.search(rf"seed 3 is of mixed origin \({value}\): counted in means, and not paired", text)
        assert row(text, "Substring by Index")["seeds"] == ("4" if "position" in value else "3")


def test_a_run_that_was_resumed_where_it_began_is_of_one_origin(tmp_path, capsys):
    """A commit that changed no numbers makes no other."""
    make_run(tmp_path, "rope", 0, 0.5)
    git = {"commit": "f" * 16, "dirty": True}
    make_run(tmp_path, "roper", 0, 0.75, provenance__earlier=[part(), part(git=git)])
    text = shown(capsys, tmp_path)
    assert "mixed" not in text
    assert row(text, "Substring by Index")["measured gain [95% interval]"] == "+32.0 (one seed)"
    assert "- commit: 0123456789ab, 0123456789ab → ffffffffffff+" in text


@pytest.mark.parametrize(
    ("git", "commit"),
    [
        ({"commit": None, "dirty": None}, "unknown"),
        ({"commit": "0123456789abcdef", "dirty": None}, "0123456789ab?"),
        ({"commit": "0123456789abcdef", "dirty": True}, "0123456789ab+"),
    ],
)
def test_what_git_does_not_say_is_unknown_and_not_clean(tmp_path, git, commit):
    make_run(tmp_path, "rope", 0, 0.5, provenance__git=git)
    assert read(tmp_path)[0][0].commit == commit
