"""Says in two minutes what a GPU makes of this package: `python scripts/gpu_check.py`.

- What works: a training step, an evaluation and completions of every scheme, attention and precision, whose loss and
  gradient norm are compared with the CPU's.
- How fast: training steps at three sizes, eager and compiled, as a share of the rate of matrix products measured here.
- What `make paper-table` will take at that speed.

Exits with 1 where there is no GPU or something does not work. `--device cpu --tiny` tries the script itself.
"""

import argparse
import itertools
import sys
import textwrap
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where rope_lab is not installed
import rope_lab  # noqa: F401 - first, since it sees to the screen and to Ctrl-C

# isort: split
import torch
from timing import flop
from tqdm import tqdm

from rope_lab.launch import cells
from rope_lab.text import ConfigError
from rope_lab.train import config
from rope_lab.train.config import CONF, Config
from rope_lab.train.provenance import hardware
from rope_lab.train.trainer import Trainer, build, evaluate_now, resolve, update, write_samples

ASKED = 0.40  # share of the matrix rate that is asked for at 20M parameters
ALLOWED = {"float32": 1e-3, "bfloat16": 3e-2}  # relative difference from the CPU's loss and gradient norm
SMALL = ("model.d_model=64", "model.n_layers=2", "model.n_heads=4", "train.batch_size=4")
TINY = (
    "model.d_model=16",
    "model.n_layers=1",
    "model.n_heads=2",
    "train.batch_size=2",
    "eval.problems=4",
    "eval.sequences=2",
)
FEW = ("eval.problems=2", "eval.problems_at_end=null", "eval.sequences=2")
SHAPES = {  # those of the paper table, and the quick one
    "quick": ("substring_by_index", "quick"),
    "0.6M Prefix": ("substring_by_prefix", "paper"),
    "20M Index": ("substring_by_index", "paper"),
    "20M Addition": ("arithmetic_addition", "paper"),
}
COMPILED = [  # what is also tried, while there is time
    ("20M Index", "true"),
    ("quick", "reduce-overhead"),
    ("0.6M Prefix", "reduce-overhead"),
    ("20M Index", "reduce-overhead"),
]


@dataclass(frozen=True)
class Speed:
    """A training step with its batch and checks."""

    seconds: float
    tokens: int
    share: float  # of the rate of matrix products


def load(device: str, *overrides: str) -> Config:
    return resolve(config.load(f"device={device}", "wandb.mode=disabled", *overrides))


def one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200] if str(error).strip() else ''}"


def difference(scheme: str, attention: str, precision: str, device: str) -> float | None:
    """How far a step's loss and gradient norm are from the CPU's in float32, at most, relative to these.

    None where there is no such combination. Raises AssertionError where they are further apart than ALLOWED.
    """
    settings = (*SMALL, *FEW, f"position={scheme}", f"model.attention={attention}")
    try:
        expected = update(build(load("cpu", *settings, "train.precision=float32")), 0)[:2]
    except ConfigError:  # linear attention has no scores to add to
        return None
    trainer = build(load(device, *settings, f"train.precision={precision}"))
    found = update(trainer, 0)[:2]
    evaluate_now(trainer)
    write_samples(trainer)
    apart = max(abs(a - b) / abs(b) for a, b in zip(found, expected, strict=True))
    if apart > ALLOWED[precision]:
        raise AssertionError(
            f"loss and gradient norm {found[0]:.5g}, {found[1]:.5g}, on the CPU {expected[0]:.5g}, {expected[1]:.5g}"
        )
    return apart


def what_works(device: str, schemes: list[str]) -> bool:
    """Shows which combinations work; whether all do."""
    apart: dict[str, list[float]] = {precision: [] for precision in ALLOWED}
    failed = []
    combinations = [*itertools.product(schemes, ("softmax", "linear"), ALLOWED)]
    for each in tqdm(combinations, "what works", leave=False, disable=None):
        try:
            found = difference(*each, device)
        except Exception as error:
            failed.append(f"  {' '.join(each)}: {one_line(error)}")
        else:
            apart[each[2]] += [] if found is None else [found]
    right = sum(map(len, apart.values()))
    most = ", ".join(f"{max(values):.0e} in {precision}" for precision, values in apart.items() if values)
    tell(
        f"Works: {right} of {right + len(failed)} combinations of scheme, attention and precision. A step's loss and "
        f"gradient norm differ from the CPU's by at most {most or 'nothing that was measured'}."
    )
    if device == "cuda":
        print(f"  It waits for the GPU {waits()} times a step; once is asked for.")
    print(*failed, sep="\n", end="\n" if failed else "")
    return not failed


def waits() -> int:
    """How often torch says that it waits for the GPU in a training step."""
    trainer = build(load("cuda", *SMALL, *FEW))
    update(trainer, 0)
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        update(trainer, 1)
    torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(each.message) for each in said)


def waited(device: str) -> None:
    """Returns once the device has done what it was given."""
    if device != "cpu":
        getattr(torch, device).synchronize()


def seconds_of(action: Callable[[], Any], device: str, most: float) -> float:
    """The median time of a call, after three that do not count, within `most` seconds but for the first of them."""
    times = []
    for number in range(53):
        begun = time.perf_counter()
        action()
        waited(device)
        times.append(time.perf_counter() - begun)
        if number >= 5 and sum(times[1:]) > most:
            break
    return median(times[3:])


def matrix_rate(device: str, dtype: torch.dtype, width: int) -> float:
    """FLOP a second of products of square matrices."""
    a, b = (torch.randn(width, width, device=device, dtype=dtype) for _ in range(2))
    return 2 * width**3 / seconds_of(lambda: a @ b, device, most=1.0)


def speed(trainer: Trainer, rates: dict[str, float], most: float) -> Speed:
    cfg, steps = trainer.cfg, itertools.count()
    seconds = seconds_of(lambda: update(trainer, next(steps)), cfg.device, most)
    _, whole = flop(cfg, len(trainer.task.alphabet))
    return Speed(seconds, cfg.train.batch_size * cfg.train.seq_len, whole / seconds / rates[cfg.train.precision])


def how_fast(device: str, tiny: bool, until: float) -> tuple[dict[tuple, Speed], dict[str, float], bool]:
    """Shows how fast steps are: each (shape, compiled), the seconds of each shape's evaluation, and whether all ran."""
    width = 256 if tiny else 8192
    rates = {name: matrix_rate(device, getattr(torch, name), width) for name in ALLOWED}
    told = ", ".join(f"{rate / 1e12:.3g} TFLOP/s in {name}" for name, rate in rates.items())
    print(f"\nMatrix products, {width:,} wide: {told}.\n")
    print(f"{'RoPER':13} {'train.compile':16} {'ms a step':>9} {'tokens/s':>12} {'of the matrix rate':>18}")
    speeds: dict[tuple, Speed] = {}
    evaluations: dict[str, float] = {}
    untried, failed = [], False
    for shape, compiled in [*((shape, "false") for shape in SHAPES), *COMPILED]:
        if compiled != "false" and time.monotonic() > until:
            untried.append(f"{shape} {compiled}")
            continue
        task, scale = SHAPES[shape]
        settings = (f"task={task}", f"scale={scale}", f"train.compile={compiled}", *(TINY if tiny else ()))
        try:
            trainer = build(load(device, *settings))
            found = speeds[shape, compiled] = speed(trainer, rates, most=0.1 if tiny else 3.0)
            if compiled == "false":
                evaluate_now(trainer)  # the first is slower
                begun = time.perf_counter()
                evaluate_now(trainer)
                evaluations[shape] = time.perf_counter() - begun
        except Exception as error:
            print(f"{shape:13} {compiled:16} failed: {one_line(error)}")
            failed = True
        else:
            numbers = f"{found.seconds * 1e3:9.2f} {found.tokens / found.seconds:12,.0f} {found.share:18.0%}"
            print(f"{shape:13} {compiled:16} {numbers}")
    if untried:
        tell(f"Not tried, for lack of time (--minutes 10): {', '.join(untried)}")
    return speeds, evaluations, not failed


def judge(speeds: dict[tuple, Speed]) -> None:
    """Shows whether a step at 20M parameters reaches what is asked of it."""
    shares = {compiled: found.share for (shape, compiled), found in speeds.items() if shape == "20M Index"}
    if shares:
        best = max(shares, key=shares.__getitem__)
        told = f"{shares[best]:.0%} of the matrix rate with train.compile={best}; {ASKED:.0%} is asked for"
        tell(f"At 20M parameters: {told}: {'' if shares[best] >= ASKED else 'not '}reached.")


def paper_table(speeds: dict[tuple, Speed], evaluations: dict[str, float]) -> None:
    """Shows what the runs of the paper table will take, one after the other."""
    shape_of = {place: shape for shape, place in SHAPES.items()}
    runs = cells.load(cells.find("paper", [CONF])).cells([])
    shapes = [shape_of[run.task, run.scale] for run in runs]
    if not all((shape, "false") in speeds and shape in evaluations for shape in shapes):
        print("make paper-table: no estimate, since not all of its shapes could be timed")
        return
    steps = evaluated = 0.0
    for shape in {*shapes}:
        task, scale = SHAPES[shape]
        cfg = config.load(f"task={task}", f"scale={scale}")
        steps += shapes.count(shape) * cfg.train.steps * speeds[shape, "false"].seconds
        evaluated += shapes.count(shape) * (cfg.train.steps // cfg.eval.every + 1) * evaluations[shape]
    tell(
        f"make paper-table: {len(runs)} runs one after the other, {(steps + evaluated) / 3600:.1f} hours: "
        f"{steps / 3600:.1f} to train and at most {evaluated / 3600:.1f} to evaluate, as long as a model that is right "
        "nowhere takes. train.compile is not counted: a run compiles first."
    )


def tell(text: str) -> None:
    print(textwrap.fill(text, 80, subsequent_indent="  ", break_on_hyphens=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "mps", "cpu"), default="cuda")
    parser.add_argument("--minutes", type=float, default=2, help="after so long nothing more is compiled (default: 2)")
    parser.add_argument("--tiny", action="store_true", help="small models and few schemes: figures that say nothing")
    given = parser.parse_args()
    until = time.monotonic() + 60 * given.minutes
    try:
        load(given.device)
    except ConfigError:
        sys.exit(f"torch {torch.__version__} finds no {given.device} device here: nothing was checked")
    here = hardware(torch.device(given.device))
    tf32 = "on" if here["tf32"]["matmul"] else "off"
    if given.tiny:
        print("Tiny models: the figures say nothing.")
    print(f"{here['name']} · torch {torch.__version__} · CUDA {here['cuda']} · TF32 {tf32}", end="\n\n")
    schemes = ["rope", "t5_bias"] if given.tiny else sorted(path.stem for path in (CONF / "position").glob("*.yaml"))
    works = what_works(given.device, schemes)
    speeds, evaluations, well = how_fast(given.device, given.tiny, until)
    judge(speeds)
    paper_table(speeds, evaluations)
    sys.exit(0 if works and well else 1)


if __name__ == "__main__":
    main()
