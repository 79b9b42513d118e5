"""What a run shows on the screen."""

import math
import os
import shlex
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from rope_lab.text import LEAKS, flat, plain, say
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

    label: str
    heading: str
    parallel: bool

    @property
    def prefix(self) -> str:
        """What each line of the run begins with."""
        return f"{self.label} · " if self.parallel and self.label else ""


class Progress:
    """Progress of a run: a bar below lines on a terminal of its own, elsewhere lines alone."""

    def __init__(self, bar: tqdm, prefix: str):
        self.bar, self.prefix, self.loss = bar, prefix, ""
        self.step_now, self.began, self.shown = bar.n, (bar.n, time.monotonic()), time.monotonic()

    def step(self) -> None:
        """Count a step; without a bar, show it if nothing was shown for a while."""
        self.step_now += 1
        self.bar.update()
        if self.bar.disable and time.monotonic() - self.shown >= SILENCE and self.step_now < self.bar.total:
            self._say(self.step_now, self.loss)

    def show(self, record: dict[str, Any]) -> None:
        """Show a metric record: an evaluation as a line that stays, the training loss in the bar."""
        if "train/loss" in record:
            self.loss = f"train loss {record['train/loss']:.3f}"
            self.bar.set_postfix_str(self.loss, refresh=False)
        if SHOWN.keys() & record.keys():
            self._say(record["step"], values(record))

    def _say(self, step: int, found: str) -> None:
        steps, (first, since) = self.bar.total, self.began
        self.shown = time.monotonic()
        parts = [f"step {step:>{len(str(steps))}}", found]
        if self.bar.disable and first < step < steps:
            parts.append(f"{duration((self.shown - since) / (step - first) * (steps - step))} left")
        with tqdm.external_write_mode():  # the bar steps aside
            say(self.prefix + " · ".join(filter(None, parts)))


@contextmanager
def progress(steps: int, begun: int, place: Place | None) -> Iterator[Progress]:
    """Show a run of so many steps, `begun` of them done before. The bar leaves nothing behind."""
    bare = not (sys.stdout.isatty() and sys.stderr.isatty()) or os.environ.get("TERM") == "dumb"
    tqdm.set_lock(threading.RLock())  # its own outlives a process that is killed
    bar = tqdm(
        total=steps,
        initial=begun,
        disable=bare or (place is not None and place.parallel),
        bar_format="{percentage:3.0f}%|{bar}| step {n}/{total}, {remaining} left{postfix}\r",  # `^C` is written over
        dynamic_ncols=True,
        smoothing=0,  # evaluations are part of the mean time of a step
        leave=False,
    )
    with bar, logging_redirect_tqdm():  # warnings too are lines above the bar
        yield Progress(bar, place.prefix if place else "")


def shown(metrics: dict[str, Any]) -> dict[str, float]:
    """The metrics of SHOWN that a run has."""
    return {key: metrics[key] for key in SHOWN if key in metrics}


def values(metrics: dict[str, Any]) -> str:
    """The metrics of SHOWN in a line."""
    return " · ".join(f"{SHOWN[key][0]} {value:{SHOWN[key][1]}}" for key, value in shown(metrics).items())


def duration(seconds: float) -> str:
    """In the unit in which it is a number of at most three digits."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def headline(content: dict[str, Any]) -> str:
    """What a run is; `content`: its run.json."""
    c = content
    return f"{c['task']} · {c['position']} · {c['scale']} · seed {c['seed']} · {c['parameters']:,} parameters"


def beginning(content: dict[str, Any], place: Place | None) -> str:
    """What is said when a run begins or resumes; empty if its heading has said it."""
    hardware, begun = content["provenance"]["hardware"], content["progress"]["steps"]
    steps = f"{content['config']['train']['steps']:,}"
    resumes = f"resumes at step {begun:,} of {steps}" if begun else ""
    if place and place.heading:
        return resumes and place.prefix + resumes
    threads = f"{hardware['threads']} thread" + "s" * (hardware["threads"] > 1)
    return f"{headline(content)}\n{resumes or f'{steps} steps'} · {hardware['name']}, {threads}"


def returned(content: dict[str, Any], folder: Path, place: Place | None) -> str:
    """What is said of a run that has ended before."""
    if place:
        return f"{place.prefix}has already {content['status']} · {values(content['metrics'])}"
    again = f"fresh=true trains it again, seed={content['seed'] + 1} another one"
    return f"{headline(content)}\nThis run has already {content['status']}; {again}.\n{summary(content, folder)}"


def summary(
    content: dict[str, Any],
    folder: Path,
    place: Place | None = None,
    evaluated: int | None = None,
    guess: float | None = None,
    fresh: bool = False,
) -> str:
    """The end of a run: how it went and, unless it is one of several, its metrics and where everything lies.

    evaluated: the step of its last evaluation; None: not known, or the last step
    guess:     the loss of guessing, which a finished run should beat; None: not known
    fresh:     whether the command that trained it says `fresh=true`
    """
    c, finished = content, content["status"] == "finished"
    head = f"{c['status']} after {c['progress']['steps']:,} steps, {duration(c['progress']['seconds'])}"
    if c["status"] == "interrupted":
        head += f"; {same_command(fresh)} resumes it"
    at = "" if finished else ", at its last evaluation" if evaluated is None else f", at step {evaluated:,}"
    loss, optimal = c["metrics"].get("eval/loss", math.inf), c.get("floor", {}).get("loss", 0)
    rows = [("", plain(c["error"]))] if "error" in c else []
    rows += [] if place else _metrics(c, at)
    for key, (name, form) in {"length": ("accuracy", ".1%"), "length_loss": ("loss", ".3f")}.items():
        if found := [f"{plain(n)}: {value:{form}}" for n, (_, value) in c.get("slices", {}).get(key, {}).items()]:
            name += " above Bayes-optimal" if key == "length_loss" and optimal else ""
            rows.append(("lengths", f"{name} at {' · '.join(found)}"))
    if finished and guess is not None and loss >= guess:
        rows.append(("", f"no better than guessing: token frequencies alone give a loss of {guess:.4f}"))
    if finished and loss < LEAKS * optimal:
        leak = "does the model see later tokens? rope_lab.check tests it"
        rows.append(("", f"below the Bayes-optimal loss of {optimal:.4f}: {leak}"))
    rows += [] if place else _sample(c) + _whereabouts(c, folder)
    if place and place.parallel:
        return "\n".join(place.prefix + line for line in [head, *(" ".join(row).strip() for row in rows)])
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join([head, *(f"  {name:<{width}}  {what}" if name else f"  {what}" for name, what in rows)])


def _metrics(content: dict[str, Any], at: str) -> list[tuple[str, str]]:
    graded, metrics = content["config"]["eval"], content["metrics"]
    n = (content["status"] == "finished" and graded.get("problems_at_end")) or graded["problems"]
    units = {"eval/loss": " nats per token", "eval/accuracy": f" of {n:,} held-out problems"}
    rows = [(SHOWN[k][0], f"{v:{SHOWN[k][1]}}{units.get(k, '')}{at}") for k, v in shown(metrics).items()]
    if "eval/score" in metrics:
        rows.append(("score", f"{metrics['eval/score']:g} of the first {SCORED}, as the write-up counts{at}"))
    return rows


def same_command(fresh: bool) -> str:
    """The command to repeat; not with `fresh=true`, which would delete what there is."""
    return "the same command" + " without fresh=true" * fresh


def _sample(content: dict[str, Any]) -> list[tuple[str, str]]:
    """A few lines that the model has written, if the task grades none."""
    first = next(iter(content.get("samples", [])), {})
    if not first or "accuracy" in first:
        return []
    text = (first["prompt"] + first["written"]).strip()
    return [("", f"| {plain(line)[:76]}") for line in text.split("\n")[:12]]


def guessing_loss(tokens: list[int]) -> float:
    """Entropy of the token frequencies, in nats: the loss of guessing by them."""
    return sum(count / len(tokens) * math.log(len(tokens) / count) for count in Counter(tokens).values())


def _whereabouts(content: dict[str, Any], folder: Path) -> list[tuple[str, str]]:
    """Where the records of a run lie, and the commands that show more of it."""
    typed, wandb = as_typed(folder), files_beside(folder)
    rows = [("records", typed)]
    if content["checkpoint"]:
        allowed = "".join(f" --allow {shlex.quote(each)}" for each in _others(content["config"]))
        rows.append(("try it", f"{program('python')} -m rope_lab.sample {shlex.quote(typed)}{allowed}"))
    if any(wandb.glob(f"*run-*{content['run_id']}")):
        rows.append(("W&B", f"{program('wandb')} leet {shlex.quote(as_typed(wandb))}"))
    return rows


def _others(settings: dict[str, Any]) -> list[str]:
    """Packages, or files, of classes that are not ours, which have to be allowed to read the run."""
    targets = [value for key, value in flat(settings).items() if key.endswith("._target_")]
    modules = [sys.modules.get(target.partition(".")[0]) for target in targets]
    own = {module.__name__: module for module in modules if module and module.__name__ not in PACKAGES}
    return [name if hasattr(module, "__path__") else as_typed(Path(module.__file__)) for name, module in own.items()]


def as_typed(path: Path) -> str:
    """A path as one would type it here: relative if it lies below, and never like an option."""
    typed = str(path)
    with suppress(OSError, ValueError):  # it lies elsewhere, or the working directory is gone
        typed = str(path.relative_to(Path.cwd()))
    return f"./{typed}" if typed.startswith("-") else typed


def program(name: str) -> str:
    """How to call a program of this Python's environment, activated or not, quoted for the shell."""
    beside = Path(sys.executable).parent / name
    return name if shutil.which(name) == str(beside) else shlex.quote(as_typed(beside))
