"""The help of `rope-lab train`: every setting with its value and meaning."""

import inspect
import re
import textwrap
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from rope_lab.text import flat, show
from rope_lab.train.config import declared, folders_with, load
from rope_lab.train.instantiate import SWAPPED, classes, names

BEGIN = """\
rope-lab train [SETTING=VALUE …]    trains, resumes or returns a run
rope-lab train -m SETTING=A,B …     a sweep; see hydra/launcher=joblib
rope-lab train --cfg job …          all settings as yaml, runs nothing
rope-lab train --help task=text     this, for another task or scheme
"""
COLUMN = 30  # where explanations begin


def text(width: int, overrides: list[str], config_dir: Path | None = None) -> str:
    """The help, in lines of at most `width` characters, with the values that `overrides` give. Raises ConfigError."""
    lines, cfg = [], load(*overrides, config_dir=config_dir)
    for group, name in vars(cfg.names).items():
        files = names(f"recipe/{cfg.names.task}" if group == "scale" else group, folders_with(config_dir))
        lines += _line(f"{group}={name}", " | ".join(sorted({name, *files})), width)
    for group in SWAPPED:
        lines += ["", f"{group}={getattr(cfg.names, group)}", *_class(group, getattr(cfg, group), width)]
    lines.append("")
    for name, field in declared().items():
        if name not in SWAPPED:
            choices = " | ".join(map(show, get_args(field.type))) if get_origin(field.type) is Literal else ""
            meaning = ": ".join(filter(None, [field.default.description, choices]))
            lines += _line(f"{name}={show(attrgetter(name)(cfg))}", meaning, width)
    return "\n".join([BEGIN, *lines])


def _class(group: str, node: dict[str, Any], width: int) -> list[str]:
    """The settings of a task or scheme, explained by the docstring of its class, and the rest of that."""
    items = re.split(r"\n(?=\n|- |\w[\w, ]*: )", inspect.getdoc(next(classes(node))) or "")
    lines, meanings = [], {}
    for item in (" ".join(item.split()) for item in items):
        names, _, meaning = item.partition(": ")
        if meaning and set(names.split(", ")) <= set(node):
            meanings |= dict.fromkeys(names.split(", "), meaning.replace("None", "null"))
        elif item and not item.startswith("Raises "):
            lines += textwrap.wrap(item, width, initial_indent="  ", subsequent_indent="  ")
    for name, value in flat(node).items():
        if not name.endswith("_target_"):
            lines += _line(f"{group}.{name}={show(value)}", meanings.get(name, ""), width)
    return lines


def _line(setting: str, meaning: str, width: int) -> list[str]:
    """A setting and, beside it, its meaning."""
    begin = setting.ljust(COLUMN - 1) + " "
    return textwrap.wrap(meaning, width, initial_indent=begin, subsequent_indent=" " * COLUMN) or [setting]
