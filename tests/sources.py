"""Sources of plug-ins: schemes and tasks of a user, and examples of the docs."""

import re

from conftest import ROOT

SCHEME = """
from rope_lab.model.hooks import PositionScheme

class Slope(PositionScheme):
    def __init__(self, dims, slope: float = 1.0):
        super().__init__(dims)
        self.slope = slope

    def bias(self, at_T, at_S):
        return -self.slope * (at_T[:, None] - at_S)[None].float()
"""
TASK = """import numpy as np
from tasks.base import PackedTask, join

class Own(PackedTask):
    alphabet = "?=#abcd"

    def draw(self, rng, n):
        return rng.integers(4, size=(n, 6))

    def write(self, drawn):
        letters = (drawn + ord("a")).astype("uint8")
        return join("?", letters, "="), join(letters, "#")
"""
# A scheme that is still to be written, and its first hook.
START = """import torch
from torch import nn
from rope_lab.model.cache import so_far
from rope_lab.model.hooks import PositionScheme

class Own(PositionScheme):
"""
EMBED = "    def embed(self, x, at):\n        return "


def block(heading: str, language: str, page: str = "docs/extending.md", number: int = 0) -> str:
    """A code block in `language` under a heading of a page, the first for 0."""
    section = (ROOT / page).read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)[number]
