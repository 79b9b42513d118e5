"""The help of `rope-lab train`: every setting with its value and meaning."""

import inspect
import re
import shutil
from operator import attrgetter
from typing import Any, Literal, get_args, get_origin

from rope_lab.shipped import choices, summary
from rope_lab.text import flat, show, wrapped
from rope_lab.train.config import load
from rope_lab.train.instantiate import SWAPPED, classes
from rope_lab.train.settings import declared

BEGIN = """\
rope-lab train [SETTING=VALUE …]    trains, resumes or returns a run
rope-lab sweep SETTING=A,B …        every combination, the same as train -m;
                                    hydra/launcher=joblib makes them in parallel
rope-lab train --help task=text     this, for another task or scheme
"""
LINK = re.compile(r"\[(.*?)\]\(.*?\)")  # of Markdown
WIDEST, COLUMN = 80, 30  # of a line; where explanations begin


def text(overrides: list[str]) -> str:
    """The help, with the values that `overrides` give. Raises ConfigError."""
    lines = []
    cfg = load(*overrides)
    for group, name in vars(cfg.names).items():
        files = choices(f"recipe/{cfg.names.task}" if group == "scale" else group)
        lines += _line(f"{group}={name}", " | ".join(sorted({name, *files})))
    lines.append("")
    for name in choices("position"):
        lines += _line(f"position={name}", LINK.sub(r"\1", summary("position", name)))
    for group in SWAPPED:
        node = getattr(cfg, group)
        lines += [
            "",
            f"{group}={getattr(cfg.names, group)}",
            *_paragraphs(inspect.getdoc(next(classes(node))) or ""),
            "",
        ]
        lines += [
            f"{group}.{key}={show(value)}"
            for key, value in flat(node).items()
            if not key.endswith("_target_")
        ]
    lines.append("")
    for name, field in declared().items():
        if name not in SWAPPED:
            values = " | ".join(map(show, _choices(field.type)))
            meaning = ": ".join(filter(None, [field.default.description, values]))
            lines += _line(f"{name}={show(attrgetter(name)(cfg))}", meaning)
    return "\n".join([BEGIN, *lines])


def _choices(declared_type: Any) -> list[Any]:
    """The values of a Literal, also of one beside None."""
    if get_origin(declared_type) is Literal:
        return list(get_args(declared_type))
    return [value for part in get_args(declared_type) for value in _choices(part)]


def _width() -> int:
    return min(WIDEST, shutil.get_terminal_size((WIDEST, 0)).columns)


def _line(setting: str, meaning: str) -> list[str]:
    """A setting and, beside it, its meaning."""
    line = f"{setting:{COLUMN - 1}} {meaning}".rstrip()
    return wrapped(line, _width(), " " * COLUMN)


def _paragraphs(docstring: str) -> list[str]:
    """The lines of a docstring, none wider than the help."""
    lines = []
    for line in docstring.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        lines += wrapped(line, _width(), indent)
    return lines
