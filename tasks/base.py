"""The members of a task, and of one whose text is problem after problem: packing, masks, the train/held-out split.

A problem is a prompt and its one right completion. A `PackedTask` has three members to implement: `draw` (problems as
integers), `write` (problems as characters) and, if parts of a completion are graded too, `grade`.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

LossOn = Literal["all", "answer"]

HASH_CLASSES = 16  # a problem is held out if its stable hash falls into the first of these classes
BLANK = 0  # in an array of characters: nothing is written here
LONGEST_ANSWER = np.iinfo(np.int16).max  # tokens; answer positions are int16


@dataclass(frozen=True, eq=False)
class Problem:
    """A prompt and its right completion.

    tokens:        unsigned integers [length], first the prompt's, then the completion's
    prompt_length: tokens of the prompt
    attributes:    integers by which results are sliced
    decode:        tokens to characters, for display
    """

    tokens: np.ndarray
    prompt_length: int
    attributes: dict[str, int]
    decode: Callable[[np.ndarray], str] = field(repr=False)

    @property
    def length(self) -> int:
        """Tokens of prompt and completion together."""
        return len(self.tokens)

    @property
    def prompt(self) -> str:
        return self.decode(self.tokens[: self.prompt_length])

    @property
    def completion(self) -> str:
        return self.decode(self.tokens[self.prompt_length :])

    def __eq__(self, other: object) -> bool:
        parts = [(p.tokens.tolist(), p.prompt_length, p.attributes) for p in (self, other) if isinstance(p, Problem)]
        return len(parts) == 2 and parts[0] == parts[1]


class Text(NamedTuple):
    """Rows of training or held-out text.

    tokens:          unsigned integers [rows, length], indices into the task's alphabet
    answer_position: int16 [rows, length], 1, 2, … along each answer and 0 outside; evaluation counts where it is not 0
    """

    tokens: np.ndarray
    answer_position: np.ndarray


class Task(ABC):
    """A language to learn.

    alphabet:     every character (or string) that the task can write; a token is an index into it
    stop:         the character that ends a completion, or None if its length does
    grades:       names of the results of `grade`, all of which the right completion gets; completions are generated if
                  there is more than `accuracy`; none: problems are prompts to continue
    score:        the grade by which the write-up counts a problem as right
    max_length:   the most tokens of a problem (prompt and completion)
    one_document: a row of text is one document in which everything before counts, not problem after problem
    token_bytes:  bytes of each token's text, [alphabet]; None: the text is not measured in bytes
    version:      raised when the same generator gives other text or problems: checkpoints of another are refused
    loss_on:      the tokens that the training loss counts: `all`, or those of the `answer`
    name:         of the file or folder that the text is from; empty if the task writes its own
    kept:         text that a run keeps, to be set when the run is read without the task's data; None: none is needed
    """

    version: int = 1
    alphabet: str | list[str]
    stop: str | None = "#"
    grades: tuple[str, ...] = ("accuracy",)
    score: str = "accuracy"
    max_length: int
    one_document: bool = False
    token_bytes: np.ndarray | None = None
    name: str = ""
    kept: str | None = None

    def __init__(self, loss_on: LossOn = "answer"):
        if loss_on not in ("all", "answer"):
            raise ValueError(f"loss_on={loss_on}: must be all or answer")
        self.loss_on = loss_on

    @classmethod
    def resolve(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """The task's settings as a run records them: without those of this machine alone, such as a path."""
        return settings

    @abstractmethod
    def text(self, rng: np.random.Generator, rows: int, length: int, held_out: bool = False) -> Text:
        """Rows of text of `length` tokens, each beginning a document of its own; the end of a row may cut a problem.

        Training text holds no held-out problem; held-out text holds no others.
        """

    @abstractmethod
    def problems(self, rng: np.random.Generator, n: int) -> list[Problem]:
        """`n` different held-out problems; a larger `n` extends the same list. Raises ValueError if there are fewer."""

    def of_length(self, n: int) -> "Task":
        """The same task, in the same format, with problems all of length `n`, in a unit of its own (letters, digits).

        Problems that are also problems of this task stay on their side of the train/held-out split. Raises ValueError
        if there are none of that length.
        """
        raise ValueError(f"{type(self).__name__} does not define longer problems (of_length)")

    def floor(self, tokens: np.ndarray) -> np.ndarray:
        """The Bayes-optimal loss of each answer token in rows of text, in nats: float64 [rows, length]."""
        return np.zeros(tokens.shape)

    def grade(self, problem: Problem, completion: str) -> dict[str, bool]:
        """Each of `grades` of a completion, which may continue after the problem's end."""
        return {"accuracy": completion.startswith(problem.completion)} if self.grades else {}

    def encode(self, text: str) -> np.ndarray:
        """Characters to tokens, uint8 [len(text)]. Raises ValueError on a character outside the alphabet."""
        if unknown := sorted(set(text) - set(self.alphabet)):
            raise ValueError(f"characters {''.join(unknown)!r} are not in the task's alphabet {self.alphabet!r}")
        return np.array([self.alphabet.index(c) for c in text], dtype=np.uint8)

    def decode(self, tokens: np.ndarray) -> str:
        """Tokens [n] to characters."""
        return "".join(self.alphabet[t] for t in tokens)


class PackedTask(Task):
    """A task whose text is problem after problem. A subclass draws problems and writes them."""

    version = 2

    @abstractmethod
    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """`n` random problems as integers, [n, columns]."""

    @abstractmethod
    def write(self, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Prompts [n, P] and completions [n, C] as character codes, `BLANK` where a problem is shorter."""

    def split_key(self, drawn: np.ndarray) -> np.ndarray:
        """The integers whose hash decides whether a problem is held out, [n, columns]."""
        return drawn

    def attributes(self, drawn: np.ndarray) -> dict[str, np.ndarray]:
        """The integers by which results are sliced, each [n]."""
        return {}

    @functools.cached_property
    def max_length(self) -> int:
        """Tokens of the widest prompt and the widest completion."""
        return sum(part.shape[1] for part in self.write(self.draw(np.random.default_rng(0), 1)))

    def text(self, rng: np.random.Generator, rows: int, length: int, held_out: bool = False) -> Text:
        most = rows * (length + self.max_length)  # tokens needed: a row drops less than one problem at its end
        tokens, position, ends = (np.empty(0, dtype) for dtype in (np.uint8, np.int16, np.int64))
        begins, begin = [], 0  # each row begins with a problem
        while len(begins) < rows:
            drawn = self._draw_split(rng, int((most - len(tokens)) / self._mean_length) + 16, held_out)
            more_tokens, more_position, more_ends = self._write_all(drawn)
            ends = np.concatenate([ends, len(tokens) + more_ends])
            tokens, position = np.concatenate([tokens, more_tokens]), np.concatenate([position, more_position])
            while len(begins) < rows and begin + length <= len(tokens):
                begins.append(begin)
                begin = ends[np.searchsorted(ends, begin + length)]  # after the problem that the row's end cuts
        index = np.array(begins)[:, None] + np.arange(length)
        return Text(tokens[index], position[index])

    def problems(self, rng: np.random.Generator, n: int) -> list[Problem]:
        def batch() -> Iterator[Problem]:
            drawn = self._draw_split(rng, 256, held_out=True)
            tokens, position, ends = self._write_all(drawn)
            attributes = self.attributes(drawn)
            for i, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
                prompt_length = int(np.count_nonzero(position[begin:end] == 0))
                values = {name: int(column[i]) for name, column in attributes.items()}
                yield Problem(tokens[begin:end], prompt_length, values, self.decode)

        return different(batch, n)

    def _write_all(self, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Problem after problem: tokens and answer positions, [total] each, and the end of each problem, [n]."""
        prompts, completions = self.write(drawn)
        if completions.shape[1] > LONGEST_ANSWER:
            raise ValueError(f"an answer takes up to {completions.shape[1]:,} tokens, {LONGEST_ANSWER:,} is the most")
        codes = np.concatenate([prompts, completions], axis=1)
        lengths, answer_lengths = ((part != BLANK).sum(axis=1) for part in (codes, completions))
        ends = np.cumsum(lengths)
        token_of = np.zeros(128, dtype=np.uint8)
        token_of[[ord(c) for c in self.alphabet]] = np.arange(len(self.alphabet))
        tokens = token_of[codes[codes != BLANK]]
        position = np.arange(1, len(tokens) + 1) - np.repeat(ends - answer_lengths, lengths)
        return tokens, np.maximum(position, 0).astype(np.int16), ends

    def _draw_split(self, rng: np.random.Generator, n: int, held_out: bool) -> np.ndarray:
        """At least `n` problems, all held out or none, [≥ n, columns]. Raises ValueError if hardly any are such."""
        kept, total = [], 0
        share = 1 / HASH_CLASSES if held_out else 1 - 1 / HASH_CLASSES
        for _ in range(100):
            drawn = self.draw(rng, int((n - total) / share) + 16)
            kept.append(drawn[is_held_out(self.split_key(drawn)) == held_out])
            total += len(kept[-1])
            if total >= n:
                return np.concatenate(kept)
        side = "evaluation" if held_out else "training"
        raise ValueError(f"hardly any problems of the task belong to {side}, it is too small: make its problems larger")

    @functools.cached_property
    def _mean_length(self) -> float:
        """About how many tokens a problem takes: the number drawn at once nearly always suffices."""
        return len(self._write_all(self.draw(np.random.default_rng(0), 256))[0]) / 256


def is_held_out(columns: np.ndarray) -> np.ndarray:
    """The held-out ones among rows of integers [n, columns]: bool [n], the same on every machine and for ever."""
    factors = np.cumprod(np.full(columns.shape[1], 0x9E3779B97F4A7C15, dtype=np.uint64))
    h = ((columns.astype(np.uint64) + np.uint64(1)) * factors).sum(axis=1, dtype=np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):  # the finalizer of splitmix64
        h = (h ^ (h >> np.uint64(shift))) * np.uint64(factor)
    return h % np.uint64(HASH_CLASSES) == 0


def join(*parts: str | np.ndarray) -> np.ndarray:
    """Strings and arrays of character codes [n, width] side by side, uint8 [n, total width]."""
    n = max((len(p) for p in parts if isinstance(p, np.ndarray)), default=1)
    constant = (np.frombuffer(p.encode("ascii"), dtype=np.uint8) if isinstance(p, str) else p for p in parts)
    return np.concatenate([np.broadcast_to(c, (n, c.shape[-1])) for c in constant], axis=1).astype(np.uint8)


def decimal(numbers: np.ndarray, width: int) -> np.ndarray:
    """Numbers [n] below 10**width as decimal characters, uint8 [n, width], `BLANK` before the first digit."""
    digits = numbers[:, None] // 10 ** np.arange(width - 1, -1, -1)
    return np.where((digits > 0) | (np.arange(width) == width - 1), digits % 10 + ord("0"), BLANK).astype(np.uint8)


def check_letters(letters: str, reserved: str, least: int) -> None:
    """Raise ValueError unless `letters` are `least` or more different printable ASCII characters, none reserved."""
    allowed = {chr(code) for code in range(ord(" "), 127)} - set(reserved)
    if not set(letters) <= allowed or not least <= len(letters) == len(set(letters)):
        need = f"must be at least {least} different printable ASCII characters, none of {reserved}"
        raise ValueError(f"letters={letters}: {need}")


def check_between(least: int, most: int, **sizes: int) -> None:
    """Raise ValueError naming the first of `sizes` that is not a whole number in that range."""
    for name, size in sizes.items():
        if type(size) is not int or not least <= size <= most:
            raise ValueError(f"{name}={size}: must be a whole number from {least} to {most:,}")


def different(batch: Callable[[], Iterable[Problem]], n: int) -> list[Problem]:
    """The first `n` problems with different prompts. Raises ValueError if 50 batches in a row bring no new one."""
    found: dict[bytes, Problem] = {}  # by prompt
    repeats = 0
    while len(found) < n:
        before = len(found)
        for problem in batch():
            found.setdefault(problem.tokens[: problem.prompt_length].tobytes(), problem)
        repeats = repeats + 1 if len(found) == before else 0
        if repeats == 50:
            raise ValueError(f"{n:,} different evaluation problems are more than the task has, it has about {before:,}")
    return list(found.values())[:n]
