"""What a run shows on the screen."""

import math
import os
import shlex
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from rope_lab.files import is_sealed
from rope_lab.text import LEAKS, flat, plain, say
from rope_lab.train.evaluate import SCORED
from rope_lab.train.instantiate import PACKAGES

# The metrics that are shown wherever a run has them: what they are called, and their format.
SHOWN = {
    "eval/loss": ("held-out loss", ".4f"),
    "eval/bits_per_byte": ("bits per byte", ".4f"),
    "eval/accuracy": ("accuracy", ".1%"),
}
REFRESH = 0.1  # seconds between two looks of a bar, at least
LENGTHS = {"length": ("accuracy", ".1%"), "length_loss": ("loss", ".3f")}  # slices


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


@dataclass(frozen=True)
class Progress:
    """How a run shows how far it is: a bar below lines on a terminal of its own, elsewhere lines alone."""

    bar: tqdm
    prefix: str

    def step(self) -> None:
        self.bar.update()

    def show(self, record: dict[str, Any]) -> None:
        """Shows a metric record: an evaluation as a line that stays, the training loss in the bar."""
        if "train/loss" in record:
            self.bar.set_postfix_str(f"train loss {record['train/loss']:.3f}", refresh=False)
        if not SHOWN.keys() & record.keys():
            return
        step, steps = record["step"], self.bar.total
        line = f"{self.prefix}step {step:>{len(str(steps))}} · {values(record)}"
        if self.bar.disable and 0 < step < steps:
            line += f" · {duration(record['seconds'] / step * (steps - step))} left"
        with tqdm.external_write_mode():  # the bar steps aside
            say(line)


@contextmanager
def progress(steps: int, begun: int, place: Place | None) -> Iterator[Progress]:
    """Shows a run of so many steps, `begun` of them done before. The bar leaves nothing behind."""
    bare = not (sys.stdout.isatty() and sys.stderr.isatty()) or os.environ.get("TERM") == "dumb"
    tqdm.set_lock(threading.RLock())  # its own outlives a process that is killed
    bar = tqdm(
        total=steps,
        initial=begun,
        disable=bare or (place is not None and place.parallel),
        bar_format="{percentage:3.0f}%|{bar}| step {n}/{total}, {remaining} left{postfix}\r",  # `^C` is written over
        dynamic_ncols=True,
        mininterval=REFRESH,
        smoothing=0,  # evaluations are part of the mean time of a step
        leave=False,
    )
    with bar, logging_redirect_tqdm():  # warnings too are lines above the bar
        yield Progress(bar, place.prefix if place else "")


def shown(metrics: dict[str, Any]) -> dict[str, float]:
    """Those of SHOWN that are numbers."""
    return {key: metrics[key] for key in SHOWN if isinstance(metrics.get(key), int | float)}


def values(metrics: dict[str, Any]) -> str:
    """Those of SHOWN in a line."""
    return " · ".join(f"{SHOWN[key][0]} {value:{SHOWN[key][1]}}" for key, value in shown(metrics).items())


def duration(seconds: float) -> str:
    """In the unit in which it is a number of at most three digits."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def headline(content: dict[str, Any]) -> str:
    """What a run is: `content` of its run.json."""
    names, seed = content["config"]["names"], content["config"]["seed"]
    parameters = f"{content['parameters']:,} parameters"
    return f"{names['task']} · {names['position']} · {names['scale']} · seed {seed} · {parameters}"


def beginning(content: dict[str, Any], place: Place | None) -> str:
    """What is said when a run begins or resumes; empty where its heading has said it."""
    hardware, begun = content["provenance"]["hardware"], content["progress"]["steps"]
    steps = f"{content['config']['train']['steps']:,}"
    resumes = f"resumes at step {begun:,} of {steps}" if begun else ""
    if place and place.heading:
        return resumes and place.prefix + resumes
    threads = f"{hardware['threads']} thread" + "s" * (hardware["threads"] > 1)
    return f"{headline(content)}\n{resumes or f'{steps} steps'} · {hardware['name']}, {threads}"


def returned(content: dict[str, Any], folder: Path, place: Place | None) -> str:
    """What is said of a run that has ended before."""
    unchecked = "" if is_sealed(content) else ", as a record without digests says, which cannot be checked"
    said, again = f"has already {content['status']}{unchecked}", "fresh=true trains it again"
    try:
        if place:
            return f"{place.prefix}{said} · {values(content['metrics'])}"
        again += f", seed={content['config']['seed'] + 1} another one"
        return f"{headline(content)}\nThis run {said}; {again}.\n{summary(content, folder)}"
    except (LookupError, TypeError, ValueError, AttributeError):  # a record of before, or edited
        return f"{folder.name} {said}; {again}; its record cannot be shown"


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
    guess:     the loss that a finished run has to beat to be better than guessing; None: not known
    fresh:     whether the command that trained it says `fresh=true`
    """
    c, m, finished = content, content["metrics"], content["status"] == "finished"
    progress, told = c["progress"], []
    head = f"{c['status']} after {progress['steps']:,} steps, {duration(progress['seconds'])}"
    if c["status"] == "interrupted":
        head += f"; {same_command(fresh)} resumes it"
    if "error" in c:
        told.append(("", plain(c["error"])))
    if not place:
        at = "" if finished else ", at its last evaluation" if evaluated is None else f", at step {evaluated:,}"
        graded = c["config"]["eval"]
        n = (finished and graded.get("problems_at_end")) or graded["problems"]
        units = {"eval/loss": " nats per token", "eval/accuracy": f" of {n:,} held-out problems"}
        told += [(SHOWN[k][0], f"{v:{SHOWN[k][1]}}{units.get(k, '')}{at}") for k, v in shown(m).items()]
        if "eval/score" in m:
            told.append(("score", f"{m['eval/score']:g} of the first {SCORED}, as the write-up counts{at}"))
    for key, (name, form) in LENGTHS.items():
        if key == "length_loss" and c.get("floor", {}).get("loss"):
            name += " above Bayes-optimal"
        found = [f"{plain(n)}: {value:{form}}" for n, (_, value) in c.get("slices", {}).get(key, {}).items()]
        told += [("lengths", f"{name} at {' · '.join(found)}")] if found else []
    if finished and guess is not None and m["eval/loss"] >= guess:
        told.append(("", f"no better than guessing: token frequencies alone give a loss of {guess:.4f}"))
    if finished and m.get("eval/loss", math.inf) < LEAKS * (optimal := c.get("floor", {}).get("loss", 0)):
        told.append(
            ("", f"below the Bayes-optimal loss of {optimal:.4f}: are later tokens seen? rope_lab.check says it")
        )
    if not place:
        told += [("", line) for line in sample(c)]
        told += whereabouts(c, folder)
    if place and place.parallel:
        return "\n".join(place.prefix + line for line in [head, *(" ".join(row).strip() for row in told)])
    width = max((len(name) for name, _ in told), default=0)
    return "\n".join([head, *(f"  {name:<{width}}  {what}" if name else f"  {what}" for name, what in told)])


def same_command(fresh: bool) -> str:
    """What to say once more; not with `fresh=true`, which would delete what there is."""
    return "the same command" + " without fresh=true" * fresh


def sample(content: dict[str, Any]) -> list[str]:
    """A few lines that the model has written, of a task in which nothing is right or wrong; else none."""
    first = next(iter(content.get("samples", [])), {})
    if not first or "accuracy" in first:
        return []
    text = (first["prompt"] + first["written"]).strip()
    return [f"| {plain(line)[:76]}" for line in text.split("\n")[:12]]


def guessing_loss(tokens: list[int]) -> float:
    """The loss on these tokens, in nats each, of guessing them by how often each occurs: the entropy of that."""
    return sum(count / len(tokens) * math.log(len(tokens) / count) for count in Counter(tokens).values())


def whereabouts(content: dict[str, Any], folder: Path) -> list[tuple[str, str]]:
    """Where the records of a run lie, and the commands that show more of it."""
    typed, wandb = as_typed(folder), folder.parent / "wandb"
    found = [("records", typed)]
    if content["checkpoint"]:
        of_others = "".join(f" --allow {shlex.quote(each)}" for each in others(content["config"]))
        found.append(("try it", f"{program('python')} -m rope_lab.sample {shlex.quote(typed)}{of_others}"))
    if any(wandb.glob(f"*run-*{content['run_id']}")):
        found.append(("W&B", f"{program('wandb')} leet {shlex.quote(as_typed(wandb))}"))
    return found


def others(settings: dict[str, Any]) -> list[str]:
    """What has to be allowed for a run to be read: the packages, or files, of its classes that are not of ours."""
    targets = [value for key, value in flat(settings).items() if key.endswith("._target_")]
    modules = [sys.modules.get(target.partition(".")[0]) for target in targets]
    own = {module.__name__: module for module in modules if module and module.__name__ not in PACKAGES}
    return [name if hasattr(module, "__path__") else as_typed(Path(module.__file__)) for name, module in own.items()]


def as_typed(path: Path) -> str:
    """A path as one would type it here: relative where it lies below, and never like an option."""
    typed = str(path)
    with suppress(OSError, ValueError):  # it lies elsewhere, or the present folder is no more
        typed = str(path.relative_to(Path.cwd()))
    return f"./{typed}" if typed.startswith("-") else typed


def program(name: str) -> str:
    """How one calls a program of this Python's environment here, activated or not, quoted for the shell."""
    beside = Path(sys.executable).parent / name
    return name if shutil.which(name) == str(beside) else shlex.quote(as_typed(beside))
