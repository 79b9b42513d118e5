"""What the tasks share: packed training text, problems to grade, and the wall between training and evaluation.

A problem is a prompt and the one right completion of it. A task written as a `PackedTask` says how problems are
drawn (as integers) and how they are written (as characters); packing, masks, splitting and grading follow from that.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

LossOn = Literal["all", "answer"]

HASH_CLASSES = 16  # a problem belongs to evaluation if its stable hash falls into the first of so many classes
BLANK = 0  # in an array of characters: nothing is written here
LONGEST_ANSWER = np.iinfo(np.int16).max  # tokens; answer positions are kept in so many bits
DRAWS = 100_000  # problems that may be drawn in any case while new ones are looked for


@dataclass(frozen=True)
class Problem:
    """A prompt, its right completion, and the numbers by which results are sliced later."""

    prompt: str
    completion: str
    facts: dict[str, int]

    @property
    def length(self) -> int:
        """Tokens of prompt and completion together."""
        return len(self.prompt) + len(self.completion)


@dataclass(frozen=True)
class Text:
    """Rows of packed training text.

    tokens:  uint8 [rows, length], indices into the task's alphabet
    counted: bool  [rows, length], the tokens that the training loss counts
    place:   int16 [rows, length], 1, 2, … along each answer and 0 outside; evaluation counts where it is not 0
    """

    tokens: np.ndarray
    counted: np.ndarray
    place: np.ndarray


class Task(ABC):
    """What the lab asks of a task.

    alphabet:   every character that the task can write; a token is an index into it
    stop:       the character that ends a completion, or None where its length does
    grades:     the names of what `grade` tells; where there is more than `accuracy`, completions have to be generated
    score:      the grade by which the write-up counts a problem as right
    max_length: no problem (prompt and completion) has more tokens than this
    one_document: a row of text is one document, in which everything before counts, and not problem after problem
    version:    raised when the same generator gives other text or problems: checkpoints of another are refused
    """

    version: int = 1
    alphabet: str
    stop: str | None = "#"
    grades: tuple[str, ...] = ("accuracy",)
    score: str = "accuracy"
    max_length: int
    one_document: bool = False

    def __init__(self, loss_on: LossOn = "answer"):
        if loss_on not in ("all", "answer"):
            raise ValueError(f"loss_on={loss_on}: must be all or answer")
        self.loss_on = loss_on

    @abstractmethod
    def text(self, rng: np.random.Generator, rows: int, length: int, held_out: bool = False) -> Text:
        """Rows of text of `length` tokens, each beginning a document of its own; the end of a row may cut a problem.

        Training text holds no problem of evaluation's hash class; held-out text holds no others.
        """

    @abstractmethod
    def problems(self, rng: np.random.Generator, n: int) -> list[Problem]:
        """`n` different problems of evaluation's hash class; a larger `n` reads further down the same list.

        Raises ValueError where the task has not so many.
        """

    def of_length(self, n: int) -> "Task":
        """The same task, in the same format, with problems all of length `n`, in a unit of its own (letters, digits).

        Problems that are also problems of this task stay on their side of the wall. Raises ValueError where there are
        none of that length.
        """
        raise ValueError(f"{type(self).__name__} does not say what a longer problem is")

    def floor(self, tokens: np.ndarray) -> np.ndarray:
        """What the ideal predictor loses at each token of an answer in rows of text, in nats: float64 [rows, length].

        Nothing, unless a task says otherwise: its answers follow from what stands before them.
        """
        return np.zeros(tokens.shape)

    def grade(self, problem: Problem, completion: str) -> dict[str, bool]:
        """What is right about `completion`, which may go on after the problem's end: a bool for each of `grades`."""
        return {"accuracy": completion.startswith(problem.completion)}

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

    def identity(self, drawn: np.ndarray) -> np.ndarray:
        """The columns that decide to which side of the wall a problem belongs, [n, columns]."""
        return drawn

    def facts(self, drawn: np.ndarray) -> dict[str, np.ndarray]:
        """The numbers by which results are sliced, each [n]."""
        return {}

    @property
    def max_length(self) -> int:
        """Tokens that the widest prompt and the widest completion take."""
        prompts, completions = self.write(self.draw(np.random.default_rng(0), 1))
        return prompts.shape[1] + completions.shape[1]

    def text(self, rng: np.random.Generator, rows: int, length: int, held_out: bool = False) -> Text:
        codes, places, ends = (np.empty(0, dtype) for dtype in (np.uint8, np.int16, np.int64))
        begin, cut = 0, []
        for code, place, lengths in self._written(rng, rows, length, held_out):
            ends = np.concatenate([ends, len(codes) + np.cumsum(lengths)])
            codes, places = np.concatenate([codes, code]), np.concatenate([places, place])
            while len(cut) < rows and begin + length <= len(codes):  # each row begins where a problem begins
                cut.append(begin)
                begin = ends[np.searchsorted(ends, begin + length)]
            if len(cut) == rows:
                break
        index = np.array(cut)[:, None] + np.arange(length)
        place = places[index]
        counted = place > 0 if self.loss_on == "answer" else np.ones_like(place, dtype=bool)
        return Text(self._token_of[codes[index]], counted, place)

    def _written(
        self, rng: np.random.Generator, rows: int, length: int, held_out: bool
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Problem after problem, in parts: characters and places of all, and how many of them each problem has.

        All of it is enough for the rows in any case, the first part mostly.
        """
        enough, total = rows * (length + self.max_length), 0  # a row drops less than one problem, cut off at its end
        first = int(rows * (length / self._mean_length + 1))
        while total < enough:
            drawn = self._draw_side(rng, int((enough - total) / self._mean_length) + 16, held_out)
            for part in filter(len, (drawn[:first], drawn[first:])):
                prompts, completions = self.write(part)
                if completions.shape[1] > LONGEST_ANSWER:
                    raise ValueError(
                        f"an answer takes up to {completions.shape[1]:,} tokens, and {LONGEST_ANSWER:,} is the most"
                    )
                codes = np.concatenate([prompts, completions], axis=1)
                place = np.cumsum(completions != BLANK, axis=1, dtype=np.int16)
                place = np.concatenate([np.zeros_like(prompts, dtype=np.int16), place], axis=1)
                used = codes != BLANK
                yield codes[used], place[used], used.sum(axis=1)
                total += np.count_nonzero(used)

    @functools.cached_property
    def _mean_length(self) -> float:
        """About how many tokens a problem takes: so many problems are drawn at once that they nearly always suffice."""
        prompts, completions = self.write(self.draw(np.random.default_rng(0), 256))
        return np.count_nonzero(np.concatenate([prompts, completions], axis=1) != BLANK) / 256

    def problems(self, rng: np.random.Generator, n: int) -> list[Problem]:
        found: dict[str, Problem] = {}
        while len(found) < n:
            before = len(found)
            drawn = self._draw_side(rng, 256, held_out=True)
            facts = self.facts(drawn)
            for i, (prompt, completion) in enumerate(zip(*self.write(drawn), strict=True)):
                text = _string(prompt)
                found.setdefault(text, Problem(text, _string(completion), {k: int(v[i]) for k, v in facts.items()}))
            check_new(n, before, len(found), len(drawn))
        return list(found.values())[:n]

    def _draw_side(self, rng: np.random.Generator, n: int, held_out: bool) -> np.ndarray:
        """At least `n` problems of one side of the wall, [≥ n, columns]."""
        kept, total = [], 0
        share = 1 / HASH_CLASSES if held_out else 1 - 1 / HASH_CLASSES
        for _ in range(100):
            drawn = self.draw(rng, int((n - total) / share) + 16)
            kept.append(drawn[is_held_out(self.identity(drawn)) == held_out])
            total += len(kept[-1])
            if total >= n:
                return np.concatenate(kept)
        side = "evaluation" if held_out else "training"
        raise ValueError(
            f"the task is too small, hardly any of its problems belong to {side}: make its problems larger"
        )

    @property
    def _token_of(self) -> np.ndarray:
        table = np.zeros(128, dtype=np.uint8)
        table[[ord(c) for c in self.alphabet]] = np.arange(len(self.alphabet))
        return table


def is_held_out(columns: np.ndarray) -> np.ndarray:
    """Which rows of integers [n, columns] belong to evaluation: bool [n], the same on every machine and for ever."""
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
        print(f"  prompt      {problem.prompt}\n  completion  {problem.completion}\n  facts       {problem.facts}\n")


def _string(codes: np.ndarray) -> str:
    return codes[codes != BLANK].tobytes().decode("ascii")
