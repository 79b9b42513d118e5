"""Tables in a terminal: nothing is cut off, and nothing is wider than it."""

import sys

from rope_lab.results.views.tables import Strong, Table, markdown
from rope_lab.results.views.terminal import fitted, say_markdown

ROWS = [
    {"scheme": "rope (base=500)", "loss": "2.31 [2.2, 2.4](n=5)", "note": "learns a|b_c* " * 9},
    {"scheme": Strong("roper"), "loss": "–", "note": "ahead & <fast>"},
]
TEXT = "# Page\n\n" + markdown(Table(ROWS)) + "\n\nafter"


def test_a_table_that_fits_is_only_without_escapes():
    lines = fitted(TEXT, 300).splitlines()
    assert lines[0] == "# Page"
    assert lines[-1] == "after"
    table = [line for line in lines if line.startswith("|")]
    assert [cell.strip() for cell in table[3].split("|")[1:-1]] == list(ROWS[1].values())


def test_a_wide_table_is_stacked_with_every_word():
    lines = fitted(TEXT, 60).splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[2:4] == ["scheme: rope (base=500)", "  loss: 2.31 [2.2, 2.4](n=5)"]
    assert lines[-4:] == ["scheme: roper", "  note: ahead & <fast>", "", "after"]
    assert " ".join(lines).split().count("a|b_c*") == 9


PROSE = """Of a paragraph
with a [link](page.md) all words stay, in **lines** that are as wide as fits.

- an item `2**n` that is wider than forty columns too
- a short one

```python
scheme = rope_lab.scheme("rope", d_model=768, n_heads=12)
```"""


def test_wide_paragraphs_and_items_are_filled_anew():
    assert fitted(PROSE, 40).splitlines() == [
        "Of a paragraph with a [link](page.md)",
        "all words stay, in lines that are as",
        "wide as fits.",
        "",
        "- an item `2**n` that is wider than",
        "  forty columns too",
        "- a short one",
        "",
        "```python",
        'scheme = rope_lab.scheme("rope", d_model=768, n_heads=12)',
        "```",
    ]


def test_a_paragraph_that_fits_keeps_its_lines():
    assert fitted("of two\nlines", 40) == "of two\nlines"


def test_a_file_gets_the_markdown_unchanged(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    say_markdown(TEXT)
    assert capsys.readouterr().out == TEXT + "\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    say_markdown(TEXT)
    assert capsys.readouterr().out == fitted(TEXT, 60) + "\n"
