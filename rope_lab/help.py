"""What `python -m rope_lab.train --help` says: every setting with its default and what it means."""

import textwrap
from operator import attrgetter
from typing import Literal, get_args, get_origin

from rope_lab.config import CONF, declared, load
from rope_lab.instantiate import SWAPPED
from rope_lab.text import show

BEGIN = """\
python -m rope_lab.train [SETTING=VALUE …]
      trains one run, resumes it, or returns what it found
python -m rope_lab.train -m SETTING=A,B … [hydra/launcher=joblib]
      a sweep over these values; with joblib, runs side by side

Below are the settings as they are without an override. task and scale choose a
recipe, which sets some of them. --cfg job shows the outcome, with the settings
of the task and of the position scheme.
"""
COLUMN = 30  # where explanations begin


def text(width: int) -> str:
    """The help, in lines of at most `width` characters."""
    lines = []
    for group in ("task", "position", "scale"):
        names = sorted({path.stem for path in (CONF / group).glob("*.yaml")})
        lines += _line(f"{group}=…", " | ".join(names), width)
    lines.append("")
    defaults = load()
    for name, field in declared().items():
        value = attrgetter(name)(defaults)
        if name not in SWAPPED:
            choices = " | ".join(map(show, get_args(field.type))) if get_origin(field.type) is Literal else ""
            told = ": ".join(filter(None, [field.default.description, choices]))
            lines += _line(f"{name}={show(value)}", told, width)
    return "\n".join([BEGIN, *lines])


def _line(setting: str, told: str, width: int) -> list[str]:
    """A setting and what it means beside it."""
    return textwrap.wrap(told, width, initial_indent=setting.ljust(COLUMN - 1) + " ", subsequent_indent=" " * COLUMN)
