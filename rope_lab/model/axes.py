"""Positions that a task gives: their axes, distances, and places in a table.

Positions are [T] if all rows share them, [B, T], or [B, T, A] with A axes: integers or real
numbers.

Shape letters: B batch, T time (queries), S time (keys), A axes.
"""

import torch
from torch import Tensor

from rope_lab.model.hooks import PositionScheme, TooLong
from rope_lab.text import ConfigError


def axis(pos: Tensor, number: int, scheme: PositionScheme) -> Tensor:
    """Axis `number` of positions, [T] or [B, T]; −1 is the last one.

    Positions without axes stand for each axis. Raises ConfigError if there is no such axis.
    """
    if pos.dim() < 3:
        return pos
    A = pos.shape[-1]
    if not -A <= number < A:
        needs = number + 1 if number >= 0 else -number
        raise ConfigError(
            f"position: {type(scheme).__name__} needs positions with {needs} axes, the task's have "
            f"{A}: take another axis, scheme or task"
        )
    return pos[..., number]


def distances(at_T: Tensor, at_S: Tensor) -> Tensor:
    """Position of each query less that of each key, [T, S] or [B, T, S].

    Negative if a key that was read before stands at a later position.
    """
    return at_T.unsqueeze(-1) - at_S.unsqueeze(-2)


def whole(pos: Tensor, scheme: PositionScheme, rows: int | None = None) -> Tensor:
    """Positions that number the rows of a table, as they are.

    rows: of the table; None: do not check

    Raises ConfigError if they are not whole numbers and, on a CPU, TooLong if the table has no such
    row.
    """
    name = type(scheme).__name__
    if pos.is_floating_point():
        raise ConfigError(
            f"position: {name} has a table of whole positions, the task's are real numbers: "
            "take another scheme"
        )
    on_cpu = pos.device.type == "cpu"  # a look at positions elsewhere would wait for the device
    if rows is not None and pos.numel() and on_cpu:
        least, most = (int(each) for each in torch.aminmax(pos))
        if least < 0 or most >= rows:
            raise TooLong(
                f"positions from {least} to {most} are outside of the table of {name}, 0 to "
                f"{rows - 1}: take shorter texts, a longer table or another scheme"
            )
    return pos
