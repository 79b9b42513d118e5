"""`--against` and `--contender`: any scheme can replace the baseline or RoPER."""

import pytest
from builders import ROPER, make_run, row, shown, table_rows
from conftest import one_line

from rope_lab.report import __main__ as report
from rope_lab.results import __main__ as results

pytestmark = pytest.mark.usefixtures("undrawn")

COLUMN = "difference from RoPER, higher is better"


@pytest.fixture
def out(out):
    """Runs of RoPE, RoPER and a user's scheme under one recipe, and of RoPER under another."""
    for seed in range(4):
        make_run(out, "mine", seed, 0.9 - 0.1 * seed)
        make_run(
            out, "roper", seed, 0.5 + 0.05 * seed**2, name="x", config__model={"init": "xavier"}
        )
    return out


def test_any_scheme_can_be_the_baseline_or_the_one_judged(out, capsys):
    text = shown(capsys, out, "--against", "roper", "--contender", "rope")
    differences = {each["scheme"]: each[COLUMN] for each in table_rows(text) if COLUMN in each}
    assert differences["RoPER"] == "–"
    expected = 128 * sum(0.9 - 0.1 * i - last for i, last in enumerate(ROPER)) / 4
    assert differences["mine"].startswith(f"{expected:+.1f} [")
    assert differences["mine"].endswith("] n=4")
    # RoPE's.
    assert row(text, "Substring by Index")["measured gain [95% interval]"].startswith("-39.0 ")
    ours = row(
        shown(capsys, out, "--against", "roper", "--contender", "mine"), "Substring by Index"
    )
    gain = differences["mine"].removesuffix(" n=4")
    assert ours["measured gain [95% interval]"].startswith(gain)
    assert ours["mine ahead?"]
    mine = shown(capsys, out, "--against", "mine")
    column = "difference from mine, higher is better"
    assert {
        each[column] for each in table_rows(mine) if each.get("scheme") == "mine" and column in each
    } == {"–"}
    assert shown(capsys, out, "--against", "RoPER", "--contender", "RoPE") == text  # by title


def test_verdicts_are_about_a_users_scheme_without_asking(out, capsys):
    text = shown(capsys, out)
    assert row(text, "Substring by Index")["mine ahead?"]
    assert "--contender" in text
    assert row(shown(capsys, out, "--contender", "roper"), "Substring by Index")["RoPER ahead?"]


@pytest.mark.parametrize(
    ("asks", "said"),
    [
        (["--contender", "min"], "did you mean mine?"),
        (["--contender", "train.lr=1e-3"], "no run is of this scheme"),
        (["--contender", "rope"], "is the baseline too"),
        (["--contender", "RoPE", "--against", "rope"], "is the baseline too"),
        (["--against", "ropr"], "did you mean roper?"),
    ],
)
@pytest.mark.parametrize("command", [results, report])
def test_a_question_about_a_missing_scheme_is_one_line(out, tmp_path, command, asks, said):
    where = ["--print"] if command is results else ["--out", str(tmp_path / "page.html")]
    with pytest.raises(SystemExit, match=one_line(said)):
        command.main([str(out), *where, *asks])


def test_pages_beside_kept_rows_stay_others_go_to_out(out, tmp_path_factory, capsys):
    kept, pages = tmp_path_factory.mktemp("kept"), tmp_path_factory.mktemp("other") / "pages"
    results.main([str(out), "--keep", "--into", str(kept)])
    before = (kept / "README.md").read_text()
    results.main([str(kept), "--against", "roper"])
    assert (kept / "README.md").read_text() == before
    assert "--into" in capsys.readouterr().out
    results.main([str(kept), "--against", "roper", "--into", str(pages)])
    assert COLUMN in (pages / "README.md").read_text()
    assert not (pages / "runs.jsonl").exists()
