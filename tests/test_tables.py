"""Tables as LaTeX and CSV."""

import csv as reader

from builders import make_run

from rope_lab.results.__main__ import main as results
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


def test_tables_and_figures_for_a_paper(tmp_path, capsys):
    for seed in range(3):
        make_run(tmp_path, "rope", seed, 0.2 + 0.01 * seed)
        make_run(tmp_path, "roper", seed, 0.4 + 0.02 * seed)
    results([str(tmp_path), "--paper"])
    made = {path.name: path for path in (tmp_path / "paper").iterdir()}
    assert {path.suffix for path in made.values()} == {".tex", ".csv", ".pdf"}
    assert r"\toprule" in made["verdicts.tex"].read_text()
    assert "RoPER ahead?" in made["verdicts.csv"].read_text()
    seeds = [name for name in made if name.endswith("-seeds.csv")]
    assert "RoPER" in made[seeds[0]].read_text()
    figures = [path for path in made.values() if path.suffix == ".pdf"]
    assert figures[0].read_bytes().startswith(b"%PDF")
