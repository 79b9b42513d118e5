"""Power analysis: pairs needed and detectable differences, from the spread of paired
differences.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from builders import CATALOGUE, ROPE, ROPER, make_run, table_rows
from conftest import ROOT

from rope_lab import power
from rope_lab.results.comparisons import stats
from rope_lab.results.records.folders import read
from rope_lab.results.records.measures import MEASURES
from rope_lab.results.records.setups import setups_of


def asked(capsys, *arguments) -> list[dict[str, str]]:
    power.main([*map(str, arguments)])
    return table_rows(capsys.readouterr().out)


def test_power_comes_from_the_spread_of_paired_differences(out, capsys):
    spread = float(np.std(128 * (np.array(ROPER) - np.array(ROPE)), ddof=1))
    (found,) = asked(capsys, out, "--difference", 20, "--power", 0.9)
    assert (found["against RoPE"], found["pairs"]) == ("RoPER", "4")
    assert found["spread [95%]"].startswith(f"{spread:.1f} [")
    assert found["pairs for 20"].startswith(f"{stats.pairs_needed(20, spread, 0.9)} [")
    for n in (3, 16):
        least, chance = stats.detectable(n, spread, 0.9), stats.paired_power(n, 20, spread)
        assert found[f"{n} pairs detect"] == f"{least:.1f} ({chance:.0%})"


def test_no_share_differs_by_more_than_all_of_it(capsys):
    """Three pairs of such a spread detect no difference of 100% or less."""
    values, measure = pd.Series([0.0, 90, 10, 80]), replace(MEASURES["eval/accuracy"], times=100.0)
    found = power.row(values, measure, None, 0.8)
    assert found["3 pairs detect"] == "–"
    assert float(found["32 pairs detect"]) < 100
    nats = replace(measure, share=False)
    assert float(power.row(values, nats, None, 0.8)["3 pairs detect"]) > 100


@pytest.mark.claims
def test_the_example_of_the_docs_is_what_kept_rows_say(capsys):
    """The confirmation plan used the same numbers: 16 pairs for a difference of 45 with power
    0.9.
    """
    choice = (
        "--task",
        "substring_by_index",
        "--scale",
        "reduced",
        "--difference",
        45,
        "--power",
        0.9,
    )
    found, *_ = [
        row
        for row in asked(capsys, ROOT / "results", *choice)
        if row.get("against RoPE") == "RoPER"
    ]
    assert found["pairs for 45"] == "16 [9, 59]"
    assert "16 for RoPER here, 9 to 59" in (ROOT / "docs" / "questions.md").read_text("utf-8")


def test_any_scheme_is_a_baseline_pairs_need_the_same_code(out, capsys):
    for seed in range(4):
        make_run(out, "none", seed, 0.3 + 0.02 * seed**2, provenance__numerics=3 if seed < 3 else 2)
    rows = {row["against none"]: row["pairs"] for row in asked(capsys, out, "--against", "none")}
    assert rows == {"RoPE": "3", "RoPER": "3"}


def test_runs_that_reach_a_threshold_or_not_are_called_bimodal(out):
    (found,) = setups_of(read(out)[0], CATALOGUE)
    (said,) = power.bimodal(found, ["rope", "roper"])
    assert "RoPE 3 of 4" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--scale", "paper"], "--scale paper: no run has it; "),
        (["--task", "substring_by_indx"], "did you mean substring_by_index?"),
        (["--difference", "-5"], "--difference -5: must be a number above 0"),
        (["--against", "ropr"], "did you mean roper"),
    ],
)
def test_what_is_not_there_is_said(out, arguments, said):
    with pytest.raises(SystemExit, match=said):
        power.main([str(out), *arguments])
