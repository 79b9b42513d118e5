"""A grid of letters, read row by row: `?/abc/def=abc/def#` copies it, `?b/abc/def=c#` asks for the
cell right of b.

The format is ours. Each row begins with `/`, so that a model can see the width; schemes with
coordinates need not. Positions have three axes: the token's number, its row, and its column. The
`/` before a row has column −1, so that each token stands left of the next one of its row. An answer
that is a grid lies upon the grid that was asked about: its rows and columns begin at 0 again.
"""

from string import ascii_letters
from typing import Literal

import numpy as np

from .base import BLANK, PackedTask, check_between, join, spell

Ask = Literal["copy", "transpose", "right", "below", "nearest"]
LETTERS = np.arange(len(ascii_letters))
CAPITAL = 26  # the index of the first capital letter
SLASH = ord("/")


class Grid(PackedTask):
    """Copy or transpose a grid, or name a cell of it.

    ask:       `copy`; `transpose`: columns become rows; `right`, `below`: the letter right of or
               below a named one; `nearest`: the capital letter that is nearest, in a straight line,
               to a named small one (of equally near ones the first that is read)
    width:     columns of a grid, at most; eval.lengths are widths
    narrowest: columns of the narrowest grids; None: all have `width`
    height:    rows of a grid, at most; each number from `lowest` on equally often
    lowest:    rows of the lowest grids

    Letters are small and capital; where one is named, all of a grid differ. A grid is wholly in
    training or in evaluation. A row of text is one problem.
    """

    alphabet = "?/=#" + ascii_letters
    letters = ascii_letters
    packs = False

    def __init__(
        self,
        ask: Ask = "copy",
        width: int = 5,
        narrowest: int | None = 2,
        height: int = 5,
        lowest: int = 2,
    ):
        super().__init__()
        self.names_a_cell = ask not in ("copy", "transpose")
        check_between(2, 50, height=height)
        check_between(2, height, lowest=lowest)
        most = len(ascii_letters) // height if self.names_a_cell else 50
        self.set_lengths(narrowest, 2, most, width=width)
        self.ask, self.lowest, self.height = ask, lowest, height

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """The number of the named cell, 0 if none is, columns, rows, and the letters of cells, −1
        beyond the grid: [n, 3 + width · height].
        """
        narrowest, widest = self.lengths
        width = rng.integers(narrowest, widest + 1, size=(n, 1))
        height = rng.integers(self.lowest, self.height + 1, size=(n, 1))
        size = (n, self.width * self.height)
        named = np.zeros((n, 1), dtype=int)
        if self.names_a_cell:
            right, below = int(self.ask == "right"), int(self.ask == "below")
            column, row = rng.integers(width - right), rng.integers(height - below)
            named = row * width + column
            order = rng.permuted(np.broadcast_to(LETTERS, (n, len(LETTERS))), axis=1)
            if self.ask == "nearest":
                other = (named + rng.integers(1, width * height)) % (width * height)
                _swap(order, named, order < CAPITAL)
                _swap(order, other, order >= CAPITAL)
            cells = order[:, : size[1]]
        else:
            cells = rng.integers(len(LETTERS), size=size)
        cells = np.where(np.arange(size[1]) < width * height, cells, -1)
        return np.concatenate([named, width, height, cells], axis=1)

    def split_key(self, drawn: np.ndarray) -> np.ndarray:
        """The grid."""
        return drawn[:, 1:]

    def write(self, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        named, width, height, cells = np.split(drawn, [1, 2, 3], axis=1)
        columns = (self.width + 1) * self.height
        grid = _written(cells, width, height, columns)
        if not self.names_a_cell:
            answer = grid
            if self.ask == "transpose":
                cells = _transposed(cells, width, height)
                answer = _written(cells, height, width, (self.height + 1) * self.width)
            return join("?", grid, "="), join(answer[:, 1:], "#")
        answer = {"right": named + 1, "below": named + width}.get(self.ask)
        if answer is None:
            answer = _nearest_capital(cells, named, width)
        name, letter = (
            spell(ascii_letters, np.take_along_axis(cells, cell, axis=1))
            for cell in (named, answer)
        )
        return join("?", name, grid, "="), join(letter, "#")

    def coordinates(self, prompts: np.ndarray) -> np.ndarray:
        """Row and column of each token; of those before a grid −1 and −1."""
        place = np.arange(prompts.shape[1])
        end = (prompts != BLANK).sum(axis=1, keepdims=True) - 1  # where `=` stands
        slash = prompts == SLASH
        row = np.cumsum(slash, axis=1) - 1
        last = np.maximum.accumulate(np.where(slash, place, 0), axis=1)
        column = np.where(row < 0, -1, place - last - 1)

        first = np.argmax(slash, axis=1)[:, None]
        height = slash.sum(axis=1, keepdims=True)
        width = (end - first) // np.maximum(height, 1) - 1
        answer_width = height if self.ask == "transpose" else width
        answer_row, answer_column = np.divmod(place - end, np.maximum(answer_width, 0) + 1)
        if self.names_a_cell:
            answer_row = np.full_like(row, -1)
            answer_column = np.zeros_like(row)
        answered = place >= end
        row = np.where(answered, answer_row, row)
        return np.stack([row, np.where(answered, answer_column - 1, column)], axis=2)

    def attributes(self, drawn: np.ndarray) -> dict[str, np.ndarray]:
        return {"width": drawn[:, 1], "height": drawn[:, 2]}


def _swap(order: np.ndarray, cell: np.ndarray, fits: np.ndarray) -> None:
    """Exchange the letter of a cell in each row, [n, 1], with the first of those that fit."""
    first = np.argmax(fits, axis=1)[:, None]
    letters = np.take_along_axis(order, first, axis=1)
    np.put_along_axis(order, first, np.take_along_axis(order, cell, axis=1), axis=1)
    np.put_along_axis(order, cell, letters, axis=1)


def _written(cells: np.ndarray, width: np.ndarray, height: np.ndarray, columns: int) -> np.ndarray:
    """Rows of letters, `/` before each: character codes [n, columns]."""
    row, place = np.divmod(np.arange(columns), width + 1)
    cell = np.clip(row * width + place - 1, 0, cells.shape[1] - 1)
    letters = spell(ascii_letters, np.take_along_axis(cells, cell, axis=1))
    codes = np.where(place == 0, SLASH, letters)
    return np.where(row < height, codes, BLANK).astype(np.uint8)


def _transposed(cells: np.ndarray, width: np.ndarray, height: np.ndarray) -> np.ndarray:
    """The cells column by column."""
    column, row = np.divmod(np.arange(cells.shape[1]), height)
    source = np.where(column < width, row * width + column, -1)
    return np.where(source >= 0, np.take_along_axis(cells, np.maximum(source, 0), axis=1), -1)


def _nearest_capital(cells: np.ndarray, named: np.ndarray, width: np.ndarray) -> np.ndarray:
    """The number of the nearest cell with a capital letter, [n, 1]."""
    row, column = np.divmod(np.arange(cells.shape[1]), width)
    own_row, own_column = np.divmod(named, width)
    distance = (row - own_row) ** 2 + (column - own_column) ** 2
    distance = np.where(cells >= CAPITAL, distance, distance.max() + 1)
    return np.argmin(distance, axis=1)[:, None]
