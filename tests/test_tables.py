"""Tables as LaTeX and CSV."""

import csv as reader
import math
from dataclasses import replace

from builders import make_row, make_run

from rope_lab.results.__main__ import main as results
from rope_lab.results.comparisons.stats import t_interval
from rope_lab.results.records.frame import scheme_names
from rope_lab.results.records.measures import ACCURACY
from rope_lab.results.views.tables import Strong, Table, csv, latex, mean_of

ROWS = [
    {"scheme_a": Strong("50% & b_c"), "loss − x": "$1 #2 {~^\\"},
    {"scheme_a": "[–]", "loss − x": 'say "a, b"'},
]


def test_two_runs_are_shown_by_their_range():
    steps = replace(ACCURACY, at="log steps")
    assert mean_of([math.log(200), math.log(288)], steps) == "240 (200–288) n=2"
    assert mean_of([0.25, 0.75], ACCURACY) == "0.500 (0.250–0.750) n=2"
    three = [math.log(200), math.log(240), math.log(288)]
    low, high = (math.exp(end) for end in (t_interval(three).low, t_interval(three).high))
    assert mean_of(three, steps) == f"240 [{low:.0f}, {high:.0f}] n=3"


def test_long_settings_stay_apart():
    """Names that tables shorten are other schemes all the same."""
    long = " | ".join(f"rope window:{number}" for number in range(1, 12))
    runs = []
    for last in ("none", "alibi"):
        own = {"pattern": f"{long} | {last}"}
        runs.append(make_row("layers", 0, [0.5], position_settings=own))
    assert len({*scheme_names(runs)}) == 2


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
