"""The base class of all tasks, `Task`, and its problems and text."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from rope_lab.text import ConfigError

LossOn = Literal["all", "answer"]


@dataclass(frozen=True, eq=False)
class Problem:
    """A prompt and its right completion.

    tokens:        unsigned integers [length], first the prompt's, then the completion's
    prompt_length: tokens of the prompt
    attributes:    integers by which results are sliced
    decode:        tokens to characters, for display
    positions:     [length] or [length, axes], as `Task.positions` returns them; None: 0, 1, 2, …
    """

    tokens: np.ndarray
    prompt_length: int
    attributes: dict[str, int]
    decode: Callable[[np.ndarray], str] = field(repr=False)
    positions: np.ndarray | None = field(default=None, repr=False)

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


class Text(NamedTuple):
    """Rows of training or held-out text.

    tokens:          unsigned integers [rows, length], indices into the task's alphabet
    answer_position: integers [rows, length], 1, 2, … along each answer and 0 outside; evaluation
                     counts where it is not 0
    positions:       of tokens, integers or float64, [length], [rows, length] or
                     [rows, length, axes]; None: 0, 1, 2, …
    documents:       integers [rows, length]; a token sees those of the same number alone; None: all
    """

    tokens: np.ndarray
    answer_position: np.ndarray
    positions: np.ndarray | None = None
    documents: np.ndarray | None = None


class Task(ABC):
    """A language to learn.

    alphabet:     every character (or string) that the task can write; a token is an index into it
    stop:         the character that ends a completion, or None if its length does
    grades:       names of the results of `grade`, all true of the right completion; with more than
                  `accuracy`, completions are generated; none: problems are prompts to continue
    score:        the grade by which the write-up counts a problem as right
    max_length:   the most tokens of a problem (prompt and completion)
    one_document: a row of text is one document in which everything before counts, not problem after
                  problem
    crossed:      the attribute that also slices results at each of eval.lengths; empty: none
    token_bytes:  bytes of each token's text, [alphabet]; None: the text is not measured in bytes
    version:      raised if the same generator gives other text or problems; checkpoints of other
                  versions are refused
    loss_on:      the tokens that the training loss counts: `all`, or those of the `answer`
    longest_setting: the argument that is the greatest length of problems, which `rope-lab extend`
                  raises; empty: unknown
    name:         of the text's file or folder; empty if the task writes its own
    kept:         text kept by a run, set to read it without the task's data; None: not needed
    """

    version: int = 1
    alphabet: str | list[str]
    stop: str | None = "#"
    grades: tuple[str, ...] = ("accuracy",)
    score: str = "accuracy"
    max_length: int
    one_document: bool = False
    crossed: str = ""
    token_bytes: np.ndarray | None = None
    longest_setting: str = ""
    name: str = ""
    kept: str | None = None

    def __init__(self, loss_on: LossOn = "answer"):
        self.loss_on = loss_on

    @classmethod
    def resolve(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """The task's settings as a run records them: without those of this machine alone, such as a
        path.
        """
        return settings

    @abstractmethod
    def text(
        self, rng: np.random.Generator, rows: int, length: int, held_out: bool = False
    ) -> Text:
        """Rows of text of `length` tokens, each beginning a document of its own; the end of a row
        may cut a problem.

        Training text holds no held-out problem; held-out text holds no others.
        """

    @abstractmethod
    def problems(self, rng: np.random.Generator, n: int) -> list[Problem]:
        """`n` different held-out problems; a larger `n` extends the same list.

        Raises ConfigError if there are fewer.
        """

    def positions(self, prompt: np.ndarray, length: int) -> np.ndarray | None:
        """The positions of a problem's `length` tokens, [length] or [length, axes]; None: 0, 1, …

        They follow from the prompt alone, tokens [prompt's length]: what is generated after it is
        not known before. Schemes that take one axis take the first.
        """
        return None

    def of_length(self, n: int) -> "Task":
        """The same task, in the same format, with problems all of length `n`, in a unit of its own
        (letters, digits).

        Problems that are also problems of this task stay on their side of the train/held-out split.
        Raises ConfigError if there are none of that length.
        """
        name = type(self).__name__
        raise ConfigError(f"{name} has problems of one length: call set_lengths or write of_length")

    def floor(self, tokens: np.ndarray) -> np.ndarray:
        """The Bayes-optimal loss of each answer token in rows of text, in nats: float64 [rows,
        length].
        """
        return np.zeros(tokens.shape)

    def grade(self, problem: Problem, completion: str) -> dict[str, bool]:
        """Each of `grades` of a completion, which may continue after the problem's end."""
        return {"accuracy": completion.startswith(problem.completion)} if self.grades else {}

    def encode(self, text: str) -> np.ndarray:
        """Characters to tokens, uint16 [len(text)]. Raises ConfigError on a character outside the
        alphabet.
        """
        if unknown := sorted(set(text) - set(self.alphabet)):
            raise ConfigError(
                f"characters {''.join(unknown)!r} are not in the task's alphabet {self.alphabet!r}"
            )
        return np.array([self.alphabet.index(c) for c in text], dtype=np.uint16)

    def decode(self, tokens: np.ndarray) -> str:
        """Tokens [n] to characters."""
        return "".join(self.alphabet[t] for t in tokens)


def different(batch: Callable[[], Iterable[Problem]], n: int) -> list[Problem]:
    """The first `n` problems with different prompts.

    Raises ConfigError if 50 batches in a row bring no new one.
    """
    found, repeats = dict[bytes, Problem](), 0  # by prompt
    while len(found) < n:
        before = len(found)
        for problem in batch():
            found.setdefault(problem.tokens[: problem.prompt_length].tobytes(), problem)
        repeats = repeats + 1 if len(found) == before else 0
        if repeats == 50:
            raise ConfigError(
                f"{n:,} different evaluation problems are more than the task has: about {before:,}"
            )
    return list(found.values())[:n]
