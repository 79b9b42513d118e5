"""Pages and reports without their charts, which take most of the time to make."""

from collections.abc import Callable
from typing import Any

import pytest

from rope_lab.report import figures as on_page
from rope_lab.report import page
from rope_lab.results.views import figures, forest, probes, render


def returning(value: Any) -> Callable[..., Any]:
    """A function that takes anything and returns `value`."""
    return lambda *drawn: value


def draw_nothing(patch: pytest.MonkeyPatch) -> None:
    """Make every chart empty: figures beside pages, and the charts and the library of a report."""
    for name in figures.CHARTS:
        patch.setitem(figures.CHARTS, name, returning(None))
    for module, name in ((render, "svg"), (probes, "overlay")):
        patch.setattr(module, name, returning(b""))
    patch.setattr(forest, "forest", returning(None))
    for name in ("curves", "others", "of_attention"):
        patch.setattr(on_page, name, returning([]))
    patch.setattr(on_page, "two_runs", returning({}))
    patch.setattr(page, "forest", returning(None))
    patch.setattr(render, "javascript", returning(""))
