"""Tables in a terminal: nothing is cut off, and nothing is wider than it."""

from rope_lab.results.views.tables import Strong, Table, markdown
from rope_lab.results.views.terminal import fitted

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
    assert lines[2:4] == ["rope (base=500)", "  loss: 2.31 [2.2, 2.4](n=5)"]
    assert lines[-5:] == ["roper", "  loss: –", "  note: ahead & <fast>", "", "after"]
    assert " ".join(lines).split().count("a|b_c*") == 9
