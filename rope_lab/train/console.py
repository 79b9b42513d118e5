"""A run's output on the screen, in lines; in a sweep a `prefix` marks each line.

In a terminal no line is wider than it. A file or a pipe gets whole lines.
"""

import shlex
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from rope_lab.text import LEAKS, filled, plain, say, screen_width, short_path
from rope_lab.train.config import Config
from rope_lab.train.stop import same_command


def percent(share: float) -> str:
    """A share in percent; one below 1 is not rounded up to 100."""
    shown = share if share == 1 else min(share, 0.999)
    return f"{shown:.1%}"


# The metrics to print if a run has them: label, and how a value is written.
SHOWN = {
    "eval/loss": ("held-out loss", "{:.4f}".format),
    "eval/bits_per_byte": ("bits per byte", "{:.4f}".format),
    "eval/accuracy": ("accuracy", percent),
}
BETWEEN = " · "  # the parts of a line
# Seconds without a line, or a hundredth of the run's time, before its progress is printed.
SILENCE = 10.0


class Progress:
    """Progress of a run of so many steps, `begun` of them done before."""

    def __init__(self, steps: int, begun: int, prefix: str, shows_scores: bool = True):
        self.steps, self.begun, self.prefix, self.loss = steps, begun, prefix, ""
        self.shows_scores = shows_scores
        self.since = self.spoke = time.monotonic()

    def show(self, step: int, metrics: dict[str, Any]) -> None:
        """Print an evaluation, or, after a while without one, the training loss. To be called at
        each step.
        """
        if not self.shows_scores:
            metrics = {}
        now = time.monotonic()
        line = values(metrics)
        if "train/loss" in metrics:
            self.loss = f"train loss {metrics['train/loss']:.3f}"
        if not line and (
            now - self.spoke < max(SILENCE, (now - self.since) / 100) or step == self.steps
        ):
            return
        self.spoke = now
        parts = [f"step {step:>{len(str(self.steps))}}", line or self.loss]
        if self.begun < step < self.steps:
            each = (now - self.since) / (step - self.begun)
            parts.append(f"{timedelta(seconds=round(each * (self.steps - step)))} left")
        shown = fitted(self.prefix, BETWEEN.join(filter(None, parts)))
        if "\n" in shown:  # the terminal is too narrow for the time left
            shown = fitted(self.prefix, BETWEEN.join(filter(None, parts[:2])))
        say(shown)


def fitted(prefix: str, line: str) -> str:
    """A line of a run after its prefix. In a narrow terminal the prefix loses its last words, but
    not its number and scheme, and then the line is broken.
    """
    space = screen_width() - len(line)
    words = prefix.removesuffix(BETWEEN).split()
    while len(prefix) > space and len(words) > 2:
        words.pop()
        prefix = " ".join(words) + BETWEEN
    return broken(prefix + line)


def broken(line: str) -> str:
    """A line; in a narrower terminal several, broken between its parts if possible."""
    width = screen_width()
    parts = line.split(BETWEEN)
    lines = parts[:1]
    for part in parts[1:]:
        longer = lines[-1] + BETWEEN + part
        if len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(f"    {part}")
    return filled("\n".join(lines), indent="    ")


def values(metrics: dict[str, Any]) -> str:
    """The metrics of SHOWN that a run has, in one line."""
    return " · ".join(
        f"{label} {form(metrics[key])}" for key, (label, form) in SHOWN.items() if key in metrics
    )


def headline(content: dict[str, Any]) -> str:
    """Task, scheme, scale, seed and size of a run; content: of its run.json."""
    return "{task} · {position} · {scale} · seed {seed} · {parameters:,} parameters".format(
        **content
    )


def beginning(content: dict[str, Any], prefix: str) -> str:
    """The message when a run begins or resumes."""
    hardware, begun = content["provenance"]["hardware"], content["progress"]["steps"]
    settings = content["config"]["train"]
    steps = f"{settings['steps']:,} steps"
    if begun > 0:
        steps = f"resumes at step {begun:,} of {steps}"
    if 0 < settings["steps"] <= settings["warmup"]:
        steps += f", all within the warm-up: train.warmup={settings['warmup']}"
    if prefix:
        return broken(prefix + steps)
    machine = f"{hardware['name']}, threads={hardware['threads']}"
    return f"{broken(headline(content))}\n{broken(steps + BETWEEN + machine)}"


def returned(cfg: Config, content: dict[str, Any], folder: Path, prefix: str) -> str:
    """The message when a run has already ended."""
    if prefix and not cfg.shows_scores:
        return broken(f"{prefix}has already {content['status']}")
    if prefix:
        return broken(f"{prefix}has already {content['status']} · {values(content['metrics'])}")
    again = f"This run has already {content['status']}; fresh=true trains it again."
    return f"{broken(headline(content))}\n{again}\n{summary(cfg, content, folder)}"


def summary(cfg: Config, content: dict[str, Any], folder: Path, prefix: str = "") -> str:
    """The results of a run; unless it is one of several, also the folder of its records and how to
    try it.
    """
    status = content["status"]
    finished = status == "finished"
    steps = content["progress"]["steps"]
    seconds = round(content["progress"]["seconds"])
    head = f"{status} after {steps:,} steps, {timedelta(seconds=seconds)}"
    lines = _scores(cfg, content) if cfg.shows_scores else []
    lines.append(plain(content.get("error", "")))
    if status == "interrupted" and content["checkpoint"]:
        lines.append(f"{same_command(cfg.fresh)} resumes it")
    elif status == "interrupted":
        lines.append("the same command begins it again")
    shown = [fitted(prefix, head), *(fitted(prefix, f"  {line}") for line in lines if line)]
    if not prefix:
        shown.append(filled(f"  records: {short_path(folder)}", indent="    "))
        if content["checkpoint"] or finished:  # a run of no steps has the one of step 0
            shown.append(_sample_command(cfg, folder))
    return "\n".join(shown)


def _scores(cfg: Config, content: dict[str, Any]) -> list[str]:
    """The lines with the metrics of a run."""
    lines = [_last_evaluation(cfg, content), *_at_lengths(content)]
    finished = content["status"] == "finished"
    floor = content["floor"]["loss"]
    if finished and content["metrics"]["eval/loss"] < LEAKS * floor:
        lines.append(
            f"below the Bayes-optimal loss of {floor:.4f}: does the model see later tokens? "
            "Try rope-lab check"
        )
    return lines


def _last_evaluation(cfg: Config, content: dict[str, Any]) -> str:
    """The metrics of a run's last evaluation in one line; empty before the first."""
    metrics = content["metrics"]
    finished = content["status"] == "finished"
    line = values(metrics)
    if "eval/accuracy" in metrics:
        problems = cfg.eval.problems
        if finished and cfg.eval.problems_at_end:
            problems = cfg.eval.problems_at_end
        line += f" of {problems:,} held-out problems"
    if "eval/score" in metrics:
        line += f" · score {metrics['eval/score']:g} of the first 128"
    return line if finished or not line else f"{line}, at its last evaluation"


def _at_lengths(content: dict[str, Any]) -> list[str]:
    """A line of accuracies at eval.lengths and one of losses, if a run has them."""
    loss = "loss above Bayes-optimal" if content["floor"]["loss"] else "loss"
    lines = []
    kinds = (("length", "accuracy", percent), ("length_loss", loss, "{:.3f}".format))
    for key, name, form in kinds:
        means = content.get("slices", {}).get(key, {})
        if means:
            parts = [f"{n}: {form(value)}" for n, (_, value) in means.items()]
            lines.append(f"{name} at {' · '.join(parts)}")
    return lines


def _sample_command(cfg: Config, folder: Path) -> str:
    """How to try a run: a command, in a narrow terminal on its own line, so that it stays whole."""
    words = ["rope-lab", "sample", short_path(folder)]
    for each in cfg.allowed_packages:
        words += ["--allow", short_path(Path(each))]
    command = shlex.join(words)
    line = f"  try it: {command}"
    return line if len(line) <= screen_width() else f"  try it:\n  {command}"
