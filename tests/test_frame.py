"""The data frame of docs/questions.md: the example runs, and every column is explained."""

import re
import shutil

import pandas as pd
from conftest import ROOT

from rope_lab.results import load

PAGE = (
    (ROOT / "docs" / "questions.md").read_text("utf-8").partition("## The runs as a data frame")[2]
)


def test_the_example_writes_a_plot_and_a_row_per_seed(tmp_path, monkeypatch):
    (tmp_path / "results").mkdir()
    shutil.copy(ROOT / "results" / "runs.jsonl", tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(re.search(r"```python\n(.*?)```", PAGE, re.S)[1], names)
    assert (tmp_path / "mine.png").read_bytes().startswith(b"\x89PNG")
    wide = pd.read_csv(tmp_path / "losses.csv", index_col="seed")
    assert set(wide) == set(names["loss"].scheme)
    assert wide.loc[3, "roper"] == names["loss"].set_index(["seed", "scheme"]).value[3, "roper"]


def test_settings_of_recipe_and_scheme_are_columns():
    frame = load(ROOT / "results", settings=["train.lr", "position.base"])
    assert frame["train.lr"].notna().all()
    assert {*frame["position.base"][frame.scheme == "rope"]} == {10_000}


def test_one_setting_needs_no_list():
    assert "train.lr" in load(ROOT / "results", settings="train.lr")


def test_every_column_is_explained():
    table = re.findall(r"^\| (`[a-z_ ]+`)", PAGE, re.M)
    named = {word for cell in table for word in cell.strip("`").split()} - {"column"}
    assert named == set(load(ROOT / "results"))
