"""Sample from a trained run: `rope-lab sample FOLDER [PROMPT]`.

With a prompt, the model completes it; without one, it completes a few held-out problems, right and
wrong marked. `task=NAME [SETTING=VALUE…]` shows a task without a run: a few rows of its training
text and held-out problems.
"""

from itertools import groupby
from operator import itemgetter
from pathlib import Path

from rope_lab import command  # first: from here on Ctrl-C is quiet

# isort: split
import numpy as np

from rope_lab.model.transformer import Transformer
from rope_lab.tasks.task import Task
from rope_lab.text import ConfigError, argument_parser, errors_as_exit, plain, say
from rope_lab.train import config, data
from rope_lab.train.evaluate import samples
from rope_lab.train.generate import Choose, generate, likeliest, sampled
from rope_lab.train.instantiate import config_errors
from rope_lab.train.load import add_allow, load_run
from rope_lab.train.trainer import Diverged, as_evaluated


def complete(
    cfg: config.Config, task: Task, model: Transformer, prompt: str, choose: Choose
) -> str:
    """The model's completion of `prompt`. Raises ConfigError if the prompt cannot be encoded."""
    with config_errors():
        tokens = task.encode(prompt)
    if not 0 < len(tokens) <= cfg.train.seq_len:
        raise ConfigError(f"a prompt of {len(tokens)} tokens: must have 1 to {cfg.train.seq_len}")
    longest = cfg.train.seq_len
    if task.grades and not task.stop:
        problems = data.evaluation_problems(task, min(8, cfg.eval.problems))
        longest = max(problem.length - problem.prompt_length for problem in problems)
    (written,) = generate(model, task, [tokens], longest, cfg.train.seq_len, choose)
    return task.decode(written)


def chooser(task: Task, temperature: float | None, top_k: int, seed: int) -> Choose:
    """How to choose tokens: sampled with a temperature, and always for text; else the likeliest."""
    if temperature is None and task.grades:
        return likeliest
    return sampled(temperature or 0.8, top_k, seed)


def show_problems(cfg: config.Config, task: Task, model: Transformer, n: int) -> str:
    """Completions of the first `n` held-out problems, marked right or wrong, the right answer below
    a wrong one.

    If the task grades nothing: held-out text and the model's continuations.
    """
    with config_errors(f"-n {n}: "):
        problems = data.evaluation_problems(task, n)
    written = samples(model, task, problems, cfg.train.seq_len)
    if not task.grades:
        return "\n\n".join(f"{row['prompt']} → {row['written']}" for row in written)
    lines = []
    for row in written:
        mark = "right" if row["accuracy"] else "WRONG"
        lines.append(f"{mark}  {plain(row['prompt'])} → {plain(row['written'])}")
        if not row["accuracy"]:
            also = "".join(f", {name} right" for name in task.grades if row[name])
            lines.append(f"       it should be → {plain(row['completion'])}{also}")
    right = sum(row["accuracy"] for row in written)
    return "\n".join([*lines, f"{right} of {n} right"])


def show_task(*words: str) -> str:
    """Rows of training text, answers marked, and held-out problems. Raises ConfigError."""
    cfg = config.load(*words)
    task = config.build_task(cfg)
    with config_errors():
        columns = task.text(data.generator(cfg.seed, data.TRAINING_TEXT), 4, 110)
        rows = [show_row(task, tokens, counts) for tokens, counts in zip(*columns, strict=True)]
        problems = data.evaluation_problems(task, 4)
    lines = [
        "Training text; the tokens in « » are those of answers, which count in evaluation:",
        "",
    ]
    lines += [*rows, "", "Held-out problems and their attributes:", ""]
    for problem in problems:
        question, answer = plain(problem.prompt), plain(problem.completion)
        lines.append(f"{question} → {answer}  {problem.attributes}")
    return "\n".join(lines)


def show_row(task: Task, tokens: np.ndarray, counts: np.ndarray) -> str:
    """A row of training text, the tokens that count in evaluation in « »."""
    row = ""
    is_answer = [bool(count > 0) for count in counts]
    for counted, pairs in groupby(zip(tokens, is_answer, strict=True), key=itemgetter(1)):
        part = plain(task.decode(np.array([token for token, _ in pairs])))
        row += f"«{part}»" if counted else part
    return row


def main(arguments: list[str] | None = None) -> None:
    parser = argument_parser("sample", __doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a run's folder, or task=NAME")
    about = "text in the task's alphabet, or a task's settings"
    parser.add_argument("prompt", nargs="*", default=[], metavar="PROMPT", help=about)
    parser.add_argument(
        "-n", type=int, default=8, help="number of held-out problems, if there is no prompt"
    )
    add_allow(parser)
    parser.add_argument(
        "--temperature", type=float, help="sample after PROMPT; default: 0.8 for text, else greedy"
    )
    parser.add_argument("--top-k", type=int, default=40, help="sample among so many tokens")
    parser.add_argument("--seed", type=int, default=0, help="of the samples")
    given = parser.parse_intermixed_args(arguments)
    cold_or_hot = given.temperature is not None and not 0 < given.temperature < 1000
    if min(given.top_k, given.n) < 1 or cold_or_hot:
        parser.error("-n and --top-k must be at least 1, and --temperature above 0")
    with errors_as_exit(Diverged):
        if str(given.folder).startswith("task="):
            say(show_task(str(given.folder), *filter(None, given.prompt)))
            return
        if len(given.prompt) > 1:
            parser.error("more than one PROMPT: put it in quotes")
        cfg, task, model, content = load_run(given.folder, given.allow)
        status = content["status"]
        say(plain(f"{cfg.names.task} · {cfg.names.position} · seed {cfg.seed} · {status}"))
        with as_evaluated(model, cfg):
            if not given.prompt:
                say(show_problems(cfg, task, model, given.n))
                return
            (prompt,) = given.prompt
            choose = chooser(task, given.temperature, given.top_k, given.seed)
            completion = complete(cfg, task, model, prompt, choose)
            say(prompt + " → " + "\n".join(map(plain, completion.split("\n"))))


if __name__ == "__main__":
    command.begin()
    main()
