"""What the source says of a scheme: its yaml file, its class and the docstring of that class."""

import importlib
import inspect
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rope_lab.places import CONF
from rope_lab.results.views.tables import escaped
from rope_lab.shipped import choices
from rope_lab.train import instantiate

# Modules of rope_lab.model.schemes, in the order of README.md.
KINDS = (
    *("added", "rotary", "rotary_variants", "phases", "longer", "shared_values", "layers"),
    *("previous", "random_positions", "biases", "content", "content_biases", "coordinates"),
)
NONE = "hooks"  # the module of the scheme without positions
COMMENTS = {"Released in": "released", "Code": "code", "Task": "task"}  # of a yaml file
RAISES = re.compile(r"(^| )Raises \w+Error [^\n]*")  # to the end of its paragraph
SETTING = re.compile(r"(?P<names>\w+(?:, \w+)*): (?P<meaning>.*)", re.DOTALL)


@dataclass(frozen=True)
class Facts:
    """What the source of a scheme says.

    kind:     the module that defines its class; empty for the user's own
    summary:  a line of Markdown, with a link to the paper; empty for the user's own
    formula:  paragraphs of Markdown
    settings: a line of Markdown for each
    released: models that use it; empty if none is named
    code:     the address of its authors' code; empty if none is named
    task:     whose positions it needs; empty: any task
    notes:    what its yaml file says besides
    """

    name: str
    cls: type
    kind: str
    summary: str
    formula: list[str]
    settings: list[str]
    released: str = ""
    code: str = ""
    task: str = ""
    notes: str = ""


def facts(name: str, node: dict[str, Any]) -> Facts:
    """The facts of a scheme of ours or of the user's own.

    node: its checked settings
    """
    cls = next(instantiate.classes(node))
    text, meanings = read_docstring(cls)
    settings = []
    for key, value in node.items():
        if key != "_target_":
            meaning = f": {shown(meanings[key])}" if key in meanings else ""
            settings.append(f"`position.{key}={written(value)}`{meaning}")
    kind = cls.__module__.rpartition(".")[2]
    if name not in choices("position"):
        return Facts(name, cls, "", "", text, settings)
    about = read_comments(CONF / "position" / f"{name}.yaml")
    return Facts(name, cls, kind, about.pop("summary"), text, settings, **about)


def kind_title(kind: str) -> tuple[str, str]:
    """The title of a kind of schemes and its meaning, from the first line of its module."""
    if kind == NONE:
        return "None", "no position at all"
    module = importlib.import_module(f"rope_lab.model.schemes.{kind}")
    title, _, meaning = module.__doc__.splitlines()[0].rstrip(".").partition(": ")
    return title, meaning


def by_kind() -> dict[str, list[str]]:
    """The names of our schemes by kind, each kind in the order of its classes."""
    found: dict[str, list[tuple[int, str]]] = {kind: [] for kind in (NONE, *KINDS)}
    for name in choices("position"):
        cls = next(instantiate.classes(node_of(name)))
        module = cls.__module__.rpartition(".")[2]
        found[module].append((inspect.getsourcelines(cls)[1], name))
    names = {}
    for kind, lines in found.items():
        names[kind] = [name for _, name in sorted(lines)]
    return names


def node_of(name: str) -> dict[str, Any]:
    """The settings of a scheme's yaml file."""
    path = CONF / "position" / f"{name}.yaml"
    return yaml.safe_load(path.read_text("utf-8"))


def read_comments(path: Path) -> dict[str, str]:
    """The comments at the beginning of a yaml file: `summary`, those of COMMENTS, and `notes`."""
    about, notes = {"summary": ""}, []
    for number, line in enumerate(path.read_text("utf-8").splitlines()):
        if not line.startswith("# "):
            break
        comment = line.removeprefix("# ")
        name, _, value = comment.partition(": ")
        if number == 0:
            about["summary"] = comment
        elif name in COMMENTS:
            about[COMMENTS[name]] = value
        else:
            notes.append(comment)
    return about | {"notes": " ".join(notes)}


def read_docstring(cls: type) -> tuple[list[str], dict[str, str]]:
    """The paragraphs of a class's docstring as Markdown, and the meaning of each setting."""
    paragraphs, meanings = [], {}
    parameters = inspect.signature(cls).parameters
    for paragraph in (inspect.getdoc(cls) or "").split("\n\n"):
        entries = split_entries(paragraph)
        found = [SETTING.fullmatch(entry) for entry in entries]
        if all(each and {*each["names"].split(", ")} <= {*parameters} for each in found):
            for each in found:
                meanings |= dict.fromkeys(each["names"].split(", "), each["meaning"])
        else:
            text = "\n".join(map(shown, entries))
            paragraphs.append(RAISES.sub("", text).strip())
    return [each for each in paragraphs if each], meanings


def split_entries(paragraph: str) -> list[str]:
    """A paragraph's list items or settings, a line each; other paragraphs in one line."""
    lines = paragraph.splitlines()
    entries: list[str] = []
    listed = paragraph.startswith("- ") or SETTING.match(lines[0]) if lines else False
    for line in lines:
        continues = entries and (not listed or line.startswith(" "))
        if continues:
            entries[-1] += f" {line.strip()}"
        else:
            entries.append(line)
    return entries


def shown(text: str) -> str:
    """A line of a docstring as Markdown: `code` stays code, other signs are shown as they are."""
    parts = text.split("`")
    for number in range(0, len(parts), 2):
        parts[number] = escaped(parts[number])
    return "`".join(parts)


def written(value: Any) -> str:
    """A setting's value as one types it; a scheme within one by its class and what differs from its
    defaults.
    """
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if not isinstance(value, dict):
        return str(value)
    cls = next(instantiate.classes(value))
    words = [cls.__name__]
    for key, parameter in inspect.signature(cls).parameters.items():
        if key in value and value[key] != parameter.default:
            words.append(f"{key}={written(value[key])}")
    return " ".join(words)
