"""The output of a run on the screen, as lines. Among others that a sweep runs, a `prefix` tells it from them."""

import shlex
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from rope_lab.text import LEAKS, plain, say, short_path
from rope_lab.train.config import Config
from rope_lab.train.stop import same_command

# The metrics that are shown wherever a run has them: label and format.
SHOWN = {
    "eval/loss": ("held-out loss", ".4f"),
    "eval/bits_per_byte": ("bits per byte", ".4f"),
    "eval/accuracy": ("accuracy", ".1%"),
}
SILENCE = 10.0  # seconds without a line, or a hundredth of its time, after which a run shows how far it is


class Progress:
    """Shows a run of so many steps, `begun` of them done before."""

    def __init__(self, steps: int, begun: int, prefix: str):
        self.steps, self.begun, self.prefix, self.loss = steps, begun, prefix, ""
        self.since = self.spoke = time.monotonic()

    def show(self, step: int, metrics: dict[str, Any]) -> None:
        """Show an evaluation; without one for a while, the training loss. To be called at each step."""
        now, line = time.monotonic(), values(metrics)
        if "train/loss" in metrics:
            self.loss = f"train loss {metrics['train/loss']:.3f}"
        if not line and (now - self.spoke < max(SILENCE, (now - self.since) / 100) or step == self.steps):
            return
        self.spoke, parts = now, [f"step {step:>{len(str(self.steps))}}", line or self.loss]
        if self.begun < step < self.steps:
            each = (now - self.since) / (step - self.begun)
            parts.append(f"{timedelta(seconds=round(each * (self.steps - step)))} left")
        say(self.prefix + " · ".join(filter(None, parts)))


def values(metrics: dict[str, Any]) -> str:
    """The metrics of SHOWN that a run has, in a line."""
    return " · ".join(f"{label} {metrics[key]:{form}}" for key, (label, form) in SHOWN.items() if key in metrics)


def headline(content: dict[str, Any]) -> str:
    """Task, scheme, scale, seed and size of a run; `content`: its run.json."""
    c = content
    return f"{c['task']} · {c['position']} · {c['scale']} · seed {c['seed']} · {c['parameters']:,} parameters"


def beginning(content: dict[str, Any], prefix: str) -> str:
    """The message of a run that begins or resumes."""
    hardware, begun = content["provenance"]["hardware"], content["progress"]["steps"]
    steps = f"resumes at step {begun:,} of " * (begun > 0) + f"{content['config']['train']['steps']:,} steps"
    if prefix:
        return prefix + steps
    return f"{headline(content)}\n{steps} · {hardware['name']}, threads={hardware['threads']}"


def returned(cfg: Config, content: dict[str, Any], folder: Path, prefix: str) -> str:
    """The message of a run that has ended before."""
    if prefix:
        return f"{prefix}has already {content['status']} · {values(content['metrics'])}"
    again = f"This run has already {content['status']}; fresh=true trains it again."
    return f"{headline(content)}\n{again}\n{summary(cfg, content, folder)}"


def summary(cfg: Config, content: dict[str, Any], folder: Path, prefix: str = "") -> str:
    """How a run went; unless it is one of several, also where its records lie and how to try it."""
    status, metrics, floor = content["status"], content["metrics"], content["floor"]["loss"]
    steps, finished = content["progress"]["steps"], status == "finished"
    head = f"{status} after {steps:,} steps, {timedelta(seconds=round(content['progress']['seconds']))}"
    line = values(metrics)
    if "eval/accuracy" in metrics:
        line += f" of {(finished and cfg.eval.problems_at_end) or cfg.eval.problems:,} held-out problems"
    if "eval/score" in metrics:
        line += f" · score {metrics['eval/score']:g} of the first 128"
    lines = [line if finished or not line else f"{line}, at its last evaluation"]
    for key, name, form in (("length", "accuracy", ".1%"), ("length_loss", "loss above Bayes-optimal", ".3f")):
        if parts := [f"{n}: {value:{form}}" for n, (_, value) in content.get("slices", {}).get(key, {}).items()]:
            lines.append(f"{name} at {' · '.join(parts)}")
    if finished and metrics["eval/loss"] < LEAKS * floor:
        lines.append(
            f"below the Bayes-optimal loss of {floor:.4f}: does the model see later tokens? Try rope-lab check"
        )
    lines.append(plain(content.get("error", "")))
    if status == "interrupted":
        lines.append(f"{same_command(cfg.fresh)} resumes it")
    if not prefix:
        lines.append(f"records: {short_path(folder)}")
        if content["checkpoint"] or finished:  # a run of no steps has that of step 0
            own = "".join(f" --allow {shlex.quote(short_path(Path(each)))}" for each in cfg.allowed_packages)
            lines.append(f"try it: rope-lab sample {shlex.quote(short_path(folder))}{own}")
    return "\n".join([prefix + head, *(f"{prefix}  {line}" for line in lines if line)])
