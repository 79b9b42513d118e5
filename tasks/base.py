"""`PackedTask`, the base class of tasks whose text is problem after problem, and its characters.

A problem is a prompt and its one right completion. A `PackedTask` has three members to implement:
`draw` (problems as integers), `write` (problems as characters) and, if parts of a completion are
graded too, `grade`. Tokens with positions of their own have `coordinates`. Its own base class,
`Task`, can be imported from here too.
"""

import copy
import functools
import sys
from abc import abstractmethod
from collections.abc import Iterator

import numpy as np

from rope_lab.text import ConfigError

from .split import HELD_OUT_SHARE, draw_side
from .task import Problem, Task, Text, different

BLANK = 0  # an empty place in an array of characters
MOST = 30_000  # letters or tokens of a problem; answer positions are int16


class PackedTask(Task):
    """A task whose text is problem after problem. A subclass draws problems and writes them.

    Lengths are drawn uniformly. But the end of a row cuts its last problem, most often a long one:
    short problems are whole in training text more often than long ones. And short problems are
    few, so that evaluation, whose problems all differ, has few of them.

    lengths:          least and greatest of problems; None: problems have no length
    width:            the greatest length for which drawn problems have columns
    possible_lengths: least and greatest that `of_length` takes
    letters:          of the strings that `draw_strings` draws
    packs:            False: a row of text is one problem, then padding, which is no answer
    """

    version = 2
    lengths: tuple[int, int] | None = None
    width: int
    possible_lengths: tuple[int, int]
    letters: str
    packs: bool = True

    @abstractmethod
    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """`n` random problems as integers, [n, columns]."""

    @abstractmethod
    def write(self, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Prompts [n, P] and completions [n, C] as character codes, `BLANK` where a problem is
        shorter.
        """

    def answers_within(self, drawn: np.ndarray) -> np.ndarray:
        """The answers of one token within prompts, which count in text: bool [n, P], or one for
        all.
        """
        return np.zeros((1, 1), dtype=bool)

    def coordinates(self, prompts: np.ndarray) -> np.ndarray | None:
        """Axes of the positions of each token beside its number in the row, [n, columns] or
        [n, columns, axes]; None: there are none.

        prompts: character codes [n, columns], `BLANK` from the end of a prompt on. The completion
            stands there, of which positions cannot know more.
        """
        return None

    def positions(self, prompt: np.ndarray, length: int) -> np.ndarray | None:
        codes = np.full((1, length), BLANK)
        codes[0, : len(prompt)] = self._code_of[prompt]
        axes = self._axes(codes)
        return _with_count(axes)[0] if axes.shape[2] else None

    def split_key(self, drawn: np.ndarray) -> np.ndarray:
        """The integers whose hash decides whether a problem is held out, [n, columns]."""
        return drawn

    def attributes(self, drawn: np.ndarray) -> dict[str, np.ndarray]:
        """The integers by which results are sliced, each [n]."""
        return {}

    def draw_strings(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Indices into `letters`, uniform, −1 beyond a string's end, [n, width]; lengths of
        strings, [n, 1].
        """
        strings = rng.integers(len(self.letters), size=(n, self.width))
        length = rng.integers(self.lengths[0], self.lengths[1] + 1, size=(n, 1))
        return np.where(np.arange(self.width) < length, strings, -1), length

    def set_lengths(
        self, shortest: int | None, least: int = 1, most: int = MOST, **longest: int
    ) -> None:
        """Set `lengths` from two settings, the second by the name of the argument that it is;
        `shortest=None`: all problems have the longest.
        """
        check_between(least, most, **longest)
        ((self.longest_setting, self.width),) = longest.items()
        self.lengths = (self.width if shortest is None else shortest, self.width)
        check_between(least, self.width, shortest=self.lengths[0])
        self.possible_lengths = (least, most)

    def of_length(self, n: int) -> "PackedTask":
        if self.lengths is None:
            super().of_length(n)
        check_between(*self.possible_lengths, length=n)
        task = copy.copy(self)
        task.lengths = (n, n)
        task.width = max(n, self.width)
        for measured in ("max_length", "_mean_length"):
            task.__dict__.pop(measured, None)
        return task

    @functools.cached_property
    def max_length(self) -> int:
        """Columns of prompts and completions: the most tokens of a problem, or more."""
        return sum(part.shape[1] for part in self.write(self.draw(np.random.default_rng(0), 1)))

    @functools.cached_property
    def _mean_length(self) -> float:
        """An estimate of the tokens of a problem, by which enough problems are drawn at once."""
        return len(self._packed(self.draw(np.random.default_rng(0), 256))[0]) / 256

    def text(
        self, rng: np.random.Generator, rows: int, length: int, held_out: bool = False
    ) -> Text:
        if not self.packs:
            return self._one_a_row(self.of_side(rng, rows, held_out)[:rows], length)
        # Tokens needed: a row drops less than one problem at its end.
        most = rows * (length + self.max_length)
        tokens, parts, begins, begin = np.empty(0), [], [], 0  # each row begins with a problem
        while len(begins) < rows:
            number = int((most - len(tokens)) / self._mean_length) + 16
            parts.append(self._packed(self.of_side(rng, number, held_out)))
            tokens, position, lengths, axes = map(np.concatenate, zip(*parts, strict=True))
            ends = np.cumsum(lengths)
            while len(begins) < rows and begin + length <= len(tokens):
                begins.append(begin)
                # After the problem that the row's end cuts.
                begin = ends[np.searchsorted(ends, begin + length)]
        index = np.array(begins)[:, None] + np.arange(length)
        positions = _with_count(axes[index]) if axes.shape[1] else None
        return Text(tokens[index], position[index], positions)

    def _one_a_row(self, drawn: np.ndarray, length: int) -> Text:
        """A problem in each row, cut at `length`, then token 0."""
        tokens, position, lengths, axes = self._packed(drawn)
        longest = max(length, int(lengths.max()))
        within = np.arange(longest) < lengths[:, None]
        padded = []
        for values in (tokens, position, axes):
            rows = np.zeros((*within.shape, *values.shape[1:]), dtype=values.dtype)
            rows[within] = values
            padded.append(rows[:, :length])
        positions = _with_count(padded[2]) if axes.shape[1] else None
        return Text(padded[0], padded[1], positions)

    def problems(self, rng: np.random.Generator, n: int) -> list[Problem]:
        def batch() -> Iterator[Problem]:
            drawn = self.of_side(rng, 256, held_out=True)
            attributes = self.attributes(drawn)
            for row, (prompt, completion) in enumerate(zip(*self.write(drawn), strict=True)):
                parts = [self._token_of[part[part != BLANK]] for part in (prompt, completion)]
                values = {name: int(column[row]) for name, column in attributes.items()}
                tokens = np.concatenate(parts)
                positions = self.positions(parts[0], len(tokens))
                yield Problem(tokens, len(parts[0]), values, self.decode, positions)

        return different(batch, n)

    def of_side(self, rng: np.random.Generator, n: int, held_out: bool) -> np.ndarray:
        """`n` drawn problems that are held out, or those that are not."""
        share = HELD_OUT_SHARE if held_out else 1 - HELD_OUT_SHARE
        return draw_side(
            held_out, n, lambda missing: self.draw(rng, int(missing / share) + 16), self.split_key
        )

    def _packed(self, drawn: np.ndarray) -> tuple[np.ndarray, ...]:
        """Problem after problem: tokens and answer positions, [total] each; the tokens of each
        problem, [n]; and the axes of `coordinates`, [total, axes].
        """
        prompts, completions = self.write(drawn)
        if completions.shape[1] >= 2**15:
            raise ConfigError(
                f"an answer takes up to {completions.shape[1]:,} tokens, {2**15 - 1:,} is the most"
            )
        codes = np.concatenate([prompts, completions], axis=1)
        written = codes != BLANK
        along = np.cumsum(completions != BLANK, axis=1, dtype=np.int16)
        within = np.broadcast_to(self.answers_within(drawn), prompts.shape)
        lengths = written.sum(axis=1)
        axes = self._axes(_left_aligned(prompts, codes.shape[1]))
        return (
            self._token_of[codes[written]],
            np.concatenate([within, along], axis=1)[written],
            lengths,
            axes[np.arange(codes.shape[1]) < lengths[:, None]],
        )

    def _axes(self, prompts: np.ndarray) -> np.ndarray:
        """`coordinates`, [n, columns, axes], of which there may be none."""
        axes = self.coordinates(prompts)
        if axes is None:
            return np.empty((*prompts.shape, 0))
        if np.issubdtype(axes.dtype, np.integer):  # unsigned ones become real beside signed ones
            axes = axes.astype(np.int64)
        return axes if axes.ndim == 3 else axes[:, :, None]

    @functools.cached_property
    def _token_of(self) -> np.ndarray:
        """The token of each character code, [characters]."""
        token_of = np.zeros(sys.maxunicode + 1, dtype=np.uint16)
        token_of[[ord(c) for c in self.alphabet]] = np.arange(len(self.alphabet))
        return token_of

    @functools.cached_property
    def _code_of(self) -> np.ndarray:
        """The character code of each token, [alphabet]."""
        return np.array([ord(c) for c in self.alphabet])


def _left_aligned(codes: np.ndarray, width: int) -> np.ndarray:
    """Character codes [n, columns] without blanks between them, then blanks: [n, width]."""
    order = np.argsort(codes == BLANK, axis=1, kind="stable")
    aligned = np.take_along_axis(codes, order, axis=1)
    return np.pad(aligned, ((0, 0), (0, width - codes.shape[1])), constant_values=BLANK)


def _with_count(axes: np.ndarray) -> np.ndarray:
    """The number of each token in its row before its other axes, [rows, length, 1 + axes]."""
    number = np.broadcast_to(np.arange(axes.shape[1])[:, None], (*axes.shape[:2], 1))
    return np.concatenate([number, axes], axis=2)


def join(*parts: str | np.ndarray) -> np.ndarray:
    """Strings and arrays of character codes [n, width] side by side, uint8 [n, total width]."""
    n = max((len(p) for p in parts if isinstance(p, np.ndarray)), default=1)
    constant = (
        np.frombuffer(p.encode("ascii"), dtype=np.uint8) if isinstance(p, str) else p for p in parts
    )
    return np.concatenate([np.broadcast_to(c, (n, c.shape[-1])) for c in constant], axis=1).astype(
        np.uint8
    )


def spell(letters: str, indices: np.ndarray) -> np.ndarray:
    """Indices into ASCII letters as character codes, uint8 of the same shape, `BLANK` where
    negative.
    """
    return np.where(
        indices >= 0, np.frombuffer(letters.encode("ascii"), np.uint8)[indices], BLANK
    ).astype(np.uint8)


def decimal(numbers: np.ndarray, width: int) -> np.ndarray:
    """Numbers [n] below 10**width as decimal characters, uint8 [n, width], `BLANK` before the first
    digit.
    """
    digits = numbers[:, None] // 10 ** np.arange(width - 1, -1, -1)
    return np.where(
        (digits > 0) | (np.arange(width) == width - 1), digits % 10 + ord("0"), BLANK
    ).astype(np.uint8)


def check_letters(letters: str, reserved: str, least: int) -> None:
    """Raise ConfigError unless `letters` are `least` or more different printable ASCII characters,
    none reserved.
    """
    allowed = {chr(code) for code in range(ord(" "), 127)} - set(reserved)
    if not set(letters) <= allowed or not least <= len(letters) == len(set(letters)):
        need = f"must be at least {least} different printable ASCII characters, none of {reserved}"
        raise ConfigError(f"letters={letters}: {need}")


def check_between(least: int, most: int, **sizes: int) -> None:
    """Raise ConfigError naming the first of `sizes` that is not a whole number in that range."""
    for name, size in sizes.items():
        if type(size) is not int or not least <= size <= most:
            raise ConfigError(f"{name}={size}: must be a whole number from {least} to {most:,}")
