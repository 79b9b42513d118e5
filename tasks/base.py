"""What the tasks share: packed training text, problems to grade, and the train/held-out split.

A problem is a prompt and the one right completion of it. A task written as a `PackedTask` says how problems are
drawn (as integers) and how they are written (as characters); packing, masks, splitting and grading follow from that.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

LossOn = Literal["all", "answer"]

HASH_CLASSES = 16  # a problem is held out if its stable hash falls into the first of so many classes
BLANK = 0  # in an array of characters: nothing is written here
LONGEST_ANSWER = np.iinfo(np.int16).max  # tokens; answer positions are kept in so many bits
DRAWS = 100_000  # problems that may be drawn in any case while new ones are looked for


@dataclass(frozen=True, eq=False)
class Problem:
    """A prompt and its right completion.

    tokens:        unsigned integers [length], the prompt's and then the completion's
    prompt_length: how many of them are the prompt's
    attributes:    the numbers by which results are sliced
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
        return (
            isinstance(other, Problem)
            and (self.prompt_length, self.attributes) == (other.prompt_length, other.attributes)
            and np.array_equal(self.tokens, other.tokens)
        )


@dataclass(frozen=True)
class Text:
    """Rows of packed training text.

    tokens:  unsigned integers [rows, length], indices into the task's alphabet
    counted: bool  [rows, length], the tokens that the training loss counts
    answer_position: int16 [rows, length], 1, 2, … along each answer and 0 outside; evaluation counts where it is not 0
    """

    tokens: np.ndarray
    counted: np.ndarray
    answer_position: np.ndarray


class Task(ABC):
    """What the lab asks of a task.

    alphabet:   every character (or string) that the task can write; a token is an index into it
    stop:       the character that ends a completion, or None where its length does
    grades:     the names of what `grade` tells; where there is more than `accuracy`, completions have to be generated;
                none where a problem is only to be written on, and nothing about it is right or wrong
    score:      the grade by which the write-up counts a problem as right
    max_length: no problem (prompt and completion) has more tokens than this
    one_document: a row of text is one document, in which everything before counts, and not problem after problem
    bytes_per_token: of held-out text; None where the task's text is not counted in bytes
    version:    raised when the same generator gives other text or problems: checkpoints of another are refused
    """

    version: int = 1
    alphabet: str | list[str]
    stop: str | None = "#"
    grades: tuple[str, ...] = ("accuracy",)
    score: str = "accuracy"
    max_length: int
    one_document: bool = False
    bytes_per_token: float | None = None

    def __init__(self, loss_on: LossOn = "answer"):
        if loss_on not in ("all", "answer"):
            raise ValueError(f"loss_on={loss_on}: must be all or answer")
        self.loss_on = loss_on

    @classmethod
    def resolve(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """The task's settings without what only this machine knows, such as a path: what a run's record holds."""
        return settings

    @abstractmethod
    def text(self, rng: np.random.Generator, rows: int, length: int, held_out: bool = False) -> Text:
        """Rows of text of `length` tokens, each beginning a document of its own; the end of a row may cut a problem.

        Training text holds no held-out problem; held-out text holds no others.
        """

    @abstractmethod
    def problems(self, rng: np.random.Generator, n: int) -> list[Problem]:
        """`n` different held-out problems; a larger `n` reads further down the same list.

        Raises ValueError where the task has not so many.
        """

    def of_length(self, n: int) -> "Task":
        """The same task, in the same format, with problems all of length `n`, in a unit of its own (letters, digits).

        Problems that are also problems of this task stay on their side of the train/held-out split. Raises ValueError
        where there are none of that length.
        """
        raise ValueError(f"{type(self).__name__} does not say what a longer problem is")

    def floor(self, tokens: np.ndarray) -> np.ndarray:
        """The Bayes-optimal loss at each token of an answer in rows of text, in nats: float64 [rows, length].

        Nothing, unless a task says otherwise: its answers follow from what stands before them.
        """
        return np.zeros(tokens.shape)

    def grade(self, problem: Problem, completion: str) -> dict[str, bool]:
        """What is right about `completion`, which may go on after the problem's end: a bool for each of `grades`.

        The right completion is right by each of them.
        """
        return {"accuracy": completion.startswith(problem.completion)} if self.grades else {}

    def _text(self, tokens: np.ndarray, answer_position: np.ndarray) -> Text:
        counted = answer_position > 0 if self.loss_on == "answer" else np.ones(tokens.shape, dtype=bool)
        return Text(tokens, counted, answer_position)

    def encode(self, text: str) -> np.ndarray:
        """Characters to tokens, uint8 [len(text)]. Raises ValueError at a character that the task does not know."""
        unknown = sorted(set(text) - set(self.alphabet))
        if unknown:
            raise ValueError(f"characters {''.join(unknown)!r} are not in the task's alphabet {self.alphabet!r}")
        return np.array([self.alphabet.index(c) for c in text], dtype=np.uint8)

    def decode(self, tokens: np.ndarray) -> str:
        """Tokens [n] to characters."""
        return "".join(self.alphabet[t] for t in tokens)


class PackedTask(Task):
    """A task whose text is one problem after another. A subclass says how problems are drawn and how written."""

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
        """The numbers by which results are sliced, each [n]."""
        return {}

    @functools.cached_property
    def max_length(self) -> int:
        """Tokens that the widest prompt and the widest completion take."""
        prompts, completions = self.write(self.draw(np.random.default_rng(0), 1))
        return prompts.shape[1] + completions.shape[1]

    def text(self, rng: np.random.Generator, rows: int, length: int, held_out: bool = False) -> Text:
        enough = rows * (length + self.max_length)  # tokens, in any case: a row drops less than one problem at its end
        tokens, position, ends = (np.empty(0, dtype) for dtype in (np.uint8, np.int16, np.int64))
        begins, begin = [], 0  # each row begins where a problem does
        while len(begins) < rows:
            more = self._draw_split(rng, int((enough - len(tokens)) / self._mean_length) + 16, held_out)
            more_tokens, more_position, more_ends = self._written(more)
            ends = np.concatenate([ends, len(tokens) + more_ends])
            tokens, position = np.concatenate([tokens, more_tokens]), np.concatenate([position, more_position])
            while len(begins) < rows and begin + length <= len(tokens):
                begins.append(begin)
                begin = ends[np.searchsorted(ends, begin + length)]  # after the problem that the row's end cuts
        index = np.array(begins)[:, None] + np.arange(length)
        return self._text(tokens[index], position[index])

    def problems(self, rng: np.random.Generator, n: int) -> list[Problem]:
        found: dict[bytes, Problem] = {}  # by prompt
        while len(found) < n:
            before = len(found)
            drawn = self._draw_split(rng, 256, held_out=True)
            tokens, position, ends = self._written(drawn)
            attributes = self.attributes(drawn)
            for i, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
                prompt_length = int(np.count_nonzero(position[begin:end] == 0))
                of_problem = {name: int(values[i]) for name, values in attributes.items()}
                problem = Problem(tokens[begin:end], prompt_length, of_problem, self.decode)
                found.setdefault(problem.tokens[:prompt_length].tobytes(), problem)
            check_new(n, before, len(found), len(drawn))
        return list(found.values())[:n]

    def _written(self, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Problem after problem: tokens and answer positions of all, [total] each, and where each problem ends, [n]."""
        prompts, completions = self.write(drawn)
        if completions.shape[1] > LONGEST_ANSWER:
            raise ValueError(
                f"an answer takes up to {completions.shape[1]:,} tokens, and {LONGEST_ANSWER:,} is the most"
            )
        codes = np.concatenate([prompts, completions], axis=1)
        lengths, answer_lengths = ((part != BLANK).sum(axis=1) for part in (codes, completions))
        ends = np.cumsum(lengths)
        tokens = self._token_of[codes[codes != BLANK]]
        position = np.arange(1, len(tokens) + 1) - np.repeat(ends - answer_lengths, lengths)
        return tokens, np.maximum(position, 0).astype(np.int16), ends

    def _draw_split(self, rng: np.random.Generator, n: int, held_out: bool) -> np.ndarray:
        """At least `n` problems, all held out or none, [≥ n, columns]. Raises ValueError where hardly any are such."""
        kept, total = [], 0
        share = 1 / HASH_CLASSES if held_out else 1 - 1 / HASH_CLASSES
        for _ in range(100):
            drawn = self.draw(rng, int((n - total) / share) + 16)
            kept.append(drawn[is_held_out(self.split_key(drawn)) == held_out])
            total += len(kept[-1])
            if total >= n:
                return np.concatenate(kept)
        side = "evaluation" if held_out else "training"
        raise ValueError(
            f"the task is too small, hardly any of its problems belong to {side}: make its problems larger"
        )

    @functools.cached_property
    def _mean_length(self) -> float:
        """About how many tokens a problem takes: so many problems are drawn at once that they nearly always suffice."""
        tokens, _, _ = self._written(self.draw(np.random.default_rng(0), 256))
        return len(tokens) / 256

    @functools.cached_property
    def _token_of(self) -> np.ndarray:
        """Character code to token, uint8 [128]."""
        table = np.zeros(128, dtype=np.uint8)
        table[[ord(c) for c in self.alphabet]] = np.arange(len(self.alphabet))
        return table


def is_held_out(columns: np.ndarray) -> np.ndarray:
    """Which rows of integers [n, columns] are held out: bool [n], the same on every machine and for ever."""
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


def check_characters(name: str, letters: str, reserved: str, least: int = 1) -> None:
    """Raises ValueError unless `letters` are `least` or more different ASCII characters outside of `reserved`."""
    wrong = sorted(set(letters) & set(reserved)) or [c for c in letters if not c.isascii() or not c.isprintable()]
    if wrong or len(letters) != len(set(letters)) or len(letters) < least:
        raise ValueError(
            f"{name}={letters}: must be at least {least} different printable ASCII characters, none of {reserved}"
        )


def check_at_least(least: int, **sizes: int) -> None:
    """Raises ValueError that names the first of `sizes` that is smaller than `least`."""
    for name, size in sizes.items():
        if size < least:
            raise ValueError(f"{name}={size}: must be at least {least}")


def check_between(least: int, most: int, **sizes: int) -> None:
    """Raises ValueError that names the first of `sizes` that is smaller than `least` or greater than `most`."""
    for name, size in sizes.items():
        if not least <= size <= most:
            raise ValueError(f"{name}={size}: must be at least {least} and at most {most:,}")


def check_new(n: int, before: int, now: int, drawn: int) -> None:
    """Raises ValueError where `n` different problems are too many to be found by drawing.

    `drawn` problems have just raised the number of different ones from `before` to `now`. They are too many where, at
    that rate, the rest would take ten times `n` draws, and no fewer than `DRAWS`: the rate can only fall.
    """
    if now < n and (n - now) * drawn > max(10 * n, DRAWS) * (now - before):
        raise ValueError(
            f"{n:,} different evaluation problems are more than the task has, or nearly all: after {now:,} hardly any "
            "new one is drawn"
        )


def check_range(shortest: int | None, longest: int, least: int) -> tuple[int, int]:
    """`shortest` (`least` where it is None) and `longest`. Raises ValueError unless 1 ≤ shortest ≤ longest."""
    shortest = least if shortest is None else shortest
    if type(shortest) is not int or not 1 <= shortest <= longest:
        raise ValueError(f"shortest={shortest}: must be a whole number from 1 to {longest}, the longest")
    return shortest, longest


def show(task: Task, length: int = 110) -> None:
    """Prints a few rows of training text, the counted characters marked, and a few problems."""
    rng = np.random.default_rng(0)
    text = task.text(rng, 4, length)
    print("training text; ^ marks what the loss counts\n")
    for tokens, counted in zip(text.tokens, text.counted, strict=True):
        print("  " + task.decode(tokens))
        print("  " + "".join("^" if c else " " for c in counted).rstrip() + "\n")
    print("evaluation problems\n")
    for problem in task.problems(rng, 3):
        print(
            f"  prompt      {problem.prompt}\n  completion  {problem.completion}\n  attributes  {problem.attributes}\n"
        )
