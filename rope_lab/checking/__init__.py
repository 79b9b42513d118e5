"""Checks of a scheme or a task: each function raises Wrong, or returns a note or None."""

from collections.abc import Callable

Checks = dict[str, Callable[[], str | None]]  # by name, in their order


class Wrong(Exception):
    """A check failed; the message says how."""


def demand(holds: object, message: str) -> None:
    """Raise Wrong with this message unless `holds`."""
    if not holds:
        raise Wrong(message)
