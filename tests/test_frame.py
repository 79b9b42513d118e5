"""docs/frame.md: its examples run, and find what the tables find."""

import re
import shutil

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

from rope_lab.results import load
from rope_lab.results.stats import paired_difference

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "frame.md").read_text("utf-8"), re.S)


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The names that the examples leave, run one after the other as a reader would, and the folder that they ran in."""
    here = tmp_path_factory.mktemp("reader")
    (here / "results").mkdir()
    shutil.copy(ROOT / "results" / "runs.jsonl", here / "results")
    names: dict = {}
    with pytest.MonkeyPatch.context() as patch, mpl.rc_context({"backend": "Agg"}):
        patch.chdir(here)
        for block in BLOCKS:
            exec(block, names)
    return names, here


def test_the_plot_is_written(example):
    _, here = example
    assert (here / "mine.png").read_bytes().startswith(b"\x89PNG")


def test_the_mixed_model_is_the_paired_comparison_where_all_seeds_are_there(example):
    """Of two schemes over the same seeds, REML gives the mean difference and the paired t test's standard error."""
    names, _ = example
    loss = names["loss"][names["loss"].scheme.isin(["rope", "roper"])]
    again = dict(names) | {"loss": loss}
    exec(BLOCKS[1], again)
    wide = loss.pivot(index="seed", columns="scheme", values="value")
    paired = paired_difference(wide.roper, wide.rope).difference
    covariance = again["covariance"]
    error = np.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])
    assert again["best"].x > -14  # seeds do vary, so that the two are the same
    assert again["means"][1] - again["means"][0] == pytest.approx(paired.mean, rel=1e-6)
    spread = np.std(wide.roper - wide.rope, ddof=1)
    assert error == pytest.approx(spread / np.sqrt(len(wide)), rel=1e-3)


def test_the_export_has_a_row_a_seed_and_a_column_a_scheme(example):
    names, here = example
    wide = pd.read_csv(here / "losses.csv", index_col="seed")
    assert set(wide) == set(names["loss"].scheme)
    assert wide.loc[3, "roper"] == names["loss"].set_index(["seed", "scheme"]).value[3, "roper"]


def test_every_column_is_explained():
    table = re.findall(r"^\| (`[a-z_ ]+`)", (ROOT / "docs" / "frame.md").read_text("utf-8"), re.M)
    named = {word for cell in table for word in cell.strip("`").split()} - {"column"}
    assert named == set(load(ROOT / "results"))
