"""What --help says: every setting there is, with the value that it has."""

import pytest
from conftest import SCHEMES, TASKS

from rope_lab.launch import main
from rope_lab.text import ConfigError, flat, show
from rope_lab.train import help
from rope_lab.train.config import declared, load
from rope_lab.train.instantiate import SWAPPED


def own(group: str, node: dict) -> list[str]:
    """The settings of a task or scheme, and of schemes in it, as they are typed."""
    found = flat(node).items()
    return [f"{group}.{name}={show(value)}" for name, value in found if not name.split(".")[-1].startswith("_")]


@pytest.mark.parametrize(
    "overrides", [*([f"task={name}"] for name in TASKS), *([f"position={name}"] for name in SCHEMES)], ids="".join
)
def test_every_setting_of_a_task_and_of_a_scheme_is_there_with_its_value(overrides):
    cfg, lines = load(*overrides), help.text(80, overrides).splitlines()
    begins = {line.partition(" ")[0] for line in lines}
    assert {*own("task", cfg.task), *own("position", cfg.position)} <= begins
    assert {name for name in declared() if name not in SWAPPED} <= {begin.partition("=")[0] for begin in begins}
    assert max(map(len, lines)) <= 80


def test_values_are_those_of_the_overrides_and_meanings_those_of_the_docstring():
    text = " ".join(help.text(80, ["task=text", "scale=paper", "position=t5_bias", "train.lr=0.5"]).split())
    assert "task.tokens=bpe bytes, characters, or bpe (byte pairs learned on the training part)" in text
    assert "train.lr=0.5 " in text
    assert "model.n_layers=12 " in text
    assert "(Raffel et al., 2020)" in text


def test_scales_are_those_of_the_task():
    def scales(task):
        (line,) = [line for line in help.text(80, [f"task={task}"]).splitlines() if line.startswith("scale=")]
        return line.split()[1:]

    assert scales("indirect_indexing") == ["quick"]
    assert scales("substring_by_prefix") == ["length", "|", "paper", "|", "quick"]


def test_what_cannot_be_is_not_helped_with():
    with pytest.raises(ConfigError, match="position=foo"):
        help.text(80, ["position=foo"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--help", "task=text"], "task.tokens=bytes"),
        (["position=fire", "-h"], "position.hidden=32"),
        (["-m", "--help", "seed=1,2"], "seed=0"),
    ],
)
def test_help_through_the_command_line(arguments, says, capsys):
    main.answer(arguments)
    assert says in capsys.readouterr().out.split()


def test_a_wrong_word_beside_help_is_one_line(capsys):
    with pytest.raises(SystemExit) as ended:
        main.answer(["--help", "train.learning_rate=1"])
    assert ended.value.code == main.EXIT_BAD_CONFIG
    assert capsys.readouterr().err.count("\n") == 1
