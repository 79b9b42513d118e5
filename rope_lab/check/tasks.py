"""What every task has to hold: its format, its masks, its split, and that batch k is a function of (seed, k) alone."""

import copy
import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from rope_lab.check.findings import demand
from rope_lab.train import config, data
from rope_lab.train.config import Config
from tasks.base import PackedTask, Problem, Task, Text

ROWS, PROBLEMS, DRAWN = 32, 128, 2000
BATCHES = 8  # of training text in which a held-out problem is looked for


def checks(cfg: Config) -> dict[str, Callable[[], str | None]]:
    """The checks of the task of a resolved `cfg`, by name, in the order of what breaks first."""
    build, length = partial(config.build_task, cfg), cfg.train.seq_len + 1
    make = functools.cache(build)  # reading a corpus may take long
    return {
        "format": lambda: written(make(), length),
        "masks": lambda: masks(make(), length),
        "reproducibility": lambda: reproducible(build, cfg),
        "problems": lambda: problems(make(), cfg.train.seq_len),
        "split": lambda: split(make(), cfg),
        "lengths": lambda: lengths(make()),
        "speed": lambda: speed(make(), cfg),
    }


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def written(task: Task, length: int) -> None:
    """Tokens become characters and the same tokens again; problems are written in the alphabet. Raises Wrong."""
    kind, alphabet = type(task), list(task.alphabet)
    demand(len(set(alphabet)) == len(alphabet), "alphabet has a character twice", kind.text)
    demand(task.stop is None or task.stop in alphabet, f"alphabet lacks stop, {task.stop!r}", kind.text)
    if isinstance(task, PackedTask):
        _check_written(task)
    text = task.text(rng(), 4, length)
    demand(text.tokens.max() < len(alphabet), "text has tokens beyond the alphabet", kind.text)
    if isinstance(task.alphabet, str):
        for row in text.tokens:
            again = task.encode(task.decode(row))
            demand(np.array_equal(again, row), "encode(decode(tokens)) gives other tokens", kind.decode)


def _check_written(task: PackedTask) -> None:
    """Of problems drawn: prompts and completions as `write` has them."""
    kind, drawn = type(task), task.draw(rng(), DRAWN)
    shape = f"draw(rng, {DRAWN}) returns {getattr(drawn, 'shape', type(drawn).__name__)}, must be [{DRAWN}, columns]"
    demand(isinstance(drawn, np.ndarray) and drawn.ndim == 2 and len(drawn) == DRAWN, shape, kind.draw)
    demand(np.issubdtype(drawn.dtype, np.integer), f"draw returns {drawn.dtype}, must be integers", kind.draw)
    parts = task.write(drawn)
    for part in parts:
        demand(
            part.ndim == 2 and len(part) == DRAWN, f"write returns {part.shape}, must be [{DRAWN}, width]", kind.write
        )
        lacks = set(np.unique(part).tolist()) - {0} - {ord(c) for c in task.alphabet}
        demand(not lacks, f"write uses {''.join(map(chr, sorted(lacks)))!r}, which alphabet lacks", kind.write)
    again = task.write(drawn)
    demand(all(map(np.array_equal, parts, again)), "write gives the same problem in two ways", kind.write)
    prompts, completions = ([bytes(row[row != 0]) for row in part] for part in parts)
    demand(all(completions), "write leaves a completion empty", kind.write)
    answers: dict[bytes, bytes] = {}
    for prompt, completion in zip(prompts, completions, strict=True):
        one = answers.setdefault(prompt, completion) == completion
        demand(one, f"the prompt {prompt.decode()!r} has more than one right completion", kind.write)
    if task.stop:
        stop = task.stop.encode()
        ends = all(completion.index(stop) == len(completion) - 1 for completion in completions if stop in completion)
        whole = ends and all(completion.endswith(stop) for completion in completions)
        demand(whole, f"a completion must hold stop, {task.stop!r}, once, at its end", kind.write)


def masks(task: Task, length: int) -> None:
    """Rows have their shapes, answers are numbered 1, 2, …, and counted is what loss_on says. Raises Wrong."""
    kind = type(task)
    for held_out in (False, True):
        text = task.text(rng(), ROWS, length, held_out)
        for name, array in vars(text).items():
            told = f"text(…, {ROWS}, {length}) has {name} of {list(array.shape)}, must be [{ROWS}, {length}]"
            demand(array.shape == (ROWS, length), told, kind.text)
        demand(np.unique(text.tokens, axis=0).shape[0] == ROWS, "rows of a batch are the same", kind.text)
        before, after = text.answer_position[:, :-1].astype(int), text.answer_position[:, 1:].astype(int)
        numbered = ((after <= 1) | (after == before + 1)).all() and text.answer_position.min() >= 0
        demand(numbered, "answer_position must be 1, 2, … along each answer and 0 outside of answers", kind.text)
        demand(text.answer_position.any(), "no row has an answer", kind.text)
    for loss_on, counted in (("all", np.ones_like(text.counted)), ("answer", text.answer_position > 0)):
        other = copy.copy(task)
        other.loss_on = loss_on
        found = other.text(rng(), ROWS, length, held_out)
        demand(np.array_equal(found.counted, counted), f"counted is not what loss_on={loss_on} says", kind.text)
        demand(np.array_equal(found.tokens, text.tokens), "the text depends on loss_on", kind.text)


def reproducible(make: Callable[[], Task], cfg: Config) -> None:
    """Batch k depends on (seed, k) alone: not on the batches before, nor on another random number. Raises Wrong."""
    kind, (first, second) = type(make()), (make(), make())

    def batch(task: Task, seed: int, k: int) -> bytes:
        return data.training_batch(task, seed, k, 4, cfg.train.seq_len).inputs_BT.numpy().tobytes()

    in_order = [batch(first, 0, k) for k in range(4)]
    with _other_random_numbers():
        again = {k: batch(second, 0, k) for k in (3, 0, 2)}
    told = "another time gives another text: all random numbers must come from rng"
    demand(all(in_order[k] == found for k, found in again.items()), f"batch k {told}", kind.text)
    demand(len({*in_order, batch(first, 1, 0)}) == 5, "batches, or seeds, have the same text", kind.text)
    listed = data.evaluation_problems(first, PROBLEMS)
    with _other_random_numbers():
        fewer = data.evaluation_problems(second, PROBLEMS // 4)
    told = "a longer list of problems must begin as a shorter one"
    demand(not first.grades or listed[: len(fewer)] == fewer, told, kind.problems)


@contextmanager
def _other_random_numbers() -> Iterator[None]:
    """Within it numpy's own random numbers, which no task may use, are others."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(12_345)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


def problems(task: Task, seq_len: int) -> str | None:
    """Held-out problems differ, fit, and their right completion is right, another wrong. Raises Wrong."""
    kind, found = type(task), data.evaluation_problems(task, PROBLEMS)
    longest = max(problem.length for problem in found)
    told = f"a problem has {longest} tokens, and max_length is {task.max_length}"
    demand(longest <= task.max_length, told, kind.problems)
    demand(task.max_length <= seq_len, f"problems do not fit into train.seq_len={seq_len}", kind.problems)
    if not task.grades:
        return "grades nothing: its problems are only written on"
    demand(len({problem.prompt for problem in found}) == len(found), "two problems have one prompt", kind.problems)
    for problem in found:
        whole = all(type(value) is int for value in problem.attributes.values())
        demand(whole, f"attributes {problem.attributes} are not whole numbers", kind.problems)
        right = task.grade(problem, problem.completion)
        demand(right == dict.fromkeys(task.grades, True), f"its own completion is graded {right}", kind.grade)
        wrong = _changed(task, problem)
        told = f"{wrong!r} is graded right, as is {problem.completion!r}"
        demand(not task.grade(problem, wrong)[task.grades[0]], told, kind.grade)
    return None


def _changed(task: Task, problem: Problem) -> str:
    """The completion with another first character."""
    other = next(c for c in task.alphabet if c not in (problem.completion[0], task.stop))
    return other + problem.completion[1:]


def split(task: Task, cfg: Config) -> str | None:
    """No held-out problem is in training text, and no training problem in held-out text. Raises Wrong."""
    kind, T = type(task), cfg.train.seq_len + 1
    evaluated = {problem.prompt + problem.completion for problem in data.evaluation_problems(task, PROBLEMS)}
    texts = [task.text(data.generator(0, data.TRAINING_TEXT, k), ROWS, T) for k in range(BATCHES)]
    held_out = task.text(rng(), ROWS, T, held_out=True)
    if isinstance(task, PackedTask):
        trained = {problem for text in texts for problem in whole_problems(task, text)}
        kept = set(whole_problems(task, held_out))
        demand(trained, f"no whole problem fits into train.seq_len={cfg.train.seq_len}", kind.text)
    else:
        trained, kept = {task.decode(row) for text in texts for row in text.tokens}, set()
        evaluated = {problem for problem in evaluated if any(problem in row for row in trained)}
        trained = evaluated if task.grades else set()
    both = (evaluated | kept) & trained
    demand(not both, f"{next(iter(both), '')!r} is held out, and in training text", kind.text)
    return None


def whole_problems(task: Task, text: Text) -> list[str]:
    """The problems that stand whole in rows of packed text: from where a row or an answer ends to where one ends."""
    found = []
    for row, position in zip(text.tokens, text.answer_position, strict=True):
        ends = np.flatnonzero((position[:-1] > 0) & (position[1:] == 0)) + 1
        found += [task.decode(row[begin:end]) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
    return found


def lengths(task: Task) -> str | None:
    """A task of longer problems counts what this one counts; the Bayes-optimal loss has the shape of the text."""
    text = task.text(rng(), 2, 2 * task.max_length)
    floor = task.floor(text.tokens)
    whole = floor.shape == text.tokens.shape and (floor >= 0).all()
    demand(whole, "floor must be [rows, length], none below 0", type(task).floor)
    try:
        longer = task.of_length(2 * task.max_length)
    except ValueError as error:
        return f"no problems of a given length: {error}"
    demand(longer.loss_on == task.loss_on, "of_length changes loss_on", type(task).of_length)
    return None


def speed(task: Task, cfg: Config) -> str:
    """How long a training batch takes to write."""
    took = []
    for k in range(5):
        begin = time.perf_counter()
        data.training_batch(task, 0, k, cfg.train.batch_size, cfg.train.seq_len)
        took.append(time.perf_counter() - begin)
    return f"a batch of {cfg.train.batch_size} rows is written in {sorted(took)[2] * 1e3:.1f} ms"
