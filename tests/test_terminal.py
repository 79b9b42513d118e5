"""Tables in a terminal: nothing is cut off, and nothing is wider than it."""

import pytest

from rope_lab.results.views.tables import Strong, Table, markdown
from rope_lab.results.views.terminal import fitted

ROWS = [
    {"scheme": "rope (base=500)", "loss": "2.31 [2.2, 2.4](n=5)", "note": "learns a|b_c* " * 9},
    {"scheme": Strong("roper"), "loss": "", "note": "ahead & <fast>"},
]


@pytest.mark.parametrize("width", [60, 80, 300])
def test_a_table_fits_the_terminal_with_every_word(width):
    shown = fitted("# Page\n\n" + markdown(Table(ROWS)) + "\n\nafter", width)
    lines = shown.splitlines()
    assert max(map(len, lines)) <= width
    assert (lines[0], lines[-1]) == ("# Page", "after")
    words = " ".join(" ".join(row.values()) for row in ROWS)
    found = [word for word in shown.split() if word.strip("-")]
    assert sorted(found) == sorted(f"# Page scheme loss note {words} after".split())


def test_heads_stand_above_their_columns():
    shown = fitted("| a |  |\n|---|---|\n| bcd |  |\n| e |  |", 80)
    assert shown.splitlines() == ["a", "---  -", "bcd", "e"]


def test_a_table_has_one_ruler():
    lines = fitted(markdown(Table(ROWS)), 80).splitlines()
    (ruler,) = [line for line in lines if not line.strip("- ")]
    assert lines.index(ruler) == 1
    assert lines[0].index("note") == ruler.rindex(" ") + 1


def test_a_table_too_wide_for_its_words_is_stacked():
    columns = [f"difference{at}" for at in range(9)]
    rows = [{"scheme": name} | dict.fromkeys(columns, "+0.1234567 [–]") for name in ("a", "b")]
    lines = fitted(markdown(Table(rows)), 80).splitlines()
    cells = [f"  {column}: +0.1234567 [–]" for column in columns]
    assert lines == ["a", *cells, "b", *cells]
