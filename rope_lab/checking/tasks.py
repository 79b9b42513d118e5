"""Checks of a task."""

import functools

import numpy as np

from rope_lab.checking import Checks, demand
from rope_lab.tasks.base import BLANK, PackedTask
from rope_lab.tasks.task import Problem, Task
from rope_lab.train import config, data
from rope_lab.train.config import Config

PROBLEMS, DRAWN, BATCHES, FEW_BATCHES = 128, 2000, 400, 40
MANY, FEW = 10_000, 500  # problems of training, and those drawn at once


def task_checks(cfg: Config) -> Checks:
    """The checks of a task by name, in their order; cfg: resolved."""
    T = cfg.train.seq_len
    task = functools.cache(lambda: config.build_task(cfg))
    return {
        "format": lambda: format_of(task()),
        "reproducibility": lambda: reproducible(task(), config.build_task(cfg), T),
        "problems": lambda: problems(task(), T),
        "positions": lambda: positions(task(), T),
        "split": lambda: split(task(), T),
        "variety": lambda: variety(task(), T),
        "lengths": lambda: lengths(task()),
    }


def format_of(task: Task) -> None:
    """Problems are written in the alphabet, each prompt with one right completion; a stop stands at
    its end alone.
    """
    demand(len({*task.alphabet}) == len(task.alphabet), "alphabet has a character twice")
    demand(task.stop is None or task.stop in task.alphabet, f"alphabet lacks stop, {task.stop!r}")
    if not isinstance(task, PackedTask):
        return
    drawn = task.draw(np.random.default_rng(0), DRAWN)
    right = drawn.ndim == 2 and len(drawn) == DRAWN and np.issubdtype(drawn.dtype, np.integer)
    returned = f"draw(rng, {DRAWN}) returns {drawn.dtype} {drawn.shape}"
    demand(right, f"{returned}, must be integers [{DRAWN}, columns]")
    written = {(_text(prompt), _text(end)) for prompt, end in zip(*task.write(drawn), strict=True)}
    lacks = {*"".join(prompt + end for prompt, end in written)} - {*task.alphabet}
    demand(not lacks, f"write uses {''.join(sorted(lacks))!r}, which alphabet lacks")
    prompts = {prompt for prompt, _ in written}
    demand(len(prompts) == len(written), "a prompt has more than one right completion")
    for _, end in written:
        whole = end.find(task.stop) == len(end) - 1 if task.stop else end
        demand(whole, f"a completion must hold stop, {task.stop!r}, once, at its end")


def _text(codes: np.ndarray) -> str:
    return "".join(map(chr, codes[codes != BLANK]))


def reproducible(first: Task, second: Task, T: int) -> None:
    """Each batch depends on (seed, step) alone, not on earlier batches or global random numbers."""
    texts = [data.training_batch(first, 0, step, 4, T).inputs_BT for step in range(4)]
    for step in (3, 0, 2):
        np.random.seed(step)  # noqa: NPY002  no task may use these
        again = data.training_batch(second, 0, step, 4, T).inputs_BT
        rule = "all random numbers must come from rng"
        demand(again.equal(texts[step]), f"batch {step} differs when drawn again: {rule}")


def problems(task: Task, seq_len: int) -> str | None:
    """Held-out problems differ and fit; the right completion is graded right, others wrong."""
    held_out = data.evaluation_problems(task, PROBLEMS)
    longest = max(problem.length for problem in held_out)
    demand(longest <= task.max_length <= seq_len, f"a problem exceeds {task.max_length=}")
    if not task.grades:
        return "grades nothing: its problems are only continued"
    prompts = [problem.prompt for problem in held_out]
    demand(len({*prompts}) == len(prompts), "two problems have one prompt")
    for problem in held_out:
        graded(task, problem)
    answers = [problem.completion.removesuffix(task.stop or "") for problem in held_out]
    pairs = zip(answers, prompts, strict=True)
    if all(len(answer) > 1 and answer in prompt for answer, prompt in pairs):
        return "every prompt contains its answer: right if the task is to copy"
    return None


def positions(task: Task, seq_len: int) -> None:
    """Positions of problems are those of their prompts, also of longer texts, and text has one for
    each token.
    """
    for problem in data.evaluation_problems(task, PROBLEMS // 8):
        prompt = problem.tokens[: problem.prompt_length]
        expected = task.positions(prompt, problem.length + 3)
        if expected is None or problem.positions is None:
            same = expected is problem.positions
        else:
            same = np.array_equal(expected[: problem.length], problem.positions)
        demand(same, f"{problem.prompt!r}: its positions are not those of task.positions(prompt)")
    pos = data.training_batch(task, 0, 0, 4, seq_len).pos
    if pos is not None:
        shared = (seq_len,)
        rows = (4, seq_len)
        fits = pos.shape == shared or (pos.dim() < 4 and pos.shape[:2] == rows)
        form = f"must be {list(shared)}, {list(rows)} or {[*rows, 'axes']}"
        demand(fits, f"text has positions {list(pos.shape)}, {form}")


def graded(task: Task, problem: Problem) -> None:
    """The right completion is graded right; with another first or last letter it is wrong."""
    right = problem.completion
    demand(all(task.grade(problem, right).values()), f"{right!r} is graded wrong")
    for place in (0, len(right.removesuffix(task.stop or "")) - 1):
        letters = [letter for letter in task.alphabet if letter not in (right[place], task.stop)]
        other = right[:place] + letters[0] + right[place + 1 :]
        wrong = not task.grade(problem, other)["accuracy"]
        demand(wrong, f"{other!r} is graded right, as is {right!r}")


def split(task: Task, seq_len: int) -> str | None:
    """No evaluation problem is in training text; if the task has its own `text`, no prompt is."""
    if not task.grades:
        return "grades nothing: equal passages may stand on both sides"
    prompts = {problem.prompt for problem in data.evaluation_problems(task, PROBLEMS)}
    if isinstance(task, PackedTask) and type(task).text is PackedTask.text:
        rng = np.random.default_rng(0)
        for _ in range(MANY // FEW):
            written, _ = task.write(task.of_side(rng, FEW, held_out=False))
            both = sorted(prompts.intersection(map(_text, written)))
            demand(not both, f"training text has held-out problems, {both[:1]}")
        return None
    for step in range(BATCHES):
        for tokens in training_rows(task, step, seq_len):
            text = task.decode(tokens)
            held_out = [prompt for prompt in prompts if prompt in text]
            said = f"training text has held-out problems, {held_out[:1]} in batch {step}"
            demand(not held_out, said)
    return None


def training_rows(task: Task, step: int, seq_len: int) -> np.ndarray:
    """Two rows of training text, tokens [2, seq_len + 1]."""
    return task.text(data.generator(0, data.TRAINING_TEXT, step), 2, seq_len + 1).tokens


def variety(task: Task, seq_len: int) -> None:
    """Training text does not repeat: most rows of some batches differ."""
    rows = [row for step in range(FEW_BATCHES) for row in training_rows(task, step, seq_len)]
    different = len(np.unique(rows, axis=0))
    said = f"of {len(rows)} rows of training text {different} differ"
    demand(2 * different > len(rows), f"{said}: every batch must draw again from its rng")


def lengths(task: Task) -> str | None:
    """A note unless problems of a greater length are longer, if problems have a length."""
    if not isinstance(task, PackedTask) or task.lengths is None:
        return None
    if not hasattr(task, "possible_lengths"):
        return "eval.lengths needs the attribute possible_lengths: self.set_lengths(…) sets it"
    usual = task.lengths[1]
    _, most = task.possible_lengths
    longer = min(2 * usual, most)
    if longer == usual:
        return None
    sizes = [_mean_tokens(task.of_length(length)) for length in (usual, longer)]
    if sizes[0] < sizes[1]:
        return None
    same = f"problems of length {longer} are not longer than those of {usual}"
    return f"{same}: if they should be, draw must use self.lengths, self.width or draw_strings"


def _mean_tokens(task: PackedTask) -> float:
    parts = task.write(task.draw(np.random.default_rng(0), PROBLEMS))
    return sum(float((part != BLANK).sum()) for part in parts) / PROBLEMS
