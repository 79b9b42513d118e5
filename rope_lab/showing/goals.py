"""The goals of docs/which.md."""

from dataclasses import field

import yaml
from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from rope_lab.places import ROOT
from rope_lab.results.plans.study import STRICT

GOALS = ROOT / "results" / "goals.yaml"


@dataclass(frozen=True, config=STRICT)
class Goal:
    """A goal, as goals.yaml explains it."""

    goal: str
    columns: list[str] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)
    text: str = ""


def goals() -> list[Goal]:
    """The goals of the page. Raises pydantic's ValidationError."""
    return TypeAdapter(list[Goal]).validate_python(yaml.safe_load(GOALS.read_text("utf-8")))
