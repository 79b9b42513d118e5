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


def test_a_column_without_any_word_is_shown():
    assert fitted("| a |  |\n|---|---|\n| b |  |", 80) == "a\n-  -\nb"
