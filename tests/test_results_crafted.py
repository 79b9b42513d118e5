"""Crafted or damaged records are rejected in one line or shown as text; mixed-origin runs are not
paired.
"""

import os
import re
from functools import partial
from pathlib import Path

import pytest
from builders import make_pairs, make_run, row, shown

from rope_lab.results import __main__ as results
from rope_lab.results.records.folders import read
from rope_lab.results.records.kept import keep, read_kept
from rope_lab.results.views import pages, tables

ACTIVE = re.compile(
    r"[^\S\n ]|[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]"
)
MARKS = "<!-- to here --> <!-- generated from here -->"
ESCAPES = "\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202eevil\u2066\u200b"
MARKDOWN = "a | b\n\n# c\n- [d](http://e) ![f](http://g) `h` **i** <b>j</b> &amp; $k$ ~l~ _m_"


def append(line: str, folder: Path) -> None:
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(line)


def changed_bit(folder: Path) -> None:
    text = (folder / "run.json").read_text()
    (folder / "run.json").write_text(text.replace('"steps": 100', '"steps": 101'))


# Changes for `make_run`, or a function that damages the folder
SHOWN = {
    "mathtext in a scheme": {"config__position": {"_target_": "Mine", "q": r"$x_{$"}},
    "markdown in a setting": {"config__model": {"init": MARKDOWN}},
    "end marks in a scheme": {"config__position": {"_target_": MARKS}},
    "escapes as torch": {"provenance__versions__torch": ESCAPES},
    "no metrics": {"metrics": {}},
    "half a line of metrics": partial(append, '{"step": 150, "eval/accu'),
}
REFUSED = {
    "half of run.json": lambda folder: os.truncate(folder / "run.json", 300),
    "a changed bit": changed_bit,
    "text as a number": {"parameters": "many"},
    "an infinite loss": partial(append, '{"step": 110, "eval/loss": Infinity}\n'),
}


def test_crafted_folders_are_shown_or_named_in_a_line(tmp_path, capsys):
    """All in one folder; accepted runs can be kept."""
    runs = make_pairs(tmp_path / "runs", [0.5], [0.5])
    for seed, (what, damage) in enumerate((SHOWN | REFUSED).items()):
        changes = damage if isinstance(damage, dict) else {}
        folder = make_run(runs, "none", seed, 0.5, name=what, **changes)
        if not changes:
            damage(folder)
        folder.rename(runs / what)
    found, problems = read(runs)
    left_out = {
        line.partition(":")[0]
        for line in problems
        if "are left out" not in line and "left out" in line
    }
    assert left_out == {*REFUSED}
    assert len(found) == 2 + len(SHOWN)
    assert all(
        len(line) <= 400 and not ACTIVE.search(line) and "\n" not in line for line in problems
    )
    results.main([str(runs)])
    text = (runs / "README.md").read_text()
    assert not ACTIVE.search(capsys.readouterr().out)
    assert not re.search(r"<(?!/?details>|/?summary>|!--)[a-z!/]", text)
    assert text.count(pages.BEGIN) == text.count(pages.END) == 1
    assert all(
        picture.read_text().rstrip().endswith("</svg>") for picture in (runs / "figures").iterdir()
    )
    keep(found, tmp_path)
    back, wrong = read_kept(tmp_path)
    assert wrong == []
    assert {run.run_id for run in back} == {run.run_id for run in found}


def test_markdown_of_others_is_text():
    text = tables.escaped(MARKDOWN)
    assert text.startswith(r"a \| b\\n\\n# c")
    assert "&lt;b&gt;j&lt;/b&gt; &amp;amp;" in text
    assert tables.escaped("model.n_heads=4 (x_y)") == "model.n_heads=4 (x_y)"


def part(**changes) -> dict:
    """Provenance of an earlier part of a run from `make_run`."""
    git, hardware = (
        {"commit": "0123456789abcdef", "dirty": False},
        {"device": "cpu", "name": "CPU", "threads": 1},
    )
    own = {"numerics": 3, "plugin": {}}
    return own | {"git": git, "versions": {"torch": "2.13.0"}, "hardware": hardware} | changes


@pytest.mark.parametrize(
    ("earlier", "value"),
    [
        ([part(numerics=2), part(), part(numerics=2)], "numerics 2 → 3"),
        ([part(hardware={"name": "CPU", "threads": 4})], "threads 4 → 1"),
        ([part(plugin={"position": "a1"})], "code of the position a1 → None"),
    ],
)
def test_a_run_of_mixed_origin_is_kept_and_not_paired(tmp_path, capsys, earlier, value):
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
        assert re.search(
            rf"seed 3 is of mixed origin \({value}\): counted in means, and not paired", text
        )
        assert "position" in value or row(text, "Substring by Index")["seeds"] == "3"


def test_a_run_resumed_where_it_began_has_one_origin(tmp_path, capsys):
    """A commit with the same numerics does not change the origin."""
    make_run(tmp_path, "rope", 0, 0.5)
    git = {"commit": "f" * 16, "dirty": True}
    make_run(tmp_path, "roper", 0, 0.75, provenance__earlier=[part(), part(git=git)])
    text = shown(capsys, tmp_path)
    assert "mixed" not in text
    assert row(text, "Substring by Index")["measured gain [95% interval]"].startswith(
        "+32.0 (one seed)"
    )
    assert "- commit: 0123456789ab (n=1), 0123456789ab → ffffffffffff+ (n=1)" in text


@pytest.mark.parametrize(("dirty", "commit"), [(None, "0123456789ab+"), (True, "0123456789ab+")])
def test_what_git_does_not_say_is_unknown_and_not_clean(tmp_path, dirty, commit):
    make_run(
        tmp_path, "rope", 0, 0.5, provenance__git={"commit": "0123456789abcdef", "dirty": dirty}
    )
    assert read(tmp_path)[0][0].commit == commit
