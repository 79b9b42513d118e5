"""scripts/best_rates.py: each scheme at its best rate, beside its cache and step time."""

from dataclasses import replace

import pytest
from builders import make_row, table_rows
from conftest import script

from rope_lab.results.records.kept import keep

best_rates = script("best_rates")


@pytest.mark.claims
def test_our_pages_have_the_tables_of_their_runs():
    """If not, run `python scripts/best_rates.py`."""
    assert best_rates.pages()
    for page in best_rates.pages():
        assert page.read_text() == best_rates.rewritten(page)


def test_schemes_are_ranked_beside_their_cache_and_step_time(tmp_path):
    """Windows of a quarter of the training length, keys kept once if they are the values; runs of
    the search do not count.
    """
    runs = []
    for scheme, rate, loss, seconds in (
        ("rope", 4e-3, 0.5, 10.0),
        ("gemma4", 8e-3, 0.4, 15.0),
        ("deepseek_v4", 4e-3, 0.6, 10.0),
    ):
        about = {"task": "substring_by_prefix", "scale": "quick", "seconds": seconds}
        for seed, own in ((100, 1.6e-2), (0, rate), (1, rate), (2, rate)):
            end = 9.0 if seed == 100 else loss + seed / 10
            settings = {"train.lr": own}
            runs.append(make_row(scheme, seed, [2.0, end], "eval/loss", settings=settings, **about))
    keep(runs, tmp_path / "shipped")
    page = tmp_path / "shipped" / "README.md"
    page.write_text("# Shipped\n\n<!-- best rates -->\n\n<!-- /best rates -->\n\nAfter.\n")
    text = best_rates.rewritten(page)
    assert text.startswith("# Shipped\n")
    assert text.endswith("\n\nAfter.\n")
    rows = table_rows(text)
    columns = ["learning rate", "KV cache", "step time"]
    assert [[row[name] for name in columns] for row in rows] == [
        ["0.008", "0.22", "1.50"],
        ["0.004, the lowest tried", "1.00", "1.00"],
        ["0.004, the lowest tried", "0.50", "1.00"],
    ]
    best = [cell for name, cell in rows[0].items() if "difference" in name]
    assert best == ["-0.1000 [-0.1000, -0.1000] n=3"]
    page.write_text("no marks")
    with pytest.raises(ValueError, match="has no marks"):
        best_rates.rewritten(page)
    keep([replace(runs[1], run_id="twice", seed=1)], tmp_path / "shipped")
    with pytest.raises(ValueError, match="rope: a seed has two runs"):
        best_rates.rewritten(page)
