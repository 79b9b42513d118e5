"""The text of --help: every setting with its value."""

import pytest

from rope_lab.text import flat, show
from rope_lab.train import help
from rope_lab.train.config import load
from rope_lab.train.instantiate import SWAPPED
from rope_lab.train.settings import declared


@pytest.mark.parametrize(
    "overrides", [["task=mqar"], ["task=text"], ["position=randomized_rope"], ["position=irope"]]
)
def test_every_setting_is_shown_with_its_value(overrides):
    cfg, lines = load(*overrides), help.text(overrides).splitlines()
    begins = {line.partition(" ")[0] for line in lines}
    for group in SWAPPED:
        own = {
            f"{group}.{key}={show(value)}"
            for key, value in flat(getattr(cfg, group)).items()
            if key[-1] != "_"
        }
        assert own <= begins
    assert {name for name in declared() if name not in SWAPPED} <= {
        begin.partition("=")[0] for begin in begins
    }


@pytest.mark.parametrize("overrides", [[], ["task=text", "position=t5_bias"], ["position=irope"]])
def test_no_line_is_wider_than_a_terminal(overrides):
    assert max(map(len, help.text(overrides).splitlines())) <= 80


def test_values_are_of_overrides_and_meanings_of_docstrings():
    text = " ".join(
        help.text(["task=text", "scale=paper", "position=t5_bias", "train.lr=0.5"]).split()
    )
    assert "tokens: bytes, characters (of the corpus), or bpe (byte pairs" in text
    assert "task.tokens=bpe " in text
    assert "train.lr=0.5 " in text
    assert "or at Canon's places: k | kv | canon" in text
    assert "model.n_layers=12 " in text
    assert "(Raffel et al., 2020)" in text
