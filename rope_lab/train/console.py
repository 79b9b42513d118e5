"""The output of a run on the screen."""

import math
import os
import shlex
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from rope_lab.text import LEAKS, flat, plain, say, short_path
from rope_lab.train.evaluate import SCORED
from rope_lab.train.instantiate import PACKAGES
from rope_lab.train.tracking import files_beside

# The metrics that are shown wherever a run has them: label and format.
SHOWN = {
    "eval/loss": ("held-out loss", ".4f"),
    "eval/bits_per_byte": ("bits per byte", ".4f"),
    "eval/accuracy": ("accuracy", ".1%"),
}
SILENCE = 30.0  # seconds after which a run without a bar shows how far it is


@dataclass(frozen=True)
class Place:
    """Where a run stands among others that a sweep or a script runs.

    label:    what tells it from the others, `rope seed=1`
    heading:  what is said when it begins, `run 3 of 12, 4 min left · rope seed=1`; empty: what the run is
    parallel: whether others use the same screen at the same time
    """

    label: str = ""
    heading: str = ""
    parallel: bool = False

    @property
    def prefix(self) -> str:
        """The beginning of each line of the run."""
        return f"{self.label} · " if self.parallel and self.label else ""


ALONE = Place()


class Progress:
    """Progress of a run: a bar below lines on a terminal of its own, elsewhere lines alone."""

    def __init__(self, bar: tqdm, prefix: str):
        self.bar, self.prefix, self.loss = bar, prefix, ""
        self.begun, self.step, self.since = bar.n, bar.n, time.monotonic()
        self.spoke = self.since

    def count(self) -> None:
        """Count a step; without a bar, show it if nothing was shown for a while."""
        self.step += 1
        self.bar.update()
        if self.bar.disable and time.monotonic() - self.spoke >= SILENCE and self.step < self.bar.total:
            self._say(self.loss)

    def show(self, record: dict[str, Any]) -> None:
        """Show a metric record: an evaluation as a line that stays, the training loss in the bar."""
        if "train/loss" in record:
            self.loss = f"train loss {record['train/loss']:.3f}"
            self.bar.set_postfix_str(self.loss, refresh=False)
        if line := values(record):
            self._say(line)

    def _say(self, line: str) -> None:
        steps, self.spoke = self.bar.total, time.monotonic()
        parts = [f"step {self.step:>{len(str(steps))}}", line]
        if self.bar.disable and self.begun < self.step < steps:
            each = (self.spoke - self.since) / (self.step - self.begun)
            parts.append(f"{duration(each * (steps - self.step))} left")
        with tqdm.external_write_mode():  # the bar steps aside
            say(self.prefix + " · ".join(filter(None, parts)))


@contextmanager
def progress(steps: int, begun: int, place: Place) -> Iterator[Progress]:
    """Show a run of so many steps, `begun` of them done before. The bar leaves nothing behind."""
    bare = not (sys.stdout.isatty() and sys.stderr.isatty()) or os.environ.get("TERM") == "dumb"
    tqdm.set_lock(threading.RLock())  # its own outlives a process that is killed
    bar = tqdm(
        total=steps,
        initial=begun,
        disable=bare or place.parallel,
        bar_format="{percentage:3.0f}%|{bar}| step {n}/{total}, {remaining} left{postfix}\r",  # `^C` is written over
        dynamic_ncols=True,
        smoothing=0,  # evaluations are part of the mean time of a step
        leave=False,
    )
    with bar, logging_redirect_tqdm():  # warnings too are lines above the bar
        yield Progress(bar, place.prefix)


def values(metrics: dict[str, Any]) -> str:
    """The metrics of SHOWN that a run has, in a line."""
    return " · ".join(f"{label} {metrics[key]:{form}}" for key, (label, form) in SHOWN.items() if key in metrics)


def duration(seconds: float) -> str:
    """In the unit in which it is a number of at most three digits."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def headline(content: dict[str, Any]) -> str:
    """Task, scheme, scale, seed and size of a run; `content`: its run.json."""
    c = content
    return f"{c['task']} · {c['position']} · {c['scale']} · seed {c['seed']} · {c['parameters']:,} parameters"


def beginning(content: dict[str, Any], place: Place) -> str:
    """The message of a run that begins or resumes; empty if its heading has said it."""
    hardware, begun = content["provenance"]["hardware"], content["progress"]["steps"]
    steps = f"{content['config']['train']['steps']:,}"
    resumes = f"resumes at step {begun:,} of {steps}" if begun else ""
    if place.heading:
        return resumes and place.prefix + resumes
    threads = f"{hardware['threads']} thread" + "s" * (hardware["threads"] > 1)
    return f"{headline(content)}\n{resumes or f'{steps} steps'} · {hardware['name']}, {threads}"


def returned(content: dict[str, Any], folder: Path, place: Place) -> str:
    """The message of a run that has ended before."""
    if place != ALONE:
        return f"{place.prefix}has already {content['status']} · {values(content['metrics'])}"
    again = "fresh=true trains it again"
    if not content["config"].get("parent"):  # whose seed a child has
        again += f", seed={content['seed'] + 1} another one"
    return f"{headline(content)}\nThis run has already {content['status']}; {again}.\n{summary(content, folder)}"


def summary(content: dict[str, Any], folder: Path, place: Place = ALONE, note: str = "", again: str = "") -> str:
    """The end of a run: how it went and, unless it is one of several, its metrics and where everything lies.

    note: a line on what it has learned; again: the command that resumes it if it was interrupted
    """
    c, rows, alone = content, [], place == ALONE
    head = f"{c['status']} after {c['progress']['steps']:,} steps, {duration(c['progress']['seconds'])}"
    head += f"; {again} resumes it" if c["status"] == "interrupted" else ""
    if alone:
        rows = _metrics(c)
    for key, (name, form) in {"length": ("accuracy", ".1%"), "length_loss": ("loss", ".3f")}.items():
        if parts := [f"{plain(n)}: {value:{form}}" for n, (_, value) in c.get("slices", {}).get(key, {}).items()]:
            name += " above Bayes-optimal" if key == "length_loss" and c["floor"]["loss"] else ""
            rows.append(("lengths", f"{name} at {' · '.join(parts)}"))
    rows += [("", plain(line)) for line in (c.get("error"), note) if line]
    rows += _text(c) + _whereabouts(c, folder) if alone else []
    if place.parallel:
        return "\n".join(place.prefix + line for line in [head, *(" ".join(row).strip() for row in rows)])
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join([head, *(f"  {name:<{width}}  {what}" if name else f"  {what}" for name, what in rows)])


def learned(content: dict[str, Any], tokens: list[int]) -> str:
    """A line on the loss of a finished run on `tokens`, if it is one of guessing, or below what can be."""
    loss, optimal = content["metrics"].get("eval/loss", math.inf), content["floor"]["loss"]
    guess = sum(count / len(tokens) * math.log(len(tokens) / count) for count in Counter(tokens).values())
    if content["status"] == "finished" and loss >= guess:
        return f"no better than guessing: token frequencies alone give a loss of {guess:.4f}"
    if content["status"] == "finished" and loss < LEAKS * optimal:
        return f"below the Bayes-optimal loss of {optimal:.4f}: does the model see later tokens? Try rope-lab check"
    return ""


def _metrics(content: dict[str, Any]) -> list[tuple[str, str]]:
    graded, metrics, finished = content["config"]["eval"], content["metrics"], content["status"] == "finished"
    n = (finished and graded["problems_at_end"]) or graded["problems"]
    units = {"eval/loss": " nats per token", "eval/accuracy": f" of {n:,} held-out problems"}
    rows = [(label, f"{metrics[k]:{form}}{units.get(k, '')}") for k, (label, form) in SHOWN.items() if k in metrics]
    if "eval/score" in metrics:
        rows.append(("score", f"{metrics['eval/score']:g} of the first {SCORED}, as the write-up counts"))
    return rows if finished else [(label, f"{value}, at its last evaluation") for label, value in rows]


def _text(content: dict[str, Any]) -> list[tuple[str, str]]:
    """A few lines that the model has written, if the task grades none."""
    first = next(iter(content.get("samples", [])), {"accuracy": None})
    if "accuracy" in first:
        return []
    text = (first["prompt"] + first["written"]).strip()
    return [("", f"| {plain(line)[:76]}") for line in text.split("\n")[:12]]


def _whereabouts(content: dict[str, Any], folder: Path) -> list[tuple[str, str]]:
    """Where the records of a run lie, and the commands that show more of it."""
    typed, wandb = short_path(folder), files_beside(folder)
    rows = [("records", typed)]
    if content["checkpoint"] or content["status"] == "finished":  # a run of no steps has that of step 0
        targets = [value for key, value in flat(content["config"]).items() if key.endswith("._target_")]
        modules = {sys.modules[name] for target in targets if (name := target.partition(".")[0]) not in PACKAGES}
        names = [each.__name__ if hasattr(each, "__path__") else short_path(Path(each.__file__)) for each in modules]
        allowed = "".join(f" --allow {shlex.quote(name)}" for name in sorted(names))  # scheme and task of the user's
        rows.append(("try it", f"{program('rope-lab')} sample {shlex.quote(typed)}{allowed}"))
    if any(wandb.glob(f"*run-*{content['run_id']}")):
        rows.append(("W&B", f"{program('wandb')} leet {shlex.quote(short_path(wandb))}"))
    return rows


def program(name: str) -> str:
    """How to call a program of this Python's environment, activated or not, quoted for the shell."""
    beside = Path(sys.executable).parent / name
    return name if shutil.which(name) == str(beside) else shlex.quote(short_path(beside))
