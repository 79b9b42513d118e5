"""Sample from a trained run: `rope-lab sample FOLDER [PROMPT]`.

With a prompt, the model completes it; without one, it completes a few held-out problems, right and
wrong marked. `task=NAME [SETTING=VALUE…]` shows a task without a run: a few rows of its training
text and held-out problems.
"""

from pathlib import Path

from rope_lab import command  # first: from here on Ctrl-C is quiet

# isort: split
import numpy as np

from rope_lab.model.transformer import Transformer
from rope_lab.tasks.task import Task
from rope_lab.text import Words, argument_parser, errors_as_exit, plain, say
from rope_lab.train import config, data
from rope_lab.train.evaluate import Diverged, as_evaluated, samples
from rope_lab.train.generate import chooser, complete
from rope_lab.train.instantiate import config_errors
from rope_lab.train.load import add_allow, load_run


def show_problems(cfg: config.Config, task: Task, model: Transformer, n: int) -> str:
    """Completions of the first `n` held-out problems, marked right or wrong, the right answer below
    a wrong one.

    If the task grades nothing: held-out text and the model's continuations.
    """
    with config_errors(f"-n {n}: "):
        problems = data.evaluation_problems(task, n)
    lines, right = [], 0
    for row in samples(model, task, problems, cfg.train.seq_len):
        text = f"{plain(row['prompt'])} → {plain(row['written'])}"
        if not task.grades:
            lines.append(text)
        elif row["accuracy"]:
            right += 1
            lines.append(f"right  {text}")
        else:
            also = "".join(f", {name} right" for name in task.grades if row[name])
            lines += [f"WRONG  {text}", f"       it should be → {plain(row['completion'])}{also}"]
    if task.grades:
        lines.append(f"{right} of {n} right")
    return "\n".join(lines)


def show_task(words: list[str], n: int) -> str:
    """Rows of training text, answers marked, and `n` held-out problems. Raises ConfigError."""
    cfg = config.load(*words)
    task = config.build_task(cfg)
    with config_errors():
        text = task.text(data.generator(cfg.seed, data.TRAINING_TEXT), 4, 110)
        problems = data.evaluation_problems(task, n)
    lines = ["Training text; the tokens in « » are those of answers, which count in evaluation:"]
    for tokens, counts in zip(text.tokens, text.answer_position, strict=True):
        lines.append(show_row(task, tokens, counts > 0))
    lines.append("Held-out problems and their attributes:")
    for problem in problems:
        question, answer = plain(problem.prompt), plain(problem.completion)
        lines.append(f"{question} → {answer}  {problem.attributes}")
    return "\n".join(lines)


def show_row(task: Task, tokens: np.ndarray, is_answer: np.ndarray) -> str:
    """A row of training text, the tokens that count in evaluation in « »; without padding."""
    if is_answer.any() and not getattr(task, "packs", True):
        end = np.flatnonzero(is_answer)[-1] + 1
        tokens, is_answer = tokens[:end], is_answer[:end]
    row = ""
    changes = np.flatnonzero(np.diff(is_answer)) + 1
    for part, answers in zip(np.split(tokens, changes), np.split(is_answer, changes), strict=True):
        text = plain(task.decode(part))
        row += f"«{text}»" if answers[0] else text
    return row


@errors_as_exit(Diverged)
def main(arguments: Words = None) -> None:
    parser = argument_parser("sample", __doc__)
    parser.add_argument("folder", metavar="FOLDER", help="a run's folder, or task=NAME")
    parser.add_argument(
        "prompt",
        nargs="*",
        default=[],
        metavar="PROMPT",
        help="text in the task's alphabet, or a task's settings",
    )
    parser.add_argument(
        "-n", type=int, help="number of held-out problems without a prompt; default: 8, of a task 4"
    )
    add_allow(parser)
    parser.add_argument(
        "--temperature", type=float, help="sample after PROMPT; default: 0.8 for text, else greedy"
    )
    parser.add_argument("--top-k", type=int, help="sample among so many tokens (default: 40)")
    parser.add_argument("--seed", type=int, help="of the samples (default: 0)")
    given = parser.parse_intermixed_args(arguments)
    hot = given.temperature is None or given.temperature > 0
    counts = [each for each in (given.top_k, given.n) if each is not None]
    if not hot or min(counts, default=1) < 1:
        parser.error("-n and --top-k must be at least 1, and --temperature above 0")
    is_task = given.folder.startswith("task=")
    if given.prompt and not is_task and given.n:
        parser.error("-n: of held-out problems, without a PROMPT")
    sampling = (given.temperature, given.top_k, given.seed)
    if (is_task or not given.prompt) and sampling != (None, None, None):
        parser.error("--temperature, --top-k and --seed are of the completion of a PROMPT")
    if is_task:
        say(show_task([given.folder, *given.prompt], given.n or 4))
        return
    cfg, task, model, content = load_run(Path(given.folder), given.allow)
    status = content["status"]
    say(plain(f"{cfg.names.task} · {cfg.names.position} · seed {cfg.seed} · {status}"))
    with as_evaluated(model, cfg):
        if not given.prompt:
            say(show_problems(cfg, task, model, given.n or 8))
            return
        if task.grades and given.temperature is None and sampling != (None, None, None):
            parser.error("--top-k and --seed need --temperature: answers of this task are greedy")
        prompt = " ".join(given.prompt)
        choose = chooser(task, given.temperature, given.top_k or 40, given.seed or 0)
        completion = complete(cfg, task, model, prompt, choose)
        say(prompt + " → " + "\n".join(map(plain, completion.split("\n"))))


if __name__ == "__main__":
    command.begin()
    main()
