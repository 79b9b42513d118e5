"""What a run shows on the screen."""

import math
import shlex
import shutil
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from tqdm import tqdm

from rope_lab.evaluate import SCORED
from rope_lab.run import Run
from rope_lab.text import say


def new_bar(steps: int, begun: int) -> tqdm:
    """A progress bar on a terminal; silent elsewhere."""
    tqdm.set_lock(threading.RLock())  # its own outlives a process that is killed
    return tqdm(total=steps, initial=begun, disable=None, unit="step", dynamic_ncols=True)


def show(bar: tqdm, row: dict[str, Any], metrics: dict[str, Any]) -> None:
    """Shows a row of metrics in the bar, or, where that is silent, as one line an evaluation; `metrics`: the latest."""
    now = {"eval/loss": math.nan, "eval/accuracy": math.nan, "train/loss": math.nan} | metrics
    speed = f"{row['tokens'] / row['seconds']:,.0f}"
    shown = {"loss": f"{now['eval/loss']:.3f}", "accuracy": f"{now['eval/accuracy']:.1%}"}
    bar.set_postfix(shown | {"train loss": f"{now['train/loss']:.3f}", "tokens/s": speed}, refresh=False)
    if bar.disable and "eval/accuracy" in row:
        say(
            f"step {row['step']:>6} · {row['seconds']:7.1f} s · {speed:>9} tokens/s · "
            f"held-out loss {shown['loss']} · accuracy {shown['accuracy']}"
        )


def headline(run: Run) -> str:
    c = run.content
    hardware, begun = c["provenance"]["hardware"], c["progress"]["steps"]
    return (
        f"{c['task']} · {c['position']} · {c['scale']} · seed {c['seed']} · {c['parameters']:,} parameters · "
        f"{hardware['name']}, {hardware['threads']} threads" + (f" · resumes at step {begun}" if begun else "")
    )


def summary(run: Run) -> str:
    """The end of a run in a few lines: how it went and where everything lies."""
    c, m = run.content, run.content["metrics"]
    lines = [f"{c['status']} after {c['progress']['steps']} steps, {c['progress']['seconds']:.0f} s"]
    if "error" in c:
        lines.append(f"  {c['error']}")
    if "eval/accuracy" in m:
        graded = c["config"]["eval"]
        n = (c["status"] == "finished" and graded.get("problems_at_end")) or graded["problems"]
        lines.append(f"  accuracy  {m['eval/accuracy']:.1%} of {n:,} held-out problems")
    if "eval/score" in m:
        lines.append(f"  score     {m['eval/score']} of the first {SCORED}, as the write-up counts")
    if "eval/loss" in m:
        lines.append(f"  loss      {m['eval/loss']:.4f} nats per answer token, held out")
    lines.append(f"  records   {as_typed(run.folder)}")
    if c["checkpoint"]:
        folder = shlex.quote(as_typed(run.folder))
        lines.append(f"  try it    {program('python')} -m rope_lab.sample {folder}")
    if run.wandb.run:
        lines.append(f"  W&B       {program('wandb')} leet {shlex.quote(as_typed(run.wandb.folder))}")
    return "\n".join(lines)


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
