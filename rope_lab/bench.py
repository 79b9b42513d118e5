"""Time training steps of schemes and of other libraries: `rope-lab bench [MODEL…]
[SETTING=VALUE…]`.

MODEL is a position encoding, or a peer: a transformer of the same size in another library. Default:
rope, roper and installed peers. The settings describe the run whose steps are timed; default: five
shapes. Models take steps in turn: a busy machine then disturbs all alike.
"""

import itertools
import runpy
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from rope_lab.places import ROOT
from rope_lab.results.views.tables import Row, Table, markdown
from rope_lab.results.views.terminal import say_markdown
from rope_lab.shipped import choices
from rope_lab.text import ConfigError, Words, argument_parser, errors_as_exit, first_line
from rope_lab.train import config
from rope_lab.train.trainer import build, resolve, update

OURS = ["rope", "roper"]
SHAPES = {
    "quick": ["task=substring_by_index", "scale=quick"],
    "0.6M": ["task=substring_by_prefix", "scale=paper"],
    "20M": ["task=substring_by_index", "scale=paper", "train.batch_size=4"],
    "text 0.8M": ["task=text", "scale=quick"],
    "text 3M": ["task=text", "scale=reduced"],
}
FEW_PROBLEMS = ["eval.problems=2", "eval.problems_at_end=null", "eval.sequences=2"]
SMALL = ["model.d_model=64", "model.n_layers=2", "model.n_heads=4", "train.batch_size=4"]
# Relative difference from the CPU's loss and gradient norm.
ALLOWED = {"float32": 1e-3, "bfloat16": 3e-2}
WARM = 2  # calls of each that are not counted
Subject = tuple[str, str, bool]  # model, precision, whether it is compiled


def peers() -> dict[str, Any]:
    """The names of scripts/peers.py; outside a checkout there are no peers."""
    path = ROOT / "scripts" / "peers.py"
    return runpy.run_path(str(path)) if path.exists() else {"PEERS": {}}


def load(*settings: str) -> config.Config:
    return resolve(config.load(*FEW_PROBLEMS, *settings))


def step_of(subject: Subject, settings: Sequence[str]) -> Callable[[], object]:
    """A training step of one of our models, or of a peer in the place of our model with RoPE."""
    name, precision, compiled = subject
    others = peers()
    scheme = "rope" if name in others["PEERS"] else name
    how = f"train.precision={precision}", f"train.compile={compiled}"
    trainer = build(load(*settings, *how, f"position={scheme}"))
    if name in others["PEERS"]:
        if trainer.text.batch.given:
            given = ", ".join(trainer.text.batch.given)
            raise ConfigError(f"{name}: does not read what the task gives, {given}; name MODELs")
        trainer = others["in_its_place"](trainer, name)
    steps = itertools.cycle(range(trainer.cfg.train.steps))
    return lambda: update(trainer, next(steps))


def alternate(calls: Sequence[Callable[[], object]], repeats: int) -> np.ndarray:
    """Seconds of each call, [calls, repeats], called in turn."""
    seconds = np.empty((len(calls), WARM + repeats))
    for repeat in tqdm(range(WARM + repeats), "repeats", leave=False, disable=None):
        for index, call in enumerate(calls):
            begun = time.perf_counter()
            call()
            if torch.accelerator.is_available():
                torch.accelerator.synchronize()
            seconds[index, repeat] = time.perf_counter() - begun
    return seconds[:, WARM:]


def compare(subjects: list[Subject], settings: Sequence[str], repeats: int) -> list[Row]:
    """A row each: the milliseconds of a step, and the ratio to the first one's, repeat by
    repeat.
    """
    seconds = alternate([step_of(subject, settings) for subject in subjects], repeats)
    rows = []
    for (model, precision, compiled), mine in zip(subjects, seconds, strict=True):
        row = {
            "model": model,
            "computed in": f"{precision}, compiled" if compiled else precision,
            "ms per step": spread(mine * 1e3),
            f"time / {subjects[0][0]}'s": spread(mine / seconds[0]),
        }
        rows.append(row)
    return rows


def spread(values: np.ndarray) -> str:
    return f"{np.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def difference(scheme: str, attention: str, precision: str, device: str) -> float:
    """The largest relative difference of a step's loss and gradient norm from the CPU's in
    float32.
    """
    settings = [*SMALL, f"position={scheme}", f"model.attention={attention}"]
    on_cpu = build(load(*settings, "device=cpu", "train.precision=float32"))
    on_device = build(load(*settings, device, f"train.precision={precision}"))
    expected, measured = update(on_cpu, 0)[:2], update(on_device, 0)[:2]
    return float(np.abs(np.divide(measured, expected) - 1).max())


def check_gpu(schemes: list[str], device: str) -> bool:
    """Take a step in every scheme, attention and precision; whether all have the CPU's numbers.

    device: as a setting, `device=cuda`
    """
    load(device)  # exits if there is no such device
    works = True
    for case in itertools.product(schemes, ("softmax", "linear"), ALLOWED):
        try:
            off = difference(*case, device)
            right = off <= ALLOWED[case[-1]]
            about = f"differs from the CPU's numbers by {off:.0e}"
        except ConfigError as error:  # of a scheme that needs scores
            right, about = True, str(error)
        except Exception as error:
            right = False
            about = f"{type(error).__name__}: {first_line(error)}"
        works &= right
        print("ok   " if right else "WRONG", *case, about)
    return works


@errors_as_exit()
def main(arguments: Words = None) -> None:
    parser = argument_parser("bench", __doc__)
    known = peers()["PEERS"]
    parser.add_argument(
        "words", nargs="*", metavar="MODEL|SETTING=VALUE", help=f"peers: {', '.join(known)}"
    )
    parser.add_argument("--precision", choices=ALLOWED, action="append", help="default: both")
    parser.add_argument("--compile", action="store_true", help="compiled models too")
    parser.add_argument("--repeats", type=int, default=9, help="steps of each (default: 9)")
    parser.add_argument(
        "--gpu", action="store_true", help="first check which schemes give a CPU's numbers on a GPU"
    )
    given = parser.parse_intermixed_args(arguments)
    if given.repeats < 1:
        parser.error("--repeats must be at least 1")
    models = [word for word in given.words if "=" not in word]
    settings = [word for word in given.words if "=" in word]
    devices = [word for word in settings if word.startswith("device=")]
    for word in settings:
        if word.startswith(("position=", "train.precision=", "train.compile=")):
            parser.error(f"{word}: write MODEL, --precision or --compile")
    others = [word for word in settings if word not in devices]
    shapes = {" ".join(others): others} if others else SHAPES
    works = True
    if given.gpu:
        devices = devices[-1:] or ["device=cuda"]
        schemes = [model for model in models if model not in known] or choices("position")
        works = check_gpu(schemes, devices[0])
    shapes = {name: [*shape, *devices] for name, shape in shapes.items()}
    installed = [name for name, (_, package) in known.items() if find_spec(package)]
    models = models or [*OURS, *installed]
    ways = list(itertools.product(given.precision or ALLOWED, sorted({False, given.compile})))
    # All models here share the functions that are compiled.
    torch._dynamo.config.recompile_limit = 64
    for name, shape in shapes.items():
        rows = []
        for way in ways:
            rows += compare([(model, *way) for model in models], shape, given.repeats)
        say_markdown(f"## {name}\n\n{markdown(Table(rows))}\n")
    sys.exit(not works)
