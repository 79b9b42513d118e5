"""Runs that end as by SIGKILL, before one of their writes."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rope_lab.train import run_folder


class Killed(BaseException):
    """Stands for SIGKILL: nothing is written after it."""


def unlocked(folder: Path) -> SimpleNamespace:
    """A claim without a lock file, which would outlive the kill."""
    folder.mkdir(parents=True, exist_ok=True)
    return SimpleNamespace(owner=None, token="", release=lambda: None)


@contextlib.contextmanager
def killed_after(calls: int, *functions: tuple[Any, str]) -> Iterator[SimpleNamespace]:
    """A context that a program leaves after `calls` calls of functions, each by owner and name.

    Yields whether it was killed, as `dead`.
    """
    state = SimpleNamespace(left=calls, dead=False)

    def counted(real: Callable) -> Callable:
        def call(*arguments: Any, **options: Any) -> Any:
            state.left -= 1
            state.dead = state.dead or state.left < 0
            if state.dead:
                raise Killed
            return real(*arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
        patch.setattr(run_folder, "claim", unlocked)
        for owner, name in functions:
            patch.setattr(owner, name, counted(getattr(owner, name)))
        yield state
