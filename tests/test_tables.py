"""Tables as LaTeX and CSV."""

import csv as reader

from rope_lab.results.views.tables import Strong, Table, csv, latex

ROWS = [
    {"scheme_a": Strong("50% & b_c"), "loss − x": "$1 #2 {~^\\"},
    {"scheme_a": "[–]", "loss − x": 'say "a, b"'},
]


def test_latex_has_rules_and_no_special_character():
    lines = latex(Table(ROWS), "Up to 5%").splitlines()
    assert r"\caption{Up to 5\%}" in lines
    start = lines.index(r"\toprule")
    assert lines[start:-2] == [
        r"\toprule",
        r"scheme\_a & loss $-$ x \\",
        r"\midrule",
        r"\textbf{50\% \& b\_c} & \$1 \#2 \{\textasciitilde{}\textasciicircum{}\textbackslash{} \\",
        r'{[}–] & say "a, b" \\',
        r"\bottomrule",
    ]


def test_csv_is_read_back_as_the_same_rows():
    assert list(reader.DictReader(csv(Table(ROWS)).splitlines())) == ROWS
