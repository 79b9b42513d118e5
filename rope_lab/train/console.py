"""A run's output on the screen, in lines; in a sweep a `prefix` marks each line."""

import shlex
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from rope_lab.text import LEAKS, plain, say, short_path
from rope_lab.train.config import Config
from rope_lab.train.stop import same_command

# The metrics to print if a run has them: label and format.
SHOWN = {
    "eval/loss": ("held-out loss", ".4f"),
    "eval/bits_per_byte": ("bits per byte", ".4f"),
    "eval/accuracy": ("accuracy", ".1%"),
}
SILENCE = (
    10.0  # seconds without a line, or a hundredth of the run's time, before its progress is printed
)


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
        now, line = time.monotonic(), values(metrics)
        if "train/loss" in metrics:
            self.loss = f"train loss {metrics['train/loss']:.3f}"
        if not line and (
            now - self.spoke < max(SILENCE, (now - self.since) / 100) or step == self.steps
        ):
            return
        self.spoke, parts = now, [f"step {step:>{len(str(self.steps))}}", line or self.loss]
        if self.begun < step < self.steps:
            each = (now - self.since) / (step - self.begun)
            parts.append(f"{timedelta(seconds=round(each * (self.steps - step)))} left")
        say(self.prefix + " · ".join(filter(None, parts)))


def values(metrics: dict[str, Any]) -> str:
    """The metrics of SHOWN that a run has, in one line."""
    return " · ".join(
        f"{label} {metrics[key]:{form}}" for key, (label, form) in SHOWN.items() if key in metrics
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
        return prefix + steps
    return f"{headline(content)}\n{steps} · {hardware['name']}, threads={hardware['threads']}"


def returned(cfg: Config, content: dict[str, Any], folder: Path, prefix: str) -> str:
    """The message when a run has already ended."""
    if prefix and not cfg.shows_scores:
        return f"{prefix}has already {content['status']}"
    if prefix:
        return f"{prefix}has already {content['status']} · {values(content['metrics'])}"
    again = f"This run has already {content['status']}; fresh=true trains it again."
    return f"{headline(content)}\n{again}\n{summary(cfg, content, folder)}"


def summary(cfg: Config, content: dict[str, Any], folder: Path, prefix: str = "") -> str:
    """The results of a run; unless it is one of several, also the folder of its records and how to
    try it.
    """
    status, finished = content["status"], content["status"] == "finished"
    steps, seconds = content["progress"]["steps"], round(content["progress"]["seconds"])
    head = f"{status} after {steps:,} steps, {timedelta(seconds=seconds)}"
    lines = _scores(cfg, content) if cfg.shows_scores else []
    lines.append(plain(content.get("error", "")))
    if status == "interrupted":
        lines.append(f"{same_command(cfg.fresh)} resumes it")
    if not prefix:
        lines.append(f"records: {short_path(folder)}")
        if content["checkpoint"] or finished:  # a run of no steps has the one of step 0
            lines.append(f"try it: {_sample_command(cfg, folder)}")
    return "\n".join([prefix + head, *(f"{prefix}  {line}" for line in lines if line)])


def _scores(cfg: Config, content: dict[str, Any]) -> list[str]:
    """The lines with the metrics of a run."""
    lines = [_last_evaluation(cfg, content), *_at_lengths(content)]
    finished, floor = content["status"] == "finished", content["floor"]["loss"]
    if finished and content["metrics"]["eval/loss"] < LEAKS * floor:
        lines.append(
            f"below the Bayes-optimal loss of {floor:.4f}: does the model see later tokens? "
            "Try rope-lab check"
        )
    return lines


def _last_evaluation(cfg: Config, content: dict[str, Any]) -> str:
    """The metrics of a run's last evaluation in one line; empty before the first."""
    metrics, finished = content["metrics"], content["status"] == "finished"
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
    for key, name, form in (("length", "accuracy", ".1%"), ("length_loss", loss, ".3f")):
        means = content.get("slices", {}).get(key, {})
        if means:
            parts = [f"{n}: {value:{form}}" for n, (_, value) in means.items()]
            lines.append(f"{name} at {' · '.join(parts)}")
    return lines


def _sample_command(cfg: Config, folder: Path) -> str:
    words = ["rope-lab", "sample", short_path(folder)]
    for each in cfg.allowed_packages:
        words += ["--allow", short_path(Path(each))]
    return shlex.join(words)
