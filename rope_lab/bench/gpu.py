"""Which schemes work on a GPU, how fast training steps are, and how long a run takes."""

import itertools
import sys
import time
import warnings
from collections.abc import Sequence

import numpy as np
import torch

from rope_lab.bench import timing
from rope_lab.text import ConfigError, first_line
from rope_lab.train.config import CONF
from rope_lab.train.provenance import hardware
from rope_lab.train.trainer import build, evaluate_now, update, write_samples

ALLOWED = {"float32": 1e-3, "bfloat16": 3e-2}  # relative difference from the CPU's loss and gradient norm
SMALL = ("model.d_model=64", "model.n_layers=2", "model.n_heads=4", "train.batch_size=4", *timing.FEW_PROBLEMS)


def check(schemes: list[str], settings: list[str], compiled: bool, repeats: int) -> bool:
    """Print what works and how fast it is; whether everything worked. `settings` change the timed runs."""
    if not any(word.startswith("device=") for word in settings):
        settings = ["device=cuda", *settings]
    device = timing.load(*settings).device
    here = hardware(torch.device(device))
    print(f"{here['name']} · torch {torch.__version__} · CUDA {here['cuda']}\n")
    works = what_works(device, schemes or sorted(path.stem for path in (CONF / "position").glob("*.yaml")))
    modes = ("false", "true", "reduce-overhead") if compiled else ("false",)
    return how_fast(device, settings, modes, repeats) and works


def difference(scheme: str, attention: str, precision: str, device: str) -> float | None:
    """The largest relative difference of a step's loss and gradient norm from the CPU's in float32.

    None if the scheme does not support that attention. Raises AssertionError if it is larger than ALLOWED.
    """
    settings = (*SMALL, f"position={scheme}", f"model.attention={attention}")
    try:
        on_cpu = build(timing.load(*settings, "device=cpu", "train.precision=float32"))
    except ConfigError:
        return None
    expected = update(on_cpu, 0)[:2]
    trainer = build(timing.load(*settings, f"device={device}", f"train.precision={precision}"))
    measured = update(trainer, 0)[:2]
    evaluate_now(trainer)
    write_samples(trainer)
    largest = max(abs(a - b) / abs(b) for a, b in zip(measured, expected, strict=True))
    if largest > ALLOWED[precision]:
        raise AssertionError(f"loss and gradient norm {measured}, on the CPU {expected}")
    return largest


def what_works(device: str, schemes: Sequence[str]) -> bool:
    """A step, an evaluation and completions of every scheme, attention and precision; whether all worked."""
    differences: dict[str, list[float]] = {precision: [] for precision in ALLOWED}
    failed = []
    for combination in itertools.product(schemes, ("softmax", "linear"), ALLOWED):
        try:
            largest = difference(*combination, device)
        except Exception as error:
            failed.append(f"  {' '.join(combination)}: {type(error).__name__}: {first_line(error)[:200]}")
        else:
            differences[combination[2]] += [] if largest is None else [largest]
    right = sum(map(len, differences.values()))
    largest_of = ", ".join(f"{max(values):.0e} in {precision}" for precision, values in differences.items() if values)
    print(f"Works: {right} of {right + len(failed)} combinations of scheme, attention and precision.")
    print(*failed, sep="\n", end="\n" if failed else "")
    print(f"Loss and gradient norm of a step differ from the CPU's by at most {largest_of or '(nothing measured)'}.")
    if device == "cuda":
        print(f"A step waits for the GPU {waits()} times (once is wanted).")
    return not failed


def waits() -> int:
    """How often torch reports that a training step waits for the GPU."""
    trainer = build(timing.load(*SMALL, "device=cuda"))
    update(trainer, 0)
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        update(trainer, 1)
    torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(each.message) for each in caught)


def how_fast(device: str, settings: Sequence[str], compilations: Sequence[str], repeats: int) -> bool:
    """A table of training steps by shape and `train.compile`; whether all ran."""
    lines, rates, ran = [], {precision: timing.matrix_rate(device, precision) for precision in ALLOWED}, True
    for (shape, of_shape), mode in itertools.product(timing.SHAPES.items(), compilations):
        try:
            trainer = build(timing.load(*of_shape, *settings, f"train.compile={mode}"))
            (seconds,) = timing.alternate({"": timing.training_step(trainer)}, repeats, device).values()
            begun = time.perf_counter()
            evaluate_now(trainer)
            evaluation = time.perf_counter() - begun
        except Exception as error:
            print(f"{shape}, train.compile={mode}: {type(error).__name__}: {error}", file=sys.stderr)
            ran = False
            continue
        cfg, step = trainer.cfg, np.median(seconds)
        t = cfg.train
        share = timing.flop(cfg) / step / rates[t.precision]
        minutes = (t.steps * step + (t.steps // cfg.eval.every + 1) * evaluation) / 60
        times = timing.spread(np.array(seconds) * 1e3)
        tokens = f"{t.batch_size * t.seq_len / step:,.0f}"
        lines.append([shape, mode, t.precision, times, tokens, f"{share:.0%}", f"{minutes:.1f}"])
    speed = ["ms a step", "tokens/s", "share of matrix products", "minutes a run"]
    print("", timing.table(["shape", "train.compile", "computed in", *speed], lines), sep="\n")
    return ran
